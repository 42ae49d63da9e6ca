"""atheris mutates what a parser's branches answer to.

`python -m tests.fuzz.guided PARSER SECONDS [SEED [CORPUS [MEMORY_MIB]]]` keeps inputs that reached something new in the
folder CORPUS. Ends with 77 and the input in `crash-…` there where the parser did what none may; libFuzzer's last lines
say how many inputs were run and how many edges were seen.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kraft_codec", "kraft_audit"]):
    from tests.fuzz.parsers import BYTES_MAX, PARSERS, kept_inputs


def main(arguments: list[str]) -> None:
    name, seconds, *rest = arguments
    seed = rest[0] if rest else "1"
    folder = Path(rest[1]) if len(rest) > 1 else Path(tempfile.mkdtemp(prefix="kraft-audit-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    parser = PARSERS[name]
    for number, data in enumerate([*parser.seeds(), *kept_inputs(name)]):
        (folder / f"seed-{number}").write_bytes(data[:BYTES_MAX])
    memory_mib = rest[2] if len(rest) > 2 else "1500"
    limits = [f"-max_total_time={seconds}", f"-max_len={BYTES_MAX}", "-timeout=20", f"-rss_limit_mb={memory_mib}"]
    options = [*limits, f"-seed={seed}", f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *options, str(folder)], parser.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
