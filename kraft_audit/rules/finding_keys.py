"""What a finding is known by: one key in every run, by what it is about.

A key holds no time. Partitions and topics are known by the topic's id, as names are used again; node dirs and voters by
their directory id, as disks are replaced; records, batches and voter changes by offset and epoch.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import Final

import pyarrow as pa

from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.rule_model import Case, Scope

AT_OFFSET: Final = frozenset({"KQ001", "KQ002", "KQ012", "KQ017", "KQ022", "KP013", "KV005", "KV006"})
"""Rules about something that stands at an offset: a divergent run, a lost record, a transaction, a voter change."""
IN_EPOCH: Final = frozenset({"KQ006", "KQ014"})
"""Rules about what a node did in one epoch."""
_NODE: Final = re.compile(r"(node|voter) (\d+)")
TopicIds = tuple[list[int], list[str]]
"""The offsets from which on a topic's name stood for another topic id, and those ids."""


def key_of(rule_id: str, scope: Scope, history: ClusterHistory, case: Case) -> str:
    """The key of a case: equal in two cases only where the subject is the same."""
    if case.key is not None:
        return case.key
    subject = case.subject
    if scope is Scope.PARTITION:
        return _partition_key(history, subject, case.from_offset)
    if named := _NODE.match(subject):
        subject = f"{subject} {_directory(history, case, named[1], int(named[2]))}"
    if rule_id in AT_OFFSET:
        return f"{subject} {case.from_offset} {case.epoch}"
    return f"{subject} {case.epoch}" if rule_id in IN_EPOCH else subject


def _directory(history: ClusterHistory, case: Case, kind: str, node_id: int) -> str:
    """The directory id of the disk that a case is about, else of the voter, else of the node's newest capture."""
    if kind == "node" and case.directory_id is not None:
        return case.directory_id
    directories = _directories(history)
    path = case.evidence[0].path if kind == "node" and len(case.evidence) else None
    return (
        directories.get((node_id, path)) or directories.get((node_id, kind)) or directories.get((node_id, "node")) or ""
    )


@once_per_history
def _directories(history: ClusterHistory) -> dict[tuple[int, str | None], str]:
    directories: dict[tuple[int, str | None], str] = {}
    rows = sorted(history.rows("captures"), key=lambda row: (row["capture_number"], row["captured_at_ms"]))
    for row in rows:
        if row["node_id"] is not None and row["directory_id"]:
            for place in (row["path"] or row["root"], "node"):
                directories[row["node_id"], place] = row["directory_id"]
    for row in sorted(history.rows("voter_sets"), key=lambda row: (row["canonical"], row["from_offset"])):
        for voter in row["voters"]:
            if voter["directory_id"]:
                directories[voter["voter_id"], "voter"] = voter["directory_id"]
    return directories


def _partition_key(history: ClusterHistory, subject: str, offset: int | None) -> str:
    """`topic-3` or `topic NAME` by the id that the topic had at an offset."""
    topic, dash, number = _topic_of(subject)
    ids = _ids_of(history, topic)
    if ids is None:
        return subject
    offsets, topic_ids = ids
    place = 0 if offset is None else max(bisect_right(offsets, offset) - 1, 0)
    return f"{topic_ids[place]}{dash}{number}"


def _topic_of(subject: str) -> tuple[str, str, str]:
    """The topic of `topic-3` or `topic NAME`, then "-" and the partition where it is one."""
    return (subject[6:], "", "") if subject.startswith("topic ") else subject.rpartition("-")


def _ids_of(history: ClusterHistory, topic: str) -> TopicIds | None:
    """The ids of one topic; None where no record names it."""
    return history.known("topic ids by name", lambda: _topic_ids(history.chunked_table("topic_changes"))).get(topic)


def _topic_ids(changes: pa.Table) -> dict[str, TopicIds]:
    ids_of: dict[str, TopicIds] = defaultdict(lambda: ([], []))
    table = changes.select(["topic", "from_offset", "topic_id"]).sort_by("from_offset")
    columns = (table[name].to_pylist() for name in ("topic", "from_offset", "topic_id"))
    for topic, offset, topic_id in zip(*columns, strict=True):
        offsets, ids = ids_of[topic]
        if not ids or ids[-1] != topic_id:
            offsets.append(offset)
            ids.append(topic_id)
    return dict(ids_of)
