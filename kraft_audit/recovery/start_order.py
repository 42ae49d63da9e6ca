"""In which order to start the brokers that partitions without a leader wait for.

Kafka elects a leader by itself as soon as a replica that may lead is unfenced, so the order is all there is to decide.
It matters where unclean election is on: there the first live replica leads, whatever its log holds
(PartitionChangeBuilder.electLeader, Kafka 4.3.0). Otherwise it decides which partitions come back first.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kraft_audit.recovery.leaderless_partitions import RecoveryPlan, leaderless_rows, recovery_plans
from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.unclean_start import UNCLEAN_IS_ON, led_uncleanly, no_unclean_elections
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.kafka_commands import broker_server
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.text.readable import and_more, listed, nouns
from kraft_audit.text.shell_commands import json_parts, written_by_echo

Ask: TypeAlias = Callable[[Question], Permission]
TOPICS_OR_PARTITIONS_NAMED: Final = 3
ELECTED_IN_ONE_LINE: Final = 20
"""An election of more partitions is printed with --all alone."""
ORDERED_BY_CHECK: Final = 2_000
"""Of more partitions without a leader `check` leaves the order to `recover-plan`: each of them takes a millisecond."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """`brokers` in the order to start them. `cannot_lead` are those of them that may lead none of the partitions
    before they have caught up.

    `without_dir`: (broker, partition) whose log dir the broker's last registration does not list. `contested` are
    partitions with unclean election for which no order is right for all: then `brokers` is empty. `at_risk` are
    partitions with unclean election, where the first of `brokers` may be elected without records that others hold.
    `has_unclean`: unclean election is on for some partition, so that a broker waits until the one before leads.
    """

    brokers: tuple[int, ...]
    cannot_lead: tuple[int, ...] = ()
    without_dir: tuple[tuple[int, str], ...] = ()
    contested: tuple[str, ...] = ()
    at_risk: tuple[str, ...] = ()
    has_unclean: bool = False


NO_ORDER: Final = StartOrder(())


def start_order(plans: Sequence[RecoveryPlan]) -> StartOrder:
    """Whoever alone can lead the most partitions comes first, then whoever can lead the most others, then other members
    of ISR and ELR, which partitions wait for if the first ones crashed. Where unclean election is on, a replica that
    may not lead is never started before one that may."""
    waiting = [plan for plan in plans if plan.shipped.leader is None and plan.down]
    without_dir = tuple((broker, _name(plan)) for plan in plans for broker in plan.replicas if broker in plan.off_disk)
    left = sorted({broker for plan in waiting for broker in plan.down})
    members = {broker for plan in waiting for broker in (*_members(plan), *plan.last_known_elr)}
    open_plans, order = list(waiting), []
    while left:
        allowed = [broker for broker in left if not any(_spoils(plan, broker) for plan in open_plans)]
        if not allowed:
            spoiled = {_name(plan) for plan in open_plans for broker in left if _spoils(plan, broker)}
            return StartOrder((), (), without_dir, tuple(sorted(spoiled)))
        broker = max(allowed, key=lambda each: (*_worth(open_plans, each), each in members, -each))
        order.append(broker)
        left.remove(broker)
        open_plans = [plan for plan in open_plans if broker not in _able(plan)]
    cannot_lead = tuple(broker for broker in order if broker not in members)
    has_unclean = any(plan.unclean_election_enabled for plan in waiting)
    return StartOrder(tuple(order), cannot_lead, without_dir, has_unclean=has_unclean)


def order_of_starts(history: ClusterHistory, plans: Sequence[RecoveryPlan] | None = None) -> StartOrder:
    """The order of starts at the end of a log, with what its first start puts at risk.

    `plans` are those of `recovery_plans`, if they are known. Of a cluster at rest, partitions wait as well that a
    broker led when it stopped with the last majority.
    """
    stopped = _stopped_unrecorded(history)
    if plans is None or stopped:
        plans = recovery_plans(history, stopped=stopped)
    order = start_order(plans)
    running = [broker for broker in broker_states(history) if is_up(history, broker) and broker not in stopped]
    if not order.brokers or not led_uncleanly(history, order.brokers[0], running):
        return order
    unclean = [plan for plan in plans if plan.unclean_election_enabled and plan.shipped.leader is None]
    return replace(order, at_risk=tuple(map(_name, unclean)))


def _stopped_unrecorded(history: ClusterHistory) -> tuple[int, ...]:
    """The brokers of a cluster at rest that no majority was left to fence."""
    standing = quorum_standing(history)
    if standing.standing is not Standing.AT_REST:
        return ()
    return tuple(broker for broker in standing.stopped_brokers if is_up(history, broker))


def first_start(history: ClusterHistory, path: str) -> tuple[int | None, str]:
    """Which broker `recover-plan` has started first, None where none may start yet; and the sentence that says so.

    Nothing where the order is up to `recover-plan`, or nobody can be started. `path` is what was read.
    """
    stands = quorum_standing(history).standing in (Standing.HEALTHY, Standing.AT_REST)
    if not stands or len(leaderless_rows(history, _stopped_unrecorded(history))) > ORDERED_BY_CHECK:
        return None, ""
    order = order_of_starts(history)
    if order.contested:
        return None, f"{no_unclean_elections(history, topics_of(order.contested))[0]}."
    if not order.brokers:
        return None, ""
    first = order.brokers[0]
    if its := [name for broker, name in order.without_dir if broker == first]:
        return None, f"Start broker {first} only with the log dir that holds {_named(its)}."
    permission = broker_permission(Question(Action.START, first, path), history)
    if permission is None or permission.verdict is Verdict.YES:
        return first, f"Start broker {first} first, with its disk."
    if _is_unclean(permission, order):
        off, _ = no_unclean_elections(history, topics_of(order.at_risk))
        return first, f"{off}. Then start broker {first} first, with its disk."
    return None, f"Do not start broker {first} yet, which would come first. {permission.reason}"


def _is_unclean(permission: Permission, order: StartOrder) -> bool:
    """Whether unclean election alone stands against the first start."""
    return bool(order.at_risk) and permission.reason.startswith(UNCLEAN_IS_ON)


def _able(plan: RecoveryPlan) -> tuple[int, ...]:
    """The replicas that are down and may lead once they are back: those that surely hold everything, where there are
    any; where no replica is eligible, the last known leader."""
    eligible = [broker for broker in plan.isr or plan.elr if broker in plan.replicas and broker not in plan.off_disk]
    if not eligible and not (plan.isr or plan.elr) and len(plan.last_known_elr) == 1:
        eligible = list(plan.last_known_elr)
    down = [broker for broker in eligible if broker in plan.down]
    return tuple(broker for broker in down if broker in plan.sure) or tuple(down)


def _members(plan: RecoveryPlan) -> tuple[int, ...]:
    """Who may hold everything: the ISR, else the ELR, else who led last."""
    return plan.isr or plan.elr or plan.last_known_elr


def _spoils(plan: RecoveryPlan, broker: int) -> bool:
    """Whether a broker that is back first would lead a partition for which another one should."""
    return plan.unclean_election_enabled and broker in plan.down and broker not in _able(plan)


def _worth(plans: Sequence[RecoveryPlan], broker: int) -> tuple[int, int, int]:
    """How many partitions a broker alone can lead, how many it can, and how many it led last."""
    able = [_able(plan) for plan in plans]
    return (
        sum(each == (broker,) for each in able),
        sum(broker in each for each in able),
        sum(broker in plan.last_known_elr for plan in plans),
    )


def _name(plan: RecoveryPlan) -> str:
    return f"{plan.topic}-{plan.partition}"


def start_lines(
    plans: Sequence[RecoveryPlan], history: ClusterHistory, path: str, ask: Ask, *, show_all: bool = False
) -> Iterator[str]:
    """The order of starts in sentences, as far as `may-i` allows the first of them, and what is left if a disk is lost.

    `path` is what was read, for commands to paste; `ask` answers what may be done.
    """
    if not plans and not _stopped_unrecorded(history):
        return
    order, quoted = order_of_starts(history, plans), shlex.quote(path)
    standing, rescued = quorum_standing(history), waiting_recovery(history)
    if rescued is not None:
        node_id = rescued.rescue.node_id
        yield f"Start node {node_id} first, as the procedure of its rescue says, and check that it leads."
    elif standing.standing not in (Standing.HEALTHY, Standing.AT_REST):
        yield f"The quorum comes first: {standing.reason}.   kraft-audit check {quoted}"
        return
    if order.contested:
        why = (
            "No order of starts is right for all partitions: where unclean election is on, the first replica that is "
            "back leads."
        )
        yield from _turn_off(order.contested, history, why)
    for broker in dict.fromkeys(broker for broker, _ in order.without_dir):
        its = _named([name for each, name in order.without_dir if each == broker])
        yield (
            f"Start or restart broker {broker} only with the log dir that holds {its}: with another disk in its place "
            f"the broker leads with an empty log.   kraft-audit may-i start {broker} {quoted}"
        )
    if rescued is not None and order.brokers:
        if order.at_risk:
            yield from _turn_off(order.at_risk, history, f"{UNCLEAN_IS_ON} {_named(order.at_risk)}.")
        yield f"{_order_text(order, history)}. Wipe none."
    elif order.brokers and order.brokers[0] not in dict(order.without_dir):
        yield from _order_lines(order, history, path, ask)
    yield from _election_lines(plans, history, show_all=show_all)


def _turn_off(names: Sequence[str], history: ClusterHistory, why: str) -> Iterator[str]:
    """How to let partitions wait for a replica that may lead; `names` are theirs."""
    off, commands = no_unclean_elections(history, topics_of(names))
    yield f"Start no broker yet. {why} {off}.   {commands[0]}"
    yield from commands[1:]


def topics_of(names: Sequence[str]) -> list[str]:
    """The topics of partitions that are named TOPIC-NUMBER."""
    return sorted({name.rpartition("-")[0] for name in names})


def _named(names: Sequence[str]) -> str:
    return listed(names[:TOPICS_OR_PARTITIONS_NAMED]) + and_more(len(names) - TOPICS_OR_PARTITIONS_NAMED)


def _order_lines(order: StartOrder, history: ClusterHistory, path: str, ask: Ask) -> Iterator[str]:
    first, *rest = order.brokers
    asked = f"kraft-audit may-i start {first} {shlex.quote(path)}"
    permission, text = ask(Question(Action.START, first, path)), _order_text(order, history)
    if _is_unclean(permission, order):
        yield from _turn_off(order.at_risk, history, permission.reason)
        text = f"Then {text[:1].lower()}{text[1:]}"
    elif permission.verdict is not Verdict.YES:
        yield f"Do not start broker {first} yet, which would come first. {permission.reason}   {asked}"
        return
    yield f"{text}. Wipe none.   {asked}"
    if rest:
        yield f"Copy the disks and ask again before each further start: the return of {first} may change the order."


def _order_text(order: StartOrder, history: ClusterHistory) -> str:
    first, *rest = order.brokers
    text = f"Start broker {first} with its disk"
    standing = quorum_standing(history)
    if standing.standing is Standing.AT_REST and first in standing.voters and rest and not order.has_unclean:
        voters = nouns("voter", sorted(standing.voters))
        text += (
            f", then {', then '.join(map(str, rest))}, without waiting between them: a broker is unfenced only once "
        )
        text += f"{standing.majority} of {voters} run"
    elif rest:
        text += f", wait until it is unfenced, then {', then '.join(map(str, rest))}"
    if order.cannot_lead:
        text += f". {listed(order.cannot_lead)} can lead none of these partitions before they have caught up"
    return text


def _election_lines(plans: Sequence[RecoveryPlan], history: ClusterHistory, *, show_all: bool) -> Iterator[str]:
    """What kafka-leader-election takes, for whoever gives up what the disks hold that do not come back."""
    waiting = [plan for plan in plans if plan.shipped.leader is None and set(plan.replicas) - set(_members(plan))]
    if not waiting:
        return  # nobody else could lead
    holders = sorted({broker for plan in waiting for broker in _members(plan)})
    if len(waiting) > ELECTED_IN_ONE_LINE and not show_all:
        command = "--all prints the election"
    else:
        chosen = ({"topic": plan.topic, "partition": plan.partition} for plan in waiting)
        file = written_by_echo("elections.json", json_parts('{"partitions": ', chosen))
        command = (
            f"{file}; kafka-leader-election {broker_server(history)} --election-type unclean "
            "--path-to-json-file elections.json"
        )
    condition, lost = "Only if none of their replicas will come back that held everything", "what they held"
    if holders:
        its = "its disk" if len(holders) == 1 else "their disks"
        condition = f"Only if {nouns('broker', holders)} will never come back with {its}"
        lost = f"what only {listed(holders)} held"
    yield f"{condition}, elect whoever is up: {lost} is lost then.   {command}"
