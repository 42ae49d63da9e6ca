"""Batches that several disks hold alike stand once in a history's `batches`; runs say which other disks hold them.

Voters hold the same log, so that a row for each batch of each disk says most of it as often as there are voters. A run
is a stretch of rows that another disk holds too, batch by batch, in one file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.columns.frame import Mask, Rows
from kraft_audit.tables.bronze import BATCHES
from kraft_audit.tables.contract import INT64, Table, required

OF_BATCH: Final = (
    *("base_offset", "last_offset", "leader_epoch", "crc", "is_control", "max_timestamp_ms", "record_count"),
    "size_bytes",
)
"""What is the same wherever a batch is held."""
OF_DISK: Final = (
    *("node_id", "directory_id", "captured_at_ms", "captured_at", "capture", "capture_number", "root", "path"),
    "file_name",
)
"""What is another disk's own, beside the position in the file."""
BATCH_COPIES: Final = Table(
    "batch_copies",
    "history",
    "a stretch of rows of a history's batches that another disk holds, too",
    ("root", "path", "capture_number", "file_name", "first_row"),
    "as long as the history",
    "Disks that hold what a disk before them holds.",
    (
        *(each for each in BATCHES.columns if each.name in OF_DISK),
        required("first_row", INT64, "the row of batches that the stretch begins with"),
        required("batch_count", INT64, "how many rows it has"),
        required("position_shift", INT64, "what a batch's position in the file is more than in that row"),
    ),
)
STRETCHES_REMEMBERED: Final = 16
"""Disks are read in lock step, so that what is alike comes close together: a segment may end within."""
_HOLDER: Final = ("source", "status", "valid", "root", "path", "captured_at_ms", "capture_number", "file_name")
_Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows of one disk's file, and the number of the first one in the history."""

    first_row: int
    columns: _Columns

    def alike(self, columns: _Columns, start: int) -> tuple[int, int]:
        """(place, count): from the row at `place` on it has as many rows as `columns` from `start` on."""
        own, base_offset = self.columns["base_offset"], columns["base_offset"][start]
        place = int(np.searchsorted(own, base_offset))
        if place == len(own) or own[place] != base_offset:
            return place, 0
        count = min(len(own) - place, len(columns["base_offset"]) - start)
        mine, theirs = slice(place, place + count), slice(start, start + count)
        is_alike = np.ones(count, bool)
        for name in OF_BATCH:
            is_alike &= self.columns[name][mine] == columns[name][theirs]
        shifts = columns["position"][theirs] - self.columns["position"][mine]
        is_alike &= shifts == shifts[0]
        return place, count if is_alike.all() else int(np.argmin(is_alike))


class CopyFinder:
    """Finds, in rows of `batches` as they come, what a disk before holds alike."""

    def __init__(self) -> None:
        self._recent: deque[_Stretch] = deque(maxlen=STRETCHES_REMEMBERED)
        self._runs: list[dict[str, Any]] = []

    def new_rows(self, batch: pa.RecordBatch, next_row: int) -> Iterator[pa.RecordBatch]:
        """The rows that no disk before holds. The first of them becomes the row `next_row` of the history."""
        if not _is_of_one_file(batch):
            if batch.num_rows:
                yield batch
            return
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in (*OF_BATCH, "position")}
        start = 0
        while start < batch.num_rows:
            stretch, place, count = self._longest(columns, start)
            if stretch is None:
                yield batch.slice(start)
                self._recent.append(_Stretch(next_row, {name: each[start:] for name, each in columns.items()}))
                return
            shift = int(columns["position"][start] - stretch.columns["position"][place])
            self._add(batch, stretch.first_row + place, count, shift)
            start += count

    def _longest(self, columns: _Columns, start: int) -> tuple[_Stretch | None, int, int]:
        best: tuple[_Stretch | None, int, int] = (None, 0, 0)
        for stretch in self._recent:
            place, count = stretch.alike(columns, start)
            if count > best[2]:
                best = (stretch, place, count)
        return best

    def _add(self, batch: pa.RecordBatch, first_row: int, count: int, shift: int) -> None:
        run = {name: batch.column(name)[0].as_py() for name in OF_DISK}
        for last in reversed(self._runs[-STRETCHES_REMEMBERED:]):
            goes_on = last["first_row"] + last["batch_count"] == first_row and last["position_shift"] == shift
            if goes_on and all(last[name] == run[name] for name in OF_DISK):
                last["batch_count"] += count
                return
        self._runs.append({**run, "first_row": first_row, "batch_count": count, "position_shift": shift})

    def table(self) -> pa.Table:
        """The runs that were found, in the columns of BATCH_COPIES."""
        return pa.Table.from_pylist(self._runs, BATCH_COPIES.schema)


def _is_of_one_file(batch: pa.RecordBatch) -> bool:
    """Whether all rows are valid batches of one file of a log, as one capture has it, in ascending order."""
    if not batch.num_rows or any(len(batch.column(name).unique()) > 1 for name in _HOLDER):
        return False
    is_held = [batch.column(name)[0].as_py() for name in ("source", "status", "valid")] == ["log", "present", True]
    starts = batch.column("base_offset").to_numpy()
    return is_held and bool((starts[1:] > starts[:-1]).all())


def with_rows_before(copies: pa.Table, count: int) -> pa.Table:
    """Runs whose rows come after `count` others by now."""
    return _with_column(copies, "first_row", pc.add(copies["first_row"], count))


def with_rows(copies: pa.Table, number_of: Rows) -> pa.Table:
    """Runs whose rows have other numbers by now."""
    return _with_column(copies, "first_row", pa.array(number_of[copies["first_row"].to_numpy()], pa.int64()))


def within(copies: pa.Table, chosen: Mask) -> pa.Table:
    """Runs, or pieces of them, of the rows that are chosen."""
    run, first, count = [], [], []
    for number, row in enumerate(copies.select(["first_row", "batch_count"]).to_pylist()):
        start = row["first_row"]
        steps = np.diff(chosen[start : start + row["batch_count"]].astype(np.int8), prepend=0, append=0)
        begins, ends = np.flatnonzero(steps > 0), np.flatnonzero(steps < 0)
        run += [number] * len(begins)
        first += (start + begins).tolist()
        count += (ends - begins).tolist()
    pieces = copies.take(pa.array(run, pa.int64()))
    pieces = _with_column(pieces, "first_row", pa.array(first, pa.int64()))
    return _with_column(pieces, "batch_count", pa.array(count, pa.int64()))


def _with_column(copies: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = copies.column_names.index(name)
    return copies.set_column(place, copies.schema.field(place), values)


def rows_as_held(table: pa.Table, copies: pa.Table, rows: Rows, copy: Rows) -> pa.Table:
    """Rows of `batches`, each as the run of this number has it; -1 where it is the disk that the row names.

    Texts that stand once for many rows are texts again where a run is among them.
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
    place = taken.column_names.index("position")
    shifts = pc.fill_null(copies["position_shift"].take(number), 0)
    return taken.set_column(place, taken.schema.field(place), pc.add(taken["position"], shifts))


def every_row(table: pa.Table, copies: pa.Table) -> pa.Table:
    """`batches` with a row for each batch of each disk: its own rows first, then those of the runs."""
    if not copies.num_rows:
        return table
    counts = copies["batch_count"].to_numpy()
    own = np.arange(table.num_rows)
    rows = np.concatenate([own, *map(_stretch, copies["first_row"].to_pylist(), counts.tolist())])
    copy = np.concatenate([np.full(len(own), -1), np.repeat(np.arange(len(counts)), counts)])
    return rows_as_held(table, copies, rows, copy)


def _stretch(first_row: int, count: int) -> Rows:
    return np.arange(first_row, first_row + count)
