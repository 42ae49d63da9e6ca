"""What a pass over all logs knows of their batches: each distinct batch once, and which other disks hold it.

Voters hold the same log, so a row for each batch of each disk says most of it once for every voter. The pass numbers
the distinct batches of each window and knows whose they are. So the first disk that holds a batch gives its row, and
for every other disk a copy says which of these rows it holds in sequence in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.continuity import run_begins
from kraft_audit.tables.bronze import BATCHES
from kraft_audit.tables.contract import INT32, INT64, Table, required
from kraft_audit.tables.number_arrays import Mask, Rows

OF_CAPTURE: Final = (
    *("node_id", "directory_id", "captured_at_ms", "captured_at", "capture", "capture_number", "root", "path"),
)
"""The columns of `batches` that say which captured disk a row is of."""
OF_DISK: Final = (*OF_CAPTURE, "file_name")
"""The columns of `batches` that differ between disks, besides the position in the file."""
BATCH_COPIES: Final = Table(
    "batch_copies",
    "history",
    "rows of a history's batches, in sequence, that another disk holds, too",
    ("root", "path", "capture_number", "file_name", "first_row"),
    "as long as the history",
    "Disks that hold what a disk before them holds.",
    (
        *(each for each in BATCHES.columns if each.name in OF_DISK),
        required("first_row", INT64, "the first of the rows of batches"),
        required("batch_count", INT64, "how many rows they are"),
        required("position_shift", INT64, "what a batch's position in the file is more than in that row"),
    ),
)
LOG_RUNS: Final = Table(
    "log_runs",
    "history",
    "what the log of one capture holds of one leader epoch, without a gap",
    ("root", "path", "capture_number", "leader_epoch", "from_offset"),
    "as long as the capture",
    "Says who held what when the batches of that capture are not at hand any more.",
    (
        *(each for each in BATCHES.columns if each.name in OF_CAPTURE),
        required("leader_epoch", INT32, "leader epoch of the records"),
        required("from_offset", INT64, "the first offset"),
        required("to_offset", INT64, "the offset after the last"),
    ),
)
_FILE: Final = ("root", "path", "capture_number", "file_name")


class LogFacts:
    """Gives rows of `batches` to `take_rows` and gathers the copies of them.

    `first_offset` is the lowest offset at which a batch of a log was taken; None before there is one.
    """

    def __init__(self, take_rows: Callable[[pa.RecordBatch], None]) -> None:
        self.first_offset: int | None = None
        self._take_rows = take_rows
        self._row_count = 0
        self._row_of = self._position_of = np.zeros(0, np.int64)
        self._copies: list[dict[str, Any]] = []
        self._last: dict[tuple[Any, ...], dict[str, Any]] = {}
        """The last copy in each file."""

    def begin_window(self, batch_count: int) -> None:
        """Prepares for a window with this many distinct batches."""
        self._row_of = np.full(batch_count, -1, np.int64)
        self._position_of = np.zeros(batch_count, np.int64)

    def add(
        self,
        numbers: Rows,
        positions: Rows,
        is_valid: Mask,
        of_disk: Mapping[str, Any],
        rows_at: Callable[[slice], pa.RecordBatch],
    ) -> None:
        """Takes batches that one file of one disk holds, in the order of their offsets.

        Args:
            numbers: which of the window's distinct batches they are.
            positions: where each begins in the file, in bytes.
            is_valid: batches that could not be decoded are no copies: each disk gives its own row.
            of_disk: the file's values of OF_DISK.
            rows_at: makes the rows of `batches` of some of them.
        """
        row = np.where(is_valid, self._row_of[numbers], -1)
        is_new, shift = row < 0, positions - self._position_of[numbers]
        # Copies go on from row to row, new rows from batch to batch.
        begins = run_begins(is_new) | (~is_new & (run_begins(row - np.arange(len(row))) | run_begins(shift)))
        starts = np.flatnonzero(begins)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True):
            if is_new[start]:
                own = numbers[start:end]
                self._row_of[own] = np.where(is_valid[start:end], self._row_count + np.arange(end - start), -1)
                self._position_of[own] = positions[start:end]
                self.add_rows(rows_at(slice(start, end)))
            else:
                self._add_copy(of_disk, int(row[start]), end - start, int(shift[start]))

    def add_rows(self, batch: pa.RecordBatch) -> None:
        """Takes rows that stand for themselves: of snapshots, of refused batches, of what was truncated."""
        if not batch.num_rows:
            return
        self._row_count += batch.num_rows
        if batch.column("source")[0].as_py() == "log":
            lowest = int(batch.column("base_offset").to_numpy().min())
            self.first_offset = lowest if self.first_offset is None else min(lowest, self.first_offset)
        self._take_rows(batch)

    def _add_copy(self, of_disk: Mapping[str, Any], first_row: int, count: int, shift: int) -> None:
        file = tuple(of_disk[name] for name in _FILE)
        last = self._last.get(file)
        goes_on = last is not None and last["first_row"] + last["batch_count"] == first_row
        if last is not None and goes_on and last["position_shift"] == shift:
            last["batch_count"] += count
            return
        of_file = {name: of_disk[name] for name in OF_DISK}
        copy = {**of_file, "first_row": first_row, "batch_count": count, "position_shift": shift}
        self._last[file] = copy
        self._copies.append(copy)

    def copies(self) -> pa.Table:
        """The copies, in the columns of BATCH_COPIES."""
        return pa.Table.from_pylist(self._copies, BATCH_COPIES.schema)
