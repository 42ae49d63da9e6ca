"""Which node a rolling restart takes next, or what it waits for: what must be back first, then `restart` node by node.

A node is restarted only while every other one is there: brokers in service, voters near the end of the log, the ISR of
every partition whole. Controllers come first and their leader last, so that the lead moves once.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from kraft_audit.recovery.may_i.controller_permission import NEAR_RECORDS
from kraft_audit.recovery.may_i.node_permission import controllers_of, node_permission
from kraft_audit.recovery.may_i.permission import Permission, RollQuestion, Verdict
from kraft_audit.recovery.may_i.start_safety import StartSafety
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import LONG_FENCED_MS, gone_brokers
from kraft_audit.rules.columns.captures import is_no_evidence, newest_round
from kraft_audit.rules.columns.kafka_commands import broker_server, controller_server
from kraft_audit.rules.columns.nodes import absences, broker_states, is_ghost_controller, is_up
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.quorum_standing import BROKEN, QuorumStanding, Standing, quorum_standing
from kraft_audit.rules.columns.unheld_records import WAITS_AFTER_MS
from kraft_audit.rules.columns.voter_lag import lag_below
from kraft_audit.text.readable import listed, nouns, plural, when

PARTITIONS_SHOWN = 3


def roll_permission(
    question: RollQuestion, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission:
    """Yes with the node to restart next; no with what to wait for; undecided where the disks do not show it."""
    standing = quorum_standing(history)
    if standing.standing is not Standing.HEALTHY:
        return _quorum_first(question, standing)
    order = _order(question, standing, safety, history)
    nodes = {*order, *question.restarted}
    if unseen := sorted(set(standing.missing) - question.gone):
        return _unseen(question, unseen, safety, undecided, history)
    wait = _away(question, nodes, history) or _lagging(question, standing, history) or _short(question, history)
    if wait is not None:
        reason, *steps = wait
        return Permission(Verdict.NO, f"Wait. {reason}", (*steps, _again(question)), order=order)
    answers = []
    for node_id in order:
        answer = node_permission(question.restart(node_id), safety, undecided, history)
        if answer is None:
            continue
        if answer.verdict is Verdict.YES:
            return _next(question, answer, node_id, order)
        answers.append((answer.verdict.rank, node_id, answer))
    if not answers:
        return Permission(Verdict.YES, f"{nouns('Node', sorted(nodes))}: all were restarted.")
    _, node_id, least = min(answers, key=lambda each: each[0])
    others = f" No other node may be restarted now either: {listed([n for _, n, _ in answers if n != node_id])}."
    reason = f"Node {node_id}: {least.reason}{others if len(answers) > 1 else ''}"
    steps = [*least.next_steps, _again(question)]
    if least.reason.startswith("Outage"):
        on = question.command(question.restarted | {node_id})
        steps.append(f"Where waiting does not help and writes may stop, restart node {node_id}, then: {on}")
    return Permission(least.verdict, reason, tuple(steps), least.running, order=order)


def _next(question: RollQuestion, answer: Permission, node_id: int, order: Sequence[int]) -> Permission:
    rest = [each for each in order if each != node_id]
    then = f" Then {listed(rest)}." if rest else " It is the last one."
    asked = question.command(question.restarted | {node_id})
    steps = (
        f"Stop node {node_id} in order (SIGTERM), and start it again with its disk.",
        f"Once it is back, copy the disks again: {asked}",
    )
    reason = f"Restart node {node_id} next. {answer.reason}{then}"
    return Permission(Verdict.YES, reason, steps, answer.running, order=(node_id, *rest))


def _unseen(
    question: RollQuestion,
    voters: Sequence[int],
    safety: StartSafety | None,
    undecided: str | None,
    history: ClusterHistory,
) -> Permission:
    """Voters whose disk was not read, or is another cluster's: whether they run and keep up is not known."""
    for voter in voters:
        answer = node_permission(question.restart(voter), safety, undecided, history)
        if answer is not None and answer.verdict is Verdict.NO:
            return Permission(Verdict.NO, f"Wait. {answer.reason}", (*answer.next_steps, _again(question)))
    disks = nouns("controller", voters)
    reason = f"It depends on {disks}, whose disk{'s' * (len(voters) > 1)} nothing here shows: whether they keep up."
    again = question.command(question.restarted)
    step = f"Copy the disks of {disks} below {shlex.quote(question.path)} too, then: {again}"
    return Permission(Verdict.UNDECIDED, reason, (step,))


def _again(question: RollQuestion) -> str:
    return f"Then copy the disks again: {question.command(question.restarted)}"


def _quorum_first(question: RollQuestion, standing: QuorumStanding) -> Permission:
    verdict = Verdict.NO if standing.standing in {*BROKEN, Standing.AT_REST} else Verdict.UNDECIDED
    reason = f"The quorum comes first: {standing.standing}, {standing.reason}."
    if standing.standing is Standing.AT_REST:
        reason = f"Nothing runs that could be restarted: {standing.reason}."
    return Permission(verdict, reason, (f"kraft-audit check {shlex.quote(question.path)}",))


def _order(
    question: RollQuestion, standing: QuorumStanding, safety: StartSafety | None, history: ClusterHistory
) -> tuple[int, ...]:
    """Who is left: controllers that follow, then their leader, then brokers."""
    controllers = [node for node in controllers_of(safety, history) if not is_ghost_controller(history, node)]
    controllers.sort(key=lambda node: (node == standing.leader_id, node))
    gone = gone_brokers(history)
    brokers = [broker for broker in broker_states(history) if broker not in gone]
    done = question.restarted | question.gone
    return tuple(node for node in dict.fromkeys([*controllers, *brokers]) if node not in done)


def _away(question: RollQuestion, nodes: set[int], history: ClusterHistory) -> list[str] | None:
    """Nodes that do not run: the reason, and how each comes back."""
    gone = {*gone_brokers(history), *question.gone}
    down = [broker for broker in broker_states(history) if not is_up(history, broker) and broker not in gone]
    stopped = sorted((question.stopped & nodes) | set(down))
    if not stopped:
        return None
    since = {absence.broker_id: absence.from_ms for absence in absences(history) if absence.to_offset is None}
    named = [f"{each} since {when(since[each])}" if each in since else str(each) for each in stopped]
    verb = "is" if len(stopped) == 1 else "are"
    path = shlex.quote(question.path)
    states = partition_states(history)
    if (states.is_last & states.exists & (states.leader == -1)).any():
        steps = [f"Partitions have no leader, so the order of starts matters: kraft-audit recover-plan {path}"]
    else:
        steps = [f"Start {each}: kraft-audit may-i start {each} {path}" for each in stopped[:PARTITIONS_SHOWN]]
    for broker in (broker for broker in down if (history.end_ms or 0) - since.get(broker, 1 << 62) > LONG_FENCED_MS):
        steps.append(f"If broker {broker} is gone for good: kraft-audit may-i scale-in {broker} {path}")
    return [f"{nouns('Node', named)} {verb} away.", *steps]


def _lagging(question: RollQuestion, standing: QuorumStanding, history: ClusterHistory) -> list[str] | None:
    """Voters whose logs end far behind what is committed, so that a restart of another one leaves no majority."""
    low, behind = standing.committed_to, {}
    for row in newest_round(history):
        if low is None or row["node_id"] not in standing.voters or row["node_id"] in question.gone:
            continue
        records, seconds = lag_below(history, row, low)
        if not is_no_evidence(row) and (records > NEAR_RECORDS or seconds * 1000 > WAITS_AFTER_MS):
            behind[row["node_id"]] = f"{row['node_id']} by {plural(records, 'record')}, {seconds:.0f} s of the log"
    if not behind:
        return None
    verb = "lags" if len(behind) == 1 else "lag"
    reason = f"{nouns('Voter', [behind[node] for node in sorted(behind)])} {verb} behind offset {low}."
    leader = [] if standing.leader_id is None else [standing.leader_id]
    return [reason, f"See whether they fetch: kafka-metadata-quorum {_server(history, leader)} describe --replication"]


def _server(history: ClusterHistory, leader: Sequence[int]) -> str:
    return controller_server(history, leader or None)


def _short(question: RollQuestion, history: ClusterHistory) -> list[str] | None:
    """Partitions that lack a replica in the ISR whose broker is there or may come back."""
    states, gone = partition_states(history), {*gone_brokers(history), *question.gone}
    rows = np.flatnonzero(states.is_last & states.exists & (states.size("isr") < states.size("replicas")))
    lacking = {row: _missing(states.nodes("replicas", row), states.nodes("isr", row), gone) for row in rows.tolist()}
    short = [row for row, missing in lacking.items() if missing]
    if not short:
        return None
    named: list[object] = [*states.names(np.array(short[:PARTITIONS_SHOWN], np.int64))]
    named += [f"{len(short) - PARTITIONS_SHOWN} more"] if len(short) > PARTITIONS_SHOWN else []
    brokers = sorted({broker for row in short for broker in lacking[row]})
    reason = (
        f"The ISR of {plural(len(short), 'partition')} is not whole, it lacks {nouns('broker', brokers)}: "
        f"{listed(named)}."
    )
    return [reason, f"kafka-topics {broker_server(history)} --describe --under-replicated-partitions"]


def _missing(replicas: Sequence[int], isr: Sequence[int], gone: set[int]) -> list[int]:
    return [broker for broker in replicas if broker not in isr and broker not in gone]
