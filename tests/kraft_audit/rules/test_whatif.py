"""What a crash would cost, checked against enumerating every set of brokers by the rule's definition."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.whatif import brokers_of_racks, lose, smallest_loss
from tests.kraft_audit.rules.conftest import HistoryBuilder


def _cluster(build: HistoryBuilder) -> HistoryBuilder:
    """Brokers 11 to 14; RF 3, min ISR 2, ELR on: one whole partition, one at its last replica, one with an ELR."""
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(11, 12, 13, 14)
    build.partition("whole-0", 10)
    build.partition("last-0", 11, isr=[13], leader=13)
    build.partition("elr-0", 12, isr=[13], elr=[12], leader=13)
    return build


def test_losing_the_last_replica(build: HistoryBuilder) -> None:
    outcome = lose(_cluster(build).history(), [13])
    assert (outcome.partition_count, outcome.offline_count, outcome.loss_count) == (3, 1, 1)
    lost, *others = outcome.outcomes
    assert (lost.topic, lost.leader, lost.loses_data, lost.goes_offline) == ("last", -1, True, True)
    assert others == []  # elr-0 goes on with 12 from the ELR and was under min ISR before; whole-0 keeps two


def test_elr_member_takes_over_alone(build: HistoryBuilder) -> None:
    _cluster(build)
    outcome = lose(build.history(), [11, 12])
    assert [(o.topic, o.falls_under_min_isr, o.isr_after, o.elr_after, o.leader) for o in outcome.outcomes] == [
        ("whole", True, (13,), (11, 12), 13)
    ]


def test_a_fenced_elr_member_cannot_lead(build: HistoryBuilder) -> None:
    _cluster(build).broker(12, at=20, fenced=True)
    assert {o.topic: o.goes_offline for o in lose(build.history(), [13]).outcomes} == {"last": True, "elr": True}


def test_elr_off_keeps_nobody_eligible(build: HistoryBuilder) -> None:
    build.brokers(11, 12, 13).partition("t-0", 10)
    (outcome,) = lose(build.history(), [11, 12, 13]).outcomes
    assert (outcome.goes_offline, outcome.loses_data, outcome.elr_after) == (True, True, ())


def test_unknown_brokers_are_named(build: HistoryBuilder) -> None:
    assert lose(_cluster(build).history(), [99]).unknown_brokers == (99,)


def test_brokers_of_a_rack(build: HistoryBuilder) -> None:
    build.broker(11, rack="a").broker(12, rack="b").broker(13, rack="a")
    assert brokers_of_racks(build.history(), {"a"}) == (11, 13)


def test_smallest_loss_of_the_example(build: HistoryBuilder) -> None:
    found = smallest_loss(_cluster(build).history())
    assert (found.brokers, found.partition_count, found.example) == ((13,), 1, "last-0")
    assert smallest_loss(HistoryBuilder().history()).brokers is None


_NODES = st.lists(st.integers(1, 5), unique=True, max_size=4)


@given(st.lists(st.tuples(_NODES, _NODES), min_size=1, max_size=6))
def test_smallest_loss_equals_trying_every_set(partitions: list[tuple[list[int], list[int]]]) -> None:
    build = HistoryBuilder().brokers(1, 2, 3, 4, 5)
    for number, (isr, elr) in enumerate(partitions):
        build.partition(f"t-{number}", 10 + number, replicas=[1, 2, 3, 4, 5], isr=isr, elr=elr, leader=-1)
    history = build.history()
    found = smallest_loss(history)
    for size in range(1, 6):
        losing = [c for c in combinations(range(1, 6), size) if lose(history, c).loss_count]
        if losing:
            assert found.brokers in losing
            assert found.partition_count == max(lose(history, c).loss_count for c in losing)
            return
    assert found.brokers is None
