"""Reads all replicas of a cluster in lock step: which batch is held by whom.

Followers append the leader's bytes verbatim, so a batch is known by (base_offset, last_offset, leader_epoch, crc). All
replicas are read by windows of offsets: at any time one chunk of each is in memory, and everything that begins below
the window's end has been seen in every replica. Where replicas agree, nothing is done per batch in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.scanner import Chunk
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.storage.random_access import Buffer

BATCH_KEY_FIELDS: Final = ("base_offset", "leader_epoch", "last_offset", "crc")
WhenRead = Callable[[Replica, Chunk], None]
WhenDone = Callable[[Replica], None]


@dataclass(frozen=True, slots=True)
class DistinctBatches:
    """The distinct batches of a window as columns, ordered by (base_offset, leader_epoch, last_offset, crc)."""

    base_offset: Rows
    leader_epoch: Rows
    last_offset: Rows
    crc: Rows

    def __len__(self) -> int:
        return len(self.base_offset)


@dataclass(slots=True, eq=False)
class Slice:
    """What one replica holds in a window: places [start, end) of its chunk's kept batches.

    `numbers` are those batches' numbers among the window's distinct ones, ascending.
    """

    replica: Replica
    chunk: Chunk
    start: int
    end: int
    numbers: Rows

    @property
    def rows(self) -> Rows:
        """The batches' rows in the chunk's index."""
        return self.chunk.rows[self.start : self.end]


@dataclass(slots=True, eq=False)
class Window:
    """All batches with from_offset <= base_offset < to_offset, in every replica that has any."""

    from_offset: int
    to_offset: int
    batches: DistinctBatches
    slices: list[Slice]

    def runs(self, wanted: Mask, branches: Rows | None = None) -> Iterator[tuple[Slice, Rows, Rows]]:
        """(slice, batch numbers, rows in its chunk) of the wanted batches, in the order of the distinct batches.

        Each run comes from one slice; with `branches`, those of the window's batches, from one branch too. Equal keys
        mean equal bytes, so it does not matter from whom a batch is decoded: it is the first slice that holds it.
        """
        slice_of = np.full(len(self.batches), -1, np.int64)
        row_of = np.full(len(self.batches), -1, np.int64)
        for number, part in enumerate(self.slices):
            is_first = wanted[part.numbers] & (slice_of[part.numbers] < 0)
            slice_of[part.numbers[is_first]] = number
            row_of[part.numbers[is_first]] = part.rows[is_first]
        numbers = np.flatnonzero(slice_of >= 0)
        is_next = slice_of[numbers][1:] != slice_of[numbers][:-1]
        if branches is not None:
            is_next |= branches[numbers][1:] != branches[numbers][:-1]
        for run in np.split(numbers, np.flatnonzero(is_next) + 1):
            if len(run):
                yield self.slices[int(slice_of[run[0]])], run, row_of[run]

    def header(self, name: str) -> npt.NDArray[Any]:
        """A column of the index for each distinct batch, from the first slice that holds it."""
        values = np.zeros(len(self.batches), getattr(self.slices[0].chunk.index, name).dtype)
        for part in reversed(self.slices):
            values[part.numbers] = getattr(part.chunk.index, name)[part.rows]
        return values


class _Cursor:
    """One replica on the way: its current chunk and how much of it is consumed."""

    chunk: Chunk

    def __init__(self, replica: Replica, when_read: WhenRead, when_done: WhenDone) -> None:
        self.replica = replica
        self.start = self.end = 0
        self._chunks = replica.log.chunks() if replica.log is not None else iter(())
        self._when_read = when_read
        self._when_done = when_done

    def fill(self) -> bool:
        """Makes sure that a batch is at hand; False at the end of the log."""
        while self.start == self.end:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._when_done(self.replica)
                return False
            self.chunk, self.start, self.end = chunk, 0, len(chunk)
            self._when_read(self.replica, chunk)
        return True

    @property
    def first_offset(self) -> int:
        return int(self.chunk.base_offset[self.start])

    @property
    def reaches(self) -> int:
        """Everything of this replica that begins below is at hand."""
        return int(self.chunk.base_offset[-1]) + 1

    def take(self, to_offset: int) -> Slice | None:
        """The batches that begin below `to_offset`."""
        start, end = self.start, int(np.searchsorted(self.chunk.base_offset, to_offset))
        if end <= start:
            return None
        self.start = end
        return Slice(self.replica, self.chunk, start, end, np.zeros(0, np.int64))


def windows(
    replicas: Sequence[Replica],
    when_read: WhenRead,
    when_done: WhenDone,
    cuts: Sequence[int] = (),
    part: LogPart = WHOLE_LOG,
) -> Iterator[Window]:
    """The logs of all replicas as windows of growing offsets; no window has batches on both sides of one of the cuts.

    `when_read` is called for each chunk as it is read, `when_done` once for each replica whose log has ended. What lies
    before a `part` of the log is framed and compared with nothing, what lies after it is not read.
    """
    cuts = (*cuts, *part.cuts)
    cursors = [_Cursor(replica, when_read, when_done) for replica in replicas]
    from_offset = 0
    while True:
        cursors = [cursor for cursor in cursors if cursor.fill()]
        if not cursors:
            return
        to_offset = min(cursor.reaches for cursor in cursors)
        from_offset = max(from_offset, min(cursor.first_offset for cursor in cursors))
        to_offset = min([to_offset, *(cut for cut in cuts if cut > from_offset)])
        if part.ends_at(from_offset):
            return
        slices = [taken for cursor in cursors if (taken := cursor.take(to_offset)) is not None]
        if not part.is_after(from_offset):
            yield Window(from_offset, to_offset, number_batches(slices), slices)
        from_offset = to_offset


def number_batches(slices: Sequence[Slice]) -> DistinctBatches:
    """The distinct batches of some slices; sets the numbers of each slice's batches among them."""
    longest = max(slices, key=lambda part: part.end - part.start)
    if all(_is_within(part, longest) for part in slices):
        return DistinctBatches(
            *(getattr(longest.chunk, name)[longest.start : longest.end] for name in BATCH_KEY_FIELDS)
        )
    keys = [
        np.concatenate([getattr(part.chunk, name)[part.start : part.end] for part in slices])
        for name in BATCH_KEY_FIELDS
    ]
    # A key can be forged: its CRC leaves out epoch and base offset. Bytes that differ are different batches.
    order, is_first = grouped([*keys, np.concatenate([_digests(part) for part in slices])])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_first) - 1
    start = 0
    for part in slices:
        part.numbers = numbers[start : start + part.end - part.start]
        start += part.end - part.start
    return DistinctBatches(*(key[order][is_first] for key in keys))


def grouped(keys: Sequence[Rows]) -> tuple[Rows, Mask]:
    """The rows in the order of their keys, equal ones as they stood, and which of them begin a group of equal keys."""
    order = np.lexsort(tuple(reversed(keys)))
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    return order, is_first


def _is_within(part: Slice, longest: Slice) -> bool:
    """Whether a slice is a run of the longest one, which is how agreeing replicas look; numbers it if so."""
    count = part.end - part.start
    ahead = int(
        np.searchsorted(longest.chunk.base_offset[longest.start : longest.end], part.chunk.base_offset[part.start])
    )
    if ahead + count > longest.end - longest.start:
        return False
    mine, theirs = slice(part.start, part.end), slice(longest.start + ahead, longest.start + ahead + count)
    if not all(
        np.array_equal(getattr(part.chunk, name)[mine], getattr(longest.chunk, name)[theirs])
        for name in BATCH_KEY_FIELDS
    ):
        return False
    if part is not longest and not _are_equal_bytes(part, longest, ahead, count):
        return False
    part.numbers = np.arange(ahead, ahead + count, dtype=np.int64)
    return True


def _are_equal_bytes(part: Slice, longest: Slice, ahead: int, count: int) -> bool:
    """Whether `count` batches are the same bytes; False where refused ones lie between, and they must be compared."""
    mine = _run_bytes(part.chunk, part.chunk.rows[part.start : part.end])
    theirs = _run_bytes(longest.chunk, longest.chunk.rows[longest.start + ahead : longest.start + ahead + count])
    return mine is not None and theirs is not None and np.array_equal(mine, theirs)


def _run_bytes(chunk: Chunk, rows: Rows) -> Buffer | None:
    """The bytes of batches that lie side by side; None where they do not."""
    position, size_bytes = chunk.index.position[rows], chunk.index.size_bytes[rows]
    begin, end = int(position[0]), int(position[-1] + size_bytes[-1])
    return chunk.buffer[begin:end] if int(size_bytes.sum(dtype=np.int64)) == end - begin else None


def _digests(part: Slice) -> Rows:
    """A digest of each batch's bytes."""
    index, content = part.chunk.index, part.chunk.buffer
    spans = zip(index.position[part.rows].tolist(), index.size_bytes[part.rows].tolist(), strict=True)
    digests = (blake2b(content[begin : begin + length].data, digest_size=8).digest() for begin, length in spans)
    return np.frombuffer(b"".join(digests), np.int64)
