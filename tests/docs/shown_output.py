"""Runs the examples of the documentation as a reader would, and prints again what the pages show of their output.

`python -m tests.docs.shown_output` names the pages whose shown output differs from what is printed today;
`--write [PAGE…]` renews it. A terminal of 120 columns is what the commands print to.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from itertools import chain, islice
from pathlib import Path
from typing import Final

from tests.builders.documented import Example, elided, examples, is_shown_as, titled, with_outputs

ROOT: Final = Path(__file__).resolve().parents[2]
READER_PAGES: Final = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(page for folder in ("start", "incident", "audit") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
)
"""The pages of the three users: every example runs in `make test`, and the page shows what it prints."""
OTHER_PAGES: Final = tuple(page for page in sorted((ROOT / "docs").rglob("*.md")) if page not in READER_PAGES)
COLUMNS: Final = 120
SECONDS_MAX: Final = 240.0
LINES_MAX: Final = 40
"""How much of a difference is told."""

_NETWORK: Final = "fetches packages"
_BUILDS: Final = "builds in the repository: tests/scripts/test_build_dist.py"
NOT_RUN: Final[Mapping[str, str]] = {
    "make dist": _BUILDS,
    "python3 dist/kraft-audit.pyz check incident.tgz": "tests/scripts/test_one_file_program.py runs it",
    'alias kraft-audit="python3 $PWD/dist/kraft-audit.pyz"': "changes the shell that reads it",
    "make demo": "reads and writes in the repository; its commands are those of this page",
    "make test": "would run itself",
    "make explore": "takes an hour; tests/kraft_engine/models explores small bounds",
    "pip install dist/kraft_audit-*-manylinux*.whl": _NETWORK,
    'pip install "$(echo dist/kraft_audit-*-manylinux*.whl)[lake]"': _NETWORK,
    'pip install "$(echo dist/kraft_audit-*-manylinux*.whl)" pytest': _NETWORK,
}
"""The commands of console blocks that no test of the pages runs, as they are printed, and why."""
PYTHON_PAGES: Final = READER_PAGES
"""The Python of other pages has tests of its own, which know what it needs."""
WITH_SPARK: Final = "spark.read"
"""What each Python block has that needs a Spark session; a test with one runs it."""
LAKE_OF: Final = {
    "docs/audit/no-loss.md": ("elr",),
    "docs/incident/lost-majority.md": ("divergence",),
    "docs/incident/what-happened.md": ("elr",),
}
"""Clusters of conf/fleet.yaml in .demo/lake, for pages that start from a lake that is there."""
LOG_DIR_OF: Final = "elr-06-kill-13-last-replica.tgz"
"""The sample whose controller has the reader's own log dir, $LOG_DIR."""

_TIME: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?"
_MASKS: Final = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b[0-9a-f]{64}\b", "SHA256"),
        (r": [0-9.a-z ]+ old\b", ": AGE old"),
        (rf"\bread {_TIME} to {_TIME}", "read TIME to TIME"),
        (rf"\(lake, {_TIME} UTC\)", "(lake, TIME)"),
        (rf"\bRescued at {_TIME}", "Rescued at TIME"),
        (r"\bdirectory id [\w-]{22}", "directory id ID"),
    )
)
"""What differs from run to run: hashes of what holds a time, ages of copies, when disks were read, random ids."""
_MASKS_OF: Final = {
    "kraft-audit run ": ((re.compile(r"\b(?:\d+ min )?\d+(?:\.\d+)? (?:s|min)\b"), "DURATION"),),
    "kraft-audit lake tables ": ((re.compile(r"[\d,]+ bytes"), "BYTES"),),
    "kraft-audit report ": ((re.compile(r"[\d,]+ bytes"), "BYTES"),),
}
"""What more differs in the output of a command. Other commands print sizes and times of the log, which are compared."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an example ended."""

    example: Example
    exit_code: int
    output: tuple[str, ...]
    errors: str
    is_compared: bool = False
    """Whether the page has to show what it prints, or the beginning of it."""

    def problem(self) -> str:
        """What differs from what the page says; empty where nothing does."""
        if self.exit_code != self.example.exit_code:
            return f"exit code {self.exit_code}, not {self.example.exit_code}\n{self.errors}"
        if self.example.code.startswith("kraft-audit") and not self.output:
            return f"it printed nothing\n{self.errors}"
        if self.is_compared and not self.example.output and self.output:
            return "\n".join(("it prints this, and the page shows nothing of it", *self.output[:LINES_MAX]))
        if self.example.output and not is_shown_as(self._masked(self.example.output), self._masked(self.output)):
            changes = unified_diff(self.example.output, self.output, "the page", "printed", n=0, lineterm="")
            return "\n".join([*islice(changes, LINES_MAX), "To renew it: python -m tests.docs.shown_output --write"])
        return ""

    def _masked(self, lines: tuple[str, ...]) -> list[str]:
        of_command = (masks for start, masks in _MASKS_OF.items() if self.example.code.startswith(start))
        text = "\n".join(lines)
        for pattern, mask in chain(_MASKS, *of_command):
            text = pattern.sub(mask, text)
        return text.splitlines()


def runs_here(example: Example, page: Path) -> bool:
    """Whether the pages' tests run it: not what NOT_RUN has, nor Python that needs Spark or has a test of its own."""
    if example.language == "python":
        return page in PYTHON_PAGES and WITH_SPARK not in example.code
    return _without_comment(example.code) not in NOT_RUN


def run_examples(page: Path, folder: Path) -> list[Ended | None]:
    """Runs a page's examples in a folder that looks like a fresh clone to them; None for one that is not run here."""
    environment = _prepare(page, folder)
    ended: list[Ended | None] = []
    for example in examples(page.read_text(encoding="utf-8")):
        if not runs_here(example, page):
            ended.append(None)
            continue
        code = example.code if example.language == "console" else f"python -c {shlex.quote(example.code)}"
        exit_code, output, errors = run_in_terminal(code, folder, environment)
        lines = output.replace(str(folder), "…/kraft-audit").rstrip("\n").splitlines()
        printed = tuple(line.rstrip() for line in lines)
        ended.append(Ended(example, exit_code, printed, errors[-2000:], page in READER_PAGES))
    return ended


def run_in_terminal(code: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """(exit code, standard output as a terminal of COLUMNS gets it, standard error, which is no terminal)."""
    reading, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (50, COLUMNS))
    command = ["bash", "-o", "pipefail", "-c", code]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=terminal, stderr=errors
        )
        os.close(terminal)
        limit = threading.Timer(SECONDS_MAX, process.kill)
        limit.start()
        printed = bytearray()
        try:
            while block := os.read(reading, 65_536):
                printed += block
        except OSError:  # Linux says EIO when the last writer closed the terminal
            pass
        exit_code = process.wait()
        limit.cancel()
        os.close(reading)
        errors.seek(0)
        return exit_code, printed.decode().replace("\r\n", "\n"), errors.read().decode()


def renewed(page: Path, ended: list[Ended | None]) -> str:
    """The page's text with what its examples print now, as far as it shows their output."""
    text = page.read_text(encoding="utf-8")
    pairs = zip(examples(text), ended, strict=True)
    # Output that matches stays as it is, so that hashes and times do not change for nothing.
    return with_outputs(
        text,
        (
            example.output if end is None or not end.problem() else elided(end.output, example.output)
            for example, end in pairs
        ),
    )


def _prepare(page: Path, folder: Path) -> dict[str, str]:
    """Lays out the folder; returns the environment of its commands."""
    for name in ("samples", "jobs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "conf", folder / "conf")  # no link: paths in fleet.yaml start at its folder
    for name, text in titled(page).items():
        (folder / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KRAFT_AUDIT_")}
    environment = {
        **inherited,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "LOG_DIR": str(_log_dir(folder.with_name(f"{folder.name}-disk"))),
    }
    for name in LAKE_OF.get(str(page.relative_to(ROOT)), ()):
        made = ["kraft-audit", "run", "conf/fleet.yaml", "--cluster", name]
        subprocess.run(made, cwd=folder, env=environment, check=True, capture_output=True, timeout=SECONDS_MAX)
    return environment


def _log_dir(folder: Path) -> Path:
    """The log dir of the one controller of LOG_DIR_OF; its brokers hold copies of the log, too."""
    with tarfile.open(ROOT / "samples" / LOG_DIR_OF) as archive:
        archive.extractall(folder, filter="data")  # our own sample
    (metadata,) = folder.rglob("node-1/__cluster_metadata-0")
    return metadata.parent


def _without_comment(code: str) -> str:
    return re.sub(r"\s+# .*", "", code)


def main(arguments: list[str]) -> int:
    """Returns how many pages show something else than is printed, after writing them with `--write`."""
    named = [Path(argument).resolve() for argument in arguments if argument != "--write"]
    different = 0
    for page in named or (*READER_PAGES, *OTHER_PAGES):
        with tempfile.TemporaryDirectory() as above:
            folder = Path(above, "clone")
            folder.mkdir()
            ended = run_examples(page, folder)
        problems = [f"$ {end.example.code}\n{problem}" for end in ended if end and (problem := end.problem())]
        different += bool(problems)
        if problems:
            sys.stderr.write("\n\n".join((str(page.relative_to(ROOT)), *problems)) + "\n\n")
        if problems and "--write" in arguments:
            page.write_text(renewed(page, ended), encoding="utf-8")
    return 0 if "--write" in arguments else min(different, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
