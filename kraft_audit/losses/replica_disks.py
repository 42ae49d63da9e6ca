"""The replicas of partitions on brokers' disks: topic id, leader epochs, log end offset, and what was visible.

Read where a capture holds them beside the metadata log: whole data directories, of which every `topic-N` folder has
partition.metadata, leader-epoch-checkpoint and perhaps segments, or the file in which kraft-capture brings the small
files of all disks of a broker. High watermarks come from `replication-offset-checkpoint`, written every five seconds
and at a clean stop: a lower bound. Nothing is written, no record is decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.losses.log_ends import log_end
from kraft_codec.errors import CodecError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, is_partition_dir, parse_file_name
from kraft_codec.files.broker_disks import (
    CapturedDisk,
    CapturedPartition,
    offsets_by_partition,
    parse_broker_disks,
    partition_of,
)
from kraft_codec.files.properties import MAX_PROPERTIES_BYTES, MetaProperties, parse_meta_properties
from kraft_codec.files.state_files import (
    MAX_CHECKPOINT_BYTES,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kraft_codec.storage.random_access import EntryKind, Listing, Storage, join

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
FOLDER_COPY_MS: Final = 2_000
"""Files that a copy wrote lie so close together in time."""
CLOCK_MARGIN_MS: Final = 60_000
"""How far the clock of a broker's host is trusted: a disk read at T by it was read at T less this, or later."""
_Partition = tuple[str, int]
_Offsets = Mapping[_Partition, int]


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One partition's log on one disk of one broker, as it was read at one time.

    `epochs` is leader-epoch-checkpoint: (epoch, start offset), ascending. `log_end_offset` is None where no segment was
    captured and the disk was not stopped cleanly; `leader_epoch` is that of the last batch, else the last of `epochs`.
    `high_watermark` is a lower bound; with `is_watermark_older` the last of `epochs` may have begun after it was
    written.
    `directory_id` is None where meta.properties has none, `topic_id` without partition.metadata. `is_clean`: the broker
    had stopped cleanly. `capture_number` orders captures in time; `read_not_before_ms` is None where nothing says when.
    `path` is the folder below the storage's root, or the log dir as its broker names it.
    """

    broker_id: int
    log_end_offset: int | None
    leader_epoch: int | None
    high_watermark: int | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    topic_id: str | None = None
    is_clean: bool = False
    directory_id: str | None = None
    log_start_offset: int | None = None
    is_watermark_older: bool = False
    capture_number: int = 0
    read_not_before_ms: int | None = None
    path: str = ""

    @property
    def visible_end(self) -> int | None:
        """Records of this log below it were below the high watermark; None where that is not known of any."""
        if self.high_watermark is None:
            return None
        known_end = self.high_watermark if self.log_end_offset is None else self.log_end_offset
        if (self.is_watermark_older or self.high_watermark > known_end) and self.epochs:
            # The log was, or may have been, truncated since: what its newest epoch holds was not below that watermark.
            known_end = min(known_end, self.epochs[-1][1])
        return min(self.high_watermark, known_end)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts what was read of one disk by time."""
        return self.capture_number, self.read_not_before_ms or 0


ReplicaLogs = Mapping[tuple[str, int], tuple[ReplicaLog, ...]]
"""(topic, partition) → what was read of its replicas."""
NO_LOGS: Final[ReplicaLogs] = {}


@dataclass(frozen=True, slots=True)
class DataDir:
    """One log directory of one broker, with the names in it."""

    broker_id: int
    path: str
    listing: Listing
    directory_id: str | None = None
    capture_number: int = 0


def replica_logs(
    storage: Storage,
    plan: ClusterPlan,
    wanted: Collection[_Partition] | None = None,
    *,
    every_capture: bool = False,
    read_not_before_ms: Mapping[int, int] | None = None,
) -> ReplicaLogs:
    """What brokers' disks hold of the wanted (topic, partition)s, of all that they hold by default.

    What cannot be read is as if it had not been captured.

    Args:
        every_capture: reads the disks of each capture and each earlier copy, not of the newest alone.
        read_not_before_ms: when each capture was taken at the earliest, by its number: the time of the newest record of
            the metadata log in it, say.
    """
    times_ms = read_not_before_ms or {}
    logs_by_partition: dict[_Partition, list[ReplicaLog]] = defaultdict(list)
    for data_dir in data_dirs(storage, plan, every_capture=every_capture):
        packs = sorted(name for entry in data_dir.listing.entries if _is_pack(name := entry.name))
        for name in packs if every_capture else packs[-1:]:
            for place, log in _packed_logs(storage, data_dir, name, plan.cluster_id, wanted):
                logs_by_partition[place].append(log)
        for place, log in _logs_in(storage, data_dir, wanted, bool(packs), times_ms.get(data_dir.capture_number)):
            logs_by_partition[place].append(log)
    return {key: tuple(sorted(logs, key=_sort_key)) for key, logs in logs_by_partition.items()}


def _sort_key(log: ReplicaLog) -> tuple[int, tuple[int, int], str]:
    return log.broker_id, log.order, log.path


def data_dirs(storage: Storage, plan: ClusterPlan, *, every_capture: bool = False) -> Iterator[DataDir]:
    """The folders with a meta.properties of this cluster, in the newest capture that the plan reads, or in each."""
    numbers = {replica.capture: replica.capture_number for replica in plan.replicas}
    newest = max(numbers.values(), default=0)
    read = {_below(storage, folder): number for folder, number in numbers.items() if every_capture or number == newest}
    pending = [(path, 0, number) for path, number in sorted(read.items())]
    visited_count = 0
    while pending:
        path, depth, number = pending.pop()
        visited_count += 1
        if visited_count > storage.limits.directory_count:
            return
        try:
            listing = storage.list_dir(path)
        except CodecError:
            continue  # the reading of the metadata log reports it
        meta = _meta_of(storage, path, listing, plan.cluster_id)
        broker_id = None if meta is None else meta.node_id
        if meta is not None and broker_id is not None:
            yield DataDir(broker_id, path, listing, meta.directory_id, number)
        names = [entry.name for entry in listing.entries if entry.kind is EntryKind.DIRECTORY]
        if broker_id is not None or METADATA_LOG_DIR in names:
            names = [name for name in names if not is_partition_dir(name) and name != METADATA_LOG_DIR]
        if depth < storage.limits.depth_count:
            inner = [join(path, name) for name in sorted(names, reverse=True)]
            pending += [(each, depth + 1, number) for each in inner if each not in read]


def _below(storage: Storage, folder: str) -> str:
    return join(storage.start, folder) if folder else storage.start


def _meta_of(storage: Storage, path: str, listing: Listing, cluster_id: str) -> MetaProperties | None:
    if not any(entry.name == "meta.properties" for entry in listing.entries):
        return None
    try:
        meta = parse_meta_properties(storage.read_small(join(path, "meta.properties"), MAX_PROPERTIES_BYTES))
    except CodecError:
        return None
    return meta if meta.cluster_id == cluster_id else None


def _is_pack(name: str) -> bool:
    parsed = parse_file_name(name)
    return parsed is not None and parsed.kind is FileKind.BROKER_DISKS


def _packed_logs(
    storage: Storage, data_dir: DataDir, name: str, cluster_id: str, wanted: Collection[_Partition] | None
) -> Iterator[tuple[_Partition, ReplicaLog]]:
    """What kraft-capture brought of all disks of a broker in one file."""
    try:
        disks = parse_broker_disks(storage.read_small(join(data_dir.path, name)), wanted)
    except CodecError:
        return
    if (disks.cluster_id, disks.node_id) != (cluster_id, data_dir.broker_id):
        return
    for disk in disks.disks:
        for partition in disk.partitions:
            place = (partition.topic, partition.partition)
            epochs = tuple((entry.epoch, entry.start_offset) for entry in partition.epochs)
            yield (
                place,
                ReplicaLog(
                    disks.node_id,
                    _clean_end(disk.is_clean and disk.lock != "held", disk.recovery_points, place),
                    epochs[-1][0] if epochs else None,
                    disk.high_watermarks.get(place),
                    epochs,
                    partition.topic_id,
                    disk.is_clean,
                    disk.directory_id,
                    disk.log_starts.get(place),
                    _is_watermark_older(disk, partition),
                    data_dir.capture_number,
                    disks.at_ms - CLOCK_MARGIN_MS,
                    join(disk.log_dir, f"{partition.topic}-{partition.partition}"),
                ),
            )


def _clean_end(is_clean: bool, recovery_points: _Offsets, place: _Partition) -> int | None:
    """The log end offset of a disk that was stopped cleanly.

    A clean stop flushes each log to its end and then writes the recovery points (LogManager.shutdown, 4.3).
    """
    return recovery_points.get(place) if is_clean else None


def _is_watermark_older(disk: CapturedDisk, partition: CapturedPartition) -> bool:
    epochs_ms, watermark_ms = partition.epochs_mtime_ms, disk.high_watermarks_mtime_ms
    return epochs_ms is not None and watermark_ms is not None and epochs_ms >= watermark_ms


def _may_be_older(storage: Storage, data_dir: DataDir, folder: str | None, epochs: tuple[tuple[int, int], ...]) -> bool:
    """Whether the high watermark may be that of a log which was cut since: a running broker writes it every five
    seconds.

    Not in a partition's first leader epoch, and not where a copy that kept the times of files has it later.
    """
    if folder is None or not epochs or epochs[-1][0] == 0:
        return False
    path = join(data_dir.path, folder)
    try:
        names = sorted(entry.name for entry in storage.list_dir(path).entries if entry.name.endswith(".log"))
        watermark_ms = _mtime_ms(storage, join(data_dir.path, HIGH_WATERMARKS))
        epochs_ms = _mtime_ms(storage, join(path, "leader-epoch-checkpoint"))
        appended_ms = _mtime_ms(storage, join(path, names[-1])) if names else epochs_ms
    except CodecError:
        return True
    are_kept = abs(appended_ms - epochs_ms) > FOLDER_COPY_MS
    return not are_kept or watermark_ms - epochs_ms < CLOCK_MARGIN_MS


def _mtime_ms(storage: Storage, path: str) -> int:
    with storage.open(path) as file:
        return file.mtime_ms


def _logs_in(
    storage: Storage,
    data_dir: DataDir,
    wanted: Collection[_Partition] | None,
    has_pack: bool,
    read_not_before_ms: int | None,
) -> Iterator[tuple[_Partition, ReplicaLog]]:
    """What a data directory holds that was copied as it lies."""
    marks, points, starts = (
        _offsets(storage, data_dir, name) for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS)
    )
    is_clean = any(entry.name == CLEAN_SHUTDOWN for entry in data_dir.listing.entries)
    folders = {
        place: entry.name
        for entry in data_dir.listing.entries
        if entry.kind is EntryKind.DIRECTORY
        and entry.name != METADATA_LOG_DIR
        and (place := partition_of(entry.name)) is not None
    }
    for place in sorted({*folders, *marks} if wanted is None else wanted):
        log = None
        if place in folders:
            log = _replica_log(storage, join(data_dir.path, folders[place]), _clean_end(is_clean, points, place))
        if log is None and (has_pack or place not in marks):
            continue
        end, epoch, epochs, topic_id, first = log or (None, None, (), None, None)
        yield (
            place,
            ReplicaLog(
                data_dir.broker_id,
                end,
                epoch,
                marks.get(place),
                epochs,
                topic_id,
                is_clean,
                data_dir.directory_id,
                max((start for start in (first, starts.get(place)) if start is not None), default=None),
                not is_clean and _may_be_older(storage, data_dir, folders.get(place), epochs),
                data_dir.capture_number,
                read_not_before_ms,
                join(data_dir.path, folders[place]) if log is not None else data_dir.path,
            ),
        )


def _offsets(storage: Storage, data_dir: DataDir, name: str) -> _Offsets:
    try:
        entries = parse_offset_checkpoint(storage.read_small(join(data_dir.path, name), MAX_CHECKPOINT_BYTES))
    except CodecError:
        return {}
    return offsets_by_partition(entries)


_FolderLog = tuple[int | None, int | None, tuple[tuple[int, int], ...], str | None, int | None]
"""Log end offset, leader epoch, epochs, topic id, first offset."""


def _replica_log(storage: Storage, path: str, clean_end: int | None) -> _FolderLog | None:
    """One `topic-N` folder; None where its log cannot be read, or nothing is in it."""
    try:
        end = log_end(storage, path)
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
    last_epoch = max((epoch for epoch, _ in epochs), default=-1)
    if end is None:
        return None if topic_id is None and not epochs else (clean_end, last_epoch, epochs, topic_id, None)
    return (
        end.end_offset,
        last_epoch if end.leader_epoch is None else end.leader_epoch,
        epochs,
        topic_id,
        end.start_offset,
    )
