"""Rules about replica lists: copies that no broker will ever hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import gone_brokers
from kraft_audit.rules.columns.frame import rows_with
from kraft_audit.rules.columns.kafka_commands import broker_server, unregister_broker
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_cases import partition_case
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.columns.reassignments import entry_without, reassign
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.text.readable import listed, nouns


@rule(
    "KP021",
    control="durability",
    needs=("partition_changes", "broker_changes", "captures", "batches", "voter_sets", "controller_changes"),
)
def kp021(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    gone = gone_brokers(history)
    if not gone:
        return
    states = partition_states(history)
    condition = _names_any(states, gone)
    for episode in states.episodes(condition) if condition[states.last_rows].any() else ():
        if episode.end is None:
            yield _case(history, states, episode, gone)


def _names_any(states: PartitionStates, gone: Mapping[int, int]) -> Mask:
    """Rows whose replica list names a broker that is gone."""
    replicas, exists = states.changes.lists["replicas"], states.changes.exists
    named = replicas.row_of_value[np.isin(replicas.values, np.array(sorted(gone), np.int64))]
    return states.in_order(exists & rows_with(len(exists), named))


def _case(history: ClusterHistory, states: PartitionStates, episode: Episode, gone: Mapping[int, int]) -> Case:
    """From the moment at which the first of them was gone and named."""
    row = states.newest_row(episode.start)
    replicas = states.nodes("replicas", row)
    missing = [broker for broker in replicas if broker in gone]
    copies, are = ("copy", "is") if len(missing) == 1 else ("copies", "are")
    who = f"{nouns('broker', missing)} of {replicas} {are} gone"
    summary = f"{len(missing)} {copies} of {len(replicas)} will never exist: {who}"
    case = partition_case(states, episode, summary)
    advice, facts = _advice(history, states, row, missing), (_departure(history, each, gone[each]) for each in missing)
    case = case._replace(what_to_do=advice, evidence=(*case.evidence, *facts))
    since = max(int(states.from_offset[episode.start]), min(gone[each] for each in missing))
    return case if since == case.from_offset else case._replace(from_offset=since, from_ms=None)


def _departure(history: ClusterHistory, broker: int, offset: int) -> Evidence:
    """What the log says of a broker that is gone, and where."""
    is_registered = broker_states(history)[broker].newest["exists"]
    how = "away from here on, and its node runs on without the broker's role" if is_registered else "unregistered"
    return Evidence(f"broker {broker}: {how}", offset=offset)


def _advice(history: ClusterHistory, states: PartitionStates, row: int, missing: list[int]) -> str:
    """The reassignment that mends it, and what unregisters who is still registered; a last copy comes first."""
    members = {*states.nodes("isr", row), *states.nodes("elr", row)}
    if members and members <= {*missing}:
        return f"Its last copy is on the disk of {nouns('broker', sorted(members))}: start it as a broker again first."
    server = broker_server(history)
    steps = reassign(server, [entry_without(history, states, row, missing)])
    registered = [b for b in missing if b in broker_states(history) and broker_states(history)[b].newest["exists"]]
    if not registered:
        return steps
    lines = "; ".join(unregister_broker(server, broker) for broker in registered)
    return f"{steps}   Once no partition names {listed(registered)}:   {lines}"
