"""Who holds the batches of a history: rows of `batches`, and the copies of them on other disks (`LogFacts`).

`BatchHolders` says which disks held which batches, from when until when.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.log_facts import BATCH_COPIES, OF_DISK
from kraft_audit.rules.columns.frame import ranges
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.number_arrays import Mask, Rows


def shifted(copies: pa.Table, count: int) -> pa.Table:
    """Copies of rows before which `count` others stand by now."""
    return with_column(copies, "first_row", pc.add(copies["first_row"], count))


def renumbered(copies: pa.Table, number_of: Rows) -> pa.Table:
    """Copies of rows that have other numbers by now."""
    return with_column(copies, "first_row", pa.array(number_of[copies["first_row"].to_numpy()], pa.int64()))


def cut_to(copies: pa.Table, chosen: Mask) -> pa.Table:
    """What copies say of the rows that are chosen."""
    first = copies["first_row"].to_numpy()
    end = first + copies["batch_count"].to_numpy()
    steps = np.diff(chosen.astype(np.int8), prepend=0, append=0)
    begins, ends = np.flatnonzero(steps > 0), np.flatnonzero(steps < 0)
    before = np.searchsorted(ends, first, side="right")
    counts = np.searchsorted(begins, end) - before
    copy, part = np.repeat(np.arange(len(first)), counts), ranges(before, counts)
    starts = np.maximum(begins[part], first[copy])
    pieces = with_column(copies.take(pa.array(copy)), "first_row", pa.array(starts))
    return with_column(pieces, "batch_count", pa.array(np.minimum(ends[part], end[copy]) - starts))


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


def every_row(table: pa.Table, copies: pa.Table) -> pa.Table:
    """`batches` with a row for each batch of each disk: its own rows first, then those of copies."""
    if not copies.num_rows:
        return table
    own, counts = np.arange(table.num_rows), copies["batch_count"].to_numpy()
    rows = np.concatenate([own, ranges(copies["first_row"].to_numpy(), counts)])
    copy = np.concatenate([np.full(len(own), -1), np.repeat(np.arange(len(counts)), counts)])
    return rows_as_held(table, copies, rows, copy)


def last_positions(table: pa.Table, copies: pa.Table) -> dict[tuple[str, str, str], int]:
    """The position of the last batch of each file, by root, path and name."""
    position_of: dict[tuple[str, str, str], int] = {}
    names = ["root", "path", "file_name"]
    rows = table.select([*names, "position"]).group_by(names).aggregate([("position", "max")])
    ends = copies["first_row"].to_numpy() + copies["batch_count"].to_numpy() - 1
    of_copies = pc.add(table["position"].take(pa.array(ends)), copies["position_shift"])
    for each, position in ((rows.select(names), rows["position_max"]), (copies.select(names), of_copies)):
        for row, last in zip(each.to_pylist(), position.to_pylist(), strict=True):
            key = row["root"], row["path"], row["file_name"]
            position_of[key] = max(position_of.get(key, -1), last)
    return position_of


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

    def of(self, replica: int) -> HeldRows:
        """Everything that a replica held."""
        own = np.flatnonzero(self.replica == replica)
        counts = (self.end - self.first)[own]
        return HeldRows(self, ranges(self.first[own], counts), np.repeat(own, counts))

    def among(self, rows: Rows) -> HeldRows:
        """Some rows, which ascend, with every replica that held them."""
        begins, ends = np.searchsorted(rows, self.first), np.searchsorted(rows, self.end)
        counts = ends - begins
        return HeldRows(self, rows[ranges(begins, counts)], np.repeat(np.arange(len(counts)), counts))

    def ended(self, held: HeldRows, until: Rows) -> BatchHolders:
        """The same, but these rows, by holdings that ascend, were held until these captures."""
        changes = np.flatnonzero(until != held.until)
        holding = held.holding[changes]
        pieces = [self._taken(np.setdiff1d(np.arange(len(self.replica)), holding))]
        for own in np.split(changes, np.flatnonzero(np.diff(holding)) + 1) if len(changes) else ():
            pieces.append(self._cut(int(held.holding[own[0]]), held.row[own], until[own]))
        return BatchHolders(*map(np.concatenate, zip(*pieces, strict=True)))

    def _cut(self, holding: int, rows: Rows, until: Rows) -> tuple[Rows, ...]:
        """A holding in pieces that were each held until one capture."""
        first = self.first[holding]
        each = np.full(self.end[holding] - first, self.until[holding])
        each[rows - first] = until
        starts = np.flatnonzero(run_begins(each))
        ends = np.append(starts[1:], len(each))
        replica, _, _, since, _, copy = self._taken(np.repeat(holding, len(starts)))
        return replica, first + starts, first + ends, since, each[starts], copy

    def taken(self, holdings: Rows) -> BatchHolders:
        """Some of the holdings."""
        return BatchHolders(*self._taken(holdings))

    def _taken(self, holdings: Rows) -> tuple[Rows, ...]:
        return tuple(getattr(self, field.name)[holdings] for field in fields(self))


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
