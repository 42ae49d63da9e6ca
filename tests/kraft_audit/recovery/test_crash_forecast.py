"""What a crash would cost, checked against enumerating every set of brokers by the rule's definition."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.recovery.crash_forecast import brokers_of_racks, lose, smallest_loss
from tests.builders.histories import HistoryBuilder


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


def test_elr_off_keeps_no_replica_eligible(build: HistoryBuilder) -> None:
    build.brokers(11, 12, 13).partition("t-0", 10)
    (outcome,) = lose(build.history(), [11, 12, 13]).outcomes
    assert (outcome.goes_offline, outcome.loses_data, outcome.elr_after) == (True, True, ())


UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize("has_elr", [False, True])
@pytest.mark.parametrize(
    ("elr", "configs", "leader", "loses"),
    [
        ([], [("TOPIC", "true")], 12, True),
        ([], [("BROKER", "true")], 12, True),
        ([], [("BROKER", "true"), ("TOPIC", "false")], -1, True),
        ([], [], -1, True),
        ([14], [("TOPIC", "true")], 12, True),  # 14 holds all, and is not waited for
        ([14], [], -1, False),
    ],
)
def test_the_first_live_replica_is_elected_uncleanly_where_that_is_enabled(
    build: HistoryBuilder, has_elr: bool, elr: list[int], configs: list[tuple[str, str]], leader: int, loses: bool
) -> None:
    """Facts 6.2: without an eligible member that is up, UNCLEAN takes the first active replica, with loss."""
    build.feature("eligible.leader.replicas.version", int(has_elr)).brokers(11, 12, 13).broker(14, fenced=True)
    build.partition("t-0", 10, replicas=[11, 14, 12, 13], isr=[11], elr=elr, effective_min_isr=1)
    for place, (kind, value) in enumerate(configs):
        build.config(kind, "t" if kind == "TOPIC" else "", UNCLEAN, value, 11 + place)
    (outcome,) = lose(build.history(), [11]).outcomes
    assert (outcome.leader, outcome.goes_offline, outcome.loses_data) == (leader, leader == -1, loses)
    assert outcome.unclean_election == (leader == 12)
    if leader == -1:
        # No empty ISR is written with the ELR off; with it, who was in sync stays eligible.
        assert (outcome.isr_after, outcome.elr_after) == (((), (*elr, 11)) if has_elr else ((11,), ()))
    else:
        assert (outcome.isr_after, outcome.elr_after) == ((leader,), ())


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_member_of_the_elr_comes_first_left_over_or_not(build: HistoryBuilder, has_elr: bool) -> None:
    """Facts 6.2: 13 is elected cleanly, also with the feature off; its ISR alone is under the min ISR."""
    build.feature("eligible.leader.replicas.version", int(has_elr)).brokers(11, 12, 13)
    build.config("TOPIC", "t", UNCLEAN, "true", 5).partition("t-0", 10, isr=[11, 12], elr=[13])
    (outcome,) = lose(build.history(), [11, 12]).outcomes
    assert (outcome.leader, outcome.goes_offline, outcome.loses_data) == (13, False, False)
    assert (outcome.isr_after, outcome.elr_after) == ((13,), (11, 12) if has_elr else ())
    assert not outcome.unclean_election


def test_a_partition_without_a_candidate_keeps_its_last_member_with_the_elr_off(build: HistoryBuilder) -> None:
    """Facts 6.1, step 6; such a partition has no member in sync that is up, so it takes no writes."""
    build.brokers(11, 12, 13).partition("t-0", 10, isr=[12], leader=12, effective_min_isr=1)
    (outcome,) = lose(build.history(), [12]).outcomes
    assert (outcome.isr_after, outcome.elr_after, outcome.leader) == ((12,), (), -1)
    assert outcome.falls_under_min_isr


def test_a_broker_in_no_isr_is_fenced_without_a_change(build: HistoryBuilder) -> None:
    """12, of a left-over ELR, is not struck out; it held what was acknowledged, and so does 11."""
    build.brokers(11, 12, 13).partition("t-0", 10, isr=[11], elr=[12], effective_min_isr=1)
    assert lose(build.history(), [12]).outcomes == ()
    (outcome,) = lose(build.history(), [11, 12]).outcomes
    assert (outcome.leader, outcome.loses_data) == (-1, True)


def test_a_broker_that_is_not_registered_leads_nothing(build: HistoryBuilder) -> None:
    """As `recover-plan` says."""
    build.feature("eligible.leader.replicas.version", 1).brokers(11).partition("t-0", 10, isr=[11], elr=[12])
    (outcome,) = lose(build.history(), [11]).outcomes
    assert (outcome.leader, outcome.goes_offline) == (-1, True)


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
