"""A broker that a reassignment took out of the replicas and left in the ELR, which Kafka does below min ISR."""

from __future__ import annotations

from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from tests.builders.histories import HistoryBuilder


def _scale_in(build: HistoryBuilder, replicas: list[int]) -> Permission:
    """Real Kafka 4.3.1: 12 was killed below min ISR 2, and t-0 was reassigned to broker 11 alone."""
    build.three_nodes(end=200).feature("metadata.version", 30).feature("eligible.leader.replicas.version", 1)
    build.brokers(11, 12).partition("t-0", 10, "created", replicas=[11, 12], isr=[11, 12], leader=11)
    build.partition("t-0", 20, "fenced", replicas=[11, 12], isr=[11], elr=[12], leader=11)
    build.broker(12, at=21, fenced=True)
    build.partition("t-0", 30, "reassignment_completed", replicas=replicas, isr=[11], elr=[12], leader=11)
    answer = broker_permission(Question(Action.SCALE_IN, 12, "logs"), build.history())
    assert answer is not None
    return answer


def test_no_reassignment_is_printed_that_changes_nothing(build: HistoryBuilder) -> None:
    answer = _scale_in(build, [11])
    assert answer.verdict is Verdict.YES
    assert answer.reason.startswith("No replica list names broker 12. The ELR of t-0 still does: never start")
    assert [step for step in answer.next_steps if "reassign" in step] == []


def test_a_replica_list_that_names_it_still_says_no(build: HistoryBuilder) -> None:
    answer = _scale_in(build, [11, 12])
    assert answer.verdict is Verdict.NO
    assert any("kafka-reassign-partitions" in step for step in answer.next_steps)
