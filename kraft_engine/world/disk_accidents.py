"""What people and storage do to a disk while its node is down, beyond Raft's model.

Each leaves bytes that look sound: checksums hold, files are all there or all gone. Only comparing replicas shows them.
"""

from __future__ import annotations

from kraft_engine.brokers.image import BROKER
from kraft_engine.brokers.image_records import config
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.replica_log import MetadataLog
from kraft_engine.world.disks import Disk


def copy_log(log: MetadataLog) -> MetadataLog:
    """An independent log with the same batches and snapshots."""
    copy = MetadataLog(log.segment_limit_bytes)
    copy.batches, copy.bases = list(log.batches), list(log.bases)
    copy.start_offset, copy.end_offset, copy.last_epoch = log.start_offset, log.end_offset, log.last_epoch
    copy.epoch_starts, copy.snapshots = list(log.epoch_starts), list(log.snapshots)
    copy.synced_end = log.end_offset
    copy.segment_bases, copy.segment_bytes = list(log.segment_bases), log.segment_bytes
    return copy


def backup(disk: Disk) -> Disk:
    """A copy of all that a disk holds now, to `restore` from it or to `clone` a machine."""
    copy = Disk(disk.directory, segment_limit_bytes=disk.log.segment_limit_bytes)
    copy.log = copy_log(disk.log)
    copy.quorum_state, copy.bootstrap = disk.visible_state, disk.bootstrap
    return copy


def restore(disk: Disk, copy: Disk) -> None:
    """The disk is as the copy: what was written since is gone, votes too. Of another node's copy this is a clone."""
    restored = backup(copy)
    disk.directory, disk.log = restored.directory, restored.log
    disk.quorum_state, disk.bootstrap = restored.quorum_state, restored.bootstrap
    disk.unsynced_state = disk.damage = None


def copy_partition_dir(disk: Disk, source: Disk) -> None:
    """`__cluster_metadata-0` of another node, quorum-state included, under this disk's own meta.properties."""
    directory = disk.directory
    restore(disk, source)
    disk.directory = directory


def empty_segments(disk: Disk) -> None:
    """The segments hold no bytes any more; the files beside them say what they held."""
    log = disk.log
    starts = list(log.epoch_starts)
    disk.log = MetadataLog(log.segment_limit_bytes)
    disk.log.epoch_starts = starts


def lose_quorum_state(disk: Disk) -> None:
    """The file alone is gone: the node has forgotten its epoch and whom it voted for."""
    disk.quorum_state = disk.unsynced_state = None


def alter_batch(disk: Disk, offset: int) -> Batch | None:
    """Other records in the batch that holds `offset`, with a right checksum; None where the disk holds no such batch.

    The first record becomes a NoOpRecord, one that was becomes a config: the batch has as many records as before.
    """
    log = disk.log
    batch = log.batch_at(offset)
    if batch is None or batch.is_control:
        return None
    nothing: Record = ("NoOpRecord", 0, {})
    was_nothing = batch.records[0][0] == "NoOpRecord"
    records = (config(BROKER, "", "log.cleaner.threads", "7") if was_nothing else nothing, *batch.records[1:])
    altered = Batch(batch.base_offset, batch.epoch, batch.timestamp_ms, False, records, batch.previous)
    log.batches[log.bases.index(batch.base_offset)] = altered
    return altered


def cut_front(disk: Disk, offset: int) -> int:
    """The log's first batches are gone, as when its first segment was deleted by hand; returns where it begins now."""
    log = disk.log
    keep = next((index for index, batch in enumerate(log.batches) if batch.base_offset >= offset), len(log.batches))
    keep = min(keep, max(len(log.batches) - 1, 0))
    del log.batches[:keep], log.bases[:keep]
    first = log.batches[0].base_offset if log.batches else log.end_offset
    log.segment_bases = [first, *(base for base in log.segment_bases if base > first)]
    earlier = [(epoch, first) for epoch, start in log.epoch_starts if start <= first]
    log.epoch_starts = earlier[-1:] + [entry for entry in log.epoch_starts if entry[1] > first]
    log.start_offset = max(log.start_offset, first)
    return first


def lose_last_segments(disk: Disk, offset: int) -> None:
    """The log ends at this offset, and the files beside it say how far it went: a copy without its last segments."""
    log = disk.log
    keep = sum(batch.end_offset <= offset for batch in log.batches)
    del log.batches[keep:], log.bases[keep:]
    log.end_offset = log.batches[-1].end_offset if log.batches else 0
    log.last_epoch = log.batches[-1].epoch if log.batches else 0
    log.synced_end = log.end_offset
    log.segment_bases = [base for base in log.segment_bases if base < log.end_offset] or [0]
