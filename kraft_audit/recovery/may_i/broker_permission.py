"""May this broker be started, restarted, wiped, removed, or lose its volume: what its partitions say.

Acknowledged data is on the ISR and the ELR (KIP-966), and after an unclean stop of all of them with the last known
leader (PartitionChangeBuilder, Kafka 4.3).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict, controller_permission
from kraft_audit.recovery.may_i.start_safety import StartSafety, durability
from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.frame import holders
from kraft_audit.rules.columns.kafka_commands import UNKNOWN_ADDRESS, broker_address
from kraft_audit.rules.columns.nodes import absences, broker_states, is_up
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.readable import any_of, listed

PARTITIONS_NAMED: Final = 3


def broker_permission(question: Question, history: ClusterHistory) -> Permission | None:
    """The answer for a broker; None where the log never registered one of that id."""
    if question.node_id not in broker_states(history):
        return None
    up = [broker for broker in broker_states(history) if is_up(history, broker)]
    running = tuple(sorted(({*up, question.node_id} - question.gone) - (question.stopped - {question.node_id})))
    if question.action is Action.START:
        return _start(question, history, running)
    if question.action is Action.RESTART:
        return _restart(question, history, running)
    return _lose(question, history, running)


def permission(
    question: Question, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission | None:
    """The answer for a node, and what no election can lose; None where there is no such node."""
    answer = node_permission(question, safety, undecided, history)
    return answer and replace(answer, cannot_be_lost=None if safety is None else durability(safety))


def node_permission(
    question: Question, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission | None:
    """The answer alone, the worse one where a node is both broker and voter; None where there is no such node."""
    with_earlier = question.action is Action.WIPE
    is_voter = safety is None or question.node_id in safety.voter_ids(with_earlier=with_earlier)
    of_broker = broker_permission(question, history)
    if of_broker is not None and not is_voter:  # another broker's copy of the log is an observer's
        return of_broker
    of_controller = controller_permission(question, safety, undecided, history)
    answers = [answer for answer in (of_controller, of_broker) if answer is not None]
    return max(answers, key=lambda answer: answer.verdict.rank, default=None)


def _rows(states: PartitionStates, broker: int, *lists: str) -> Rows:
    """The newest rows of partitions that name the broker in one of these lists."""
    is_named = np.zeros(len(states), bool)
    for name in lists:
        is_named |= states.in_order(holders(states.changes.lists[name], (broker,)))
    rows: Rows = np.flatnonzero(is_named & states.is_last & states.exists)
    return rows


def _lose(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """No while it alone holds what was acknowledged, or is the last known leader of a partition without one."""
    states, broker = partition_states(history), question.node_id
    alone = [
        row
        for row in _rows(states, broker, "isr", "elr", "last_known_elr").tolist()
        if {*states.nodes("isr", row), *states.nodes("elr", row)} - question.gone <= {broker}
        and (
            broker in (*states.nodes("isr", row), *states.nodes("elr", row))
            or (states.leader[row] == -1 and broker in states.nodes("last_known_elr", row))
        )
    ]
    path = shlex.quote(question.path)
    if alone:
        reason = f"Broker {broker} is the only replica left with all acknowledged records of {_names(states, alone)}."
        step = f"Let another replica into the ISR first: kraft-audit recover-plan {path}"
        return Permission(Verdict.NO, reason, (step,), running)
    doubt = _what_replay_lacks(history)
    if doubt is not None:
        return Permission(Verdict.UNDECIDED, doubt, (f"kraft-audit check {path}",), running)
    reason = f"Every partition has its acknowledged records on another broker than {broker}, in the ISR or the ELR."
    steps: tuple[str, ...] = ()
    if question.action is Action.REMOVE:
        address = _address(history, running, broker)
        steps = (f"With broker {broker} stopped: kafka-cluster unregister --bootstrap-server {address} --id {broker}",)
    return Permission(Verdict.YES, reason, steps, running)


def _restart(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """Outage where the ISR without it is smaller than min ISR: acks=all writes are refused meanwhile."""
    states, broker = partition_states(history), question.node_id
    rows = _rows(states, broker, "isr")
    short = [row for row in rows.tolist() if states.size_of("isr", row) - 1 < int(states.effective_min_isr[row])]
    if short:
        offline = sum(states.size_of("isr", row) == 1 for row in short)
        dark = f", and {offline} of them have no leader then" if offline else ""
        reason = (
            f"Outage: without broker {broker} {_names(states, short)} have an ISR below min ISR, so acks=all writes "
            f"are refused until it is back{dark}. A controlled shutdown loses nothing."
        )
        step = "Wait until their ISR has grown, or restart it when writes may stop: kafka-topics --bootstrap-server "
        step += f"{_address(history, running, broker)} --describe --under-replicated-partitions"
        return Permission(Verdict.NO, reason, (step,), running)
    return _start(question, history, running)


def _start(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """Undecided where it may be elected uncleanly while another replica that holds what was acknowledged is away."""
    states, broker = partition_states(history), question.node_id
    path = shlex.quote(question.path)
    left_cleanly = any(a.broker_id == broker and a.to_offset is None and a.is_clean for a in absences(history))
    risky: list[int] = []
    members: set[int] = set()
    for row in _rows(states, broker, "replicas").tolist():
        eligible = {*states.nodes("isr", row), *states.nodes("elr", row)}
        away = eligible - {broker, *running}
        is_safe = states.leader[row] != -1 or not away or (broker in eligible and left_cleanly)
        if not is_safe and unclean_election_enabled(history, states.topic(row)):
            risky.append(row)
            members |= eligible - question.gone
    if risky:
        reason = (
            f"Unclean election is on for {_names(states, risky)}, which have no leader: broker {broker} may be elected "
            "without records that others hold."
        )
        first = f"Start {any_of(sorted(members))} first" if members else "No member of ISR or ELR is left"
        return Permission(Verdict.UNDECIDED, reason, (f"{first}: kraft-audit recover-plan {path}",), running)
    doubt = _what_replay_lacks(history)
    if doubt is not None:
        return Permission(Verdict.UNDECIDED, doubt, (f"kraft-audit check {path}",), running)
    reason = f"Broker {broker} can be elected only where it holds what was acknowledged."
    return Permission(Verdict.YES, reason, (), running)


def _what_replay_lacks(history: ClusterHistory) -> str | None:
    """Why the partitions that were replayed may not be all, or not as they are."""
    if not history.is_read or not history.is_replayed:
        return "No log could be replayed: what the brokers hold is not known."
    if not history.is_complete:
        return "The log begins after offset 0 without a snapshot: partitions may be missing in what was replayed."
    if history.unknown_from is not None:
        return f"Records from offset {history.unknown_from} on are missing: partitions may have changed since."
    return None


def _names(states: PartitionStates, rows: Sequence[int]) -> str:
    names: list[object] = [states.name(row) for row in rows[:PARTITIONS_NAMED]]
    return listed([*names, f"{len(rows) - PARTITIONS_NAMED} more"] if len(rows) > PARTITIONS_NAMED else names)


def _address(history: ClusterHistory, running: Sequence[int], but: int) -> str:
    """host:port of another broker that runs."""
    return broker_address(history, [broker for broker in running if broker != but]) or UNKNOWN_ADDRESS
