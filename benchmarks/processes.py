"""What a command and everything that it starts use: time, processor time, memory, bytes read and written.

Sampled from Linux's /proc, as Spark's processes are not waited for by who started them. A process that lives for less
than SAMPLE_SECONDS may be missed, and what one does after its last sample is not counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = (sys.executable, "-c", "import sys; from kraft_audit.commands.cli import main; sys.exit(main())")
"""`kraft-audit` of this checkout."""
SAMPLE_SECONDS = 0.2
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """The last that was seen of one process. Bytes are those of system calls, from the page cache too."""

    kind: str
    processor_seconds: float
    peak_bytes: int
    read_bytes: int
    written_bytes: int


@dataclass(slots=True)
class Usage:
    """What a command used; `processes` by process id."""

    output: str = ""
    seconds: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)

    @property
    def processor_seconds(self) -> float:
        return sum(process.processor_seconds for process in self.processes.values())

    @property
    def read_bytes(self) -> int:
        return sum(process.read_bytes for process in self.processes.values())

    @property
    def written_bytes(self) -> int:
        return sum(process.written_bytes for process in self.processes.values())

    def peak_bytes(self, kind: str) -> int:
        """The most that one process of the kind ever held; 0 where there was none."""
        return max((process.peak_bytes for process in self.processes.values() if process.kind == kind), default=0)


def used_by(command: Sequence[str], *, processors: Set[int] | None = None) -> Usage:
    """Runs a command to its end, on these processors alone. Raises CalledProcessError where it fails."""
    mine = os.sched_getaffinity(0)
    usage = Usage()
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        os.sched_setaffinity(0, processors or mine)
        try:
            running = subprocess.Popen(command, stdout=output, stderr=errors)
        finally:
            os.sched_setaffinity(0, mine)
        while running.poll() is None:
            _sample(running.pid, usage)
            time.sleep(SAMPLE_SECONDS)
        usage.seconds = time.perf_counter() - started
        output.seek(0)
        errors.seek(0)
        usage.output = output.read()
        if running.returncode:
            raise subprocess.CalledProcessError(running.returncode, list(command), usage.output, errors.read()[-4000:])
    return usage


def _sample(root: int, usage: Usage) -> None:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    waiting = [root]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        seen = _process(Path("/proc") / str(number))
        if seen is not None:
            usage.processes[number] = seen


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None  # it has ended


def _process(folder: Path) -> Process | None:
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        io = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if "VmHWM" not in status:
        return None  # ended, and not yet waited for
    peak_bytes = int(status["VmHWM"].split()[0]) * 1024
    seconds = (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND
    return Process(_kind(command), seconds, peak_bytes, int(io["rchar"]), int(io["wchar"]))


def _kind(command: str) -> str:
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return "worker"
    program = Path(command.split(" ", 1)[0]).name
    return "java" if program == "java" else "driver" if program.startswith("python") else program
