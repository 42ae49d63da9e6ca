"""Reads all replicas of a cluster in lock step: which batch is held by whom, each distinct batch once.

Followers append the leader's bytes verbatim, so a batch is known by (base_offset, last_offset, leader_epoch, crc). All
replicas are read by windows of offsets: at any time one chunk of each is in memory, and everything that begins below
the window's end has been seen in every replica. Where replicas agree, nothing is done per batch in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kraft_audit.replay.branches import DistinctBatches
from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.scanner import Chunk

WhenRead = Callable[[Replica, Chunk], None]
WhenDone = Callable[[Replica], None]


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

    def sources(self, wanted: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
        """For each distinct batch the number of the first slice that holds it and its row there; -1 where not wanted.

        Equal keys mean equal bytes, so it does not matter from whom a batch is decoded.
        """
        number_of = np.full(len(self.batches), -1, np.int64)
        row_of = np.full(len(self.batches), -1, np.int64)
        for number, part in enumerate(self.slices):
            is_first = wanted[part.numbers] & (number_of[part.numbers] < 0)
            number_of[part.numbers[is_first]] = number
            row_of[part.numbers[is_first]] = part.rows[is_first]
        return number_of, row_of


class _Cursor:
    """One replica on the way: its current chunk and how much of it is consumed."""

    def __init__(self, replica: Replica, when_read: WhenRead, when_done: WhenDone) -> None:
        self.replica = replica
        self.chunk: Chunk | None = None
        self.start = 0
        self._chunks = replica.log.chunks() if replica.log is not None else iter(())
        self._when_read = when_read
        self._when_done = when_done

    def fill(self) -> bool:
        """Makes sure that a batch is at hand; False at the end of the log."""
        while self.chunk is None or self.start == len(self.chunk):
            self.chunk = next(self._chunks, None)
            self.start = 0
            if self.chunk is None:
                self._when_done(self.replica)
                return False
            self._when_read(self.replica, self.chunk)
        return True

    @property
    def first_offset(self) -> int:
        return int(self._columns.base_offset[self.start])

    @property
    def reaches(self) -> int:
        """Everything of this replica that begins below is at hand."""
        return int(self._columns.base_offset[-1]) + 1

    def take(self, to_offset: int) -> Slice | None:
        """The batches that begin below `to_offset`."""
        chunk = self._columns
        end = int(np.searchsorted(chunk.base_offset, to_offset))
        if end <= self.start:
            return None
        taken = Slice(self.replica, chunk, self.start, end, np.zeros(0, np.int64))
        self.start = end
        return taken

    @property
    def _columns(self) -> Chunk:
        if self.chunk is None:  # pragma: no cover - a caller that reads before it is fed
            raise ValueError("no chunk is at hand")
        return self.chunk


def windows(
    replicas: Sequence[Replica], when_read: WhenRead, when_done: WhenDone, cuts: Sequence[int] = ()
) -> Iterator[Window]:
    """The logs of all replicas as windows of growing offsets; no window has batches on both sides of one of the cuts.

    `when_read` is called for each chunk as it is read, `when_done` once for each replica whose log has ended.
    """
    cursors = [_Cursor(replica, when_read, when_done) for replica in replicas]
    from_offset = 0
    while True:
        cursors = [cursor for cursor in cursors if cursor.fill()]
        if not cursors:
            return
        to_offset = min(cursor.reaches for cursor in cursors)
        from_offset = max(from_offset, min(cursor.first_offset for cursor in cursors))
        to_offset = min([to_offset, *(cut for cut in cuts if cut > from_offset)])
        slices = [taken for cursor in cursors if (taken := cursor.take(to_offset)) is not None]
        yield Window(from_offset, to_offset, number_batches(slices), slices)
        from_offset = to_offset


def number_batches(slices: Sequence[Slice]) -> DistinctBatches:
    """The distinct batches of some slices; tells each slice its batches' numbers among them."""
    longest = max(slices, key=lambda part: part.end - part.start)
    if all(_is_within(part, longest) for part in slices):
        chunk, span = longest.chunk, slice(longest.start, longest.end)
        return DistinctBatches(
            chunk.base_offset[span], chunk.last_offset[span], chunk.leader_epoch[span], chunk.crc[span]
        )
    keys = [_joined(slices, name) for name in ("base_offset", "leader_epoch", "last_offset", "crc")]
    order = np.lexsort(tuple(reversed(keys)))
    differs = np.zeros(len(order), bool)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[order][1:] != key[order][:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(differs) - 1
    start = 0
    for part in slices:
        part.numbers = numbers[start : start + part.end - part.start]
        start += part.end - part.start
    base_offset, leader_epoch, last_offset, crc = (key[order][differs] for key in keys)
    return DistinctBatches(base_offset, last_offset, leader_epoch, crc)


def _joined(slices: Sequence[Slice], name: str) -> Rows:
    joined: Rows = np.concatenate([getattr(part.chunk, name)[part.start : part.end] for part in slices])
    return joined


def _is_within(part: Slice, longest: Slice) -> bool:
    """Whether a slice is a run of the longest one, which is how agreeing replicas look; numbers it if so."""
    count = part.end - part.start
    ahead = int(
        np.searchsorted(longest.chunk.base_offset[longest.start : longest.end], part.chunk.base_offset[part.start])
    )
    if ahead + count > longest.end - longest.start:
        return False
    mine, theirs = slice(part.start, part.end), slice(longest.start + ahead, longest.start + ahead + count)
    for name in ("base_offset", "last_offset", "leader_epoch", "crc"):
        if not np.array_equal(getattr(part.chunk, name)[mine], getattr(longest.chunk, name)[theirs]):
            return False
    part.numbers = np.arange(ahead, ahead + count, dtype=np.int64)
    return True
