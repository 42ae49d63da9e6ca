"""Log dirs as Kafka leaves them: segments, indexes, checkpoints, snapshots, and what format and shutdown write
(facts 1).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kraft_codec.file_names import (
    offset_index_name,
    producer_state_name,
    segment_name,
    snapshot_name,
    time_index_name,
)
from kraft_codec.files import (
    CleanShutdown,
    EpochEntry,
    PartitionMetadata,
    QuorumState,
    format_clean_shutdown,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    format_quorum_state,
)
from kraft_codec.indexes import (
    PREALLOCATED_OFFSET_INDEX_BYTES,
    PREALLOCATED_TIME_INDEX_BYTES,
    OffsetIndex,
    TimeIndex,
    format_offset_index,
    format_producer_state,
    format_time_index,
)
from kraft_codec.properties import format_meta_properties, meta_properties
from kraft_codec.schemas import Dialect
from kraft_codec.uuids import uuid_text
from kraft_engine.batches import Batch, Record
from kraft_engine.cluster import Process
from kraft_engine.disks import Damage, Disk, voted_fields
from kraft_engine.encoding import batch_octets, bootstrap_octets, snapshot_octets
from kraft_engine.log import Snapshot

INDEX_INTERVAL_BYTES = 4096
HEADER_BYTES = 61
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
METADATA_DIR = "__cluster_metadata-0"


class NodeDir:
    """Writes one node's log dir below `root`. `preallocated` gives live indexes their full 10 MB, as on a running
    node.
    """

    def __init__(self, root: Path, dialect: Dialect, cluster_id: str, *, preallocated: bool = False) -> None:
        self.root = root
        self.dialect = dialect
        self.cluster_id = cluster_id
        self.preallocated = preallocated

    def write(self, process: Process, *, bootstrap_records: list[Record], formatted_ms: int) -> None:
        """Everything that a copy of this node's dir would hold at this moment."""
        partition_dir = self.root / METADATA_DIR
        partition_dir.mkdir(parents=True, exist_ok=True)
        disk = process.disk
        live = process.node is not None
        self._write_format(process, bootstrap_records, formatted_ms)
        self._write_segments(partition_dir, disk, live)
        self._write_snapshots(partition_dir, disk)
        self._write_state(partition_dir, disk)

    def _write_format(self, process: Process, bootstrap_records: list[Record], formatted_ms: int) -> None:
        when = datetime.fromtimestamp(formatted_ms // 1000, UTC)
        meta = meta_properties(
            version=1,
            cluster_id=self.cluster_id,
            node_id=process.id,
            directory_id=uuid_text(process.disk.directory),
            date=when.strftime("%a %b %d %H:%M:%S UTC %Y"),
        )
        (self.root / "meta.properties").write_bytes(format_meta_properties(meta))
        (self.root / "bootstrap.checkpoint").write_bytes(bootstrap_octets(bootstrap_records, formatted_ms))
        if process.node is None and process.disk.clean_shutdown_epoch >= 0:
            shutdown = CleanShutdown(version=0, broker_epoch=process.disk.clean_shutdown_epoch)
            (self.root / ".kafka_cleanshutdown").write_bytes(format_clean_shutdown(shutdown))

    def _write_segments(self, folder: Path, disk: Disk, live: bool) -> None:
        log = disk.log
        bases = log.segment_bases
        for number, base in enumerate(bases):
            end = bases[number + 1] if number + 1 < len(bases) else 1 << 62
            batches = [batch for batch in log.batches if base <= batch.base_offset < end]
            active = number + 1 == len(bases)
            self._write_segment(folder, base, batches, disk, active=active, live=live)
            if number:
                (folder / producer_state_name(base)).write_bytes(format_producer_state())
        if not live and log.end_offset > bases[-1]:
            (folder / producer_state_name(log.end_offset)).write_bytes(format_producer_state())

    def _write_segment(
        self, folder: Path, base: int, batches: list[Batch], disk: Disk, *, active: bool, live: bool
    ) -> None:
        octets = bytearray()
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        since_entry = 0
        newest = (-1, base)
        damaged_at = -1
        for batch in batches:
            encoded = batch_octets(batch, self.dialect)
            if batch.timestamp_ms > newest[0]:
                newest = (batch.timestamp_ms, batch.end_offset - 1)
            if since_entry > INDEX_INTERVAL_BYTES:
                offsets.append((batch.end_offset - 1 - base, len(octets)))
                if not times or newest[0] > times[-1][0]:
                    times.append((newest[0], newest[1] - base))
                since_entry = 0
            if disk.damage is not None and batch.base_offset <= disk.damage.offset < batch.end_offset:
                damaged_at = len(octets)
            since_entry += len(encoded)
            octets += encoded
        if batches and not (active and live) and (not times or newest[0] > times[-1][0]):
            times.append((newest[0], newest[1] - base))
        if disk.damage is not None and damaged_at >= 0:
            _spoil(octets, damaged_at, batch_octets(disk.log.batches[-1], self.dialect), disk.damage, whole=active)
        if active and disk.torn_octets:
            # The start of the batch that was being written: recovery will cut it.
            octets += _torn(disk, self.dialect)
        (folder / segment_name(base)).write_bytes(bytes(octets))
        full = active and live and self.preallocated
        self._write_indexes(folder, base, offsets, times, full=full)

    def _write_indexes(
        self, folder: Path, base: int, offsets: list[tuple[int, int]], times: list[tuple[int, int]], *, full: bool
    ) -> None:
        index = OffsetIndex(
            np.array([entry[0] for entry in offsets], np.int32),
            np.array([entry[1] for entry in offsets], np.int32),
            PREALLOCATED_OFFSET_INDEX_BYTES if full else 8 * len(offsets),
        )
        time_index = TimeIndex(
            np.array([entry[0] for entry in times], np.int64),
            np.array([entry[1] for entry in times], np.int32),
            PREALLOCATED_TIME_INDEX_BYTES if full else 12 * len(times),
        )
        (folder / offset_index_name(base)).write_bytes(format_offset_index(index))
        (folder / time_index_name(base)).write_bytes(format_time_index(time_index))

    def _write_snapshots(self, folder: Path, disk: Disk) -> None:
        snapshots: list[Snapshot] = list(disk.log.snapshots)
        if disk.bootstrap is not None and disk.log.start_offset == 0:
            snapshots.insert(0, disk.bootstrap)
        for snapshot in snapshots:
            path = folder / snapshot_name(*snapshot.id)
            path.write_bytes(snapshot_octets(snapshot, self.dialect))

    def _write_state(self, folder: Path, disk: Disk) -> None:
        starts = tuple(EpochEntry(epoch, start) for epoch, start in disk.log.epoch_starts)
        (folder / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(starts))
        metadata = PartitionMetadata(0, TOPIC_ID)
        (folder / "partition.metadata").write_bytes(format_partition_metadata(metadata))
        state = disk.visible_state
        if state is None:
            return
        voted_id, voted_directory = voted_fields(state.voted)
        data_version = 1 if self.dialect is Dialect.KIP856 else state.version
        stored = QuorumState(
            data_version=data_version,
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            voted_id=voted_id,
            voted_directory_id=uuid_text(voted_directory) if data_version else None,
            current_voters=state.voter_ids if data_version == 0 else None,
        )
        (folder / "quorum-state").write_bytes(format_quorum_state(stored, self.dialect))


def _spoil(octets: bytearray, position: int, newest: bytes, damage: Damage, *, whole: bool) -> None:
    """Does to a segment's bytes what the disk did: see Damage. `whole` says that the newest batch is in here too."""
    inside = position + HEADER_BYTES
    if damage.kind == "bit rot":
        octets[inside] ^= 1
        return
    end = len(octets)
    if whole:
        octets[end - len(newest) : end] = bytes(len(newest))
    landed = newest[: end - inside]
    octets[inside : inside + len(landed)] = landed


def _torn(disk: Disk, dialect: Dialect) -> bytes:
    """What reached the disk of the batch that was being written: never all of it."""
    if disk.torn_batch is None or disk.torn_batch.base_offset != disk.log.end_offset:
        return b""
    whole = batch_octets(disk.torn_batch, dialect)
    return whole[: min(disk.torn_octets, len(whole) - 1)]
