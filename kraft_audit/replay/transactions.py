"""What may be replayed yet: whole metadata transactions, whole controller operations, nothing that was aborted.

Records between Begin and Abort never took effect, and those behind an open Begin have not yet (MetadataBatchLoader,
OffsetControlManager of Kafka 4.3.0); control records between them are not part of the transaction. A broker's partition
changes stand before the record that fences, registers or removes it: a run of changes at the end of what was read waits
for the record behind it, so that its cause is seen whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.replay.records import RecordColumns
from kraft_codec.schemas import CONTROL_TYPES, Dialect

CHANGE_RECORD: Final = "PartitionChangeRecord"
MAX_WAITING_CHANGES: Final = 100_000
"""No operation writes more changes at once; a longer run is no longer held back."""
_CONTROL_MESSAGES: Final = frozenset(
    control.message.name for dialect in Dialect for control in CONTROL_TYPES[dialect].values()
)
_MARKS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")


class Settler:
    """Takes windows of a log in order and gives them back as far as they are settled."""

    def __init__(self) -> None:
        self._waiting: dict[str, pa.RecordBatch] = {}
        self._begin_offset: int | None = None
        self._fed_to = 0
        self.settled_offset = 0
        """Everything below has been given back: the end of what was fed, or where an unfinished transaction or
        operation begins."""

    @property
    def open_transaction_offset(self) -> int | None:
        """The offset of a Begin that has no End or Abort yet."""
        return self._begin_offset

    def feed(self, records: RecordColumns, to_offset: int) -> RecordColumns:
        """Adds the records of a window that ends at `to_offset`; returns what is settled now.

        A batch may cross `to_offset`: its records count, and the next window goes on behind them.
        """
        joined = _joined(self._waiting, records)
        self._fed_to = max(self._fed_to, to_offset, *(_end(batch) for batch in records.values()))
        aborted = self._transactions(records)
        settled = self._begin_offset if self._begin_offset is not None else self._start_of_last_operation(joined)
        for begin, end in aborted:
            joined = _without(joined, begin, end)
        self.settled_offset = settled
        self._waiting = _between(joined, settled, None)
        return _between(joined, None, settled)

    def rest(self) -> RecordColumns:
        """The operation at the end although its last record may be missing; an open transaction stays out."""
        end = self._fed_to if self._begin_offset is None else self._begin_offset
        rest = _between(self._waiting, None, end)
        self._waiting = _between(self._waiting, end, None)
        self.settled_offset = end
        return rest

    def _transactions(self, records: RecordColumns) -> list[tuple[int, int]]:
        """Follows Begin, End and Abort; the offsets [begin, abort] of what was aborted."""
        marks = [
            (offset, name)
            for name in _MARKS
            if (batch := records.get(name)) is not None
            for offset in batch.column("offset").to_pylist()
        ]
        aborted = []
        for offset, name in sorted(marks):
            if name == "BeginTransactionRecord":
                self._begin_offset = offset
            else:
                if name == "AbortTransactionRecord" and self._begin_offset is not None:
                    aborted.append((self._begin_offset, offset))
                self._begin_offset = None
        return aborted

    def _start_of_last_operation(self, records: RecordColumns) -> int:
        """Where the run of partition changes begins that reaches the end of what was read; else that end."""
        batch = records.get(CHANGE_RECORD)
        if batch is None or batch.num_rows == 0:
            return self._fed_to
        offsets = batch.column("offset").to_numpy()
        if offsets[-1] != self._fed_to - 1:
            return self._fed_to
        gaps = np.flatnonzero(np.diff(offsets) != 1)
        first = int(gaps[-1]) + 1 if len(gaps) else 0
        if len(offsets) - first > MAX_WAITING_CHANGES:
            return self._fed_to
        return int(offsets[first])


def _end(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py()) + 1 if batch.num_rows else 0


def _joined(first: RecordColumns, second: RecordColumns) -> RecordColumns:
    joined = dict(first)
    for name, batch in second.items():
        before = joined.get(name)
        joined[name] = pa.concat_batches([before, batch]) if before is not None and before.num_rows else batch
    return joined


def _between(records: RecordColumns, from_offset: int | None, to_offset: int | None) -> dict[str, pa.RecordBatch]:
    found = {}
    for name, batch in records.items():
        offsets = batch.column("offset").to_numpy()
        start = 0 if from_offset is None else int(np.searchsorted(offsets, from_offset))
        end = len(offsets) if to_offset is None else int(np.searchsorted(offsets, to_offset))
        if start < end:
            found[name] = batch.slice(start, end - start)
    return found


def _without(records: RecordColumns, begin: int, end: int) -> RecordColumns:
    """The records but for the metadata records in [begin, end]."""
    kept = {}
    for name, batch in records.items():
        if name in _CONTROL_MESSAGES:
            kept[name] = batch
            continue
        offsets = batch.column("offset").to_numpy()
        outside = (offsets < begin) | (offsets > end)
        kept[name] = batch if outside.all() else batch.filter(pa.array(outside))
    return kept
