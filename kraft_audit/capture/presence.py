"""What changed in each replica since its earlier captures, those of earlier plans too.

A row of `batches` is written once, when a batch is first seen in a replica. Where a later capture of that replica no
longer has it, and reads where it stood, a row with status truncated follows; the same batch seen again after that has a
row again. What lies below the start of a log is not truncated: snapshots have taken its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.plan import Identity, KnownBatches, replica_identity
from kraft_audit.capture.reconcile import BATCH_KEY_FIELDS, DistinctBatches, Slice, Window, grouped
from kraft_audit.capture.replica import Replica
from kraft_audit.tables.bronze import REPLICA_NAME
from kraft_audit.tables.number_arrays import Mask, Rows

PRESENT: Final = "present"
KNOWN_OFFSETS: Final = 200_000
"""How many offsets of known batches are fetched at a time, and held."""


@dataclass(slots=True, eq=False)
class KnownWindow:
    """Known batches of a window: a table, the identity of each row's replica, and its number among the window's."""

    table: pa.Table
    identities: list[Identity]
    numbers: Rows
    is_present: Mask

    def decoded(self, count: int) -> Mask:
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
        names = (table.column(name).to_pylist() for name in REPLICA_NAME)
        identities = list(map(replica_identity, *names))
        is_present = np.array([status == PRESENT for status in table.column("status").to_pylist()], bool)
        return KnownWindow(table, identities, _numbers_of(table, batches), is_present)

    def rest(self) -> Iterator[KnownWindow]:
        """Known batches after the last window, where no replica has any left.

        No checksum covers an offset, so a gap between known batches may claim any size: steps over nothing grow.
        """
        nothing = np.zeros(0, np.int64)
        empty = DistinctBatches(nothing, nothing, nothing, nothing)
        step = KNOWN_OFFSETS
        while self._known_from < self._decoded_to:
            window = self.known(empty, min(self._known_from + step, self._decoded_to))
            step = 2 * step if window is None else KNOWN_OFFSETS
            if window is not None:
                yield window

    def changes(self, window: Window | None, known: KnownWindow | None) -> Iterator[PresenceChange]:
        """What is to be written of each replica, captures of one replica in time."""
        slices = [] if window is None else window.slices
        parts = {part.replica.number: part for part in slices}
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
        """The changes of one replica over its captures, oldest first.

        `present` are the window's batches that it held after the capture before. A capture that reads their offsets and
        lacks them truncates them: their headers are those of the lake's row, else of the last capture that had them.
        """
        count = len(base_offset)
        present = np.zeros(count, bool)
        known_row_of = np.full(count, -1, np.int64)
        unheld_rows: Rows = np.zeros(0, np.int64)
        if known is not None:
            numbers = known.numbers[known_rows]
            present[numbers[numbers >= 0]] = True
            known_row_of[numbers[numbers >= 0]] = known_rows[numbers >= 0]
            unheld_rows = known_rows[numbers < 0]
        holder: list[Slice] = []
        for replica in captures:
            part = parts.get(replica.number)
            held = np.zeros(count, bool)
            if part is not None:
                held[part.numbers] = True
            start = _reads_from(replica)
            reads = start is not None and replica.log is not None and not replica.log.scanner.is_lossy
            gone = present & ~held & (base_offset >= (start or 0)) if reads else np.zeros(count, bool)
            truncated_rows = (
                np.concatenate([known_row_of[gone & (known_row_of >= 0)], unheld_rows]) if reads else unheld_rows[:0]
            )
            table = None
            if known is not None and reads:
                bases = known.table.column("base_offset").to_numpy()
                truncated_rows = truncated_rows[bases[truncated_rows] >= (start or 0)]
                unheld_rows = unheld_rows[~np.isin(unheld_rows, truncated_rows)]
                table = known.table.take(pa.array(truncated_rows)) if len(truncated_rows) else None
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


def _from_slices(gone: Mask, holders: list[Slice]) -> list[tuple[Slice, Rows]]:
    """Where the headers of batches that are gone can be read: in the latest capture that had them."""
    left = gone.copy()
    parts = []
    for part in holders:
        numbers = part.numbers[left[part.numbers]]
        if len(numbers):
            left[numbers] = False
            parts.append((part, numbers))
    return parts


def _numbers_of(table: pa.Table, batches: DistinctBatches) -> Rows:
    """The number among the window's batches of each row's batch, -1 where no replica holds it."""
    count = len(batches)
    keys = [
        np.concatenate((getattr(batches, name), table.column(name).to_numpy().astype(np.int64)))
        for name in BATCH_KEY_FIELDS
    ]
    order, is_first = grouped(keys)
    first_equal = np.empty(len(order), np.int64)
    first_equal[order] = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
    return np.where(first_equal[count:] < count, first_equal[count:], -1)
