"""Reassignments that take brokers out of replica lists, as kafka-reassign-partitions reads them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.partition_states import PartitionStates
from kraft_audit.text.shell_commands import json_parts, written_by_echo

Reassigned: TypeAlias = dict[str, Any]
"""One partition of the file: its topic, number and new replicas."""


def entry_without(
    history: ClusterHistory, states: PartitionStates, row: int, leaving: Collection[int], away: Collection[int] = ()
) -> Reassigned:
    """The partition of a row with another broker that is up in the place of each that leaves, as far as there are any.

    `away` are brokers that do not run, whatever the log says.
    """
    replicas, number = states.nodes("replicas", row), int(states.partition[row])
    taken = {*replicas, *leaving, *away}
    up = [broker for broker in broker_states(history) if is_up(history, broker) and broker not in taken]
    fill = iter(up[number % len(up) :] + up[: number % len(up)] if up else [])
    moved = [next(fill, None) if broker in leaving else broker for broker in replicas]
    return {"topic": states.topic(row), "partition": number, "replicas": [each for each in moved if each is not None]}


def reassign(server: str, entries: Sequence[Reassigned]) -> str:
    """Writes the file and starts the reassignment."""
    file = written_by_echo("moved.json", json_parts('{"version": 1, "partitions": ', entries))
    return f"{file}; {_reassign(server)} --execute"


def is_reassigned(server: str) -> str:
    """Shows whether the reassignment of that file is done."""
    return f"{_reassign(server)} --verify"


def _reassign(server: str) -> str:
    return f"kafka-reassign-partitions {server} --reassignment-json-file moved.json"
