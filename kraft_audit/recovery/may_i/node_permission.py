"""One question about one node, a controller, a broker or both: whose disk it is, who else holds its records, and then
what elections and partitions would do.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.controller_case import is_voter
from kraft_audit.recovery.may_i.controller_permission import NEVER_STARTED, controller_permission, is_first_start
from kraft_audit.recovery.may_i.durability import durability
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.start_safety import StartSafety
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import replica_end
from kraft_audit.rules.columns.kafka_commands import format_standalone
from kraft_audit.rules.columns.node_identities import identity_doubts
from kraft_audit.rules.columns.nodes import broker_states, registrations
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.text.gone_nodes import are_lost, gone_option
from kraft_audit.text.readable import nouns, offset_span


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
    if question.action is not Action.SCALE_IN and (foreign := _foreign(question, history)) is not None:
        return foreign
    if question.action is not Action.SCALE_IN and (mistaken := _mistaken(question, history)) is not None:
        return mistaken
    if question.is_standalone:
        return _standalone(question, safety, history)
    answer = _by_role(question, safety, undecided, history)
    if answer is None or safety is None or answer.verdict is not Verdict.YES or not question.action.empties_disk:
        return answer
    return _last_copy(question, safety, history) or answer


def _by_role(
    question: Question, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission | None:
    of_broker = broker_permission(question, history)
    if of_broker is not None and safety is not None and not is_voter(question, safety):
        is_controller = ("controller", question.node_id) in registrations(history)
        if question.action is not Action.SCALE_IN or not is_controller:
            return of_broker  # another broker's copy of the log is an observer's
    of_controller = controller_permission(question, safety, undecided, history)
    answers = [answer for answer in (of_controller, of_broker) if answer is not None]
    worst = max(answers, key=lambda answer: answer.verdict.rank, default=None)
    if question.action is Action.SCALE_IN and worst is not None and worst.verdict is Verdict.YES:
        return replace(worst, next_steps=tuple(step for answer in answers for step in answer.next_steps))
    return worst


def controllers_of(safety: StartSafety | None, history: ClusterHistory) -> list[int]:
    """Voters of any captured log or of the newest set, and registered controllers."""
    ids = {node_id for kind, node_id in registrations(history) if kind == "controller"}
    ids |= voter_ids(current_set(history))
    if safety is not None:
        ids |= safety.voter_ids(with_earlier=False)
    return sorted(ids)


# Whose disk it is


def _foreign(question: Question, history: ClusterHistory) -> Permission | None:
    """No, where the node's newest captured disk is another cluster's."""
    own = [row for row in history.rows("captures") if row["node_id"] == question.node_id]
    newest = max(own, key=lambda row: row["capture_number"], default=None)
    if newest is None or newest["accepted"]:
        return None
    named = f"meta.properties of node {question.node_id} names cluster {newest['meta_cluster_id']}"
    path = shlex.quote(question.path)
    again = f"copy it below {path}, then: kraft-audit may-i {question.action} {question.node_id} {path}"
    if question.action.empties_disk:
        reason = f"{named}, and this one is {history.cluster_id}: it may be that cluster's only copy."
        step = f"Keep that disk. Put node {question.node_id}'s own or an empty one in its place, {again}"
        return Permission(Verdict.NO, reason, (step,))
    reason = (
        f"{named}, and this one is {history.cluster_id}: the other nodes refuse whatever it sends "
        "(INCONSISTENT_CLUSTER_ID)."
    )
    return Permission(Verdict.NO, reason, (f"Put the right disk back, {again}",))


def _mistaken(question: Question, history: ClusterHistory) -> Permission | None:
    """No, where the node's disk or its configuration is another node's."""
    doubts = identity_doubts(history).get(question.node_id)
    if doubts is None:
        return None
    reason = f"Node {question.node_id} is not what it seems: {', and '.join(fact.text for fact in doubts)}."
    steps = (
        "Find out whose disk it is, and give that node its own disk and configuration back.",
        f"Copy it again below {shlex.quote(question.path)}, then: kraft-audit may-i {question.action} "
        f"{question.node_id} {shlex.quote(question.path)}",
    )
    return Permission(Verdict.NO, reason, steps)


# What an emptied disk held


def _last_copy(question: Question, safety: StartSafety, history: ClusterHistory) -> Permission | None:
    """No where no other disk has a committed record that this one holds, voter or not; None where others have all.

    What may be committed counts as well, unless the quorum works: then its disks have it by now.
    """
    here = [disk for disk in safety.disks if disk.is_captured and disk.node_id not in question.gone]
    held = max((disk.held_to for disk in here if disk.node_id == question.node_id), default=0)
    elsewhere = max((disk.held_to for disk in here if disk.node_id != question.node_id), default=0)
    committed_to = min(safety.low, held)
    may_be_to = held if safety.high is None else min(safety.high, held)
    path = shlex.quote(question.path)
    voters = safety.chain.voters_at_end
    left = frozenset() if voters is None else voters.ids - question.gone
    if held and question.gone and voters is not None and len(left) < majority(len(voters.ids)):
        reason = (
            f"{len(left)} of {nouns('voter', sorted(voters.ids))} would be left, which is no majority: what goes on "
        )
        reason += "from here is a copy of the log, and this node has one."
        return Permission(Verdict.NO, reason, (f"First: kraft-audit rescue --plan {path}{gone_option(question.gone)}",))
    if elsewhere < committed_to:
        span = offset_span(elsewhere, committed_to)
        reason = f"Only the disk of node {question.node_id} holds {span}, which {_is(span)} committed."
        plan = f"Keep it: kraft-audit rescue --plan {path}{gone_option(question.gone)}"
        return Permission(Verdict.NO, reason, (plan,))
    if elsewhere >= may_be_to or quorum_standing(history).standing is Standing.HEALTHY:
        return None
    span = offset_span(elsewhere, may_be_to)
    reason = f"Only the disk of node {question.node_id} holds {span}, which may be committed."
    return Permission(Verdict.UNDECIDED, reason, (f"Keep it until others have it: kraft-audit check {path}",))


def _is(span: str) -> str:
    return "are" if span.startswith("offsets") else "is"


# A quorum of its own


def _standalone(question: Question, safety: StartSafety | None, history: ClusterHistory) -> Permission:
    """Yes only where no record and no other voter has this cluster.id: else it begins a second quorum (KIP-853)."""
    node_id, path = question.node_id, shlex.quote(question.path)
    named = {voter["voter_id"] for row in history.rows("voter_sets") for voter in row["voters"]}
    others = sorted((named | (set() if safety is None else safety.voter_ids(with_earlier=True))) - {node_id})
    end = max((replica_end(row) for row in history.rows("captures")), default=0)
    without = f"Without --standalone: kraft-audit may-i format {node_id} {path}{gone_option(question.gone)}"
    if others:
        reason = (
            f"--standalone makes node {node_id} the only voter of a second quorum beside {nouns('voter', others)} of "
            "the same cluster.id (KIP-853): two leaders, and each node follows the one that it finds."
        )
        plan = f"To go on from a copy of the log instead: kraft-audit rescue --plan {path}"
        return Permission(Verdict.NO, reason, (without, plan, are_lost(others, question.gone)))
    if end or broker_states(history):
        reason = f"--standalone begins an empty log, and this cluster.id has one, which ends at offset {end}."
        return Permission(Verdict.NO, reason, (without,))
    if is_first_start(history):
        return Permission(Verdict.YES, NEVER_STARTED, (format_standalone(history.cluster_id),))
    reason = "No log and no voter set was read: nothing shows whether this cluster.id is in use."
    step = (
        f"Copy the disks of all controllers below {path}, then: kraft-audit may-i format {node_id} {path} --standalone"
    )
    return Permission(Verdict.UNDECIDED, reason, (step,))
