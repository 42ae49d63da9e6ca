"""What a log costs as it grows from 1 to 10 to 100 times: python -m benchmarks.growth [--mib 2] [--times 1 10 100].

Everything that a worker does with a cluster is in it: all tables decoded, replayed and judged, and written in data
files. Each size is staged in a process of its own, which staged the smallest log before, so that what happens once is
in none of the times; its peak counts whole. Logs are of two kinds: one of ever the same partitions, and one in which
every fifth record is a new partition of a new topic, with findings for each.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import Figure, print_figures, processor_seconds
from benchmarks.pipeline import stage, write_nodes
from benchmarks.synthetic_log import synthetic_log
from kraft_audit.pipeline.analysis import TABLES
from kraft_engine.runs.fleet_logs import simulate_fleet

LEAST_OF_LINEAR = 1 / 1.15
SIMULATED_CHANGE_BYTES = 46


def write_lasting(folder: Path, mib: int) -> Path:
    """A log of ever the same partitions."""
    changes = (mib << 20) // SIMULATED_CHANGE_BYTES
    simulate_fleet(folder, clusters=1, partitions=2_000, changes=changes, replicas=1)
    return folder / "cluster-0"


def write_growing(folder: Path, mib: int) -> Path:
    """A log of ever new partitions."""
    return write_nodes(folder, synthetic_log(mib << 20, connected=True), 1)


def log_bytes(nodes: Path) -> int:
    return sum(path.stat().st_size for path in nodes.rglob("*.log"))


def measured(nodes: Path, first: Path) -> tuple[float, int]:
    """(processor seconds, peak bytes) of staging in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--stage", str(first), str(nodes)]
    took, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(took), int(peak)


def stage_here(first: Path, nodes: Path) -> tuple[float, int]:
    """Linux's high-water mark is of this program; getrusage's would count the parent before the exec too."""
    with tempfile.TemporaryDirectory() as lake:
        stage(first, Path(lake) / "first", TABLES)()
        took = processor_seconds(stage(nodes, Path(lake) / "timed", TABLES))
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return took, int(peak) * 1024


def figures(kind: str, folder: Path, write: Callable[[Path, int], Path], mibs: Sequence[int]) -> list[Figure]:
    """Time of a byte and of a byte more, of one kind of log; prints the memory."""
    logs = [write(folder / f"{kind}-{mib}", mib) for mib in mibs]
    sizes = [log_bytes(log) for log in logs]
    took, peaks = zip(*(measured(log, logs[0]) for log in logs), strict=True)
    for size, seconds, peak in zip(sizes, took, peaks, strict=True):
        print(f"   {kind}: {size / 1e6:.1f} MB, {seconds:.2f} s of processor, peak {peak / 1e6:.0f} MB")
    a_byte = [1e9 * seconds / size for seconds, size in zip(took, sizes, strict=True)]
    more = [1e9 * (took[n + 1] - took[n]) / (sizes[n + 1] - sizes[n]) for n in (0, 1)]
    middle, most = mibs[1] // mibs[0], mibs[2] // mibs[0]
    return [
        Figure(
            f"{kind}: a byte of {most} times the log", a_byte[0] / a_byte[2], LEAST_OF_LINEAR,
            f"{a_byte[2]:.1f} ns", f"{a_byte[0]:.1f} ns",
        ),
        Figure(
            f"{kind}: a byte more, of 1 to {middle} times against of {middle} to {most}", more[0] / more[1],
            LEAST_OF_LINEAR, f"{more[1]:.1f} ns", f"{more[0]:.1f} ns",
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2, help="of the smallest log")
    parser.add_argument("--times", type=int, nargs=3, default=(1, 10, 100), help="how many times as large, ascending")
    parser.add_argument("--stage", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage is not None:
        print(json.dumps(stage_here(*given.stage)))
        return
    mibs = [times * given.mib for times in given.times]
    with tempfile.TemporaryDirectory() as scratch:
        found = figures("the same partitions", Path(scratch), write_lasting, mibs)
        found += figures("new partitions", Path(scratch), write_growing, mibs)
    print_figures(found)


if __name__ == "__main__":
    main()
