"""What shipped Kafka does with leaderless partitions, and what the proposal would, case by case."""

from __future__ import annotations

import pytest

from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.recovery.leaderless_partitions import RecoveryPlan, recovery_plans
from kraft_audit.rules.cluster_history import unclean_election_enabled
from tests.builders.histories import T0, HistoryBuilder


def _leaderless(build: HistoryBuilder, *, up: tuple[int, ...], **state: object) -> HistoryBuilder:
    build.three_nodes().feature("eligible.leader.replicas.version", 1)
    for broker in (11, 12, 13):
        build.broker(broker, fenced=broker not in up)
    return build.partition("t-0", 10).partition("t-0", 20, isr=[], leader=-1, **state)


def _plan(build: HistoryBuilder, **logs: tuple[int, int]) -> RecoveryPlan:
    ends = tuple(ReplicaLog(int(name[1:]), end, epoch, high_watermark=90) for name, (end, epoch) in logs.items())
    (plan,) = recovery_plans(build.history(), {("t", 0): ends} if ends else None)
    return plan


def test_an_eligible_member_that_is_up_leads_without_loss(build: HistoryBuilder) -> None:
    plan = _plan(_leaderless(build, up=(12,), elr=[12, 13], last_known_elr=[13]))
    assert (plan.shipped.leader, plan.shipped.lost_records) == (12, 0)
    assert plan.balanced.leader == plan.aggressive.leader == 12
    assert plan.since_ms == T0 + 20_000


def test_all_wait_for_eligible_members_but_aggressive(build: HistoryBuilder) -> None:
    """Facts 6.7: 12 came back unclean and stays outside, ELR [13]; 13 is away."""
    plan = _plan(_leaderless(build, up=(12,), elr=[13], last_known_elr=[13]), b12=(80, 3))
    assert (plan.shipped.leader, plan.shipped.waits_for) == (None, (13,))
    assert plan.balanced.waits_for == (13,)
    assert (plan.aggressive.leader, plan.aggressive.lost_records) == (12, 10)


def test_the_last_known_leader_is_elected_with_unclean_disabled(build: HistoryBuilder) -> None:
    plan = _plan(_leaderless(build, up=(12, 13), elr=[], last_known_elr=[13]), b12=(80, 3), b13=(85, 3))
    assert not plan.unclean_election_enabled
    assert (plan.shipped.leader, plan.shipped.lost_records) == (13, 5)
    assert plan.aggressive.leader == 13
    assert plan.balanced.leader == 13


def test_unclean_election_takes_the_first_live_replica(build: HistoryBuilder) -> None:
    """The shipped rule looks at the order of replicas, the proposal at their logs."""
    _leaderless(build, up=(11, 12), elr=[13], last_known_elr=[13])
    build.config("TOPIC", "t", "unclean.leader.election.enable", "true", 25)
    plan = _plan(build, b11=(10, 3), b12=(80, 3))
    assert (plan.shipped.leader, plan.shipped.lost_records) == (11, 80)
    assert "gives up ELR [13]" in plan.shipped.text
    assert plan.aggressive.leader == 12


def test_a_higher_epoch_beats_a_longer_log(build: HistoryBuilder) -> None:
    plan = _plan(_leaderless(build, up=(11, 12)), b11=(99, 3), b12=(80, 4))
    assert plan.aggressive.leader == 12


def test_nothing_is_guessed_about_logs_that_were_not_captured(build: HistoryBuilder) -> None:
    plan = _plan(_leaderless(build, up=(11, 12)))
    assert plan.shipped.leader is None
    assert "waits for an operator" in plan.shipped.text
    assert plan.aggressive.leader is None
    assert "not captured" in plan.aggressive.text


def test_partitions_with_a_leader_need_no_plan(build: HistoryBuilder) -> None:
    assert recovery_plans(build.brokers(11).partition("t-0", 10).history()) == []


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([("BROKER", "", "true")], True),
        ([("BROKER", "", "true"), ("TOPIC", "t", "false")], False),
        ([("TOPIC", "t", "true"), ("TOPIC", "t", None)], False),
        ([("TOPIC", "u", "true")], False),
    ],
)
def test_unclean_election_in_effect(
    build: HistoryBuilder, writes: list[tuple[str, str, str | None]], expected: bool
) -> None:
    for number, (type_, name, value) in enumerate(writes):
        build.config(type_, name, "unclean.leader.election.enable", value, 10 + number)
    assert unclean_election_enabled(build.history(), "t") is expected


def test_it_is_leaderless_since_the_first_change_that_says_so(build: HistoryBuilder) -> None:
    _leaderless(build, up=(12,), elr=[13], last_known_elr=[13])
    build.partition("t-0", 30, elr=[12, 13]).partition("t-0", 35, elr=[13])
    assert _plan(build).since_ms == T0 + 20_000
