"""Silver rows that each hour adds, replayed from a snapshot: the rows that a replay from the earliest record gives.

The disks are those of simulated clusters, hour by hour: voters that lag or stand still, so that what is committed lies
before the log's end or at it, open transactions, parted logs, snapshots and deleted segments.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.silver_rows import silver
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.hourly_disks import HourlyDisks, PlannedLake, dialect_of, position_of
from tests.builders.memory_lake import KEY

RUNS: Final = (
    ("random", 3, False, 0.2),
    ("random-wide", 1, True, 0.2),
    ("random-wide", 3, False, 0.6),
    ("random-beyond", 5, True, 0.2),
    ("random-kip856", 4, False, 0.5),
    ("random-kip642", 5, True, 0.2),
)
"""Kind of run, seed, whether segments are deleted, and how many of the disks stand still in an hour.

No snapshot names the active controller, whose node's own min.insync.replicas applies: here that makes no difference.
"""
ROW_OF_START: Final = ("started_at", "log_start_offset", "snapshot", "is_complete", "began_at", "gap_from_offset")
"""The columns of `replays` that differ with where the replay began; a gap may follow the snapshot directly."""
Rows = dict[str, list[dict[str, Any]]]


class FromTheEarliest:
    """A fold that only makes the replay begin with the earliest record."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class SilverHours:
    """A lake whose silver tables are filled hour by hour."""

    def __init__(self, reading: Any, disks: HourlyDisks) -> None:
        self.disks = disks
        self.lake = PlannedLake(reading, dialect_of(disks.kind))
        self.position: SilverPosition | None = None
        self.from_snapshots = self.row_count = 0

    def pass_hour(self) -> None:
        plan = self.lake.next_plan(self.disks.root)
        if plan is None:
            return
        plan = replace(plan, silver=self.position)
        settings = ReadingSettings(open_storage, Redactor(KEY), clock_ms=lambda: 1, known=self.lake)
        with ClusterReading(plan, settings, keeps_records=False) as bronze:
            rows: Rows = {}
            for name, batch in bronze.bronze():
                rows.setdefault(name, []).extend(batch.to_pylist())
        with ClusterReading(plan.whole(), replace(settings, known=None)) as whole:
            expected = rows_of(plan, whole, fold=FromTheEarliest())
            found = rows_of(plan, whole)
        assert comparable(found) == comparable(expected)
        self.from_snapshots += found["replays"][0]["started_at"] > expected["replays"][0]["started_at"]
        self.row_count += sum(map(len, found.values()))
        self.lake.take(rows)
        self.position = position_of(expected)


def rows_of(plan: ClusterPlan, reading: ClusterReading, **more: Any) -> Rows:
    found: Rows = {}
    for name, batch in silver(plan, reading, **more):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def comparable(rows: Rows) -> Rows:
    """Rows in a fixed order, without where the replay began.

    A replay from a snapshot has the partitions of one event in the snapshot's order.
    """
    found = {name: sorted(own, key=lambda row: json.dumps(row, default=str)) for name, own in rows.items() if own}
    replays = [{name: value for name, value in row.items() if name not in ROW_OF_START} for row in rows["replays"]]
    return {**found, "replays": replays}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed", "deletes", "stands_still"), RUNS)
def test_rows_from_a_snapshot_are_those_from_the_earliest_record(
    reading: Any, kind: str, seed: int, deletes: bool, stands_still: float, tmp_path: Path
) -> None:
    hours = SilverHours(reading, HourlyDisks(kind, seed, tmp_path / "disks"))
    for number in range(2 * len(hours.disks.captures)):
        share = 0.7 if number % 2 == 0 else 1.0
        hours.disks.pass_hour(number // 2, share=share, deletes=deletes, stands_still=stands_still)
        hours.pass_hour()
    assert hours.from_snapshots > 0
    assert hours.row_count > 0
