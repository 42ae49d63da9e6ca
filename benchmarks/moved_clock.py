"""A clock that a benchmark sets: what a lake forgets after 7 or 30 days is then forgotten in a simulated year too.

Delta decides by the time of day which commits and files are old, in native code. A small library in front of the C
library's clock, compiled here, gives the whole process the same simulated time; files get it by `made_now`.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_VARIABLE = "MOVED_CLOCK"
_SECONDS = struct.Struct("=q")


def begin_again(module: str, arguments: Sequence[str]) -> None:
    """Runs a module in this process's place, with a clock that can be moved; returns where no C compiler is."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        print("no C compiler, so that all hours are of today: nothing of the lake grows old enough to be forgotten")
        return
    folder = ROOT / ".cache" / "moved-clock"
    folder.mkdir(parents=True, exist_ok=True)
    library, moved_by = folder / "moved_clock.so", folder / f"moved_by_seconds-{os.getpid()}"
    source = Path(__file__).with_name("moved_clock.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    moved_by.write_bytes(_SECONDS.pack(0))
    environment = {**os.environ, "LD_PRELOAD": str(library), FILE_VARIABLE: str(moved_by)}
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)  # noqa: S606


class MovedClock:
    """The clock of this process; without FILE_VARIABLE it stays where it is.

    It is only ever moved ahead: to wait until a time that the system knows as long past would be not to wait at all.
    `shared`: processes that this one starts later have the same clock.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._moved_by: mmap.mmap | None = None
        if path := os.environ.get(FILE_VARIABLE):
            with Path(path).open("r+b") as file:
                self._moved_by = mmap.mmap(file.fileno(), _SECONDS.size)
            if not shared:
                Path(path).unlink()  # what was mapped stays

    def set(self, now_seconds: float) -> None:
        """Makes it that time, since 1970, now."""
        if self._moved_by is not None:
            (moved_by,) = _SECONDS.unpack(self._moved_by[:])
            self._moved_by[:] = _SECONDS.pack(moved_by + max(0, round(now_seconds - time.time())))

    def made_now(self, folder: Path) -> None:
        """Gives files that were made since the last call the time that it is by this clock, not by the system's."""
        if self._moved_by is None:
            return
        (moved_by,) = _SECONDS.unpack(self._moved_by[:])
        now_seconds = time.time()
        for file in folder.rglob("*"):
            if file.is_file() and file.stat().st_mtime <= now_seconds - moved_by:
                os.utime(file, (now_seconds,) * 2)
