"""In which order to start the brokers that partitions without a leader wait for.

Kafka elects a leader by itself as soon as a replica that may lead is unfenced, so the order is all there is to decide.
It matters where unclean election is on: there the first live replica leads, whatever its log holds
(PartitionChangeBuilder.electLeader, Kafka 4.3.0). Otherwise it decides which partitions come back first.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraft_audit.recovery.leaderless_partitions import RecoveryPlan
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.kafka_commands import broker_server, controller_server
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.text.readable import and_more, listed, nouns

Ask: TypeAlias = Callable[[Question], Permission]
TOPICS_OR_PARTITIONS_NAMED: Final = 3
ELECTED_IN_ONE_LINE: Final = 20
"""An election of more partitions is printed with --all alone."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """`brokers` in the order to start them. `cannot_lead` are those of them that may lead none of the partitions
    before they have caught up.

    `without_dir`: (broker, partition) whose log dir the broker's last registration does not list. `contested` are
    partitions with unclean election for which no order is right for all: then `brokers` is empty.
    """

    brokers: tuple[int, ...]
    cannot_lead: tuple[int, ...] = ()
    without_dir: tuple[tuple[int, str], ...] = ()
    contested: tuple[str, ...] = ()


NO_ORDER: Final = StartOrder(())


def start_order(plans: Sequence[RecoveryPlan]) -> StartOrder:
    """Whoever alone can lead the most partitions comes first, then whoever can lead the most others. Where unclean
    election is on, a replica that may not lead is never started before one that may."""
    waiting = [plan for plan in plans if plan.shipped.leader is None and plan.down]
    without_dir = tuple((broker, _name(plan)) for plan in plans for broker in plan.replicas if broker in plan.off_disk)
    left = sorted({broker for plan in waiting for broker in plan.down})
    open_plans, order = list(waiting), []
    while left:
        allowed = [broker for broker in left if not any(_spoils(plan, broker) for plan in open_plans)]
        if not allowed:
            spoiled = {_name(plan) for plan in open_plans for broker in left if _spoils(plan, broker)}
            return StartOrder((), (), without_dir, tuple(sorted(spoiled)))
        broker = max(allowed, key=lambda each: (*_worth(open_plans, each), -each))
        order.append(broker)
        left.remove(broker)
        open_plans = [plan for plan in open_plans if broker not in _able(plan)]
    members = {broker for plan in waiting for broker in (*_members(plan), *plan.last_known_elr)}
    return StartOrder(tuple(order), tuple(broker for broker in order if broker not in members), without_dir)


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
    order, quoted = start_order(plans), shlex.quote(path)
    standing, rescued = quorum_standing(history), waiting_recovery(history)
    if rescued is not None:
        node_id = rescued.rescue.node_id
        yield f"Start node {node_id} first, as the procedure of its rescue says, and check that it leads."
    elif standing.standing not in (Standing.HEALTHY, Standing.AT_REST):
        yield f"The quorum comes first: {standing.reason}.   kraft-audit check {quoted}"
        return
    if order.contested:
        yield (
            "No order of starts is right for all partitions: where unclean election is on, the first replica that is "
            f"back leads. {_turn_off(order.contested, history)}"
        )
    for broker in dict.fromkeys(broker for broker, _ in order.without_dir):
        its = _named([name for each, name in order.without_dir if each == broker])
        yield (
            f"Start or restart broker {broker} only with the log dir that holds {its}: with another disk in its place "
            f"the broker leads with an empty log.   kraft-audit may-i start {broker} {quoted}"
        )
    if rescued is not None and order.brokers:
        yield f"{_order_text(order)}. Wipe none."
    elif order.brokers and order.brokers[0] not in dict(order.without_dir):
        yield from _order_lines(plans, order, history, path, ask)
    yield from _election_lines(plans, history, show_all=show_all)


def _turn_off(names: Sequence[str], history: ClusterHistory) -> str:
    """How to let partitions wait for a replica that may lead; `names` are theirs."""
    topics = topics_of(names)
    off = no_unclean_election(controller_server(history), topics[0])
    return f"Turn unclean election off for {_named(topics)} before any start, copy the disks and ask again.   {off}"


def topics_of(names: Sequence[str]) -> list[str]:
    """The topics of partitions that are named TOPIC-NUMBER."""
    return sorted({name.rpartition("-")[0] for name in names})


def no_unclean_election(server: str, topic: str) -> str:
    """The command that turns unclean election off for a topic."""
    return (
        f"kafka-configs {server} --alter --entity-type topics --entity-name {shlex.quote(topic)} "
        "--add-config unclean.leader.election.enable=false"
    )


def _named(names: Sequence[str]) -> str:
    return listed(names[:TOPICS_OR_PARTITIONS_NAMED]) + and_more(len(names) - TOPICS_OR_PARTITIONS_NAMED)


def _order_lines(
    plans: Sequence[RecoveryPlan], order: StartOrder, history: ClusterHistory, path: str, ask: Ask
) -> Iterator[str]:
    first, *rest = order.brokers
    asked = f"kraft-audit may-i start {first} {shlex.quote(path)}"
    permission = ask(Question(Action.START, first, path))
    if permission.verdict is not Verdict.YES:
        unclean = [_name(plan) for plan in plans if plan.unclean_election_enabled and plan.shipped.leader is None]
        on = f"{_turn_off(unclean, history)}" if unclean else asked
        yield f"Do not start broker {first} yet, which would come first. {permission.reason}   {on}"
        return
    yield f"{_order_text(order)}. Wipe none.   {asked}"
    if rest:
        yield f"Copy the disks and ask again before each further start: the return of {first} may change the order."


def _order_text(order: StartOrder) -> str:
    first, *rest = order.brokers
    text = f"Start broker {first} with its disk"
    if rest:
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
        chosen = {"partitions": [{"topic": plan.topic, "partition": plan.partition} for plan in waiting]}
        command = (
            f"echo {shlex.quote(json.dumps(chosen))} > elections.json; kafka-leader-election {broker_server(history)} "
            "--election-type unclean --path-to-json-file elections.json"
        )
    condition, lost = "Only if none of their replicas will come back that held everything", "what they held"
    if holders:
        its = "its disk" if len(holders) == 1 else "their disks"
        condition = f"Only if {nouns('broker', holders)} will never come back with {its}"
        lost = f"what only {listed(holders)} held"
    yield f"{condition}, elect whoever is up: {lost} is lost then.   {command}"
