"""Who holds the batches of a history: rows of `batches`, and the copies of them on other disks (`LogFacts`).

`BatchHolders` says which disks held which batches, from when until when.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.log_facts import BATCH_COPIES, OF_DISK
from kraft_audit.rules.columns.frame import ranges
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.number_arrays import Mask, Rows


def rows_as_held(table: pa.Table, copies: pa.Table, rows: Rows, copy: Rows) -> pa.Table:
    """Rows of `batches`, each as the copy of this number has it; -1 where it is the disk that the row names.

    Texts that stand once for many rows are texts again where a copy is among them.
    """
    taken = table.take(pa.array(rows))
    of_copy = copy >= 0
    if not of_copy.any():
        return taken
    number = pa.array(np.where(of_copy, copy, 0), mask=~of_copy)
    for name in filter(taken.column_names.__contains__, OF_DISK):
        place, field = taken.column_names.index(name), BATCH_COPIES.schema.field(name)
        own = taken[name].cast(field.type)
        column = pc.if_else(pa.array(of_copy), copies[name].take(number), own)
        taken = taken.set_column(place, pa.field(name, field.type, taken.schema.field(name).nullable), column)
    shifts = pc.fill_null(copies["position_shift"].take(number), 0)
    return with_column(taken, "position", pc.add(taken["position"], shifts))


STILL_HELD: Final = np.iinfo(np.int64).max
"""Until when batches are held that no later capture lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchHolders:
    """Holdings: of rows [first, end) a replica held the batches from the capture `since` on until the capture `until`.

    Captures are numbers as `moment_number` gives them. `copy` is the row of `batch_copies` that says so, -1 where the
    rows themselves do.
    """

    replica: Rows
    first: Rows
    end: Rows
    since: Rows
    until: Rows
    copy: Rows

    def mask(self, is_of: Mask, count: int) -> Mask:
        """Which of `count` rows are in one of the holdings `is_of`."""
        steps = np.bincount(self.first[is_of], minlength=count + 1)
        steps -= np.bincount(self.end[is_of], minlength=count + 1)
        mask: Mask = np.cumsum(steps[:count]) > 0
        return mask

    def among(self, rows: Rows) -> HeldRows:
        """Some rows, which ascend, with every replica that held them."""
        begins, ends = np.searchsorted(rows, self.first), np.searchsorted(rows, self.end)
        counts = ends - begins
        return HeldRows(self, rows[ranges(begins, counts)], np.repeat(np.arange(len(counts)), counts))

    def ended(self, held: HeldRows, until: Rows) -> BatchHolders:
        """The same, but these rows, by holdings that ascend, were held until these captures."""
        changes = np.flatnonzero(until != held.until)
        holding = held.holding[changes]
        pieces = [self.taken(np.setdiff1d(np.arange(len(self.replica)), holding))]
        for own in np.split(changes, np.flatnonzero(np.diff(holding)) + 1) if len(changes) else ():
            one = int(held.holding[own[0]])
            each = np.full(self.end[one] - self.first[one], self.until[one])
            each[held.row[own] - self.first[one]] = until[own]
            pieces.append(self.cut(one, "until", each))
        return joined(*pieces)

    def cut(self, holding: int, moment: str, each: Rows) -> BatchHolders:
        """A holding in pieces, by `each` of its rows' value of `moment`, which is "since" or "until"."""
        first, starts = self.first[holding], np.flatnonzero(run_begins(each))
        pieces = self.taken(np.repeat(holding, len(starts)))
        ends = np.append(starts[1:], len(each))
        return replace(pieces, first=first + starts, end=first + ends, **{moment: each[starts]})

    def taken(self, holdings: Rows) -> BatchHolders:
        """Some of the holdings."""
        return BatchHolders(*(getattr(self, field.name)[holdings] for field in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """Batches, each as often as it was held: its row, and the holding that says so."""

    holders: BatchHolders
    row: Rows
    holding: Rows

    @property
    def replica(self) -> Rows:
        return self.holders.replica[self.holding]

    @property
    def since(self) -> Rows:
        return self.holders.since[self.holding]

    @property
    def until(self) -> Rows:
        return self.holders.until[self.holding]

    @property
    def copy(self) -> Rows:
        return self.holders.copy[self.holding]


def holders_of_rows(replica: Rows, since: Rows) -> BatchHolders:
    """Rows that each name the replica that held them."""
    first = np.flatnonzero(run_begins(replica) | run_begins(since))
    end = np.append(first[1:], len(replica))[: len(first)]
    until, copy = np.full(len(first), STILL_HELD), np.full(len(first), -1)
    return BatchHolders(replica[first], first, end, since[first], until, copy)


def joined(*parts: BatchHolders) -> BatchHolders:
    """The holdings of all parts, in their order."""
    columns = [tuple(getattr(part, field.name) for field in fields(part)) for part in parts]
    return BatchHolders(*map(np.concatenate, zip(*columns, strict=True)))
