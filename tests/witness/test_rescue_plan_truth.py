"""What `rescue --plan` announces for each copy of a quorum that lost its majority, against what was committed."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.archive.archived_captures import archived_cluster
from kraft_audit.archive.whole_batches import whole_batches
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ARCHIVED_ROOT
from kraft_audit.cluster import Cluster
from kraft_audit.lake.lake_copies import joined
from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan, RescueVerdict
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders import readings
from tests.builders.archive_tables import MemoryTables
from tests.witness.lost_majority import EARLY, LostMajority
from tests.witness.plan_bounds import plan_disagreements
from tests.witness.runs import seed_count

pytestmark = pytest.mark.slow

KEY = b"k" * 32
BRONZE = frozenset({"captures", "batches", "archive"})


def test_the_true_loss_lies_within_the_announced_bounds(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    seeds = seed_count(40)
    for seed in range(seeds):
        incident = LostMajority(seed, tmp_path / str(seed))
        with kraft_audit.open(str(incident.out)) as clusters:
            (cluster,) = clusters
            plan = cluster.rescue_plan(incident.gone)
        assert list(plan_disagreements(incident, plan, counts)) == [], seed
    assert counts[f"plan: {RescueVerdict.STANDS}"] >= 0.9 * seeds, counts
    assert counts["plan: exact"] >= seeds // 4, counts
    assert counts["plan: loses something"] >= seeds // 20, counts


def plan_with_archive(incident: LostMajority) -> RescuePlan:
    """The plan from the disks that are left and an archive of the capture before, as of a lake."""

    def planned(folder: str) -> Any:
        where = str(incident.out / folder)
        (plan,) = plan_path(where, open_storage=open_storage, captured_at_ms=1)
        return plan

    early, left = planned(EARLY), planned("left")
    rows = readings.bronze_rows(early, BRONZE, open_storage=open_storage, redactor=Redactor(KEY))
    with open_storage(str(incident.out / "left")) as storage:
        archived = archived_cluster(
            MemoryTables.of(rows),
            location=f"{ARCHIVED_ROOT}/lake",
            cluster_id=early.cluster_id,
            find_whole=lambda wanted: whole_batches(left.replicas, lambda _: storage, wanted),
        )
        copies = joined(archived, left, storage)
        assert copies is not None
        opened = kraft_audit.open(str(incident.out / "left"))._opened
        return Cluster(opened, copies.plan, storage, KEY, copies.storages).rescue_plan(incident.gone)


def of_disks(plan: RescuePlan) -> list[dict[str, Any]]:
    """The outcomes, without where each copy was read."""
    outcomes = [asdict(outcome) for outcome in plan.outcomes]
    for outcome in outcomes:
        for name in ("number", "capture", "path", "branch", "archived_ms"):
            del outcome["copy"][name]
    return sorted(outcomes, key=str)


def test_copies_of_a_lake_are_bounded_too(tmp_path: Path) -> None:
    """Two readings of the same bytes: captures side by side, and an archive of the first beside the second."""
    counts: Counter[str] = Counter()
    seeds = seed_count(40)
    for seed in range(1_000, 1_000 + seeds):
        incident = LostMajority(seed, tmp_path / str(seed), was_read=True)
        with kraft_audit.open(str(incident.out)) as clusters:
            (cluster,) = clusters
            plan = cluster.rescue_plan(incident.gone)
        assert list(plan_disagreements(incident, plan, counts)) == [], seed
        archived = plan_with_archive(incident)
        assert list(plan_disagreements(incident, archived, counts)) == [], seed
        assert of_disks(archived) == of_disks(plan), seed
        best = archived.best
        counts["goes on from the lake"] += best is not None and best.copy.archived_ms is not None
    assert counts["goes on from the lake"] >= seeds // 10, counts
    assert counts["plan: exact"] >= seeds // 2, counts
