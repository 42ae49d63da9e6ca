"""Partitions and topics by the id that their topic had at an offset: names are used again."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.tables.silver import PARTITION_CHANGES

TopicIds = tuple[list[int], list[str]]
"""The offsets from which on a topic's name stood for another topic id, and those ids."""


def partition_key(history: ClusterHistory, subject: str, offset: int | None) -> str:
    """`topic-3` or `topic NAME` by the id that the topic had at an offset."""
    topic, dash, number = topic_of(subject)
    ids = _ids_of(history, topic)
    if ids is None:
        return subject
    offsets, topic_ids = ids
    place = 0 if offset is None else max(bisect_right(offsets, offset) - 1, 0)
    return f"{topic_ids[place]}{dash}{number}"


def topic_of(subject: str) -> tuple[str, str, str]:
    """The topic of `topic-3` or `topic NAME`, then "-" and the partition where it is one."""
    return (subject[6:], "", "") if subject.startswith("topic ") else subject.rpartition("-")


def _ids_of(history: ClusterHistory, topic: str) -> TopicIds | None:
    """The ids of one topic; None where no record names it. There may be a million topics: a part has its own alone."""
    if history.is_part:
        own = history.known(f"topic ids of {PARTITION_CHANGES.name}", lambda: _topic_ids_of_part(history))
        if topic in own:
            return own[topic]
    return history.known("topic ids by name", lambda: _topic_ids(history.chunked_table("topic_changes"))).get(topic)


def _topic_ids_of_part(history: ClusterHistory) -> dict[str, TopicIds | None]:
    """Each topic that the part has partitions of."""
    names = pc.unique(history.chunked_table(PARTITION_CHANGES.name)["topic"])
    changes = history.chunked_table("topic_changes")
    ids = _topic_ids(changes.filter(pc.is_in(changes["topic"], names)))
    return {name: ids.get(name) for name in names.to_pylist()}


def _topic_ids(changes: pa.Table) -> dict[str, TopicIds]:
    found: dict[str, TopicIds] = defaultdict(lambda: ([], []))
    table = changes.select(["topic", "from_offset", "topic_id"]).sort_by("from_offset")
    columns = (table[name].to_pylist() for name in ("topic", "from_offset", "topic_id"))
    for topic, offset, topic_id in zip(*columns, strict=True):
        offsets, ids = found[topic]
        if not ids or ids[-1] != topic_id:
            offsets.append(offset)
            ids.append(topic_id)
    return dict(found)
