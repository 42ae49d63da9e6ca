"""Partitions against what Kafka's own classes hold after every record of every capture."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.replay.partitions.partition_replay import PartitionReplay

LISTS = {
    "replicas": "replicas",
    "directories": "directories",
    "isr": "isr",
    "elr": "elr",
    "lastKnownElr": "last_known_elr",
    "removingReplicas": "removing_replicas",
    "addingReplicas": "adding_replicas",
}
SCALARS = {
    "leader": "leader",
    "leaderRecoveryState": "leader_recovery_state",
    "leaderEpoch": "leader_epoch",
    "partitionEpoch": "partition_epoch",
}
ONLY_MINIMUM = {"min_isr_edited", "replicas_of_partition_0", "controller_changed"}


def comparable_row(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row as the oracle has it: offset, topic, partition, and the state, None once deleted."""
    state = {kafka: row[ours] for kafka, ours in {**LISTS, **SCALARS}.items()} if row["exists"] else None
    return row["from_offset"], row["topic"], row["topic_id"], row["partition"], state


def witnessed(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["offset"], line["topic"], line["topicId"], line["partition"], line.get("state")


def replayable(oracles: list[Any]) -> list[tuple[Any, str]]:
    return [
        (oracle, log_dir) for oracle in oracles if oracle.folder.name != "crafted" for log_dir in oracle.distinct_logs()
    ]


def start_of(oracle: Any, log_dir: str) -> tuple[int, int, str] | None:
    """The snapshot at which the log begins, if it does not begin at 0."""
    lines = oracle.log_records(log_dir)
    first = lines[0]["offset"] if lines else None
    found = [s for s in oracle.snapshots(log_dir) if s[0] > 0 and (first is None or s[0] >= first > 0)]
    return found[0] if found and first != 0 else None


def replayed(oracle: Any, log_dir: str, to_columns: Any, window: int = 1_000) -> tuple[PartitionReplay, list[Any]]:
    replay = PartitionReplay(cluster_id="c")
    batches: list[pa.RecordBatch] = []
    lines = oracle.log_records(log_dir)
    if (snapshot := start_of(oracle, log_dir)) is not None:
        end_offset, epoch, path = snapshot
        windows = [to_columns(oracle.records(path))]
        for records in windows:
            replay.absorb(records)
        batches += replay.state(end_offset - 1, epoch, 0)
        lines = [line for line in lines if line["offset"] >= end_offset]
    for start in range(0, len(lines), window):
        batches += replay.replay(to_columns(lines[start : start + window]))
    return replay, [row for batch in batches for row in batch.to_pylist()]


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0], str(row[1]), row[3]))


def assert_image(oracle: Any, log_dir: str, replay: PartitionReplay) -> None:
    """The state at the end is Kafka's MetadataImage."""
    image = oracle.image(log_dir)
    source = image.get("wholeLog") or image.get("snapshotPlusTail")
    if source:
        rows = [row for batch in replay.state(0, 0, 0) for row in batch.to_pylist()]
        fields = {**LISTS, **SCALARS}
        expected = [
            (p["topic"], p["topicId"], p["partition"], {field: p[field] for field in fields})
            for p in source["image"]["partitions"]
        ]
        assert sorted((comparable_row(row)[1:] for row in rows), key=str) == sorted(expected, key=str), log_dir


@pytest.mark.slow
@pytest.mark.parametrize("window", [1_000, 23])
def test_state_after_every_record_is_kafkas(oracles: list[Any], to_columns: Any, window: int) -> None:
    compared = 0
    for oracle, log_dir in replayable(oracles):
        if oracle.folder.name == "volume" and window < 100:
            continue
        lines = oracle.partition_states(log_dir)
        expected = [witnessed(line) for line in lines if "end" not in line]
        replay, rows = replayed(oracle, log_dir, to_columns, window)
        ours = [comparable_row(row) for row in rows if row["cause"] not in ONLY_MINIMUM]
        if (snapshot := start_of(oracle, log_dir)) is not None:
            ours = [(-1 if offset == snapshot[0] - 1 else offset, *rest) for offset, *rest in ours]
        assert in_order(ours) == in_order(expected), log_dir
        assert not replay.problems
        assert_image(oracle, log_dir, replay)
        compared += len(expected)
    assert compared >= 1_000
