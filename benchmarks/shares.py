"""What the paper estimate needs of one cluster and one partition: python -m benchmarks.shares [--keep].

Clusters of two sizes staged in this process give a share a cluster and a share a partition; logs that grew by changes
and by NoOps give the bytes of lake of each. Whole runs of the command over few and many clusters give what a cluster
more costs in each step on one core, the bytes it reads and writes, the memory of each process, and what a second core
is good for. `--keep` puts them into benchmarks/kept.json, where `benchmarks.estimate` finds them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.estimate import KEPT, SMALL, STEPS, VOTERS
from benchmarks.figures import processor_seconds
from benchmarks.fleet import fleet_file, folder_bytes, make_fleet, measure, print_costs
from benchmarks.pipeline import stage
from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.plan import plan_to_json
from kraft_audit.pipeline.analysis import TABLES
from kraft_codec.storage.opener import open_storage
from kraft_engine.runs.fleet_logs import NO_OP
from kraft_engine.runs.fleet_topics import big_endian, sign

LARGE = 70_000
FEW, MANY = 5, 40
"""Clusters of the whole runs: their difference is free of what a run costs however many there are."""
NOOPS = 7_200
LISTS_A_VOTER = 4.0
"""The node dir and the log dir, once to see whether anything changed and once to plan it."""


def staged(folder: Path, name: str, logs: Path) -> tuple[float, int, int]:
    """(processor seconds, data files, bytes of lake) of one cluster, all tables."""
    nodes = [logs / "cluster-0" / f"node-{node}" for node in range(1, VOTERS + 1)]
    stage(nodes, folder / f"warm-{name}", TABLES)()
    seconds = processor_seconds(stage(nodes, folder / f"timed-{name}", TABLES))
    return seconds, *folder_bytes(folder / f"warm-{name}")


def add_noops(logs: Path, count: int) -> None:
    """Batches of one NoOp after every log of a fleet of one cluster, half a second apart."""
    paths = sorted(logs.glob("cluster-0/*/*/*.log"))
    last = paths[0].read_bytes()[-len(NO_OP) :]
    offset, time_ms = int.from_bytes(last[:8], "big") + 1, int.from_bytes(last[27:35], "big")
    rows = np.tile(NO_OP, (count, 1))
    rows[:, :8] = big_endian(offset + np.arange(count), ">i8")
    times = big_endian(time_ms + 500 * (1 + np.arange(count)), ">i8")
    rows[:, 27:35] = times
    rows[:, 35:43] = times
    sign(rows)
    for path in paths:
        with path.open("ab") as log:
            log.write(rows.tobytes())


def whole_runs(folder: Path, few: int, many: int) -> dict[str, float]:
    """What one cluster more costs a whole run, and what two cores are good for."""
    logs = folder / "whole"
    make_fleet(logs, many, SMALL, SMALL)
    measure(fleet_file(folder, "whole-warm", logs, 1), 2)
    runs = []
    for count, cores in ((few, 1), (many, 1), (many, 2)):
        runs.append(measure(fleet_file(folder, f"whole-{count}-on-{cores}", logs, count), cores))
        print_costs(f"{count} clusters of {SMALL:,} partitions on {cores} cores", runs[-1])
    small, on_one, on_two = runs
    more = many - few
    by_clock = {step: max(0.0, (on_one.steps[step] - small.steps[step]) / more) for step in STEPS}
    used = (on_one.usage.processor_seconds - small.usage.processor_seconds) / more
    found = {
        # On one core, what is not this run's own work is other people's: the clock only says how the steps share it.
        **{f"step_{step}_seconds": used * took / sum(by_clock.values()) for step, took in by_clock.items()},
        "efficiency": on_one.seconds / on_two.seconds / 2,
        "read_bytes": (on_one.usage.read_bytes - small.usage.read_bytes) / more,
        "written_bytes": (on_one.usage.written_bytes - small.usage.written_bytes) / more,
    }
    return found | {f"peak_{kind}_bytes": float(on_two.usage.peak_bytes(kind)) for kind in ("driver", "java", "worker")}


def shares(folder: Path) -> dict[str, float]:
    seconds, sizes = {}, {}
    for partitions in (SMALL, LARGE):
        make_fleet(folder / f"logs-{partitions}", 1, partitions, partitions)
        seconds[partitions], files, sizes[partitions] = staged(folder, str(partitions), folder / f"logs-{partitions}")
    make_fleet(folder / "changed", 1, SMALL, 10 * SMALL)
    _, _, changed = staged(folder, "changed", folder / "changed")
    make_fleet(folder / "idle", 1, SMALL, SMALL)
    add_noops(folder / "idle", NOOPS)
    _, _, idle = staged(folder, "idle", folder / "idle")
    nodes = [str(folder / "idle" / "cluster-0" / f"node-{node}") for node in range(1, VOTERS + 1)]
    started = time.process_time()
    for _ in range(10):
        plan = plan_cluster(nodes, open_storage=open_storage, captured_at_ms=0, name="cluster-0", number=1)
    plan_seconds = (time.process_time() - started) / 10
    a_partition = (seconds[LARGE] - seconds[SMALL]) / (LARGE - SMALL)
    a_cluster = max(0.0, seconds[SMALL] - SMALL * a_partition)
    return {
        "cluster_seconds": a_cluster,
        "partition_seconds": a_partition,
        "lake_bytes_a_change": (changed - sizes[SMALL]) / (9 * SMALL),
        "lake_bytes_a_noop": (idle - sizes[SMALL]) / NOOPS,
        "plan_seconds": plan_seconds,
        "plan_bytes": float(len(plan_to_json(plan))),
        "tables_an_hour": float(files),
        "lists_a_voter": LISTS_A_VOTER,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, nargs=2, default=(FEW, MANY), help="of the whole runs, ascending")
    parser.add_argument("--keep", action="store_true", help="keep them for the estimate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = shares(Path(scratch)) | whole_runs(Path(scratch), *given.clusters)
    for name, value in found.items():
        print(f"{name:26} {value:.6g}")
    if given.keep:
        stored = json.loads(KEPT.read_text(encoding="utf-8"))
        KEPT.write_text(json.dumps({**stored, "measured": found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
