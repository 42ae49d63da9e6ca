"""One large cluster read by two processors, of one: how much of the second is of use.

python -m benchmarks.one_cluster                  1 GB of log on five voters' disks: minutes
python -m benchmarks.one_cluster --gib 10         the size that the goal names: half an hour, 25 GB of disk
python -m benchmarks.one_cluster --spark          by tasks of Spark in place of processes of this machine

Both are the whole run, as it is typed, over the same log: changes of all partitions, and a few snapshots.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import yaml

from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.fleet import VOTERS, Measured, fleet_file, make_fleet, measure, print_costs, run_measured

PARTITIONS = 20_000
BYTES_A_CHANGE = 48
"""Of one disk's log, about."""
CHANGES_A_PAIR = 128
SNAPSHOTS = 4
"""As many as disks hold of a log that Kafka has not deleted yet."""


def run_by(file: Path, processors: int, *, by_spark: bool) -> Measured:
    """A run into a lake that is then deleted."""
    settings = yaml.safe_load(file.read_text())
    own = file.with_name(f"{processors}-{file.name}")
    own.write_text(yaml.safe_dump({**settings, "processors": processors}))
    run = measure(own, processors) if by_spark else run_measured(own, "--engine", "local", cores=processors)
    print_costs(f"{processors} processors", run)
    shutil.rmtree(settings["lake"])
    return run


def figures(folder: Path, gib: float, *, by_spark: bool) -> list[Figure | Skipped]:
    """The ratio of the goal: the time of one processor, of twice the time of two."""
    changes = round(gib * 2**30 / VOTERS / BYTES_A_CHANGE)
    pairs = max(1, changes // CHANGES_A_PAIR // SNAPSHOTS)
    log_bytes = make_fleet(folder / "logs", 1, PARTITIONS, changes, snapshot_pairs=pairs)
    file = fleet_file(folder, "one", folder / "logs", 1)
    alone, both = (run_by(file, processors, by_spark=by_spark) for processors in (1, 2))
    rows = "all tables, committed and merged"
    return [
        Figure(
            f"one cluster of {log_bytes / 1e9:.1f} GB by {'Spark' if by_spark else 'two processes'}: efficiency",
            alone.seconds / (2 * both.seconds),
            0.8,
            f"{both.seconds:.1f} s, {rows}",
            f"{alone.seconds:.1f} s",
        )
    ]


def main() -> None:
    """Prints the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_figures(figures(Path(folder), given.gib, by_spark=given.spark))


if __name__ == "__main__":
    main()
