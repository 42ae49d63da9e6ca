"""Reads all replicas of a cluster in lock step: which batch is held by whom, and what changed since earlier captures.

Followers append the leader's bytes verbatim, so a batch is known by (base_offset, last_offset, leader_epoch, crc). All
replicas are read by windows of offsets: at any time one chunk of each is in memory, and everything that begins below
the window's end has been seen in every replica. Where replicas agree, nothing is done per batch in Python.

A row of `batches` is written once, when a batch is first seen in a replica. Where a later capture of that replica no
longer has it, and reads where it stood, a row with status truncated follows; the same batch seen again after that has a
row again. What lies below the start of a log is not truncated: snapshots have taken its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.continuity import Masks, Rows
from kraft_audit.capture.plan import Identity, KnownBatches
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.scanner import Chunk
from kraft_codec.storage.random_access import Buffer

PRESENT: Final = "present"
KNOWN_OFFSETS: Final = 200_000
"""How many offsets of known batches are fetched at a time, and held."""
WhenRead = Callable[[Replica, Chunk], None]
WhenDone = Callable[[Replica], None]
_BATCH_KEY: Final = ("base_offset", "leader_epoch", "last_offset", "crc")


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

    def runs(self, wanted: Masks, branches: Rows | None = None) -> Iterator[tuple[Slice, Rows, Rows]]:
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
    """The distinct batches of some slices; sets the numbers of each slice's batches among them."""
    longest = max(slices, key=lambda part: part.end - part.start)
    if all(_is_within(part, longest) for part in slices):
        return DistinctBatches(*(getattr(longest.chunk, name)[longest.start : longest.end] for name in _BATCH_KEY))
    keys = [
        np.concatenate([getattr(part.chunk, name)[part.start : part.end] for part in slices]) for name in _BATCH_KEY
    ]
    # A key can be forged: its CRC leaves out epoch and base offset. Bytes that differ are different batches.
    order, is_first = _grouped([*keys, np.concatenate([_digests(part) for part in slices])])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_first) - 1
    start = 0
    for part in slices:
        part.numbers = numbers[start : start + part.end - part.start]
        start += part.end - part.start
    return DistinctBatches(*(key[order][is_first] for key in keys))


def _grouped(keys: Sequence[Rows]) -> tuple[Rows, Masks]:
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
        np.array_equal(getattr(part.chunk, name)[mine], getattr(longest.chunk, name)[theirs]) for name in _BATCH_KEY
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


@dataclass(slots=True, eq=False)
class KnownWindow:
    """Known batches of a window: a table, the identity of each row's replica, and its number among the window's."""

    table: pa.Table
    identities: list[Identity]
    numbers: Rows
    is_present: Masks

    def decoded(self, count: int) -> Masks:
        """Which of the window's batches were decoded by an earlier plan."""
        known = np.zeros(count, bool)
        known[self.numbers[self.numbers >= 0]] = True
        return known

    def fill_noop_counts(self, noop_count: Rows) -> None:
        """What earlier plans counted in batches that are not decoded again."""
        counted = self.table.column("noop_count")
        rows = np.flatnonzero((self.numbers >= 0) & counted.is_valid().to_numpy())
        noop_count[self.numbers[rows]] = counted.take(pa.array(rows)).to_numpy()

    def of(self, identity: Identity) -> Rows:
        """The rows that say that a replica has a batch."""
        mine = np.array([own == identity for own in self.identities], bool)
        return np.flatnonzero(mine & self.is_present)


@dataclass(frozen=True, slots=True, eq=False)
class PresenceChange:
    """Rows to write about one replica: batches of its slice, and what is gone from it.

    `truncated` are (slice of an earlier capture, batch numbers), `truncated_known` rows of the known table.
    """

    replica: Replica
    part: Slice | None
    places: Rows
    truncated: list[tuple[Slice, Rows]]
    truncated_known: pa.Table | None


class Presence:
    """Follows the captures of each replica through the windows, and what earlier plans know of them."""

    def __init__(
        self, cluster_id: str, replicas: Sequence[Replica], known: KnownBatches | None, decoded_to: int
    ) -> None:
        self._cluster_id = cluster_id
        self._captures: dict[Identity, list[Replica]] = defaultdict(list)
        for replica in replicas:
            self._captures[replica.plan.identity].append(replica)
        self._known = known
        self._decoded_to = 0 if known is None else decoded_to
        starts = [_reads_from(replica) for replica in replicas]
        self._known_from = min((start for start in starts if start is not None), default=decoded_to)
        self._fetched: pa.Table | None = None
        self._fetched_range = (0, 0)

    def known(self, batches: DistinctBatches, to_offset: int) -> KnownWindow | None:
        """What earlier plans know between the last window's end and this one's; None where that is nothing."""
        from_offset, self._known_from = self._known_from, max(self._known_from, to_offset)
        end = min(to_offset, self._decoded_to)
        if self._known is None or from_offset >= end:
            return None
        table = self._fetch(self._known, from_offset, end)
        if table.num_rows == 0:
            return None
        identities = [
            (node_id, directory_id or "", "") if node_id is not None else (-1, root, path)
            for node_id, directory_id, root, path in zip(
                *(table.column(name).to_pylist() for name in ("node_id", "directory_id", "root", "path")), strict=True
            )
        ]
        is_present = np.array([status == PRESENT for status in table.column("status").to_pylist()], bool)
        return KnownWindow(table, identities, _numbers_of(table, batches), is_present)

    def rest(self) -> Iterator[KnownWindow]:
        """Known batches behind the last window, where no replica has any left.

        No checksum covers an offset, so a gap between known batches may claim any size: steps over nothing grow.
        """
        nothing = np.zeros(0, np.int64)
        empty = DistinctBatches(nothing, nothing, nothing, nothing)
        step = KNOWN_OFFSETS
        while self._known_from < self._decoded_to:
            found = self.known(empty, min(self._known_from + step, self._decoded_to))
            step = 2 * step if found is None else KNOWN_OFFSETS
            if found is not None:
                yield found

    def changes(self, window: Window | None, known: KnownWindow | None) -> Iterator[PresenceChange]:
        """What is to be written of each replica, captures of one replica in time."""
        parts = {part.replica.number: part for part in window.slices} if window is not None else {}
        base_offset = window.batches.base_offset if window is not None else np.zeros(0, np.int64)
        for identity in sorted(self._captures):
            captures = self._captures[identity]
            known_rows = known.of(identity) if known is not None else np.zeros(0, np.int64)
            if len(captures) == 1 and not len(known_rows):
                part = parts.get(captures[0].number)
                if part is not None:
                    yield PresenceChange(captures[0], part, np.arange(len(part.numbers)), [], None)
                continue
            yield from self._captured(captures, parts, base_offset, known, known_rows)

    def _captured(
        self,
        captures: list[Replica],
        parts: dict[int, Slice],
        base_offset: Rows,
        known: KnownWindow | None,
        known_rows: Rows,
    ) -> Iterator[PresenceChange]:
        count = len(base_offset)
        present = np.zeros(count, bool)
        known_row_of = np.full(count, -1, np.int64)
        nowhere: Rows = np.zeros(0, np.int64)
        if known is not None:
            numbers = known.numbers[known_rows]
            present[numbers[numbers >= 0]] = True
            known_row_of[numbers[numbers >= 0]] = known_rows[numbers >= 0]
            nowhere = known_rows[numbers < 0]
        holder: list[Slice] = []
        for replica in captures:
            part = parts.get(replica.number)
            held = np.zeros(count, bool)
            if part is not None:
                held[part.numbers] = True
            start = _reads_from(replica)
            reads = start is not None and replica.log is not None and not replica.log.scanner.is_lossy
            gone = present & ~held & (base_offset >= (start or 0)) if reads else np.zeros(count, bool)
            gone_rows = np.concatenate([known_row_of[gone & (known_row_of >= 0)], nowhere]) if reads else nowhere[:0]
            table = None
            if known is not None and reads:
                bases = known.table.column("base_offset").to_numpy()
                gone_rows = gone_rows[bases[gone_rows] >= (start or 0)]
                nowhere = nowhere[~np.isin(nowhere, gone_rows)]
                table = known.table.take(pa.array(gone_rows)) if len(gone_rows) else None
            truncated = _from_slices(gone & (known_row_of < 0), holder)
            places = np.flatnonzero(~present[part.numbers]) if part is not None else np.zeros(0, np.int64)
            if len(places) or truncated or table is not None:
                yield PresenceChange(replica, part, places, truncated, table)
            known_row_of[gone] = -1
            present = (present & ~gone) | held
            if part is not None:
                holder.insert(0, part)

    def _fetch(self, known: KnownBatches, from_offset: int, to_offset: int) -> pa.Table:
        start, end = self._fetched_range
        if self._fetched is None or from_offset < start or to_offset > end:
            start, end = from_offset, max(to_offset, min(from_offset + KNOWN_OFFSETS, self._decoded_to))
            self._fetched = known.batches(self._cluster_id, start, end)
            self._fetched_range = (start, end)
        base = self._fetched.column("base_offset").to_numpy()
        return self._fetched.take(pa.array(np.flatnonzero((base >= from_offset) & (base < to_offset))))


def _reads_from(replica: Replica) -> int | None:
    return replica.log.reads_from_offset if replica.log is not None else None


def _from_slices(gone: Masks, holders: list[Slice]) -> list[tuple[Slice, Rows]]:
    """Where the headers of batches that are gone can be read: in the latest capture that had them."""
    left = gone.copy()
    found = []
    for part in holders:
        numbers = part.numbers[left[part.numbers]]
        if len(numbers):
            left[numbers] = False
            found.append((part, numbers))
    return found


def _numbers_of(table: pa.Table, batches: DistinctBatches) -> Rows:
    """The number among the window's batches of each row's batch, -1 where no replica holds it."""
    count = len(batches)
    keys = [
        np.concatenate((getattr(batches, name), table.column(name).to_numpy().astype(np.int64))) for name in _BATCH_KEY
    ]
    order, is_first = _grouped(keys)
    first_equal = np.empty(len(order), np.int64)
    first_equal[order] = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
    return np.where(first_equal[count:] < count, first_equal[count:], -1)
