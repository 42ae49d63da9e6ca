"""Real Kafka loses acknowledged records, or only seems to: every loss in the producer's ledger has to be announced.

Each drill asks the audit at the moment when the loss has happened, with those down that still hold the records, and
again when all is back. What is missing then, and whose disk had it, is said by Kafka: its consumer and its dump. What
salvage takes from those disks is compared with the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.rules.columns.loss_holders import Grade, Loss
from tests.drills.drill import Drill
from tests.drills.losing_cluster import TOPIC, LosingCluster, announced, salvaged
from tests.drills.loss_table import LOSS_DRILLS, LossDrill
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]


@pytest.mark.parametrize(
    "drill", [pytest.param(drill, marks=[pytest.mark.ci] * drill.ci, id=drill.name) for drill in LOSS_DRILLS]
)
def test_a_loss(drill: LossDrill, kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path) -> None:
    base = Drill(drill.name, drill.release, voters=1, brokers=drill.brokers, elr=drill.elr)
    pay = LosingCluster(base, tmp_path, kafka_releases(drill.release), data_dirs=drill.data_dirs)
    try:
        pay.boot()
        drill.story(pay)
        capture = pay.capture("at-the-event")
        pay.all_back()
        lost = pay.lost()
        after = pay.capture("all-back")
    finally:
        pay.cluster.kill_all()
    assert bool(lost) == drill.is_lost, (len(lost), len(pay.ledger))
    expected = [(TOPIC, pay.topic_id, 0, drill.label)] * drill.times if drill.label is not None else []
    at_the_event = serious(capture)
    assert named(at_the_event) == expected
    assert named(serious(after)) == expected, "a loss stays one when every partition has a leader"
    assert drill.label is not None or bool(announced(after)) == drill.is_noted
    intact = {holder.broker_id for loss in at_the_event for holder in loss.intact}
    assert intact == set(drill.held_by)
    if expected:
        found = salvaged(capture)
        assert len(set(found)) == len(found), "none twice"
        assert set(found) <= set(pay.ledger), "byte for byte what was acknowledged"
        assert not drill.held_by or set(lost) <= set(found)
    if lost:
        assert pay.disks_with(lost, capture) == set(drill.held_by)
        assert not pay.disks_with(lost, after)


def serious(capture: Path) -> list[Loss]:
    """What is announced, of grade possible or proven, in any topic."""
    return [loss for loss in announced(capture) if loss.grade is not Grade.UNFLUSHED]


def named(losses: list[Loss]) -> list[tuple[object, ...]]:
    return [(loss.event.topic, loss.event.topic_id, loss.event.partition, loss.event.label) for loss in losses]
