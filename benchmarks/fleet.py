"""A fleet through the whole pipeline, all tables and steps, by the command that users run.

python -m benchmarks.fleet            30 clusters of 7,000 partitions, five voters: minutes, 1 GB of disk
python -m benchmarks.fleet --full     100 clusters of 70,000 partitions, the largest published fleet: 25 GB of disk
python -m benchmarks.fleet --full --only curve --changes 10      the same with ten changes of each partition

Each cluster has a snapshot of its partitions and one change of each after it, on all voters' disks. Runs of one and
two cores are bound to that many processors. Processor time is that of all processes; what a session of Spark costs to
start is left out of what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.figures import Figure, Skipped, paired, print_figures
from benchmarks.pipeline import stage
from benchmarks.processes import COMMAND, Usage, used_by
from kraft_audit.pipeline.analysis import TABLES
from kraft_engine.runs.fleet_logs import simulate_fleet

VOTERS = 5
WORKER_BYTES = 512 << 20
ASKED_PARTITIONS = 7_000_000
ASKED_SECONDS = 600.0
ASKED_SECONDS_OF_TEN = 900.0
"""Where each partition changes ten times."""
CAPTURED_AT = 1_700_000_000.5
"""Not now: a file that changed a moment ago is read again, as it may still be changing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the command: what it used, and its own summary."""

    usage: Usage
    summary: dict[str, Any]

    @property
    def steps(self) -> dict[str, float]:
        return dict(self.summary["seconds"])

    @property
    def seconds(self) -> float:
        """By the clock, without the start of Spark's session."""
        return self.usage.seconds - self.steps.get("session", 0.0)


def make_fleet(folder: Path, clusters: int, partitions: int, changes: int, *, snapshot_pairs: int = 3_500) -> int:
    """Writes a fleet that was captured a while ago; its bytes of log."""
    made = simulate_fleet(
        folder, clusters=clusters, partitions=partitions, changes=changes, voters=VOTERS, is_aged=True,
        snapshot_pairs=snapshot_pairs,
    )  # fmt: skip
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (CAPTURED_AT, CAPTURED_AT))
    return made.log_bytes


def fleet_file(folder: Path, name: str, logs: Path, clusters: int, voters: int = VOTERS) -> Path:
    """A fleet.yaml of the first clusters and voters, with a lake of its own."""
    file = folder / f"{name}.yaml"
    described = [
        {
            "name": f"cluster-{number}",
            "paths": [str(logs / f"cluster-{number}" / f"node-{node}") for node in range(1, voters + 1)],
        }
        for number in range(clusters)
    ]
    key = str(folder / f"{name}.key")
    file.write_text(
        yaml.safe_dump({"lake": str(folder / f"lake-{name}"), "redaction_key_file": key, "clusters": described})
    )
    return file


def measure(file: Path, cores: int) -> Measured:
    """One run, as a user starts it. Raises CalledProcessError."""
    conf = file.with_suffix(f".{cores}.conf")
    conf.write_text(f"spark.master local[{cores}]\n")
    return run_measured(file, "--spark-conf", str(conf), cores=cores)


def run_measured(file: Path, *options: str, cores: int = 2) -> Measured:
    """One run with these options, on so many processors. Raises CalledProcessError."""
    command = [*COMMAND, "run", str(file), *options, "--output", "json"]
    usage = used_by(command, processors=set(sorted(os.sched_getaffinity(0))[:cores]))
    summary = json.loads(usage.output)
    assert not summary["failed"], summary["failed"]
    return Measured(usage, summary)


def print_costs(what: str, run: Measured) -> None:
    """A run's costs, for people."""
    usage = run.usage
    steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in run.steps.items())
    peaks = ", ".join(f"{kind} {usage.peak_bytes(kind) / 1e6:,.0f}" for kind in ("driver", "java", "worker"))
    print(f"{what}: {usage.seconds:.1f} s, {usage.processor_seconds:.1f} s of processor; steps: {steps} s")
    print(f"    peak MB: {peaks}; read {usage.read_bytes / 1e6:,.0f} MB, written {usage.written_bytes / 1e6:,.0f} MB")


def folder_bytes(folder: Path) -> tuple[int, int]:
    """(files, bytes) of the data files below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    return len(sizes), sum(sizes)


def fleet_figures(folder: Path, clusters: Sequence[int], partitions: int, changes: int) -> list[Figure | Skipped]:
    """The whole run, the curve by clusters, memory, cores; `changes` of each partition."""
    logs = folder / "logs"
    few, medium, many = clusters
    size = make_fleet(logs, many, partitions, changes * partitions)
    each = "one change" if changes == 1 else f"{changes} changes"
    print(f"{many} clusters of {partitions:,} partitions, {each} of each: {size / 1e9:.2f} GB of log")
    measure(fleet_file(folder, "warm", logs, few), 2)  # kernels are compiled once, and that is measured elsewhere
    runs = {}
    for count in clusters:
        runs[count] = measure(fleet_file(folder, f"of-{count}", logs, count), 2)
        print_costs(f"{count} clusters of {partitions:,} partitions, {VOTERS} voters", runs[count])
    whole = runs[many]
    files, size = folder_bytes(folder / f"lake-of-{many}")
    print(f"    lake: {files} data files, {size / 1e6:,.0f} MB")
    on_one = measure(fleet_file(folder, "on-one", logs, many), 1)
    print_costs(f"{many} clusters on one core", on_one)
    first = (runs[medium].usage.processor_seconds - runs[few].usage.processor_seconds) / (medium - few)
    last = (whole.usage.processor_seconds - runs[medium].usage.processor_seconds) / (many - medium)
    rate = many * partitions / whole.seconds
    peak = whole.usage.peak_bytes("worker")
    asked_seconds = ASKED_SECONDS if changes == 1 else ASKED_SECONDS_OF_TEN
    return [
        Figure(
            f"fleet: {many * partitions:,} partitions, {each} of each, through all steps",
            rate / (ASKED_PARTITIONS / asked_seconds), 1,
            f"{whole.seconds:.1f} s, {rate:,.0f} partitions/s", f"7,000,000 in {asked_seconds / 60:.0f} min",
        ),
        Figure(
            "fleet: the whole run on two cores, of twice one core", on_one.seconds / whole.seconds / 2, 0.85,
            f"{whole.seconds:.1f} s", f"{on_one.seconds:.1f} s on one",
        ),
        Figure(
            f"fleet: a cluster more, {few} to {medium} against {medium} to {many}", first / max(last, 1e-9), 1 / 1.15,
            f"{last:.2f} s of processor", f"{first:.2f} s",
        ),
        Figure(
            "fleet: staging on two cores, of twice one core", on_one.steps["stage"] / whole.steps["stage"] / 2, 0.85,
            f"{whole.steps['stage']:.1f} s", f"{on_one.steps['stage']:.1f} s on one",
        ),
        Figure("fleet: 512 MiB against a worker's peak", WORKER_BYTES / peak, 1, f"{peak / 1e6:.0f} MB", "512 MiB"),
    ]  # fmt: skip


def replicas_figure(folder: Path, partitions: int, pairs: int) -> Figure:
    """All tables of one cluster by five voters' disks, and by one's, in this process."""
    logs = folder / "replicas"
    make_fleet(logs, 1, partitions, partitions)
    works = {}
    for voters in (VOTERS, 1):
        nodes = [logs / "cluster-0" / f"node-{node}" for node in range(1, voters + 1)]
        works[voters] = stage(nodes, folder / f"lake-replicas-{voters}", TABLES)
    ratio, ours, peer = paired(works[VOTERS], works[1], pairs)
    return Figure("fleet: five replicas against one", ratio, 1 / 1.3, f"{ours:.2f} s for five", f"{peer:.2f} s for one")


def incremental_figures(folder: Path, clusters: int, log_mib: int) -> list[Figure | Skipped]:
    """Nothing new, and 1 % more in every log, against the first run over logs with snapshots as Kafka makes them."""
    logs = folder / "growing"
    pairs = (log_mib << 20) // 6_200  # bytes of a pair of batches and its NoOp
    every = max(1, min(3_500, pairs // 5))
    size = make_fleet(logs, clusters, 2_000, 128 * pairs, snapshot_pairs=every)
    file = fleet_file(folder, "growing", logs, clusters)
    full = measure(file, 2)
    print_costs(f"{clusters} clusters, {size / 1e9:.2f} GB of log", full)
    same = measure(file, 2)
    print_costs("again, unchanged", same)
    shutil.rmtree(logs)  # the same fleet, grown, takes its place
    make_fleet(logs, clusters, 2_000, 128 * (pairs + max(1, pairs // 100)), snapshot_pairs=every)
    more = measure(file, 2)
    print_costs("again, 1 % more in every log", more)
    return [
        Figure(
            f"incremental: unchanged, of a full run of {size / 1e9:.2f} GB", full.seconds / same.seconds, 1 / 0.03,
            f"{same.seconds:.2f} s", f"{full.seconds:.1f} s",
        ),
        Figure(
            f"incremental: 1 % new, of a full run of {size / 1e9:.2f} GB", full.seconds / more.seconds, 1 / 0.05,
            f"{more.seconds:.2f} s", f"{full.seconds:.1f} s",
        ),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes that the goals name")
    parser.add_argument("--clusters", type=int, nargs=3, metavar="N", help="the curve (1 10 30; full: 1 10 100)")
    parser.add_argument("--partitions", type=int, help="of each cluster (7,000; full: 70,000)")
    parser.add_argument("--changes", type=int, default=1, help="of each partition, in the curve")
    parser.add_argument(
        "--log-mib", type=int, help="of each of the growing logs (24; full: 104, of 20 clusters: 10 GB)"
    )
    parser.add_argument("--only", choices=("curve", "replicas", "incremental"), help="one part")
    parser.add_argument("--folder", type=Path, help="where the logs and lakes go (a temporary folder)")
    given = parser.parse_args()
    partitions = given.partitions or (70_000 if given.full else 7_000)
    clusters = given.clusters or ([1, 10, 100] if given.full else [1, 10, 30])
    log_mib = given.log_mib or (104 if given.full else 24)
    figures: list[Figure | Skipped] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        if given.only in (None, "replicas"):
            figures.append(replicas_figure(Path(scratch), partitions, 5))
        if given.only in (None, "incremental"):
            figures += incremental_figures(Path(scratch), 20 if given.full else 2, log_mib)
        if given.only in (None, "curve"):
            figures += fleet_figures(Path(scratch), clusters, partitions, given.changes)
    print_figures(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
