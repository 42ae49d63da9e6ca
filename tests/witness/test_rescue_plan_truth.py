"""What `rescue-plan` announces for each copy of a quorum that lost its majority, against what was committed.

The engine knows every committed batch, and which disks hold it. Below `keeps_to` a copy has all of them; what it surely
loses is committed and missing; where no bound is unknown nothing else is missing; and no copy below the best one has a
committed batch that the best one lacks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.rescue_plan import CopyOutcome, RescuePlan, RescueVerdict
from tests.witness.lost_majority import LostMajority
from tests.witness.runs import seed_count


def assert_bounds_hold(incident: LostMajority, plan: RescuePlan, outcome: CopyOutcome) -> int:
    """How many offsets lie between what is surely kept and what is truly kept."""
    assert outcome.copy.node_id is not None
    missing = incident.missing(outcome.copy.node_id)
    first_missing = min(missing, default=incident.committed[-1].end_offset if incident.committed else 0)
    assert outcome.keeps_to <= first_missing
    lost = range(outcome.lost_from, outcome.lost_to)
    committed = {offset for batch in incident.committed for offset in range(batch.base_offset, batch.end_offset)}
    assert set(lost) <= committed
    assert all(batch.base_offset in missing for batch in incident.committed if batch.base_offset in lost)
    if outcome.unknown_from is None:
        assert plan.high is not None
        assert all(offset < plan.high for offset in missing)
    else:
        assert all(offset >= outcome.unknown_from for offset in missing)
    return first_missing - outcome.keeps_to


@pytest.mark.slow
def test_the_true_loss_lies_within_the_announced_bounds(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(seed_count(40)):
        incident = LostMajority(seed, tmp_path / str(seed))
        with kraft_audit.open(str(incident.out)) as clusters:
            (cluster,) = clusters
            plan = cluster.rescue_plan(incident.gone)
        counts[plan.verdict] += 1
        for outcome in plan.outcomes:
            gap = assert_bounds_hold(incident, plan, outcome)
            counts["exact" if gap == 0 else "wider"] += 1
        if plan.best is not None and plan.best.copy.node_id is not None:
            least = set(incident.missing(plan.best.copy.node_id))
            for outcome in plan.outcomes:
                assert outcome.copy.node_id is not None
                assert least <= set(incident.missing(outcome.copy.node_id)), seed
            counts["lossy"] += bool(least)
    assert counts[RescueVerdict.STANDS] >= counts.total() // 5, counts
    assert counts[RescueVerdict.REFUSED] == 0, counts
    assert counts["lossy"] >= 2, counts
