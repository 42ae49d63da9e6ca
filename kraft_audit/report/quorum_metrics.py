"""Metrics of KIP-595 and KIP-853 that a node reports of itself, as its captured files and the log determine them.

A node's vote and state are those of its quorum-state. Latencies and counts that a log only bounds have a bound in their
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.node_card import configuration_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_captures, newest_watermark
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.nodes import broker_states, registrations
from kraft_audit.rules.columns.voter_sets import current_set, is_voter_disk, keys_of

QUORUM_FAMILIES: Final[Mapping[str, str]] = {
    "current_vote": "KIP-595 current-vote, by node: the voter that it voted for in its epoch, by its quorum-state; "
    "-1: nobody",
    "current_state": "KIP-595 current-state, by node and state: 1 for the state that its quorum-state says",
    "log_end_epoch": "KIP-595 log-end-epoch: the epoch of the last batch of the canonical log",
    "append_records_rate": "KIP-595 append-records-rate: records a second over the last minute of the newest leader",
    "election_latency_high_seconds": "KIP-595 election-latency of the newest election, upper bound: from the last "
    "batch of the leader before it to its own first, by the clocks of both",
    "number_of_observers_low": "KIP-853 number-of-observers, lower bound: brokers that are active and no voters",
    "number_of_observers_high": "KIP-853 number-of-observers, upper bound: registered nodes that are no voters",
    "ignored_static_voters": "KIP-853 ignored-static-voters, by node: 1 if its captured configuration sets "
    "controller.quorum.voters and kraft.version is 1 or higher",
}
RATE_WINDOW_MS: Final = 60_000
"""Kafka's rates are over two windows of 30 s."""

NodeSample = tuple[str, Mapping[str, str], float]


def quorum_samples(history: ClusterHistory) -> Iterator[NodeSample]:
    """Family, labels and value of what is known."""
    mark = newest_watermark(history)
    if mark is None:
        return
    voters = keys_of(mark["voters"])
    current = current_set(history)
    is_dynamic = current is not None and current["kraft_version"] > 0
    for row in newest_captures(history):
        if row["node_id"] is not None:
            yield from _node_samples(row, voters, is_dynamic=is_dynamic)
    yield from _log_samples(history)
    yield from _observer_samples(history, frozenset(node_id for node_id, _ in voters))


def _node_samples(row: TableRow, voters: frozenset[VoterKey], *, is_dynamic: bool) -> Iterator[NodeSample]:
    about = {"node_id": str(row["node_id"])}
    if row["leader_epoch"] is not None and row["voted_id"] is not None:
        state = state_of(row, voters)
        # A leader's file has no vote any more: it voted for itself.
        yield "current_vote", about, row["node_id"] if state == "leader" else row["voted_id"]
        yield "current_state", {**about, "state": state}, 1
    configuration = configuration_of(row)
    if configuration is not None and configuration.problem is None and configuration.voters is not None:
        yield "ignored_static_voters", about, is_dynamic and bool(configuration.voters)


def state_of(row: TableRow, voters: frozenset[VoterKey]) -> str:
    """The state of KIP-595 that a quorum-state stands for, with `unattached` of Kafka as shipped.

    A leader that resigned in memory still has itself in the file.

    Source: `QuorumState.durableTransitionTo` (4.3), KIP-853 on observers.
    """
    node_id = row["node_id"]
    if not is_voter_disk(row, voters):
        return "observer"
    if row["leader_id"] == node_id:
        return "leader"
    if row["leader_id"] is not None and row["leader_id"] >= 0:
        return "follower"
    return "candidate" if row["voted_id"] == node_id else "unattached"


def _log_samples(history: ClusterHistory) -> Iterator[NodeSample]:
    log = canonical_log(history)
    if not len(log.base_offset):
        return
    yield "log_end_epoch", {}, int(log.leader_epoch[-1])
    times = log.timestamp_ms
    first = int(np.searchsorted(log.leader_epoch, log.leader_epoch[-1]))
    since_ms = max(int(times[-1]) - RATE_WINDOW_MS, np.iinfo(np.int64).min)  # a time of a log may be any number
    rows = np.arange(max(first, int(np.searchsorted(times, since_ms))), len(times))
    if len(rows) and (elapsed_ms := int(times[-1]) - int(times[rows[0]])) > 0:
        yield "append_records_rate", {}, round(int(log.record_count[rows[1:]].sum()) * 1000 / elapsed_ms, 3)
    if first and times[first] >= times[first - 1]:
        yield "election_latency_high_seconds", {}, (int(times[first]) - int(times[first - 1])) / 1000


def _observer_samples(history: ClusterHistory, voters: frozenset[int]) -> Iterator[NodeSample]:
    if not history.has("broker_changes"):
        return
    newest = {node: states.newest for node, states in broker_states(history).items() if node not in voters}
    registered = {node for node, row in newest.items() if row["exists"]}
    active = {node for node in registered if not newest[node]["fenced"]}
    controllers = {node for kind, node in registrations(history) if kind == "controller"} - voters
    yield "number_of_observers_low", {}, len(active)
    yield "number_of_observers_high", {}, len(registered | controllers)
