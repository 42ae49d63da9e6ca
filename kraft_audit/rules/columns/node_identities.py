"""Whether each captured disk belongs to the node that its meta.properties and its configuration make of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

from kraft_audit.capture.node_card import configuration_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.broker_returns import is_reserved
from kraft_audit.rules.columns.captures import capture_evidence, newest_round
from kraft_audit.rules.columns.nodes import registrations
from kraft_audit.rules.columns.voter_sets import current_set, keys_of
from kraft_audit.rules.rule_model import Evidence
from kraft_audit.text.readable import nouns

_Nodes = Mapping[str, Set[int]]


def identity_doubts(history: ClusterHistory) -> dict[int, tuple[Evidence, ...]]:
    """By node id of meta.properties, what says that the disk or the configuration beside it is another node's."""
    return history.known("identity doubts", lambda: dict(_doubts(history)))


def _doubts(history: ClusterHistory) -> Iterator[tuple[int, tuple[Evidence, ...]]]:
    rows = [row for row in newest_round(history) if row["node_id"] is not None]
    owners, holders = _owners(history), defaultdict[str, set[int]](set)
    for row in rows:
        holders[row["directory_id"]].add(row["node_id"])
    for row in rows:
        facts = (*_of_directory(row, owners, holders), *_of_configuration(row))
        if facts:
            yield row["node_id"], facts


def _owners(history: ClusterHistory) -> _Nodes:
    """By directory id, the nodes that registered it or vote with it at the end of the log."""
    owners = defaultdict[str, set[int]](set)
    for (kind, node_id), states in registrations(history).items():
        for directory_id in states[-1]["log_dirs"] if kind == "broker" else ():
            owners[directory_id].add(node_id)
    voter_set = current_set(history)
    for node_id, directory_id in keys_of(voter_set["voters"]) if voter_set is not None else ():
        if directory_id is not None:
            owners[directory_id].add(node_id)
    return owners


def _of_directory(row: TableRow, owners: _Nodes, holders: _Nodes) -> Iterator[Evidence]:
    node_id, directory_id = row["node_id"], row["directory_id"]
    if directory_id is None or is_reserved(directory_id) or node_id in owners.get(directory_id, ()):
        return
    name = f"the directory id {directory_id} of its disk"
    if others := sorted(owners.get(directory_id, ())):
        yield capture_evidence(
            row, f"{name} is that of {nouns('node', others)} in the log", file_name="meta.properties"
        )
    if twins := sorted(holders[directory_id] - {node_id}):
        text = f"{name} stands on the disk of {nouns('node', twins)}, too"
        yield capture_evidence(row, text, file_name="meta.properties")


def _of_configuration(row: TableRow) -> Iterator[Evidence]:
    configuration = configuration_of(row)
    if configuration is None or configuration.problem is not None:
        return
    if configuration.node_id not in (None, row["node_id"]):
        text = f"its configuration says node.id={configuration.node_id}, its meta.properties {row['node_id']}"
        yield capture_evidence(row, text, file_name=configuration.file)
