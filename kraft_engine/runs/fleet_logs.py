"""Many clusters, many partitions, fast: logs for benchmarks, made in columns instead of by events.

Every cluster is a quiet quorum: one epoch, one leader, brokers, topics, then K ISR changes in batches of 64 that take a
replica out of the ISR of 64 partitions and, in the next batch, back in. All replicas hold the same bytes. An aged fleet
is one whose logs were cleaned up: what stood before the changes is in a snapshot, and the log begins after it; each
pair of batches is followed by a NoOp, as idle controllers write them, and a snapshot is made every so many pairs. One
with more changes and the same seed begins with the same bytes: that is how a fleet grows.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kraft_codec.file_names import offset_index_name, segment_name, snapshot_name, time_index_name
from kraft_codec.files.indexes import OffsetIndex, TimeIndex, format_offset_index, format_time_index
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import (
    EpochEntry,
    PartitionMetadata,
    QuorumState,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    format_quorum_state,
)
from kraft_codec.schemas import Dialect
from kraft_codec.text.java_text import uuid_text
from kraft_engine.consensus.log_batches import Record
from kraft_engine.consensus.replica_log import Snapshot
from kraft_engine.consensus.voter_sets import Voter, VoterSet
from kraft_engine.runs.fleet_topics import (
    FLEET_BROKERS,
    PARTITIONS_A_TOPIC,
    Octets,
    big_endian,
    sign,
    topic_batches,
    topic_records,
)
from kraft_engine.world.bootstrap import Bootstrap
from kraft_engine.world.encoding import bootstrap_octets, records_octets, snapshot_octets
from kraft_engine.world.log_dirs import METADATA_DIR, TOPIC_ID
from kraft_engine.world.segment_files import INDEX_INTERVAL_BYTES
from kraft_engine.world.world import EPOCH_MS, Chance

BATCH_RECORDS: Final = 64  # offset deltas of one byte
CHUNK_PAIRS: Final = 4_096
CONTROLLERS_MAX: Final = 5
PAUSE_MS: Final = 10
AGED_PAUSE_MS: Final = 1_000  # an hour's changes, not one operation's
SNAPSHOT_PAIRS: Final = 3_500
"""About 20 MB of log: metadata.log.max.record.bytes.between.snapshots of Kafka 4.3.0."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was written: bytes of logs over all replicas, records and batches of one replica of each cluster."""

    out: Path
    cluster_count: int
    log_bytes: int
    record_count: int


def simulate_fleet(
    out: Path,
    *,
    clusters: int,
    partitions: int,
    changes: int,
    seed: int = 1,
    voters: int = 3,
    replicas: int | None = None,
    is_aged: bool = False,
    snapshot_pairs: int = SNAPSHOT_PAIRS,
    began_ms: int = EPOCH_MS,
    pause_ms: int = AGED_PAUSE_MS,
) -> Fleet:
    """Writes `clusters` folders `cluster-<n>/node-<id>` below `out`, and `truth.jsonl` with a line a cluster.

    `changes` is rounded up to whole pairs of batches; `replicas` (1 to `voters`, all of them by default) says how many
    controllers' dirs are written. Logs begin at `began_ms`. With `is_aged` a snapshot holds brokers and topics, and the
    log begins at its end; a snapshot follows every `snapshot_pairs` pairs, and batches are `pause_ms` apart.
    """
    written = voters if replicas is None else replicas
    if clusters < 1 or partitions < 1 or changes < 0 or not 1 <= written <= voters <= CONTROLLERS_MAX:
        raise ValueError(
            f"clusters {clusters}, partitions {partitions}, changes {changes}, voters {voters}, replicas {written}"
        )
    out.mkdir(parents=True, exist_ok=True)
    log_bytes = record_count = 0
    with (out / "truth.jsonl").open("w", encoding="utf-8") as truth:
        for number in range(clusters):
            chance = Chance(seed * 1_000_003 + number)
            cluster = _Cluster(chance, partitions, voters, snapshot_pairs if is_aged else 0, began_ms)
            cluster.pause_ms = pause_ms if is_aged else PAUSE_MS
            cluster.write(out / f"cluster-{number}", changes, written)
            log_bytes += cluster.log_bytes * written
            record_count += cluster.end_offset
            truth.write(json.dumps(cluster.truth(number)) + "\n")
    return Fleet(out, clusters, log_bytes, record_count)


class _Cluster:
    def __init__(
        self, chance: Chance, partition_count: int, voter_count: int, snapshot_pairs: int, began_ms: int
    ) -> None:
        self.chance = chance
        self.snapshot_pairs = snapshot_pairs
        self.is_aged = snapshot_pairs > 0
        self.pause_ms = AGED_PAUSE_MS if self.is_aged else PAUSE_MS
        self.controllers = tuple(range(1, voter_count + 1))
        self.cluster_id = uuid_text(chance.uuid())
        self.directories = [chance.uuid() for _ in self.controllers]
        self.partition_count = partition_count
        topic_count = -(-partition_count // PARTITIONS_A_TOPIC)
        self.topic_ids = [chance.uuid() for _ in range(topic_count)]
        self.changes = np.zeros(partition_count, np.int64)
        self.end_offset = 0
        self.position = 0
        self.began_ms = self.now_ms = began_ms
        self.start_offset = 0
        self.snapshots: list[tuple[int, bytes]] = []
        self.brokers: list[Record] = []
        self.log_bytes = 0
        self.index: list[tuple[int, int]] = []
        self.times: list[tuple[int, int]] = []
        self.since_entry = 0
        self.bootstrap = Bootstrap()

    def voters(self) -> VoterSet:
        return VoterSet(
            Voter(node_id, directory, f"controller-{node_id}", 9093)
            for node_id, directory in zip(self.controllers, self.directories, strict=True)
        )

    def write(self, folder: Path, changes: int, replicas: int) -> None:
        """Node dirs of the first `replicas` voters; the log is made once, in chunks."""
        paths = [folder / f"node-{node_id}" / METADATA_DIR for node_id in self.controllers[:replicas]]
        for path in paths:
            path.mkdir(parents=True)
        head = self._cleaned_up() if self.is_aged else self._head()
        files = [(path / segment_name(self.start_offset)).open("wb") for path in paths]
        try:
            for octets in self._log(head, changes):
                self.log_bytes += len(octets)
                for file in files:
                    file.write(octets)
        finally:
            for file in files:
                file.close()
        for number, path in enumerate(paths):
            self._write_beside(path, number)

    def _log(self, head: list[bytes], changes: int) -> Iterator[bytes]:
        yield from head
        left = -(-changes // (2 * BATCH_RECORDS))
        chunk = self.snapshot_pairs or CHUNK_PAIRS
        while left:
            count = min(left, chunk)
            left -= count
            yield isr_pairs(self, count)
            if self.is_aged and count == chunk:
                self.snapshots.append((self.end_offset, self._snapshot()))

    def _head(self) -> list[bytes]:
        """The epoch's first batch, the bootstrap records, brokers, topics."""
        change = {
            "version": 0,
            "leaderId": 1,
            "voters": [{"voterId": node_id} for node_id in self.controllers],
            "grantingVoters": [{"voterId": node_id} for node_id in self.controllers[: len(self.controllers) // 2 + 1]],
        }
        start: list[Record] = [
            ("LEADER_CHANGE", 0, change),
            ("KRAFT_VERSION", 0, {"version": 0, "kRaftVersion": 1}),
            ("KRAFT_VOTERS", 0, self.voters().fields()),
        ]
        batches = [self._batch(start, is_control=True), self._batch(self.bootstrap.records(), is_control=False)]
        self.brokers = [self._broker(broker) for broker in FLEET_BROKERS]
        batches.append(self._batch(self.brokers, is_control=False))
        return [*batches, *self._topics()]

    def _topics(self) -> list[bytes]:
        """A batch a topic: whole ones from a template, the last one of fewer partitions record by record."""
        whole = self.partition_count // PARTITIONS_A_TOPIC
        epochs = self.changes[: whole * PARTITIONS_A_TOPIC].reshape(whole, PARTITIONS_A_TOPIC)
        batches = topic_batches(self.topic_ids[:whole], self.end_offset, self.now_ms, epochs)
        for octets in batches:
            self.note_batch(len(octets), PARTITIONS_A_TOPIC + 1, self.now_ms)
        if whole < len(self.topic_ids):
            rest = self.changes[whole * PARTITIONS_A_TOPIC :].tolist()
            batches.append(self._batch(topic_records(whole, self.topic_ids[whole], rest), is_control=False))
        return batches

    def _cleaned_up(self) -> list[bytes]:
        """Puts what a whole log begins with into a snapshot; nothing of it is left in the log."""
        self.brokers = [self._broker(broker) for broker in FLEET_BROKERS]
        # As many records as a log that was not cleaned up begins with, and its LeaderChange.
        self.end_offset = self.start_offset = len(self.topic_ids) + self.partition_count + 100
        self.snapshots.append((self.start_offset, self._snapshot()))
        return []

    def _snapshot(self) -> bytes:
        """The image as it is now. A snapshot's offsets count its own records, and no index has them."""
        log_position = self.end_offset, self.position, self.since_entry, self.index, self.times
        self.end_offset, self.index, self.times = 0, [], []
        head: list[Record] = [
            ("SNAPSHOT_HEADER", 0, {"version": 0, "lastContainedLogTimestamp": self.now_ms}),
            ("KRAFT_VERSION", 0, {"version": 0, "kRaftVersion": 1}),
            ("KRAFT_VOTERS", 0, self.voters().fields()),
        ]
        parts = [self._batch(head, is_control=True)]
        parts.append(self._batch([*self.bootstrap.image_records(), *self.brokers], is_control=False))
        parts += self._topics()
        parts.append(self._batch([("SNAPSHOT_FOOTER", 0, {"version": 0})], is_control=True))
        self.end_offset, self.position, self.since_entry, self.index, self.times = log_position
        return b"".join(parts)

    def _broker(self, broker: int) -> Record:
        fields = {
            "brokerId": broker,
            "incarnationId": self.chance.uuid(),
            "brokerEpoch": self.end_offset,
            "endPoints": [{"name": "PLAINTEXT", "host": f"broker-{broker}", "port": 9092, "securityProtocol": 0}],
            "features": [],
            "rack": None,
            "fenced": False,
            "logDirs": [self.chance.uuid()],
        }
        return ("RegisterBrokerRecord", 4, fields)

    def _batch(self, records: list[Record], *, is_control: bool) -> bytes:
        octets = records_octets(records, self.end_offset, 1, self.now_ms, is_control, Dialect.KIP853)
        self.note_batch(len(octets), len(records), self.now_ms)
        return octets

    def note_batch(self, size_bytes: int, record_count: int, timestamp_ms: int) -> None:
        """Keeps the index rule (LogSegment) and the log end."""
        position = self.position
        last = self.end_offset + record_count - 1
        if self.since_entry > INDEX_INTERVAL_BYTES:
            self.index.append((last - self.start_offset, position))
            if not self.times or timestamp_ms > self.times[-1][0]:
                self.times.append((timestamp_ms, last - self.start_offset))
            self.since_entry = 0
        self.since_entry += size_bytes
        self.position = position + size_bytes
        self.end_offset = last + 1

    def _write_beside(self, path: Path, number: int) -> None:
        offsets = np.array(self.index, np.int64).reshape(-1, 2)
        index = OffsetIndex(offsets[:, 0].astype(np.int32), offsets[:, 1].astype(np.int32), 8 * len(offsets))
        start = self.start_offset
        (path / offset_index_name(start)).write_bytes(format_offset_index(index))
        times = np.array(self.times, np.int64).reshape(-1, 2)
        time_index = TimeIndex(times[:, 0], times[:, 1].astype(np.int32), 12 * len(times))
        (path / time_index_name(start)).write_bytes(format_time_index(time_index))
        if self.is_aged:
            for end_offset, octets in self.snapshots:
                (path / snapshot_name(end_offset, 1)).write_bytes(octets)
        else:
            first = Snapshot((0, 0), None, 1, self.voters(), self.began_ms, self.began_ms)
            (path / snapshot_name(0, 0)).write_bytes(snapshot_octets(first, Dialect.KIP853))
        (path / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint((EpochEntry(1, start),)))
        (path / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
        voted = -1 if number == 0 else 1
        state = QuorumState(1, 1, 1, voted, uuid_text(self.directories[0] if number else bytes(16)))
        (path / "quorum-state").write_bytes(format_quorum_state(state))
        meta = meta_properties(
            cluster_id=self.cluster_id,
            node_id=self.controllers[number],
            directory_id=uuid_text(self.directories[number]),
            date="Thu Jan 01 00:00:00 UTC 2026",
        )
        (path.parent / "meta.properties").write_bytes(format_meta_properties(meta))
        octets = bootstrap_octets(self.bootstrap.feature_records(), self.began_ms)
        (path.parent / "bootstrap.checkpoint").write_bytes(octets)

    def truth(self, number: int) -> dict[str, object]:
        return {
            "kind": "fleet_cluster",
            "cluster": f"cluster-{number}",
            "cluster_id": self.cluster_id,
            "committed_offset": self.end_offset,
            "partitions": self.partition_count,
            "partition_epochs_sum": int(self.changes.sum()),
            "partition_epoch_max": int(self.changes.max()),
        }


def _template(isr: tuple[int, ...]) -> bytes:
    """One PartitionChangeRecord v2 as a record with offset delta 0: only partition, topic id and delta vary."""
    value = b"\x01\x05\x02" + bytes(4) + bytes(16)
    array = bytes((len(isr) + 1,)) + b"".join(struct.pack(">i", broker) for broker in isr)
    value += bytes((1, 0, len(array))) + array
    body = b"\x00\x00\x00\x01" + bytes((2 * len(value),)) + value + b"\x00"
    return bytes((2 * len(body),)) + body


DELTA_AT, PARTITION_AT, TOPIC_AT = 3, 9, 13
HEADER = struct.Struct(">qiibIhiqqqhii")


def _batch_template(isr: tuple[int, ...]) -> Octets:
    record = np.frombuffer(_template(isr), np.uint8)
    rows = np.tile(record, (BATCH_RECORDS, 1))
    rows[:, DELTA_AT] = 2 * np.arange(BATCH_RECORDS)
    size = HEADER.size + rows.size
    head = HEADER.pack(0, size - 12, 1, 2, 0, 0, BATCH_RECORDS - 1, 0, 0, -1, -1, -1, BATCH_RECORDS)
    return np.concatenate([np.frombuffer(head, np.uint8), rows.reshape(-1)])


def _no_op() -> Octets:
    """A batch of one NoOpRecord v0."""
    record = b"\x14\x00\x00\x00\x01\x08\x01\x14\x00\x00\x00"
    head = HEADER.pack(0, HEADER.size + len(record) - 12, 1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return np.frombuffer(head + record, np.uint8)


SHRINK = _batch_template(FLEET_BROKERS[:2])
EXPAND = _batch_template(FLEET_BROKERS)
NO_OP = _no_op()


def isr_pairs(cluster: _Cluster, count: int) -> bytes:
    """`count` pairs of batches: the same 64 partitions leave the full ISR and come back. A NoOp follows if aged."""
    first_partition = np.array([cluster.chance.below(cluster.partition_count) for _ in range(count)], np.int64)
    chosen = (first_partition[:, None] + np.arange(BATCH_RECORDS)) % cluster.partition_count
    np.add.at(cluster.changes, chosen.reshape(-1), 2)
    topic_ids = np.frombuffer(b"".join(cluster.topic_ids), np.uint8).reshape(-1, 16)[chosen // PARTITIONS_A_TOPIC]
    indexes = big_endian(chosen % PARTITIONS_A_TOPIC, ">i4")
    batches = [(SHRINK, BATCH_RECORDS), (EXPAND, BATCH_RECORDS), (NO_OP, 1)][: 3 if cluster.is_aged else 2]
    rows = np.tile(np.concatenate([template for template, _ in batches]), (count, 1))
    start_ms = cluster.began_ms + PAUSE_MS * (cluster.end_offset // BATCH_RECORDS)
    if cluster.is_aged:
        start_ms = cluster.now_ms + cluster.pause_ms
    records_a_pair = sum(records for _, records in batches)
    begin = record = 0
    for which, (template, records) in enumerate(batches):
        part = rows[:, begin : begin + len(template)]
        if records == BATCH_RECORDS:
            body = part[:, HEADER.size :].reshape(count, BATCH_RECORDS, -1)
            body[:, :, PARTITION_AT : PARTITION_AT + 4] = indexes
            body[:, :, TOPIC_AT : TOPIC_AT + 16] = topic_ids
            part[:, HEADER.size :] = body.reshape(count, -1)
        part[:, 0:8] = big_endian(cluster.end_offset + record + records_a_pair * np.arange(count), ">i8")
        times = big_endian(start_ms + cluster.pause_ms * (len(batches) * np.arange(count) + which), ">i8")
        part[:, 27:35] = times
        part[:, 35:43] = times
        sign(part)
        begin += len(template)
        record += records
    for number in range(len(batches) * count):
        template, records = batches[number % len(batches)]
        cluster.note_batch(len(template), records, start_ms + cluster.pause_ms * number)
    cluster.now_ms = start_ms + cluster.pause_ms * (len(batches) * count - 1)
    return rows.tobytes()
