"""The files of one metadata log dir: whose it is, what its node promised, which segments and snapshots it holds.

Every function gives what it could read and the damage it met; none raises for bad bytes. Read quorum-state after the
log of the same node: what was promised by then covers what the log holds, the other order proves nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeVar

from kraft_codec.errors import CodecError, Damage, Reason
from kraft_codec.file_names import FileKind, printable, segment_name
from kraft_codec.files.discovery import FileEntry, ReplicaDir
from kraft_codec.files.properties import MAX_PROPERTIES_BYTES, MetaProperties, parse_meta_properties
from kraft_codec.files.state_files import (
    MAX_CHECKPOINT_BYTES,
    MAX_JSON_BYTES,
    EpochEntry,
    QuorumState,
    parse_capture_note,
    parse_clean_shutdown,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
    parse_quorum_state,
)
from kraft_codec.storage.random_access import RandomAccess, Storage, damage_of

_HEADER: Final = struct.Struct(">qiibIhi")  # the first fields of a batch header, up to lastOffsetDelta
_OFFSET: Final = struct.Struct(">q")
_LENGTH_END: Final = 12
_MAGIC: Final = 2
_ValueT = TypeVar("_ValueT")
_CHECKED: Final[tuple[tuple[FileKind, Callable[[bytes], object]], ...]] = (
    (FileKind.PARTITION_METADATA, parse_partition_metadata),
    (FileKind.CLEAN_SHUTDOWN, parse_clean_shutdown),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment and the base offset of its first batch, None where it begins with no batch.

    No CRC covers that offset, so `is_confirmed` says whether the second batch goes on where the first one ends.
    """

    file: FileEntry
    first_offset: int | None
    is_confirmed: bool = False


def read_meta(storage: Storage, replica: ReplicaDir) -> tuple[MetaProperties | None, tuple[Damage, ...]]:
    """`meta.properties`; None where it is absent or damaged."""
    return _read_one(storage, replica, FileKind.META_PROPERTIES, MAX_PROPERTIES_BYTES, parse_meta_properties)


def read_quorum_state(storage: Storage, replica: ReplicaDir) -> tuple[QuorumState | None, tuple[Damage, ...]]:
    """`quorum-state`; None where it is absent (epoch 0, no vote: as Kafka takes it) or damaged."""
    return _read_one(storage, replica, FileKind.QUORUM_STATE, MAX_JSON_BYTES, parse_quorum_state)


def read_capture_note(storage: Storage, replica: ReplicaDir) -> int | None:
    """When kraft-capture had read the node dir, by the clock of its host; None where no whole note of it says that."""
    return _read_one(storage, replica, FileKind.CAPTURE_NOTE, MAX_JSON_BYTES, parse_capture_note)[0]


def read_leader_epochs(storage: Storage, replica: ReplicaDir) -> tuple[EpochEntry, ...]:
    """The entries of leader-epoch-checkpoint, oldest first; none where it is absent or damaged."""
    return _read_epochs(storage, replica)[0] or ()


def read_checkpoints(storage: Storage, replica: ReplicaDir) -> tuple[tuple[EpochEntry, ...] | None, tuple[Damage, ...]]:
    """The entries of leader-epoch-checkpoint, None where it is absent or damaged.

    The damage is its own, and that of partition.metadata and the clean-shutdown file.
    """
    epochs, damages = _read_epochs(storage, replica)
    for kind, parse in _CHECKED:
        damages += _read_one(storage, replica, kind, MAX_JSON_BYTES, parse)[1]
    return epochs, damages


def segments(
    storage: Storage, replica: ReplicaDir, known: Set[str] = frozenset()
) -> tuple[tuple[Segment, ...], tuple[Damage, ...]]:
    """The segments in the order of what they hold, and damage where names, order or contents do not fit together.

    Two batch headers of each are read, but of those at the `known` paths, which begin where their names say. Gaps and
    overlaps between batches are for the reader of the batches to find.
    """
    log_segments: list[Segment] = []
    damages: list[Damage] = []
    for file in replica.of_kind(FileKind.SEGMENT):
        if file.path in known:
            log_segments.append(Segment(file, file.base_offset, True))
            continue
        try:
            with storage.open(file.path) as opened:
                log_segments.append(Segment(file, *_first_offset(opened)))
        except CodecError as error:
            damages.append(damage_of(file.path, error, file.size_bytes))
    ordered, order_damages = order_segments(log_segments)
    return ordered, (*damages, *order_damages)


def order_segments(log_segments: list[Segment]) -> tuple[tuple[Segment, ...], tuple[Damage, ...]]:
    """Orders segments by the first offset that each holds, whatever it is called.

    The name decides where a segment is empty, or where its first offset is neither confirmed nor any segment's name
    (a flipped bit). A name that differs from the first offset is BAD_FILE; two that begin at one offset are OVERLAP.
    """
    named = {segment.file.base_offset for segment in log_segments}

    def order(segment: Segment) -> tuple[int, int, str]:
        name, first = segment.file.base_offset or 0, segment.first_offset
        is_trusted = first is not None and (segment.is_confirmed or first in named)
        return (first if first is not None and is_trusted else name, name, segment.file.path)

    ordered = sorted(log_segments, key=order)
    damages: list[Damage] = []
    for index, segment in enumerate(ordered):
        file, first = segment.file, segment.first_offset
        if first is not None and first != file.base_offset:
            detail = f"its name says that it begins at offset {file.base_offset}, its first batch at {first}"
            damages.append(_damage(file, Reason.BAD_FILE, detail))
        previous = ordered[index - 1] if index else None
        if previous is not None and first is not None and previous.first_offset == first:
            damages.append(
                _damage(file, Reason.OVERLAP, f"begins at offset {first}, as {printable(previous.file.name)} does")
            )
    return tuple(ordered), tuple(damages)


def snapshots(replica: ReplicaDir) -> tuple[FileEntry, ...]:
    """The finished snapshots by (end offset, epoch), the newest last; bootstrap.checkpoint is not one of them."""
    return tuple(sorted(replica.of_kind(FileKind.SNAPSHOT), key=lambda file: (file.base_offset or 0, file.epoch or 0)))


def log_start_offset(replica: ReplicaDir) -> int | None:
    """The base offset of the first segment by name, which is where Kafka starts the log; None without a segment."""
    return min((file.base_offset or 0 for file in replica.of_kind(FileKind.SEGMENT)), default=None)


MISSING_FILES: Final = "; its index is there and the segment is not: "
"""What precedes the names of segments of which only the index files are left."""


def missing_segments(replica: ReplicaDir) -> tuple[str, ...]:
    """The names of segments that are gone while their index files are there: copied without them, or deleted by hand.

    Kafka deletes an index without a segment when it starts, and says nothing of it elsewhere (LogLoader 4.3.0).
    """
    held = {file.base_offset for file in replica.of_kind(FileKind.SEGMENT)}
    indexes = [*replica.of_kind(FileKind.OFFSET_INDEX), *replica.of_kind(FileKind.TIME_INDEX)]
    return tuple(segment_name(offset) for offset in sorted({file.base_offset or 0 for file in indexes} - held))


def structure_damages(replica: ReplicaDir, missing: Sequence[str] = ()) -> tuple[Damage, ...]:
    """Damage that names alone show: unfinished snapshots, a log that starts above 0 without its snapshot.

    `.deleted` and `.tmp` files and snapshots below the log's start are no damage: Kafka leaves them for a while.
    `missing`: what `missing_segments` found.
    """
    damages = [
        _damage(file, Reason.SNAPSHOT_UNFINISHED, "a snapshot that was not finished")
        for file in replica.of_kind(FileKind.SNAPSHOT_UNFINISHED)
    ]
    start = log_start_offset(replica)
    newest = snapshots(replica)[-1:]
    if start and (not newest or (newest[0].base_offset or 0) < start):
        have = f"the newest ends at {newest[0].base_offset}" if newest else "there is none"
        detail = f"the log starts at offset {start} and needs a snapshot at or above it: {have}"
        gone = [name for name in missing if name < segment_name(start)]
        detail += f"{MISSING_FILES}{', '.join(gone)}" if gone else ""
        damages.append(Damage(printable(replica.path), 0, 0, Reason.SNAPSHOT_MISSING, detail))
    return tuple(damages)


def _first_offset(file: RandomAccess) -> tuple[int | None, bool]:
    """The base offset of the first batch, and whether the second one follows it."""
    if file.size_bytes < _HEADER.size:
        return None, False
    first, length, _, magic, _, _, last_offset_delta = _HEADER.unpack(file.read_at(0, _HEADER.size).data)
    if magic != _MAGIC:
        return None, False
    second = length + _LENGTH_END
    if length < 0 or second + _OFFSET.size > file.size_bytes:
        return first, False
    (next_offset,) = _OFFSET.unpack(file.read_at(second, _OFFSET.size).data)
    return first, next_offset == first + last_offset_delta + 1


def _read_epochs(storage: Storage, replica: ReplicaDir) -> tuple[tuple[EpochEntry, ...] | None, tuple[Damage, ...]]:
    kind = FileKind.LEADER_EPOCH_CHECKPOINT
    return _read_one(storage, replica, kind, MAX_CHECKPOINT_BYTES, parse_leader_epoch_checkpoint)


def _read_one(
    storage: Storage, replica: ReplicaDir, kind: FileKind, limit_bytes: int, parse: Callable[[bytes], _ValueT]
) -> tuple[_ValueT | None, tuple[Damage, ...]]:
    files = replica.of_kind(kind)
    if not files:
        return None, ()
    file = files[0]
    try:
        return parse(storage.read_small(file.path, limit_bytes)), ()
    except CodecError as error:
        return None, (damage_of(file.path, error, max(file.size_bytes - error.position, 0)),)


def _damage(file: FileEntry, reason: Reason, detail: str) -> Damage:
    return Damage(printable(file.path), 0, file.size_bytes, reason, detail)
