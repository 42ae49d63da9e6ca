"""A broker's data dirs: partition dirs with their logs, and the checkpoints of each log dir.

Only what an unclean recovery is planned from has to be true: which records a replica holds, in which leader epochs,
up to where it had flushed them, and the high watermark that it wrote down last (LogManager, ReplicaManager).
"""

from __future__ import annotations

from pathlib import Path

from kraft_codec.file_names import producer_state_name
from kraft_codec.files.indexes import format_producer_state
from kraft_codec.files.state_files import (
    EpochEntry,
    OffsetEntry,
    PartitionMetadata,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_partition_metadata,
)
from kraft_codec.records.batch import write_batch
from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.replicas import Replica, TopicPartition
from kraft_engine.world.segment_files import EncodedBatch, Segment
from kraft_engine.world.world import EPOCH_MS


def further_dir(node_dir: Path, number: int) -> Path:
    """Where a broker's log dir goes: the first holds the metadata log too, the others lie beside it."""
    return node_dir if number == 0 else node_dir.with_name(f"{node_dir.name}-dir-{number + 1}")


def write_data_dirs(node_dir: Path, broker: Broker) -> list[tuple[Path, bytes]]:
    """Writes the broker's online log dirs; returns (path, directory id) of each, that of the metadata log included.

    The caller writes meta.properties. A dir that is offline cannot be copied.
    """
    folders: list[tuple[Path, bytes]] = []
    for number, directory in enumerate(broker.log_dirs):
        if directory in broker.offline_dirs:
            continue
        folder = further_dir(node_dir, number)
        folder.mkdir(parents=True, exist_ok=True)
        held = {key: replica for key, replica in broker.replicas.items() if broker.dir_of(key) == directory}
        _write_checkpoints(folder, broker, held)
        for key, replica in held.items():
            assigned = replica.assigned_epoch if broker.host.brokers_report_directories else -1
            _write_partition(folder / _name(broker, key), key, replica, live=broker.running, assigned_epoch=assigned)
        folders.append((folder, directory))
    return folders


def _name(broker: Broker, key: TopicPartition) -> str:
    return f"{broker.topic_names[key[0]]}-{key[1]}"


def _write_checkpoints(folder: Path, broker: Broker, held: dict[TopicPartition, Replica]) -> None:
    """Offsets by topic and partition. Log start offsets stand here only where records were deleted: never."""
    names = sorted((broker.topic_names[key[0]], key[1], replica) for key, replica in held.items())
    marks = tuple(OffsetEntry(topic, index, replica.checkpointed_watermark) for topic, index, replica in names)
    points = tuple(OffsetEntry(topic, index, replica.recovery_point) for topic, index, replica in names)
    (folder / "replication-offset-checkpoint").write_bytes(format_offset_checkpoint(marks))
    (folder / "recovery-point-offset-checkpoint").write_bytes(format_offset_checkpoint(points))
    (folder / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint(()))
    (folder / "cleaner-offset-checkpoint").write_bytes(b"")


def _write_partition(folder: Path, key: TopicPartition, replica: Replica, *, live: bool, assigned_epoch: int) -> None:
    """One segment: a batch a record, as a producer that waits for each sends them.

    `assigned_epoch` is the one in which the replica was elected and has written nothing yet, -1 for none.
    """
    folder.mkdir(exist_ok=True)
    segment = Segment(0)
    starts: list[EpochEntry] = []
    for offset, (epoch, value) in enumerate(zip(replica.epochs, replica.values, strict=True)):
        if not starts or starts[-1].epoch < epoch:
            starts.append(EpochEntry(epoch, offset))
        octets = write_batch(
            base_offset=offset, leader_epoch=epoch, timestamp_ms=EPOCH_MS, records=[(None, b"%d" % value)]
        )
        segment.append(EncodedBatch(octets, offset, EPOCH_MS))
    if assigned_epoch > replica.last_epoch:
        starts.append(EpochEntry(assigned_epoch, replica.end_offset))
    if not live:
        segment.close()
    segment.write(folder)
    if not live and replica.end_offset:
        (folder / producer_state_name(replica.end_offset)).write_bytes(format_producer_state())
    (folder / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(tuple(starts)))
    metadata = PartitionMetadata(0, uuid_text(key[0]))
    (folder / "partition.metadata").write_bytes(format_partition_metadata(metadata))
