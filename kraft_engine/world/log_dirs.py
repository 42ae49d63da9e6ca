"""Log dirs as Kafka leaves them: segments, indexes, checkpoints, snapshots, and what format and shutdown write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kraft_codec.file_names import producer_state_name, snapshot_name
from kraft_codec.files.indexes import format_producer_state
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import (
    CleanShutdown,
    EpochEntry,
    PartitionMetadata,
    QuorumState,
    format_clean_shutdown,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    format_quorum_state,
)
from kraft_codec.schemas import Dialect
from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.broker import Broker
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.replica_log import Snapshot
from kraft_engine.world.data_dirs import write_data_dirs
from kraft_engine.world.disks import Damage, Disk, voted_fields
from kraft_engine.world.encoding import batch_octets, bootstrap_octets, snapshot_octets
from kraft_engine.world.processes import Process
from kraft_engine.world.segment_files import EncodedBatch, Segment

HEADER_BYTES = 61
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
METADATA_DIR = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True)
class TornWrite:
    """The start of a batch whose write a crash cut short: in the segment that begins at `base_offset`."""

    base_offset: int
    position: int
    length_bytes: int


class NodeDir:
    """Writes one node's log dir below `root`. `preallocated` gives live indexes their full 10 MB, as on a running
    node; `bootstrap_records` are what format wrote.
    """

    def __init__(
        self,
        root: Path,
        dialect: Dialect,
        cluster_id: str,
        *,
        bootstrap_records: list[Record],
        preallocated: bool = False,
    ) -> None:
        self.root = root
        self.dialect = dialect
        self.cluster_id = cluster_id
        self.bootstrap_records = bootstrap_records
        self.preallocated = preallocated

    def write(self, process: Process) -> TornWrite | None:
        """Writes what a copy of this node's metadata dir would hold now; returns the write that a crash cut short."""
        partition_dir = self.root / METADATA_DIR
        partition_dir.mkdir(parents=True, exist_ok=True)
        disk = process.disk
        live = process.node is not None
        self._write_format(self.root, process, disk.directory)
        torn = self._write_segments(partition_dir, disk, live)
        self._write_snapshots(partition_dir, disk)
        self._write_state(partition_dir, disk)
        return torn

    def keep_times(self, process: Process) -> None:
        """File times as a copy that keeps them has them: when the log was last appended to, of an empty one when it
        was made."""
        disk = process.disk
        written_ms = disk.log.batches[-1].timestamp_ms if disk.log.batches else disk.wiped_ms
        files = [(self.root / name, disk.formatted_ms) for name in ("meta.properties", "bootstrap.checkpoint")]
        files += [(file, written_ms) for file in (self.root / METADATA_DIR).iterdir()]
        for file, time_ms in files:
            os.utime(file, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def write_data(self, process: Process, broker: Broker) -> None:
        """A broker's partition dirs and checkpoints; its further log dirs lie beside `root`."""
        for folder, directory in write_data_dirs(self.root, broker):
            self._write_format(folder, process, directory)

    def _write_format(self, folder: Path, process: Process, directory: bytes) -> None:
        formatted_ms = process.disk.formatted_ms
        when = datetime.fromtimestamp(formatted_ms // 1000, UTC)
        meta = meta_properties(
            version=1,
            cluster_id=self.cluster_id,
            node_id=process.id,
            directory_id=uuid_text(directory),
            date=when.strftime("%a %b %d %H:%M:%S UTC %Y"),
        )
        (folder / "meta.properties").write_bytes(format_meta_properties(meta))
        bootstrap = bootstrap_octets(self.bootstrap_records, formatted_ms, self.dialect)
        (folder / "bootstrap.checkpoint").write_bytes(bootstrap)
        if process.node is None and process.disk.clean_shutdown_epoch >= 0:
            shutdown = CleanShutdown(version=0, broker_epoch=process.disk.clean_shutdown_epoch)
            (folder / ".kafka_cleanshutdown").write_bytes(format_clean_shutdown(shutdown))

    def _write_segments(self, folder: Path, disk: Disk, live: bool) -> TornWrite | None:
        log = disk.log
        bases = log.segment_bases
        torn: TornWrite | None = None
        for number, base in enumerate(bases):
            end = bases[number + 1] if number + 1 < len(bases) else 1 << 62
            batches = [batch for batch in log.batches if base <= batch.base_offset < end]
            active = number + 1 == len(bases)
            torn = self._write_segment(folder, base, batches, disk, active=active, live=live)
            if number:
                (folder / producer_state_name(base)).write_bytes(format_producer_state())
        if not live and log.end_offset > bases[-1]:
            (folder / producer_state_name(log.end_offset)).write_bytes(format_producer_state())
        return torn

    def _write_segment(
        self, folder: Path, base: int, batches: list[Batch], disk: Disk, *, active: bool, live: bool
    ) -> TornWrite | None:
        segment = Segment(base)
        damaged_at = -1
        for batch in batches:
            encoded = EncodedBatch(batch_octets(batch, self.dialect), batch.end_offset - 1, batch.timestamp_ms)
            position = segment.append(encoded)
            if disk.damage is not None and batch.base_offset <= disk.damage.offset < batch.end_offset:
                damaged_at = position
        if not (active and live):
            segment.close()
        if disk.damage is not None and damaged_at >= 0:
            newest = batch_octets(disk.log.batches[-1], self.dialect)
            _spoil(segment.octets, damaged_at, newest, disk.damage, whole=active)
        # The start of the batch that was being written: recovery will cut it.
        begun = _torn(disk, self.dialect) if active and disk.torn_octets else b""
        torn = TornWrite(base, len(segment.octets), len(begun)) if begun else None
        segment.octets += begun
        segment.write(folder, preallocated=active and live and self.preallocated)
        return torn

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
            applied_offset=state.applied_offset,
            current_voters=state.voter_ids if data_version == 0 else None,
        )
        (folder / "quorum-state").write_bytes(format_quorum_state(stored, self.dialect))


def _spoil(octets: bytearray, position: int, newest: bytes, damage: Damage, *, whole: bool) -> None:
    """Applies the disk's Damage to a segment's bytes. `whole` says that the newest batch is in here too."""
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
