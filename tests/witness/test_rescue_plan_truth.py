"""What `rescue-plan` announces for each copy of a quorum that lost its majority, against what was committed.

The engine knows every committed batch, and which disks hold it. Below `keeps_to` a copy has all of them; what it surely
loses is committed and missing; where no bound is unknown nothing else is missing; and no copy below the best one has a
committed batch that the best one lacks.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import kraft_audit
from kraft_audit.recovery.rescue_plan import CopyOutcome, RescuePlan, RescueVerdict
from kraft_engine.runs.scenario_stage import Stage
from tests.witness.runs import seed_count


class LostMajority:
    """Some controllers of a quorum are left, and maybe a broker; all others are gone with their disks."""

    def __init__(self, seed: int, out: Path) -> None:
        chance = random.Random(seed)  # noqa: S311
        self.out = out
        self.stage = Stage(seed, out)
        self.ids = list(range(1, chance.choice([3, 3, 5]) + 1))
        self.stage.controllers(*self.ids, static=chance.random() < 0.4)
        self.stage.brokers(11)
        for number in range(chance.randint(1, 4)):
            self.stage.heal()
            leader = self.stage.leader().id
            self.stage.topic(f"t{number}", [11])
            drawn = chance.random()
            if drawn < 0.7:
                followers = [node for node in self.ids if node != leader]
                self.stage.isolate(leader if drawn < 0.3 else chance.choice(followers))
            self.stage.run_ms(chance.choice([0, 10, 200, 3_000, 8_000]))
        for controller in [leader.id for leader in self.stage.leaders()]:
            if controller == self.stage.leader().id:
                self.stage.topic("last", [11])
                self.stage.run_ms(chance.choice([0, 0, 5, 20]))
        for node in self.ids:
            self.stage.crash(node)
        self.left = sorted(chance.sample(self.ids, chance.randint(1, len(self.ids) // 2)))
        copied = [*self.left, *([11] if chance.random() < 0.4 else [])]
        self.gone = [node for node in self.ids if node not in self.left]
        self.committed = list(self.stage.invariants.ledger.batches)
        self.stage.capture("left", *copied)

    def missing(self, node: int) -> list[int]:
        """The base offsets of the committed batches that a disk lacks."""
        log = self.stage.disk(node).log
        start = log.start_offset
        return [
            batch.base_offset
            for batch in self.committed
            if batch.base_offset >= start and log.batch_at(batch.base_offset) is not batch
        ]


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
