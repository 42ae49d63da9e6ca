"""Partitions and topics by the id that their topic had at an offset: names are used again."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from kraft_audit.rules.cluster_history import ClusterHistory


def partition_key(history: ClusterHistory, subject: str, offset: int | None) -> str:
    """`topic-3` or `topic NAME` by the id that the topic had at an offset."""
    topic, dash, number = (subject[6:], "", "") if subject.startswith("topic ") else subject.rpartition("-")
    ids = history.known("topic ids by name", lambda: _topic_ids(history)).get(topic)
    if ids is None:
        return subject
    offsets, topic_ids = ids
    place = 0 if offset is None else max(bisect_right(offsets, offset) - 1, 0)
    return f"{topic_ids[place]}{dash}{number}"


def _topic_ids(history: ClusterHistory) -> dict[str, tuple[list[int], list[str]]]:
    """For each topic name the offsets from which on it stood for another topic id."""
    found: dict[str, tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
    table = history.chunked_table("topic_changes").sort_by("from_offset")
    columns = (table[name].to_pylist() for name in ("topic", "from_offset", "topic_id"))
    for topic, offset, topic_id in zip(*columns, strict=True):
        offsets, ids = found[topic]
        if not ids or ids[-1] != topic_id:
            offsets.append(offset)
            ids.append(topic_id)
    return dict(found)
