"""What must not change what an hour says: segments that Kafka deleted, the order of disks, a state that was kept."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.rules import merged_batches
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.judged_hours import JudgedHours, Shown, key, said

KINDS: Final = ("random", "random-wide", "random-kip856", "random-storm", "random-kip642")
SMALL: Final = 2_500
FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "200"))
PARTS: Final = 8
OF_WHAT_IS_ON_DISK: Final = frozenset({"KQ007", "KQ013", "KQ019"})
"""Rules about what a disk holds, not about what happened."""
HOURS: Final = ((0, 0.6), (0, 1.0), (1, 1.0), (2, 0.5), (3, 1.0))


@pytest.fixture(autouse=True)
def _runs_in_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log of a few hundred batches nearly all would stay single."""
    monkeypatch.setattr(merged_batches, "IDLE_BATCHES", 2)


class Hours(JudgedHours):
    """Hours whose plans may be changed before they are judged."""

    def __init__(self, reading: Any, disks: HourlyDisks, change: Callable[[ClusterPlan], ClusterPlan] | None) -> None:
        super().__init__(reading, disks)
        self.change = change

    def _rows(self, plan: ClusterPlan, continuation: Any) -> Any:
        return super()._rows(plan if self.change is None else self.change(plan), continuation)

    def _keep_round(self, plan: ClusterPlan) -> None:
        """Nothing is compared with all captures here."""

    def said(self) -> dict[Shown, Shown]:
        """What is open, and what ended this hour, but for rules about what is on disk."""
        rows = self.rows["staged_findings"]
        shown = (row for row in rows if row["status"] != "clear" and row["rule"] not in OF_WHAT_IS_ON_DISK)
        return {key(row): said(row) for row in shown}


def paired(
    reading: Any,
    folder: Path,
    kind: str,
    seed: int,
    *,
    deletes: bool = False,
    change: Callable[[ClusterPlan], ClusterPlan] | None = None,
) -> tuple[int, int]:
    """Two clusters with the same hours, the second one with what must not matter. Returns how many hours went on from
    a state in both, and how many findings were compared. Fails where they differ."""
    both = []
    for name, of_second in (("first", False), ("second", True)):
        disks = HourlyDisks(kind, seed, folder / name / "disks", keeps_later_snapshots=False, events=SMALL)
        both.append(Hours(reading, disks, change if of_second else None))
    compared, shown = 0, [dict[Shown, Shown](), dict[Shown, Shown]()]
    for capture, share in HOURS:
        for hours, known in zip(both, shown, strict=True):
            number = min(capture, len(hours.disks.captures) - 1)
            # What was deleted before the first hour, neither of them ever saw.
            hours.disks.pass_hour(number, share=share, deletes=deletes and hours is both[1] and bool(hours.whys))
            hours.pass_hour()
            said_now = hours.said() if hours.rows else {}
            still_over = {each: what for each, what in known.items() if what[0] and each not in said_now}
            known.clear()
            known.update(said_now | still_over)
        if any(hours.is_cut_off for hours in both):
            break  # only the archive of a lake could say the same from here on
        if any(both[1].whys[1:]):
            # Read again, evidence names what disks hold by now: of a voter set the snapshot, where its record is gone.
            shown = [{each: (*what[:4], []) for each, what in known.items()} for known in shown]
        assert shown[1] == shown[0], (kind, seed, capture, share, both[1].whys)
        compared += len(shown[0])
    return min(hours.whys.count(None) for hours in both), compared


def in_any_order(chance: random.Random) -> Callable[[ClusterPlan], ClusterPlan]:
    """What puts the disks of a plan in another order."""

    def shuffled(plan: ClusterPlan) -> ClusterPlan:
        return replace(
            plan,
            replicas=tuple(chance.sample(plan.replicas, len(plan.replicas))),
            context=tuple(chance.sample(plan.context, len(plan.context))),
        )

    return shuffled


@pytest.mark.ci
@pytest.mark.parametrize("part", range(PARTS))
def test_neither_deleted_segments_nor_the_order_of_disks_change_a_finding(
    reading: Any, part: int, tmp_path: Path
) -> None:
    """Of two seeds in three both at once, as a fault of either would show; of the rest one of them alone."""
    chance = random.Random(part)  # noqa: S311  # not a secret
    went_on = compared = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS):
        deletes, change = seed % 6 != 4, None if seed % 6 == 5 else in_any_order(chance)
        kind = KINDS[seed % len(KINDS)]
        hours, findings = paired(reading, tmp_path / str(seed), kind, seed, deletes=deletes, change=change)
        went_on += hours
        compared += findings
    assert went_on
    assert compared


@pytest.mark.ci
@pytest.mark.parametrize("seed", [200_627, 200_688])
def test_a_phantom_voter_is_known_by_its_own_directory_since_its_set_was_made(
    reading: Any, seed: int, tmp_path: Path
) -> None:
    """Not by that of a later set of the same voter, nor since the snapshot that is left of the log."""
    assert paired(reading, tmp_path, KINDS[seed % len(KINDS)], seed, deletes=True)[1]


@pytest.mark.slow
def test_one_cluster_with_deleted_segments(reading: Any, tmp_path: Path) -> None:
    hours, findings = paired(reading, tmp_path, "random", 0, deletes=True)
    assert hours
    assert findings
