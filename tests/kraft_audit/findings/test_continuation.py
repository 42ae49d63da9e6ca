"""An hourly run that goes on from what was kept gives the rows of one that reads every log from its start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.pipeline.analysis import Continuation, analyze
from kraft_audit.reading import BRONZE_TABLES, ReadingSettings
from kraft_audit.replay.silver_rows import SILVER_TABLES
from kraft_codec.records.redaction import Redactor
from tests.builders.hourly_disks import CountedBytes, HourlyDisks, PlannedLake, continued, dialect_of, position_of
from tests.builders.memory_lake import KEY

Rows = dict[str, list[dict[str, Any]]]
WHERE_IT_BEGAN: Final = ("started_at", "log_start_offset", "snapshot", "is_complete", "began_at")
RUNS: Final = (("random", 2), ("random-wide", 2), ("random-kip856", 3))


class Hourly:
    """One cluster, hour by hour: each plan once from what was kept, and once without."""

    def __init__(self, reading: Any, disks: HourlyDisks) -> None:
        self.disks = disks
        self.lake = PlannedLake(reading, dialect_of(disks.kind))
        self.position: SilverPosition | None = None
        self.state: bytes | None = None
        self.short_values: dict[str, list[str]] = {}
        self.whys: list[str | None] = []
        self.bytes_read: list[tuple[int, int]] = []

    def pass_hour(self) -> None:
        plan = self.lake.next_plan(self.disks.root)
        if plan is None:
            return
        plan = replace(plan, silver=self.position)
        continuation = continued(plan, self.state)
        found, read, short_values = self.rows_of(plan, continuation)
        expected, whole_read, self.short_values = self.rows_of(plan, None)
        assert short_values == self.short_values
        assert comparable(found) == comparable(expected)
        self.whys.append(continuation.why_whole)
        self.bytes_read.append((read, whole_read))
        self.state = None if continuation.next_state is None else continuation.next_state.to_bytes()
        self.lake.take(expected)
        self.position = position_of(expected)

    def rows_of(self, plan: ClusterPlan, continuation: Continuation | None) -> tuple[Rows, int, dict[str, list[str]]]:
        counted, redactor = CountedBytes(), Redactor(KEY, self.short_values)
        settings = ReadingSettings(counted.open, redactor, clock_ms=lambda: 1, known=self.lake, stop_on_change=True)
        found: Rows = {}
        for name, batch in analyze(plan, settings, BRONZE_TABLES | SILVER_TABLES, continuation):
            found.setdefault(name, []).extend(batch.to_pylist())
        return found, counted.total, redactor.short_values()


def comparable(rows: Rows) -> dict[str, list[str]]:
    """Rows in a fixed order, without where the replay of this very plan began."""
    found = {}
    for name, own in rows.items():
        left_out = WHERE_IT_BEGAN if name == "replays" else ()
        shown = [{key: value for key, value in row.items() if key not in left_out} for row in own]
        found[name] = sorted(json.dumps(row, default=str) for row in shown)
    return {name: own for name, own in found.items() if own}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_a_plan_that_goes_on_gives_the_rows_of_one_that_does_not(
    reading: Any, kind: str, seed: int, tmp_path: Path
) -> None:
    found = Hourly(reading, HourlyDisks(kind, seed, tmp_path / "disks"))
    for number in range(2 * len(found.disks.captures)):
        found.disks.pass_hour(number // 2, share=0.7 if number % 2 == 0 else 1.0)
        found.pass_hour()
    assert found.whys[0] == "nothing was kept"
    gone_on = [read for why, read in zip(found.whys, found.bytes_read, strict=True) if why is None]
    assert gone_on
    assert all(read < whole for read, whole in gone_on)
