"""What hourly runs left in a lake is what the lake's own archive says, judged as a whole, though Kafka deleted segments
between the hours: what the lake holds, no disk may hold any more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.views import IDENTITY, REVERTIBLE, query_of
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.silver import SILVER, WITHDRAWN
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.lakes import no_session

KINDS: Final = ("random", "random-wide", "random-storm")
FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_LAKES", "3"))
WITHOUT_A_LOG: Final = 70033
"""Two hours' disks have snapshots beyond all their logs, and what an earlier hour's log got since is on none."""
VOTERS_LAG: Final = 21
"""An observer's snapshot, whose records are not archived, proves more than the voters' copies hold."""
WITHDRAWN_EPOCHS: Final = 8
VOTER_CHANGES: Final = 32
WITH_A_GAP: Final = 9038
"""Of a cluster whose disks lost records between two hours that no hour had seen."""
HOURS: Final = ((0, 0.6), (1, 0.5), (1, 1.0), (2, 1.0), (3, 1.0))
SAID: Final = (
    *("finding_id", "rule", "subject", "status", "severity", "summary", "state", "closed_by"),
    *("from_offset", "to_offset", "from_ms", "to_ms", "first_seen_ms"),
)


def findings(lake: DeltaLake) -> dict[str, dict[str, Any]]:
    FindingsTable(GoldLake(lake, no_session)).update()
    rows = lake.query(f"SELECT {', '.join(SAID)} FROM findings", "findings").to_pylist()  # noqa: S608
    return {row["finding_id"]: row for row in rows}


def differences(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(rule, subject, what differs, before, now) of each finding."""
    found = []
    for id_ in sorted(before.keys() | now.keys()):
        old, new = before.get(id_, {}), now.get(id_, {})
        names = [name for name in SAID if old.get(name) != new.get(name)]
        either = old or new
        found += [(either["rule"], either["subject"], name, old.get(name), new.get(name)) for name in names]
    return found


def outside(
    found: dict[str, dict[str, Any]], archive: dict[str, dict[str, Any]], gap_from_offset: int, gap_to_offset: int
) -> dict[str, dict[str, Any]]:
    """Findings without those that by the archive begin or end in a gap."""
    in_gap = {
        id_
        for id_, row in archive.items()
        if any(gap_from_offset <= (row[name] or -1) < gap_to_offset for name in ("from_offset", "to_offset"))
    }
    return {id_: row for id_, row in found.items() if id_ not in in_gap}


def hours(disks: HourlyDisks, fleet: FleetSettings, without_spark: ModuleType) -> Iterator[int]:
    """Runs of one cluster, hour by hour."""
    for number, (capture, share) in enumerate(HOURS):
        disks.pass_hour(min(capture, len(disks.captures) - 1), share=share, deletes=True)
        assert without_spark.run(fleet).failed == {}
        yield number


def silver_views(lake: DeltaLake) -> dict[str, list[str]]:
    """The rows of each silver view as sorted lines."""
    query = lake.queries(PLANS.name, *SILVER)
    views = {name: query(query_of(name, str)) for name in REVERTIBLE}
    rows = {name: found.drop_columns("plan").to_pylist() for name, found in views.items()}
    return {name: sorted(map(repr, found)) for name, found in rows.items()}


def deleted_after_hours(
    seed: int, folder: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> bool:
    """Whether segments were deleted in the hours of one cluster; fails where a finding vanished or changed after.

    What was written and deleted between two hours no hour saw, and a disk that lags may bring it to the archive. So
    what begins or ends in such a gap may differ, and nothing else.
    """
    disks = HourlyDisks(KINDS[seed % len(KINDS)], seed, folder / "disks", events=2_500)
    fleet = make_fleet({"cluster": [disks.root]}, lake=f"lake-{seed}", file=f"fleet-{seed}.yaml")
    lake, before = DeltaLake(fleet.lake), dict[str, dict[str, Any]]()
    for _ in hours(disks, fleet, without_spark):
        now = findings(lake)
        assert {id_: row["first_seen_ms"] for id_, row in before.items()} == {
            id_: now[id_]["first_seen_ms"] for id_ in before
        }, "a finding vanished, or began again"
        before = now
    assert before
    columns = "gap_from_offset, gap_to_offset"
    gaps = lake.query(f"SELECT {columns} FROM replays WHERE gap_to_offset IS NOT NULL", "replays")  # noqa: S608
    without_spark.run_from_archive(fleet)
    now = findings(lake)
    for gap in gaps.to_pylist():
        before, now = outside(before, now, **gap), outside(now, now, **gap)
    assert differences(before, now) == [], seed
    return bool(disks.starts)


@pytest.mark.ci
def test_the_archive_says_what_the_hours_said(
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path
) -> None:
    seeds = [*range(FIRST_SEED, FIRST_SEED + SEEDS), WITHOUT_A_LOG]
    deleted = [deleted_after_hours(seed, tmp_path / str(seed), make_fleet, without_spark) for seed in seeds]
    assert any(deleted)


@pytest.mark.ci
def test_what_was_open_before_a_gap_goes_on(
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path
) -> None:
    """Its beginning is that of the archive, though the disks hold nothing of it."""
    deleted_after_hours(WITH_A_GAP, tmp_path, make_fleet, without_spark)
    gaps = DeltaLake(str(tmp_path / f"lake-{WITH_A_GAP}"))
    assert gaps.query("SELECT plan FROM replays WHERE gap_to_offset IS NOT NULL", "replays").num_rows


@pytest.mark.ci
@pytest.mark.parametrize("seed", [WITHDRAWN_EPOCHS, VOTER_CHANGES, VOTERS_LAG])
def test_hours_add_only_epochs_and_voter_sets_that_are_new(
    seed: int, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path
) -> None:
    """No row is written twice, and together they are what the archive lists."""
    disks = HourlyDisks(KINDS[seed % len(KINDS)], seed, tmp_path / "disks", events=2_500)
    fleet = make_fleet({"cluster": [disks.root]})
    lake = DeltaLake(fleet.lake)
    assert len(list(hours(disks, fleet, without_spark))) == len(HOURS)
    lists = lake.query("SELECT lists_all FROM replays ORDER BY plan", "replays").to_pylist()
    assert [row["lists_all"] for row in lists] == [True, *[False] * (len(HOURS) - 1)]
    ended = []
    for table, key in IDENTITY.items():
        newest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in lake.query(f"SELECT * FROM {table} ORDER BY plan", table).to_pylist():  # noqa: S608
            place = tuple(row[column] for column in key)
            earlier, newest[place] = newest.get(place, {}), {**row, "plan": None}
            assert newest[place] != earlier, "it says again what an earlier hour said"
            ended.append(row["ended_by"])
    assert (WITHDRAWN in ended) == (seed != VOTERS_LAG)
    before = silver_views(lake)
    without_spark.run_from_archive(fleet)
    assert silver_views(lake) == before
