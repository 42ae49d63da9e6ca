"""Whether a copy is torn: its log and its leader-epoch-checkpoint are of two moments, so the log may be of two as well.

A log that was truncated and written again while it was copied gives valid CRCs, adjoining offsets and rising epochs:
the batches before the cut are of the old log, those after it of the new one. Kafka writes an epoch's first offset to
leader-epoch-checkpoint before it appends the epoch's first batch (LeaderEpochFileCache.assign, 4.3.0). So where the
file names an epoch, the log has to begin it there; and an epoch that it does not name is newer than the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.capture.continuity import next_batch
from kraft_audit.capture.scanner import NO_BYTES, FileTally
from kraft_codec.columns import BatchIndex, index_batches
from kraft_codec.errors import CodecError
from kraft_codec.file_names import MAX_EPOCH, MAX_OFFSET
from kraft_codec.files.state_files import EpochEntry
from kraft_codec.kernels.codes import OK
from kraft_codec.records.batch import HEADER_BYTES, read_header
from kraft_codec.storage.random_access import Buffer, FileChange, RandomAccess, Storage

ENTRIES_COMPARED: Final = 8
"""So many elections may follow while the rest of a log is copied: the newest entry in the torn part shows it."""
WALKED_BYTES: Final = 256 << 10
"""Searched and walked at a time. They are read twice: here, and when the log is."""
NEW_WALKED_BYTES: Final = 4 << 10
"""The same of what is new in a log that was read before: an hour may add a few hundred kilobytes."""
SEARCHED_BYTES_MAX: Final = 32 << 20
"""No batch of a metadata log is larger (8 MiB in KafkaRaftClient, 4.3): more bytes without one are damage, or zeros."""
Walked = dict[tuple[int, int, int], BatchIndex]
"""The batches of what was read: a segment's base offset, position, bytes."""


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What was read of a log before, and compared then: it ends at an offset, with a batch of an epoch."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TornCopy:
    """How a log and its leader-epoch-checkpoint ("this file") differ, and the end that the bytes of both claim."""

    text: str
    claimed_end: tuple[int, int] | None


def torn_at(
    segments: Sequence[tuple[str, FileTally]],
    storage: Storage,
    listed: Sequence[EpochEntry],
    known: KnownPart | None,
) -> TornCopy | None:
    """How log and leader-epoch-checkpoint differ, None where they agree or the log does not reach so far.

    `segments` are (path, segment) in the order of the log. Few bytes are read: batches are found by halving. Damaged
    bytes show nothing. Where a part of the log is `known`, they are the segments with what is new, and no byte before
    that is read.
    """
    starts = [tally.plan.base_offset or 0 for _, tally in segments]
    if known is not None:
        starts[:1] = [known.end_offset]
    if not starts or starts != sorted(starts):
        return None
    newest = EpochEntry(MAX_EPOCH, MAX_OFFSET)
    walked: Walked = {}
    walked_bytes = WALKED_BYTES if known is None else NEW_WALKED_BYTES
    for entry in [newest, *list(reversed(listed))[:ENTRIES_COMPARED]] if listed else ():
        in_file = f"epoch {entry.epoch} begins at offset {entry.start_offset} in this file"
        if known is not None and entry.start_offset < known.end_offset:
            if entry.epoch <= known.epoch:
                return None
            after = f"{in_file}; the log has epoch {known.epoch} after that"
            return TornCopy(after, _claimed_end(walked, listed))
        if known is None and entry.start_offset <= starts[0]:
            break
        number = int(np.searchsorted(starts, entry.start_offset, "right")) - 1
        path, tally = segments[number]
        try:
            with _LastReadFile(storage.open(path, tally.plan.to_position)) as file:
                low = tally.scanned_to
                if entry is newest:
                    low = _near_end(file, starts[number], low, walked_bytes)
                before, epoch = _epochs_around(file, entry.start_offset, starts[number], low, walked_bytes, walked)
        except CodecError:
            continue
        if before is None and known is not None:
            before = known.epoch
        text: str | None = None
        if entry is newest:
            if before is not None and before > listed[-1].epoch:
                text = f"this file ends with epoch {listed[-1].epoch}, the log with epoch {before}"
        elif epoch is not None and epoch != entry.epoch:
            text = f"{in_file}; the log has epoch {epoch} there"
        elif before is not None and before >= entry.epoch and entry is not listed[0]:
            text = f"{in_file}, and earlier in the log"
        if text is not None:
            return TornCopy(text, _claimed_end(walked, listed))
    return None


class _LastReadFile(RandomAccess):
    """A file whose last read bytes are not read again: a batch is searched for in bytes, and then walked in them."""

    def __init__(self, file: RandomAccess) -> None:
        super().__init__(file.path, file.size_bytes, file.mtime_ms)
        self._file = file
        self._from = 0
        self._last: Buffer = NO_BYTES

    def read_into(self, position: int, buffer: Buffer) -> None:
        start = position - self._from
        if start >= 0 and start + len(buffer) <= len(self._last):
            buffer[:] = self._last[start : start + len(buffer)]
            return
        self._file.read_into(position, buffer)
        self._from, self._last = position, buffer.copy() if len(buffer) <= WALKED_BYTES else NO_BYTES

    def next_data(self, position: int) -> int:
        return self._file.next_data(position)

    def change(self) -> FileChange:
        return self._file.change()

    def close(self) -> None:
        self._file.close()


def _claimed_end(walked: Walked, listed: Sequence[EpochEntry]) -> tuple[int, int] | None:
    """The (last epoch, end offset) with which a disk may stand for election if its bytes are as they were read.

    Kafka takes the last epoch from leader-epoch-checkpoint after a clean stop, and rebuilds it from the batches after
    any other (LogLoader, LeaderEpochFileCache, 4.3.0): whichever is higher counts. None where no batch could be read.
    """
    valid = [(index, np.flatnonzero(index.status == OK)) for index in walked.values()]
    ends = [int(index.last_offset[rows].max()) + 1 for index, rows in valid if len(rows)]
    epochs = [int(index.leader_epoch[rows].max()) for index, rows in valid if len(rows)]
    return (max([*epochs, *(entry.epoch for entry in listed)]), max(ends)) if ends else None


def _near_end(file: RandomAccess, base_offset: int, from_position: int, walked_bytes: int) -> int:
    """The position of a batch after which little more than `walked_bytes` follow; `from_position` if there is none."""
    length = walked_bytes
    while length <= SEARCHED_BYTES_MAX and file.size_bytes - length > from_position:
        position = next_batch(file, file.size_bytes - length, at_least_offset=base_offset, search_bytes=length)
        if position is not None:
            return position
        length *= 8
    return from_position


def _epochs_around(
    file: RandomAccess, offset: int, base_offset: int, from_position: int, walked_bytes: int, walked: Walked
) -> tuple[int | None, int | None]:
    """The epochs of the newest batch before an offset, and of the batch that holds it; None where none does.

    The batches from a position on begin at `base_offset` or later. What was `walked` for one entry is not read again
    for the next.
    """
    low, high = from_position, file.size_bytes
    while high - low > walked_bytes:
        middle = (low + high) // 2
        position = next_batch(file, middle, at_least_offset=base_offset, search_bytes=walked_bytes)
        if position is None or position >= high:
            high = middle
        elif read_header(file.read_at(position, HEADER_BYTES).data, 0).base_offset < offset:
            low = position
        else:
            high = middle
    before: int | None = None
    length = walked_bytes
    while low < file.size_bytes:
        part = (base_offset, low, min(length, file.size_bytes - low))
        if part not in walked:
            walked[part] = index_batches(file.read_at(*part[1:]))
        index = walked[part]
        if not len(index):
            if low + length >= file.size_bytes or length >= SEARCHED_BYTES_MAX:
                break
            length = min(8 * length, SEARCHED_BYTES_MAX)  # a batch that is larger than what was read, or damage
            continue
        is_valid = index.status == OK
        below = np.flatnonzero(is_valid & (index.last_offset < offset))
        if len(below):
            before = int(index.leader_epoch[below[-1]])
        holding = np.flatnonzero(is_valid & (index.base_offset <= offset) & (index.last_offset >= offset))
        if len(holding):
            return before, int(index.leader_epoch[holding[0]])
        if int(index.base_offset[-1]) > offset:
            break
        low += int(index.consumed_bytes)
    return before, None
