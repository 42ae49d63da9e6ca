"""Silver rows from a kept state and what is new: the rows that a replay from the earliest record gives.

The disks are those of simulated clusters, hour by hour: voters that lag or stand still, so that what is committed lies
before the log's end or at it, open transactions, parted logs, snapshots and deleted segments.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.capture.resumed.kept_log import NotResumableError
from kraft_audit.capture.resumed.kept_survey import KeptSurvey
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.replay_state import ReplayBase
from kraft_audit.replay.silver_rows import silver
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.hourly_disks import HourlyDisks, PlannedLake, dialect_of, position_of
from tests.builders.memory_lake import KEY

RUNS: Final = (
    ("random", 3, False, 0.2),
    ("random-wide", 1, True, 0.2),
    ("random-wide", 3, False, 0.6),
    ("random-beyond", 2, True, 0.4),
    ("random-kip856", 2, False, 0.5),
    ("random-kip642", 3, True, 0.2),
)
"""Kind of run, seed, whether segments are deleted, and how many of the disks stand still in an hour."""
ROW_OF_START: Final = ("started_at", "log_start_offset", "snapshot", "is_complete", "began_at")
Rows = dict[str, list[dict[str, Any]]]


class FromTheEarliest:
    """A fold that only makes the replay begin with the earliest record."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class SilverHours:
    """A lake whose silver tables are filled hour by hour."""

    def __init__(self, reading: Any, disks: HourlyDisks, *, is_exact: bool) -> None:
        self.is_exact = is_exact
        self.disks = disks
        self.lake = PlannedLake(reading, dialect_of(disks.kind))
        self.position: SilverPosition | None = None
        self.survey: KeptSurvey | None = None
        self.base: ReplayBase | None = None
        self.whys: Counter[str] = Counter()
        self.resumed = self.row_count = 0
        self.is_ahead = False

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
        bases: list[ReplayBase] = []
        with ClusterReading(plan.whole(), replace(settings, known=None)) as whole:
            expected = rows_of(plan, whole, keep=bases.append, fold=FromTheEarliest())
            survey = whole.kept_survey()
        if (found := self.gone_on(plan, settings, expected)) is not None:
            survey, bases = found
        self.survey = survey
        self.base = ReplayBase.from_bytes(bases[-1].to_bytes()) if bases else None
        assert not bases or bases[-1] == self.base
        self.lake.take(rows)
        self.position = position_of(expected)

    def gone_on(
        self, plan: ClusterPlan, settings: ReadingSettings, expected: Rows
    ) -> tuple[KeptSurvey, list[ReplayBase]] | None:
        """What is kept after going on, None where that cannot be; the rows must be those of a whole replay."""
        if self.base is None:
            return None
        needed = (self.base.fed_to, self.base.epoch)
        bases: list[ReplayBase] = []
        with ClusterReading(plan, settings, earlier=self.survey, replay_from=needed) as reading:
            try:
                for _ in reading.begin(frozenset()):
                    pass
                found = rows_of(plan, reading, base=self.base, keep=bases.append)
            except NotResumableError as error:
                self.whys[str(error)] += 1
                return None
            assert comparable(found, self.is_exact) == comparable(expected, self.is_exact)
            self.resumed += 1
            self.row_count += sum(map(len, found.values()))
            self.is_ahead |= any(end.end_offset > self.base.fed_to for end in reading.survey.ends)
            return reading.kept_survey(), bases


def rows_of(plan: ClusterPlan, reading: ClusterReading, **more: Any) -> Rows:
    found: Rows = {}
    for name, batch in silver(plan, reading, **more):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def comparable(rows: Rows, is_exact: bool) -> Rows:
    """Rows as they came, without where the replay began; where old segments were deleted, in a fixed order.

    A replay from a snapshot has the partitions of one event in the snapshot's order.
    """
    replays = [{name: value for name, value in row.items() if name not in ROW_OF_START} for row in rows["replays"]]
    found = {name: own for name, own in rows.items() if own}
    if not is_exact:
        found = {name: sorted(own, key=lambda row: json.dumps(row, default=str)) for name, own in found.items()}
    return {**found, "replays": replays}


def hours(reading: Any, kind: str, seed: int, folder: Path, **more: Any) -> SilverHours:
    found = SilverHours(reading, HourlyDisks(kind, seed, folder / "disks"), is_exact=not more["deletes"])
    for number in range(2 * len(found.disks.captures)):
        found.disks.pass_hour(number // 2, share=0.7 if number % 2 == 0 else 1.0, **more)
        found.pass_hour()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed", "deletes", "stands_still"), RUNS)
def test_rows_from_a_kept_state_are_those_of_a_whole_replay(
    reading: Any, kind: str, seed: int, deletes: bool, stands_still: float, tmp_path: Path
) -> None:
    found = hours(reading, kind, seed, tmp_path, deletes=deletes, stands_still=stands_still)
    assert found.resumed > 0
    assert found.row_count > 0


def test_a_base_that_is_damaged_is_not_taken(reading: Any, node: Any, usual_log: Any, tmp_path: Path) -> None:
    node(tmp_path, 1, usual_log.content)
    plan = reading.plan(tmp_path)
    bases: list[ReplayBase] = []
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(KEY))) as whole:
        assert rows_of(plan, whole, keep=bases.append)
    (base,) = bases
    content = base.to_bytes()
    assert ReplayBase.from_bytes(content) == base
    for damaged in (b"", content[:-1], replace(base, fed_to=base.fed_to + 1).to_bytes()):
        with pytest.raises(KeptPartsError):
            ReplayBase.from_bytes(damaged)
