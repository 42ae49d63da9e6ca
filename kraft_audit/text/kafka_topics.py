"""What kafka-topics --describe prints, from the state on disk (TopicCommand of Kafka 4.3.1; order by topic name)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

DESCRIBED_CONFIGS: Final = {
    "compression.type": "compression.type",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
}
"""Broker configs that every topic inherits, and what they are called there (ServerTopicConfigSynonyms)."""


def describe_topics(
    partitions: Iterable[Mapping[str, Any]],
    configs: Iterable[Mapping[str, Any]] = (),
    *,
    topic: str | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The lines of the description; `partitions` and `configs` are rows of `partition_changes` and `config_changes`.

    `defaults` are static broker configs, which the log does not hold but Kafka would print.
    """
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for row in partitions:
        if row["exists"] and topic in (None, row["topic"]):
            by_topic.setdefault(row["topic"], []).append(row)
    written = [row for row in configs if row["exists"]]
    inherited = {DESCRIBED_CONFIGS[key]: value for key, value in (defaults or {}).items() if key in DESCRIBED_CONFIGS}
    for row in written:
        if row["resource_type"] == "BROKER" and not row["resource_name"] and row["name"] in DESCRIBED_CONFIGS:
            inherited[DESCRIBED_CONFIGS[row["name"]]] = row["value"]
    own: dict[str, dict[str, str]] = {}
    for row in written:
        if row["resource_type"] == "TOPIC":
            own.setdefault(row["resource_name"], {})[row["name"]] = row["value"]
    for name in sorted(by_topic):
        rows = sorted(by_topic[name], key=lambda row: int(row["partition"]))
        texts = {**inherited, **own.get(name, {})}
        listed = ",".join(f"{key}={texts[key]}" for key in sorted(texts))
        yield (
            f"Topic: {name}\tTopicId: {rows[0]['topic_id']}\tPartitionCount: {len(rows)}"
            f"\tReplicationFactor: {len(rows[0]['replicas'])}\tConfigs: {listed}"
        )
        yield from (describe_partition(row) for row in rows)


def describe_partition(row: Mapping[str, Any]) -> str:
    """The line of a partition."""
    leader = row["leader"] if row["leader"] >= 0 else "none"
    text = (
        f"\tTopic: {row['topic']}\tPartition: {row['partition']}\tLeader: {leader}"
        f"\tReplicas: {_ids(row['replicas'])}\tIsr: {_ids(row['isr'])}"
    )
    if row["adding_replicas"] or row["removing_replicas"]:
        text += (
            f"\tAdding Replicas: {_ids(row['adding_replicas'])}\tRemoving Replicas: {_ids(row['removing_replicas'])}"
        )
    return f"{text}\tElr: {_ids(row['elr'])}\tLastKnownElr: {_ids(row['last_known_elr'])}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
