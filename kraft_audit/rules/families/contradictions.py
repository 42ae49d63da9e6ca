"""The rule about records that contradict the log before them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, Contradiction
from kraft_audit.rules.columns.frame import distinct
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, undecided
from kraft_audit.tables.number_arrays import Rows


def _unregistered(history: ClusterHistory, states: PartitionStates) -> Rows:
    """The places of the replicas that no record up to the end of the operation registers as brokers."""
    replicas = states.changes.lists["replicas"]
    if not len(replicas.values):
        return np.zeros(0, np.int64)
    known = broker_states(history)
    brokers = np.array(list(known), np.int64)
    first = np.array([states_of.offsets[0] for states_of in known.values()], np.int64)
    offsets = states.changes.column("from_offset")
    values = replicas.values
    place = np.minimum(np.searchsorted(brokers, values), max(len(brokers) - 1, 0))
    is_known = brokers[place] == values if len(brokers) else np.zeros(len(values), bool)
    # Most brokers register before anything is assigned: the operations are asked for the few that did not.
    is_late = is_known & (first[place] > offsets[replicas.row_of_value]) if len(brokers) else is_known
    late = np.flatnonzero(is_late)
    if len(late):
        ends = operation_ends(history, offsets[replicas.row_of_value[late]])
        is_late[late] = first[place[late]] >= ends
    return np.flatnonzero(~is_known | is_late)


@rule(
    "KP013",
    control="log_integrity",
    needs=("partition_changes", "broker_changes", "contradictions"),
)
def kp013(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    contradictions = [*(history.contradictions or ()), *_unknown_brokers(history)]
    unknown: dict[str, list[Contradiction]] = defaultdict(list)
    for each in contradictions:
        subject = each.subject or f"record at offset {each.offset}"
        reason = "the log begins after offset 0 without a snapshot"
        if not history.is_complete or (reason := history.unknown_before(each.offset) or ""):
            unknown[reason].append(each)
        else:
            evidence = (Evidence(each.problem, offset=each.offset),)
            yield Case(subject, each.problem.replace("_", " "), from_offset=each.offset, evidence=evidence)
    # What is missing explains all that it leaves unknown: one line for each reason.
    for reason, unexplained in unknown.items():
        first = min(unexplained, key=lambda each: each.offset)
        count = f"{len(unexplained)} changes name" if len(unexplained) > 1 else "a change names"
        problem = first.problem.replace("_", " ")
        text = f"{count} what is not known, first at offset {first.offset} ({problem}): {reason}"
        yield undecided("log", text, from_offset=first.offset)


def _unknown_brokers(history: ClusterHistory) -> Iterator[Contradiction]:
    """Replicas that no registration names: each once.

    A snapshot may name brokers that were unregistered before it was taken: their replicas stay assigned.
    """
    states = partition_states(history)
    replicas = states.changes.lists["replicas"]
    strange = _unregistered(history, states)
    if not len(strange):
        return
    row_of_change = states.row_of_change()
    strange = strange[states.changes.exists[replicas.row_of_value[strange]]]
    in_snapshots = replicas.values[strange[states.changes.is_cause("snapshot")[replicas.row_of_value[strange]]]]
    strange = strange[~np.isin(replicas.values[strange], in_snapshots)]
    for broker in distinct(replicas.values[strange]).tolist():
        rows = np.sort(row_of_change[replicas.row_of_value[strange[replicas.values[strange] == broker]]])
        row = int(rows[np.argmin(states.from_offset[rows])])
        text = f"unknown broker {broker} is a replica of {states.name(row)}"
        yield Contradiction(int(states.from_offset[row]), text, f"broker {broker}")
