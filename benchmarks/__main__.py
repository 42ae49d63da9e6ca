"""Every benchmark in turn: `make bench`. Each prints ratios of ours to a peer or floor, measured in one run."""

from __future__ import annotations

import subprocess
import sys

MODULES = {
    "decode": "decoding, against kafka-dump-log, two Python clients and the same kernels in C",
    "reading": "one cluster's bronze tables, in this process",
    "replay": "histories, findings and the state of a very large cluster",
    "pipeline": "plan, stage, commit, close, on local Spark",
    "engine": "events a second, every invariant checked",
}


def main() -> int:
    """Runs each in a process of its own, so that none measures what another left in memory; 1 where one failed."""
    failed = []
    for module, title in MODULES.items():
        print(f"== {module}: {title}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{module}"], check=False).returncode:
            failed.append(module)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
