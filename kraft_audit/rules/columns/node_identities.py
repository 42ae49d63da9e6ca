"""Whether each captured disk belongs to the node that its meta.properties and its configuration make of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

from kraft_audit.capture.node_card import configuration_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.broker_returns import is_reserved
from kraft_audit.rules.columns.captures import capture_evidence, newest_round
from kraft_audit.rules.columns.nodes import registrations
from kraft_audit.rules.columns.voter_sets import current_set, keys_of
from kraft_audit.rules.rule_model import Evidence
from kraft_audit.text.readable import nouns

_Owners = Mapping[str, Mapping[int, str]]
"""By directory id, the nodes that have it in the log, with the place that says so."""
_Holders = Mapping[str, Set[int]]
"""By directory id, the nodes on whose disks it stands."""


@once_per_history
def identity_doubts(history: ClusterHistory) -> dict[int, tuple[Evidence, ...]]:
    """By node id of meta.properties, what says that the disk or the configuration beside it is another node's."""
    return dict(_doubts(history))


def _doubts(history: ClusterHistory) -> Iterator[tuple[int, tuple[Evidence, ...]]]:
    rows = [row for row in newest_round(history) if row["node_id"] is not None]
    owners, holders = _owners(history), defaultdict[str, set[int]](set)
    for row in rows:
        holders[row["directory_id"]].add(row["node_id"])
    for row in rows:
        facts = (*_of_directory(row, owners, holders), *_of_configuration(row))
        if facts:
            yield row["node_id"], facts


def _owners(history: ClusterHistory) -> _Owners:
    """The nodes that registered a directory, or vote with it, at the end of the log."""
    owners = defaultdict[str, dict[int, str]](dict)
    for (kind, node_id), states in registrations(history).items():
        for directory_id in states[-1]["log_dirs"] if kind == "broker" else ():
            owners[directory_id][node_id] = f"broker registration at offset {states[-1]['from_offset']}"
    voter_set = current_set(history)
    if voter_set is not None:
        offset = voter_set["from_offset"]
        place = f"voter set at offset {offset}" if offset >= 0 else "voter set"
        for node_id, directory_id in keys_of(voter_set["voters"]):
            if directory_id is not None:
                owners[directory_id][node_id] = place
    return owners


def _of_directory(row: TableRow, owners: _Owners, holders: _Holders) -> Iterator[Evidence]:
    """A node that registered again under another id shares the directory with its old id, as long as the log has it."""
    node_id, directory_id = row["node_id"], row["directory_id"]
    if directory_id is None or is_reserved(directory_id):
        return
    own = owners.get(directory_id, {})
    name = f"the directory id {directory_id} of its disk"
    if others := sorted(own.keys() - {node_id}):
        places = ", ".join(sorted({own[other] for other in others}))
        also = f", and of node {node_id} itself ({own[node_id]})" if node_id in own else ""
        text = f"{name} is that of {nouns('node', others)} in the log ({places}){also}"
        yield capture_evidence(row, text, file_name="meta.properties")
    if (twins := sorted(holders[directory_id] - {node_id})) and node_id not in own:
        text = f"{name} stands on the disk of {nouns('node', twins)}, too"
        yield capture_evidence(row, text, file_name="meta.properties")


def _of_configuration(row: TableRow) -> Iterator[Evidence]:
    configuration = configuration_of(row)
    if configuration is None or configuration.problem is not None:
        return
    if configuration.node_id not in (None, row["node_id"]):
        text = f"its configuration says node.id={configuration.node_id}, its meta.properties {row['node_id']}"
        yield capture_evidence(row, text, file_name=configuration.file)
