"""What hourly runs left in a lake is what the lake's own archive says, judged as a whole, though Kafka deleted segments
between the hours: what the lake holds, no disk may hold any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from kraft_audit.lake import state_store
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.findings_table import FindingsTable
from kraft_audit.lake.gold_merge import GoldLake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.tables import changed_rows
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.lakes import no_session

KINDS: Final = ("random", "random-wide", "random-storm")
FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_LAKES", "3"))
WITH_A_GAP: Final = 9004
"""Of a cluster whose disks lost records between two hours that no hour had seen."""
HOURS: Final = ((0, 0.6), (1, 0.5), (1, 1.0), (2, 1.0), (3, 1.0))
SAID: Final = (
    *("finding_id", "rule", "subject", "status", "severity", "summary", "state", "closed_by"),
    *("from_offset", "to_offset", "from_ms", "to_ms", "first_seen_ms"),
)


@pytest.fixture(autouse=True)
def _changes_of_small_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such small states would all be written whole."""
    monkeypatch.setattr(state_store, "BASE_BYTES_MIN", 1)
    monkeypatch.setattr(changed_rows, "LEAF_BYTES_MIN", 1_000)


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
    for capture, share in HOURS:
        disks.pass_hour(min(capture, len(disks.captures) - 1), share=share, deletes=True)
        assert without_spark.run(fleet).failed == {}
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
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
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
