"""Where reading a replica's log begins: the order of its segments, and how much of them an earlier plan has read."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from kraft_audit.replay.continuity import LogState
from kraft_audit.replay.damage import DamageLog, FileTally
from kraft_audit.replay.plan import BatchKey, FilePlan, ReplicaPlan
from kraft_codec.batch import HEADER_BYTES, BatchHeader, read_header
from kraft_codec.discovery import FileEntry, ReplicaDir
from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import FileKind
from kraft_codec.logdir import segments as ordered_segments
from kraft_codec.random_access import Storage, join


@dataclass(slots=True)
class Segment:
    """One segment; `is_done` where nothing of it is read."""

    tally: FileTally
    is_done: bool = False


@dataclass(slots=True)
class Start:
    """Segments in order, the state in front of the first byte to read, and what is known of the log already."""

    segments: list[Segment]
    state: LogState
    is_resumed: bool
    first_offset: int | None
    last_timestamp_ms: int | None
    last_crc: int | None


def replica_dir(plan: ReplicaPlan) -> ReplicaDir:
    """The planned files as the codec's functions take them."""
    return ReplicaDir(plan.capture, plan.path, plan.log_dir, tuple(_file_entry(plan, file) for file in plan.files))


def _file_entry(plan: ReplicaPlan, file: FilePlan) -> FileEntry:
    name = file.name.rpartition("/")[2]
    path = join(plan.path, file.name)
    return FileEntry(name, path, FileKind(file.kind), file.base_offset, file.epoch, file.size_bytes, file.mtime_ms)


def starting_point(plan: ReplicaPlan, storage: Storage, tallies: dict[str, FileTally], damage: DamageLog) -> Start:
    """Where to begin: behind the last batch that the ledger knows, if it still stands there; else at the start."""
    ordered, damages = ordered_segments(storage, replica_dir(plan))
    by_path = {join(plan.path, name): tally for name, tally in tallies.items()}
    segments = _with_unopened([by_path[segment.file.path] for segment in ordered], by_path)
    if (resumed := _resumed(plan, storage, segments)) is not None:
        return resumed
    for segment in segments:
        segment.tally = tallies[segment.tally.plan.name] = FileTally(segment.tally.plan)
    for found in damages:
        if found.reason is Reason.BAD_FILE:
            tally = tallies[by_path[found.path].plan.name]
            damage.add(tally, found.reason, found.detail, position=found.position, length_bytes=found.length_bytes)
    first_offset = _base_offset(segments)
    if ordered and segments[0].tally.plan.name == by_path[ordered[0].file.path].plan.name and ordered[0].is_confirmed:
        first_offset = ordered[0].first_offset
    return Start(segments, LogState(first_offset), False, first_offset, None, None)


def _with_unopened(readable: list[FileTally], by_path: dict[str, FileTally]) -> list[Segment]:
    """A segment that cannot be opened stays in its place by name: whoever reads it says so."""
    segments = [Segment(tally) for tally in readable]
    placed = {tally.plan.name for tally in readable}
    base_offsets = sorted(tally.plan.base_offset or 0 for tally in readable)
    for tally in by_path.values():
        if tally.kind is FileKind.SEGMENT and tally.plan.name not in placed:
            place = bisect_left(base_offsets, tally.plan.base_offset or 0)
            base_offsets.insert(place, tally.plan.base_offset or 0)
            segments.insert(place, Segment(tally))
    return segments


def _base_offset(segments: list[Segment]) -> int | None:
    return segments[0].tally.plan.base_offset if segments else None


def _resumed(plan: ReplicaPlan, storage: Storage, segments: list[Segment]) -> Start | None:
    """None where the log is not what the ledger left, and has to be read whole again."""
    known = [
        (number, segment, key)
        for number, segment in enumerate(segments)
        if (key := segment.tally.last_batch) is not None
    ]
    if not known:
        return None
    *earlier, (number, last, key) = known
    if any(segment.tally.plan.earlier is None for segment in segments[:number]):
        return None
    first_offset = _base_offset(segments) or 0
    if any((gone.base_offset or 0) >= first_offset for gone in plan.gone_files if gone.kind == FileKind.SEGMENT):
        return None
    for _, segment, at in earlier:
        if not _is_read(segment.tally) or _last_header(plan, storage, segment.tally, at) is None:
            return None
    header = _last_header(plan, storage, last.tally, key)
    if header is None:
        return None
    for _, segment, _ in known:
        segment.is_done = _is_read(segment.tally)
    is_hole_explained = key.position + header.size_bytes != last.tally.scanned_to
    state = LogState(key.last_offset + 1, key.leader_epoch, is_hole_explained)
    return Start(segments, state, True, first_offset, header.max_timestamp_ms, key.crc)


def _is_read(tally: FileTally) -> bool:
    """Whether an earlier plan left nothing of the file to be read."""
    return tally.plan.is_unchanged or tally.scanned_to == tally.plan.size_bytes


def _last_header(plan: ReplicaPlan, storage: Storage, tally: FileTally, key: BatchKey) -> BatchHeader | None:
    """The header at the ledger's last batch, where it is that batch still."""
    if tally.plan.size_bytes < tally.scanned_to:
        return None
    header = first_header(plan, storage, tally, key.position)
    if header is None:
        return None
    stands = BatchKey(key.position, header.base_offset, header.last_offset, header.leader_epoch, header.crc)
    return header if stands == key else None


def first_header(plan: ReplicaPlan, storage: Storage, tally: FileTally, position: int = 0) -> BatchHeader | None:
    """The batch header at a position, whatever it says; None where there are not enough bytes or none can be read."""
    try:
        with storage.open(join(plan.path, tally.plan.name), tally.plan.to_position) as file:
            if position + HEADER_BYTES > file.size_bytes:
                return None
            return read_header(file.read_at(position, HEADER_BYTES).data, 0)
    except CodecError:
        return None
