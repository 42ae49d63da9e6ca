"""What 10,000 clusters would cost on an autoscaled Spark cluster, on paper, from figures that were measured.

python -m benchmarks.estimate [--clusters 10000] [--partitions 7000] [--write]

`measured` of benchmarks/kept.json holds the figures, which `python -m benchmarks.shares --keep` renews. `--write` puts
the table between the marks of docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KEPT = Path(__file__).with_name("kept.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
MARKS = re.compile(r"(<!-- figures -->\n).*(<!-- end of figures -->)", re.DOTALL)
HOURS_A_YEAR = 8_760
VOTERS = 5
SMALL = 7_000
"""Partitions of the clusters that whole runs were measured with."""
STEPS = ("plan", "stage", "commit", "close", "findings", "risk")
SPREAD = ("stage", "risk")
"""Steps that Spark's executors share."""
RUN_SECONDS = 600.0
"""How long an hour's run may take, where the steps of the driver leave time for the others."""
NOOPS_AN_HOUR = 7_200
"""metadata.max.idle.interval.ms of Kafka is 500: an idle controller writes two NoOps a second."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What clouds ask, about: for reading the result in money, not measured."""

    core_hour: float = 0.05
    list_request: float = 5e-6
    stored_gb_month: float = 0.023
    list_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Fleet:
    """Whose costs are asked. Changes are those of one partition in an hour."""

    clusters: int
    partitions: int
    changes_an_hour: float = 0.1


def step_seconds(fleet: Fleet, measured: Mapping[str, float]) -> dict[str, float]:
    """Seconds of one core that each step takes for the whole fleet, of whole runs over clusters of SMALL partitions.

    Staging grows by what a partition more was measured to cost, the others are taken to grow with the partitions.
    """
    found = {step: measured[f"step_{step}_seconds"] * fleet.partitions / SMALL for step in STEPS}
    more = (fleet.partitions - SMALL) * measured["partition_seconds"]
    found["stage"] = max(0.0, measured["step_stage_seconds"] + more)
    return {step: fleet.clusters * seconds for step, seconds in found.items()}


def estimate(fleet: Fleet, measured: Mapping[str, float], prices: Prices) -> Iterator[tuple[str, str, str]]:
    """(what, figure, from what) of a first run and of each hour after it."""
    steps = step_seconds(fleet, measured)
    total = sum(steps.values())
    for step, took in steps.items():
        yield (
            f"first run, snapshot and one change a partition: `{step}`",
            f"{took / 3600:,.2f} core-hours",
            f"{1000 * took / fleet.clusters:,.1f} ms a cluster on one core",
        )
    yield "first run, all steps", f"{total / 3600:,.2f} core-hours", "the sum"
    # An hourly run replays from the newest snapshot: it costs no more than the first did, which wrote all its rows.
    yield (
        "each hour",
        f"{total / 3600:,.2f} core-hours, ${total / 3600 * prices.core_hour:,.2f}",
        f"at most the same: the replay begins at the newest snapshot; ${prices.core_hour} a core-hour",
    )
    alone = sum(took for step, took in steps.items() if step not in SPREAD)
    yield (
        "of that, steps that the driver takes",
        f"{alone / 60:,.1f} min of one core",
        f"all but {' and '.join(f'`{step}`' for step in SPREAD)}, which executors share",
    )
    efficiency = min(1.0, measured["efficiency"])
    left = max(RUN_SECONDS - alone, RUN_SECONDS / 10)
    cores = sum(steps[step] for step in SPREAD) / left / efficiency
    ends = (alone + left) / 60
    yield (
        f"cores for an hour's run in {ends:,.0f} minutes",
        f"{max(1.0, cores):,.0f}",
        f"{efficiency:.2f} of linear, as a whole run on two cores against one",
    )
    read, written = (
        fleet.clusters * measured[f"{what}_bytes"] * fleet.partitions / SMALL for what in ("read", "written")
    )
    yield (
        "bytes that processes read and write in a run",
        f"{read / 1e9:,.0f} GB, {written / 1e9:,.0f} GB",
        f"{measured['read_bytes'] / 1e6:,.1f} MB and {measured['written_bytes'] / 1e6:,.1f} MB a cluster,"
        " between processes and in temporary files too",
    )
    peaks = ", ".join(f"{kind} {measured[f'peak_{kind}_bytes'] / 1e6:,.0f} MB" for kind in ("driver", "java", "worker"))
    yield "memory of each process", peaks, "the peaks of a whole run of 40 clusters on two cores"
    records = fleet.clusters * (fleet.partitions * fleet.changes_an_hour + NOOPS_AN_HOUR) * HOURS_A_YEAR
    changed = fleet.clusters * fleet.partitions * fleet.changes_an_hour * HOURS_A_YEAR
    growth = changed * measured["lake_bytes_a_change"] + (records - changed) * measured["lake_bytes_a_noop"]
    yield (
        "the lake grows in a year by",
        f"{growth / 1e12:,.1f} TB, ${growth / 1e9 * prices.stored_gb_month:,.0f} a month",
        f"{measured['lake_bytes_a_change']:.0f} bytes a change, {measured['lake_bytes_a_noop']:.1f} a NoOp",
    )
    lists = fleet.clusters * VOTERS * measured["lists_a_voter"]
    yield (
        "listing an object store each hour",
        f"{lists:,.0f} requests, ${lists * prices.list_request:,.2f}; {lists * prices.list_seconds / 8 / 60:,.0f} min"
        f" with 8 threads, {lists * prices.list_seconds / 128 / 60:,.1f} with 128",
        f"{measured['lists_a_voter']:.0f} a voter of {1000 * prices.list_seconds:.0f} ms",
    )
    yield (
        "the driver plans",
        f"{fleet.clusters * measured['plan_seconds'] / 60:,.1f} min of one core,"
        f" {fleet.clusters * measured['plan_bytes'] / 1e6:,.0f} MB of plans",
        f"{1000 * measured['plan_seconds']:.1f} ms and {measured['plan_bytes']:,.0f} bytes a cluster",
    )
    tables, tasks = measured["tables_an_hour"], 3 * max(1.0, round(cores))
    yield (
        "files that runs write",
        f"{tables * tasks:,.0f} an hour, {24 * tables * tasks:,.0f} a day",
        f"three tasks a core, {tables:.0f} tables that get rows",
    )


def as_markdown(fleet: Fleet, measured: Mapping[str, float], prices: Prices) -> str:
    lines = [
        f"{fleet.clusters:,} clusters of {fleet.partitions:,} partitions and {VOTERS} voters, where a partition in"
        f" {1 / fleet.changes_an_hour:,.0f} changes each hour:",
        "",
        "| what | estimate | from |",
        "| --- | --- | --- |",
        *(f"| {what} | {figure} | {source} |" for what, figure, source in estimate(fleet, measured, prices)),
        "",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=7_000)
    parser.add_argument("--write", action="store_true", help="into docs/scale.md")
    given = parser.parse_args()
    measured = json.loads(KEPT.read_text(encoding="utf-8"))["measured"]
    table = as_markdown(Fleet(given.clusters, given.partitions), measured, Prices())
    if given.write:
        PAGE.write_text(MARKS.sub(lambda found: found[1] + table + found[2], PAGE.read_text(encoding="utf-8")), "utf-8")
    print(table, end="")


if __name__ == "__main__":
    main()
