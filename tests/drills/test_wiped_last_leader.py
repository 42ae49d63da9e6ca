"""Three replicas are killed in turn, and the disk of the last leader is wiped: Kafka loses every acknowledged record.

`may-i` has to say no before, and the loss has to be named after, also when every partition has a leader again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.rules.columns.loss_holders import Grade
from kraft_audit.rules.columns.witnesses import Label
from tests.builders.commands import Command
from tests.drills.drill import Drill
from tests.drills.losing_cluster import TOPIC, LosingCluster, announced
from tests.drills.loss_stories import A, B, C, back_to_the_last_leader, killed_in_turn
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]


@pytest.mark.parametrize(
    ("wipe", "label", "holder"),
    [
        pytest.param(LosingCluster.empty, Label.LAST_KNOWN_LEADER, A, id="kept-directory-id", marks=pytest.mark.ci),
        pytest.param(LosingCluster.replace_disk, Label.EMPTIED_REPLICA, None, id="formatted"),
    ],
)
def test_the_last_leader_is_wiped_against_the_advice(
    wipe: Callable[[LosingCluster, int], None],
    label: Label,
    holder: int | None,
    kafka_releases: Callable[[str], KafkaRelease],
    tmp_path: Path,
    kraft_audit: Command,
) -> None:
    drill = Drill("wiped-last-leader", "4.3.1", voters=1, brokers=4, elr=True)
    pay = LosingCluster(drill, tmp_path, kafka_releases(drill.release))
    try:
        pay.boot()
        killed_in_turn(pay)
        before = pay.capture("before")
        assert verdict(kraft_audit, "wipe", C, before) == "no"
        assert verdict(kraft_audit, "delete-volume", C, before) == "no"
        assert verdict(kraft_audit, "wipe", B, before) != "yes"
        assert announced(before) == []
        wipe(pay, C)
        if holder is None:
            # C is unfenced before its new directory is assigned, and Kafka elects it only when another broker is back.
            pay.start(B, C)
            pay.start(A)
            pay.wait(leader=C, isr={A, B, C})
        else:
            back_to_the_last_leader(pay)
        at_the_event = pay.capture("at-the-event")
        assert holder is None or verdict(kraft_audit, "start", holder, at_the_event) == "no", "the last that has them"
        pay.all_back()
        lost = pay.lost()
        after = pay.capture("all-back")
    finally:
        pay.cluster.kill_all()
    assert lost == pay.ledger
    assert len(lost) == 500
    holders = set() if holder is None else {holder}
    assert pay.disks_with(lost, at_the_event) == holders
    assert not pay.disks_with(lost, after)
    for capture, intact in ((at_the_event, holders), (after, set())):
        (loss,) = announced(capture)
        assert (loss.event.topic, loss.event.topic_id, loss.event.partition) == (TOPIC, pay.topic_id, 0)
        assert (loss.event.label, loss.event.leader_id, loss.grade) == (label, C, Grade.POSSIBLE)
        assert {each.broker_id for each in loss.intact} == intact


def verdict(kraft_audit: Command, action: str, broker: int, capture: Path) -> str:
    """The answer, which the exit code has to agree with."""
    ended = kraft_audit("may-i", action, broker, capture, "-o", "json")
    answer = json.loads(ended.out)
    assert ended.code == {"yes": 0, "no": 1, "undecided": 4}[answer["verdict"]], ended
    return str(answer["verdict"])
