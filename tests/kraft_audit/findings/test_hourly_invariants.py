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
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "8"))
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
        hours = Hours(reading, disks, change if of_second else None)
        found = []
        for capture, share in HOURS:
            disks.pass_hour(min(capture, len(disks.captures) - 1), share=share, deletes=deletes and of_second)
            hours.pass_hour()
            found.append(hours.said() if hours.rows else {})
        both.append((hours, found))
    (first, wanted), (second, given) = both
    compared = 0
    for number, (usual, changed) in enumerate(zip(wanted, given, strict=True)):
        assert changed == usual, (kind, seed, number, second.whys)
        compared += len(usual)
    return min(first.whys.count(None), second.whys.count(None)), compared


def many(reading: Any, folder: Path, part: int, **how: Any) -> None:
    """`paired` of a share of the seeds."""
    went_on = compared = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, 4):
        hours, findings = paired(reading, folder / str(seed), KINDS[seed % len(KINDS)], seed, **how)
        went_on += hours
        compared += findings
    assert went_on
    assert compared


@pytest.mark.ci
@pytest.mark.parametrize("part", range(4))
def test_segments_that_kafka_deleted_change_no_finding(reading: Any, part: int, tmp_path: Path) -> None:
    many(reading, tmp_path, part, deletes=True)


@pytest.mark.ci
@pytest.mark.parametrize("part", range(4))
def test_the_order_of_disks_in_a_plan_changes_no_finding(reading: Any, part: int, tmp_path: Path) -> None:
    chance = random.Random(part)  # noqa: S311  # not a secret

    def shuffled(plan: ClusterPlan) -> ClusterPlan:
        return replace(
            plan,
            replicas=tuple(chance.sample(plan.replicas, len(plan.replicas))),
            context=tuple(chance.sample(plan.context, len(plan.context))),
        )

    many(reading, tmp_path, part, change=shuffled)


@pytest.mark.slow
def test_one_cluster_with_deleted_segments(reading: Any, tmp_path: Path) -> None:
    hours, findings = paired(reading, tmp_path, "random", 0, deletes=True)
    assert hours
    assert findings
