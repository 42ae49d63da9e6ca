"""A last known leader that runs without what it held: any broker that starts lets Kafka elect it."""

from __future__ import annotations

import pytest

from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from tests.builders.histories import HistoryBuilder

NEW = {"incarnation_id": "y" * 22, "cause": "reregistered"}


@pytest.mark.parametrize(("is_up", "broker", "verdict"), [(True, 11, Verdict.NO), (False, 11, Verdict.YES)])
def test_nobody_starts_while_an_emptied_last_leader_waits(
    build: HistoryBuilder, is_up: bool, broker: int, verdict: Verdict
) -> None:
    """Real Kafka 4.3.1: 13 came back with another disk, and the start of 11 let it lead; 11 truncated its full copy."""
    build.three_nodes(end=200).feature("metadata.version", 30).feature("eligible.leader.replicas.version", 1)
    build.brokers(11, 12, 13).partition("t-0", 10, "created", isr=[11, 12, 13], leader=13)
    build.partition("t-0", 20, "fenced", isr=[13], elr=[11, 12]).broker(11, at=21, fenced=True)
    build.broker(12, at=22, fenced=True).broker(13, at=31, fenced=True)
    build.partition("t-0", 30, "fenced", isr=[], leader=-1, elr=[11, 12, 13], last_known_elr=[13], leader_epoch=1)
    build.partition("t-0", 40, "unclean_shutdown", elr=[], cause_broker_id=13).broker(13, at=41, fenced=True, **NEW)
    build.broker(13, at=42, incarnation_id="y" * 22, fenced=not is_up)
    answer = broker_permission(Question(Action.START, broker, "logs"), build.history())
    assert answer is not None
    assert answer.verdict is verdict
    assert ("Broker 13 led t-0 last, runs" in answer.reason) is is_up
