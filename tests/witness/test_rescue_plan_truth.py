"""What `rescue-plan` announces for each copy of a quorum that lost its majority, against what was committed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.rescue_plan import RescueVerdict
from tests.witness.lost_majority import LostMajority
from tests.witness.plan_bounds import plan_disagreements
from tests.witness.runs import seed_count


@pytest.mark.slow
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
