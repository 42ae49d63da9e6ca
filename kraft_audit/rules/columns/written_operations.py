"""What a part of the log did, named: the topics, partitions, brokers, configs and voters that its records change."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.text.readable import listed

TOPICS_NAMED: Final = 3
COUNTED: Final = (
    ("config_changes", "config write"),
    ("broker_changes", "broker change"),
    ("controller_changes", "controller registration"),
    ("feature_changes", "feature level"),
    ("security_changes", "ACL, quota or credential change"),
    ("voter_sets", "voter change"),
)


def operations_from(history: ClusterHistory, from_offset: int) -> list[str]:
    """What the records from `from_offset` on do, topics first; empty where they only keep the log going."""
    partitions = _rows_from(history, "partition_changes", from_offset)
    by_topic = Counter(topic for topic, _ in {(row["topic"], row["partition"]) for row in partitions if row["exists"]})
    texts = []
    created = {row["topic"]: row["exists"] for row in _rows_from(history, "topic_changes", from_offset)}
    for exists, verb in ((True, "created"), (False, "removed")):
        names = [name for name, is_there in created.items() if is_there is exists]
        shown = [f'"{name}"' + (f" with {_count(by_topic[name], 'partition')}" if exists else "") for name in names]
        if len(names) > TOPICS_NAMED:
            shown = [*shown[:TOPICS_NAMED], f"{len(names) - TOPICS_NAMED} more"]
        if names:
            texts.append(f"topic{'s' * (len(names) > 1)} {listed(shown)} {verb}")
    changed = sum(1 for row in partitions if row["topic"] not in created)
    texts += [_count(changed, "partition change")] if changed else []
    for table, what in COUNTED:
        count = len(_rows_from(history, table, from_offset))
        texts += [_count(count, what)] if count else []
    return texts


def _rows_from(history: ClusterHistory, name: str, from_offset: int) -> list[TableRow]:
    table = history.chunked_table(name)
    found: list[TableRow] = table.filter(pc.greater_equal(table["from_offset"], from_offset)).to_pylist()
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
