"""The order in which `recover-plan` has brokers started: played against Kafka's rule of who leads."""

from __future__ import annotations

import json
import random
from itertools import permutations

import pytest

from kraft_audit.recovery.leaderless_partitions import Choice, RecoveryPlan, recovery_plans
from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.start_order import first_start, order_of_starts, start_lines, start_order
from tests.builders.histories import HistoryBuilder
from tests.builders.printed_commands import echoed

WAITS = Choice(None, (), "waits")


def plan(
    number: int,
    replicas: tuple[int, ...],
    elr: tuple[int, ...],
    *,
    unclean: bool = False,
    sure: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    off_disk: tuple[int, ...] = (),
) -> RecoveryPlan:
    """A partition all of whose replicas are down."""
    return RecoveryPlan(
        *("t", number, replicas, (), elr, last, 0, unclean, WAITS, WAITS, WAITS),
        down=replicas,
        sure=sure,
        off_disk=off_disk,
    )


def test_who_alone_can_lead_comes_first() -> None:
    order = start_order([plan(0, (11, 12, 13), (13,)), plan(1, (11, 12, 13), (12, 13)), plan(2, (11, 12), (12,))])
    assert (order.brokers, order.cannot_lead, order.contested) == ((12, 13, 11), (11,), ())


def test_a_log_dir_that_is_gone_lets_nobody_lead() -> None:
    order = start_order([plan(0, (11, 12), (12,), off_disk=(12,)), plan(1, (11, 12), (11,))])
    assert order.without_dir == ((12, "t-0"),)
    assert order.brokers[0] == 11


def test_two_partitions_with_unclean_election_may_need_opposite_orders() -> None:
    order = start_order([plan(0, (11, 12), (11,), unclean=True), plan(1, (11, 12), (12,), unclean=True)])
    assert (order.brokers, order.contested) == ((), ("t-0", "t-1"))


def loses(plans: list[RecoveryPlan], brokers: tuple[int, ...]) -> bool:
    """Whether some partition is led by a replica that may lack records although another one that is down has them.

    Each broker was unfenced before the next one started: the first replica that may lead does, with unclean election
    on the first of all (PartitionChangeBuilder.electLeader).
    """
    for each in plans:
        members = set(each.elr or each.last_known_elr) - set(each.off_disk)
        best = members & set(each.sure) or members
        first = next(b for b in brokers if b in each.replicas)
        if each.unclean_election_enabled and first not in best:
            return True
    return False


def random_plans(seed: int) -> list[RecoveryPlan]:
    chosen = random.Random(seed)  # noqa: S311
    plans = []
    for number in range(chosen.randint(1, 4)):
        replicas = tuple(sorted(chosen.sample((11, 12, 13, 14), chosen.randint(1, 4))))
        elr = tuple(b for b in replicas if chosen.random() < 0.5)
        sure = tuple(b for b in elr if chosen.random() < 0.5)
        off = tuple(b for b in elr if b not in sure and chosen.random() < 0.2)
        last = (chosen.choice(replicas),)
        plans.append(plan(number, replicas, elr, unclean=chosen.random() < 0.5, sure=sure, last=last, off_disk=off))
    return plans


def test_no_order_loses_what_another_order_keeps() -> None:
    kept = contested = 0
    for seed in range(600):
        plans = random_plans(seed)
        order = start_order(plans)
        every = {b for each in plans for b in each.replicas}
        if order.contested:
            contested += 1
            assert all(loses(plans, way) for way in permutations(every)), seed
        else:
            kept += 1
            assert set(order.brokers) == every
            assert not loses(plans, order.brokers), seed
    assert min(kept, contested) > 50


def allowed(_: Question) -> Permission:
    return Permission(Verdict.YES, "")


@pytest.fixture
def crashed(build: HistoryBuilder) -> HistoryBuilder:
    """Brokers 11, 12 and 13 are down; only 13 holds everything of t-0."""
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(11, 12, 13)
    build.partition("t-0", 10, isr=[], elr=[13], leader=-1, replicas=[11, 12, 13])
    for offset, broker in enumerate((11, 12, 13), 30):
        build.broker(broker, offset, fenced=True)
    return build


def test_the_lines_name_the_order_and_the_election(crashed: HistoryBuilder) -> None:
    history = crashed.history()
    start, again, election = start_lines(recovery_plans(history), history, "a b", allowed)
    assert start == (
        "Start broker 13 with its disk, wait until it is unfenced, then 11, then 12. 11 and 12 can lead none of these "
        "partitions before they have caught up. Wipe none.   kraft-audit may-i start 13 'a b'"
    )
    assert again.startswith("Copy the disks and ask again")
    condition, _, command = election.partition("   ")
    assert condition == (
        "Only if broker 13 will never come back with its disk, elect whoever is up: what only 13 held is lost then."
    )
    assert json.loads(echoed(command)) == {"partitions": [{"topic": "t", "partition": 0}]}
    assert "--election-type unclean --path-to-json-file elections.json" in command


def test_what_may_i_refuses_is_no_start(crashed: HistoryBuilder) -> None:
    history = crashed.history()
    refused = Permission(Verdict.UNDECIDED, "Copy first.")
    first, *_ = start_lines(recovery_plans(history), history, "x", lambda _: refused)
    assert first == ("Do not start broker 13 yet, which would come first. Copy first.   kraft-audit may-i start 13 x")


def test_unclean_election_goes_off_before_a_member_starts_that_crashed(crashed: HistoryBuilder) -> None:
    """Its registration takes it out of the ELR, so it would be elected uncleanly, and 12 would truncate its log."""
    for offset, topic in enumerate(("t", "u"), 8):
        crashed.config("TOPIC", topic, "unclean.leader.election.enable", "true", offset)
        crashed.partition(f"{topic}-0", 20, isr=[], elr=[12, 13], leader=-1, last_known_elr=[13])
    history = crashed.history()

    def ask(question: Question) -> Permission:
        return broker_permission(question, history) or allowed(question)

    plans = recovery_plans(history)
    order = order_of_starts(history, plans)
    assert (order.brokers[0], order.at_risk) == (13, ("t-0", "u-0"))
    off, off_of_u, start, *_ = start_lines(plans, history, "x", ask)
    assert off.startswith("Start no broker yet. Unclean election is on for t-0 and u-0, and no leader is left there: ")
    assert "Turn unclean election off for t and u before any start, and copy the disks.   kafka-configs" in off
    assert off_of_u == off.partition("   ")[2].replace("entity-name t ", "entity-name u ")
    assert start.startswith("Then start broker 13 with its disk, wait until it is unfenced, then 12, then 11.")
    broker, sentence = first_start(history, "x")
    assert (broker, sentence) == (
        13,
        "Turn unclean election off for t and u before any start, and copy the disks. Then start broker 13 first, with "
        "its disk.",
    )
    for waiting in (11, 12, 13):
        assert ask(Question(Action.START, waiting, "x")).next_steps[1:] == (
            off_of_u,
            f"Then start 13{', which led last: of those that crashed it has most' * (waiting == 13)}"
            f"{' first, which led last' * (waiting != 13)}: kraft-audit recover-plan x",
        )


def test_a_member_that_stopped_in_order_starts_with_unclean_election_on(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(11, 12, 13)
    build.config("TOPIC", "t", "unclean.leader.election.enable", "true", 8)
    build.partition("t-0", 10, isr=[], elr=[13], leader=-1, replicas=[11, 12, 13])
    for offset, broker in enumerate((11, 12, 13), 30):
        build.broker(broker, offset, in_controlled_shutdown=True).broker(broker, offset + 10, fenced=True)
    build.partition("t-0", 50, isr=[], elr=[13], leader=-1, replicas=[11, 12, 13])
    assert order_of_starts(build.history()).at_risk == ()


def test_without_a_quorum_no_order_is_printed(crashed: HistoryBuilder) -> None:
    crashed.gone = frozenset({1, 2})
    history = crashed.history()
    (line,) = start_lines(recovery_plans(history), history, "x", allowed)
    assert line.startswith("The quorum comes first: 1 of 3 voters are left")
