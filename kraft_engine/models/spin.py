"""Runs the Promela models under spin: a second opinion that shares no code with the engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "promela"
NEEDED = ("spin", "gcc")
MEMORY_MB = 3_000


@dataclass(frozen=True, slots=True)
class Checked:
    """What spin found: `broken` is the assertion that does not hold, "" where all do; `complete` as spin says."""

    model: str
    defines: tuple[str, ...]
    states: int
    seconds: float
    complete: bool
    broken: str

    def text(self) -> str:
        end = f"BROKEN {self.broken}" if self.broken else "complete" if self.complete else "NOT complete"
        rate = int(self.states / self.seconds) if self.seconds else self.states
        settings = f" ({', '.join(self.defines)})" if self.defines else ""
        return f"spin {self.model}{settings}: {end}: {self.states} states, {self.seconds:.0f} s, {rate} states/s"


def missing() -> list[str]:
    """The programs that are needed and are not here (Debian: `apt-get install spin gcc`)."""
    return [name for name in NEEDED if shutil.which(name) is None]


def check(
    model: str, defines: Sequence[str], folder: Path, *, seconds: int = 600, breadth_first: bool = False
) -> Checked:
    """Checks `<model>.pml` with these definitions, such as `N=4`; what spin makes goes to `folder`.

    Raises subprocess.CalledProcessError where the model does not build.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{model}.pml"
    shutil.copy(FOLDER / source.name, source)
    _run(["spin", "-a", *(f"-D{define}" for define in defines), source.name], folder)
    options = ["-DBFS"] if breadth_first else []
    _run(
        ["gcc", "-w", "-O2", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}", *options, "-o", "pan", "pan.c"], folder
    )
    command = ["timeout", f"{seconds}s", "./pan", "-m2000000", "-w22"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    text = ended.stdout
    broken = re.search(r"assertion violated (.*) \(at depth", text)
    states = re.search(r"(\d+) states, stored", text)
    elapsed = re.search(r"elapsed time ([\d.]+) seconds", text)
    whole = states is not None and "max search depth too small" not in text and "Interrupted" not in text
    return Checked(
        model,
        tuple(defines),
        int(states[1]) if states else 0,
        float(elapsed[1]) if elapsed else float(seconds),
        whole and broken is None and "out of memory" not in text,
        broken[1] if broken else "",
    )


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603 - a fixed list
