"""The replicas of a partition in brokers' data directories: log end offset, leader epoch, and what was visible.

Read where a capture holds them beside the metadata log: `replication-offset-checkpoint` (high watermarks, written every
five seconds and at a clean stop: a lower bound), and in each `topic-N` folder `partition.metadata`,
`leader-epoch-checkpoint` and the last segment, up to its last valid batch, as Kafka's recovery would leave it
(`LogLoader.recoverLog`, 4.3). Nothing is written, no record is decoded.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.recovery.leaderless_partitions import ReplicaLog, ReplicaLogs
from kraft_codec.errors import CodecError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, is_partition_dir, parse_file_name
from kraft_codec.files.indexes import MAX_INDEX_BYTES, parse_offset_index
from kraft_codec.files.properties import MAX_PROPERTIES_BYTES, parse_meta_properties
from kraft_codec.files.state_files import (
    MAX_CHECKPOINT_BYTES,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.storage.random_access import EntryKind, Listing, RandomAccess, Storage, join

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
PREFIX: Final = struct.Struct(">qi")
PLAUSIBLE_BATCH_BYTES_MAX: Final = 128 << 20
"""A batch longer than that is taken for damage: max.message.bytes is 1 MiB by default."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """One log directory of one broker, with the names in it."""

    broker_id: int
    path: str
    listing: Listing


def replica_logs(storage: Storage, plan: ClusterPlan, wanted: Collection[tuple[str, int]]) -> ReplicaLogs:
    """The captured ends of the wanted (topic, partition)s; what cannot be read is as if it had not been captured."""
    logs_by_partition: dict[tuple[str, int], list[ReplicaLog]] = defaultdict(list)
    for data_dir in data_dirs(storage, plan):
        marks = _high_watermarks(storage, data_dir)
        names = {entry.name for entry in data_dir.listing.entries if entry.kind is EntryKind.DIRECTORY}
        is_clean = any(entry.name == CLEAN_SHUTDOWN for entry in data_dir.listing.entries)
        for topic, partition in wanted:
            name, mark = f"{topic}-{partition}", marks.get((topic, partition))
            log = None
            if name in names:
                log = _replica_log(storage, data_dir, name, mark, is_clean)
            if log is None and mark is not None:
                log = ReplicaLog(data_dir.broker_id, None, None, mark, is_clean=is_clean)
            if log is not None:
                logs_by_partition[topic, partition].append(log)
    return {key: tuple(sorted(logs, key=lambda log: log.broker_id)) for key, logs in logs_by_partition.items()}


def data_dirs(storage: Storage, plan: ClusterPlan) -> Iterator[DataDir]:
    """The folders with a meta.properties of this cluster, in the newest capture that the plan reads."""
    newest = max((replica.capture_number for replica in plan.replicas), default=0)
    folders = {replica.capture for replica in plan.replicas if replica.capture_number == newest}
    pending = [(join(storage.start, folder) if folder else storage.start, 0) for folder in sorted(folders)]
    visited_count = 0
    while pending:
        path, depth = pending.pop()
        visited_count += 1
        if visited_count > storage.limits.directory_count:
            return
        try:
            listing = storage.list_dir(path)
        except CodecError:
            continue  # the reading of the metadata log reports it
        broker_id = _broker_of(storage, path, listing, plan.cluster_id)
        if broker_id is not None:
            yield DataDir(broker_id, path, listing)
        names = [entry.name for entry in listing.entries if entry.kind is EntryKind.DIRECTORY]
        if broker_id is not None or METADATA_LOG_DIR in names:
            names = [name for name in names if not is_partition_dir(name) and name != METADATA_LOG_DIR]
        if depth < storage.limits.depth_count:
            pending += [(join(path, name), depth + 1) for name in sorted(names, reverse=True)]


def _broker_of(storage: Storage, path: str, listing: Listing, cluster_id: str) -> int | None:
    if not any(entry.name == "meta.properties" for entry in listing.entries):
        return None
    try:
        meta = parse_meta_properties(storage.read_small(join(path, "meta.properties"), MAX_PROPERTIES_BYTES))
    except CodecError:
        return None
    return meta.node_id if meta.cluster_id == cluster_id else None


def _high_watermarks(storage: Storage, data_dir: DataDir) -> dict[tuple[str, int], int]:
    try:
        entries = parse_offset_checkpoint(
            storage.read_small(join(data_dir.path, HIGH_WATERMARKS), MAX_CHECKPOINT_BYTES)
        )
    except CodecError:
        return {}
    return {(entry.topic, entry.partition): entry.offset for entry in entries}


def _replica_log(storage: Storage, data_dir: DataDir, name: str, mark: int | None, is_clean: bool) -> ReplicaLog | None:
    """One `topic-N` folder; None where its log cannot be read."""
    path = join(data_dir.path, name)
    try:
        end, epoch = log_end(storage, path)
    except CodecError:
        return None
    epochs: tuple[tuple[int, int], ...] = ()
    topic_id = None
    try:
        topic_id = parse_partition_metadata(storage.read_small(join(path, "partition.metadata"))).topic_id
        text = storage.read_small(join(path, "leader-epoch-checkpoint"), MAX_CHECKPOINT_BYTES)
        epochs = tuple((entry.epoch, entry.start_offset) for entry in parse_leader_epoch_checkpoint(text))
    except CodecError:
        pass  # a folder without them is one of an older release, or was being made
    if epoch is None:
        epoch = max((known_epoch for known_epoch, _ in epochs), default=-1)
    return ReplicaLog(data_dir.broker_id, end, epoch, mark, epochs, topic_id, is_clean)


def log_end(storage: Storage, path: str) -> tuple[int, int | None]:
    """(log end offset, epoch of the last valid batch or None) of one partition folder. Raises CodecError."""
    parsed = [parse_file_name(entry.name) for entry in storage.list_dir(path).entries if entry.kind is EntryKind.FILE]
    segments = sorted((name.base_offset or 0, name.name) for name in parsed if name and name.kind is FileKind.SEGMENT)
    for base_offset, name in reversed(segments):
        with storage.open(join(path, name)) as file:
            last = None
            for batch in _valid_batches(file, _start(storage, path, base_offset, file.size_bytes)):
                last = batch.header
            if last is None:  # an index that points beyond what is valid
                for batch in _valid_batches(file, 0):
                    last = batch.header
        if last is not None:
            return last.last_offset + 1, last.leader_epoch
    return (segments[-1][0] if segments else 0), None


def _start(storage: Storage, path: str, base_offset: int, size_bytes: int) -> int:
    """Where the last indexed batch of a segment starts, so that a gigabyte before it need not be read."""
    try:
        index = parse_offset_index(storage.read_small(join(path, f"{base_offset:020d}.index"), MAX_INDEX_BYTES))
    except CodecError:
        return 0
    positions = index.positions
    return int(positions[-1]) if len(positions) and 0 <= positions[-1] < size_bytes else 0


def _valid_batches(file: RandomAccess, position: int) -> Iterator[Batch]:
    """Batches up to the first that Kafka's recovery would cut at."""
    while position + PREFIX.size <= file.size_bytes:
        _, length = PREFIX.unpack(file.read_at(position, PREFIX.size).tobytes())
        size_bytes = PREFIX.size + length
        if not 0 < length <= PLAUSIBLE_BATCH_BYTES_MAX or position + size_bytes > file.size_bytes:
            return
        batch = next(read_batches(file.read_at(position, size_bytes).data), None)
        if not isinstance(batch, Batch) or batch.damage is not None:
            return
        yield batch
        position += size_bytes
