"""What may be replayed yet: whole metadata transactions, whole controller operations, nothing that was aborted.

Records between Begin and Abort never took effect, and those behind an open Begin have not yet (MetadataBatchLoader,
OffsetControlManager of Kafka 4.3.0); control records between them are not part of the transaction. A broker's partition
changes stand before the record that fences, registers or removes it: a run of changes at the end of what was read waits
for the record behind it, so that its cause is seen whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.replay.kernels.layout import OPERATION_GAP_MS
from kraft_audit.replay.records import RecordColumns, batches_of, between
from kraft_codec.schemas import CONTROL_TYPES, Dialect

CHANGE_RECORD: Final = "PartitionChangeRecord"
PARTITION_RECORDS: Final = frozenset({"PartitionRecord", CHANGE_RECORD})
MAX_WAITING_CHANGES: Final = 100_000
"""The most changes that wait for the rest of their operation. No operation writes more; a longer run waits no more."""
_CONTROL_MESSAGES: Final = frozenset(
    control.message.name for dialect in Dialect for control in CONTROL_TYPES[dialect].values()
)
_MARKS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")


class Settler:
    """Takes windows of a log in order and gives them back as far as they are settled."""

    def __init__(self) -> None:
        self._waiting: list[RecordColumns] = []
        self._begin_offset: int | None = None
        self._aborted: list[tuple[int, int]] = []
        self._run: _Run | None = None
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
        before = self._fed_to
        self._fed_to = max(before, to_offset, *(_end(batch) for batch in records.values()))
        self._follow_transactions(records)
        self._run = _last_run(records, before, self._fed_to, self._run)
        settled = self._fed_to if self._run is None else self._run.from_offset
        if self._begin_offset is not None:
            settled = self._begin_offset
        self._waiting.append(records)
        if settled == self.settled_offset:
            return {}
        return self._release(settled)

    def rest(self) -> RecordColumns:
        """The operation at the end although its last record may be missing; an open transaction stays out."""
        return self._release(self._fed_to if self._begin_offset is None else self._begin_offset)

    def _release(self, settled: int) -> RecordColumns:
        joined = _joined(self._waiting)
        for begin, end in self._aborted:
            joined = _without(joined, begin, end)
        self._aborted = []
        self.settled_offset = settled
        self._waiting = [between(joined, settled, None)]
        return between(joined, None, settled)

    def _follow_transactions(self, records: RecordColumns) -> None:
        """Follows Begin, End and Abort; remembers the offsets [begin, abort] of what was aborted."""
        marks = [
            (offset, name)
            for name in _MARKS
            if (batch := records.get(name)) is not None
            for offset in batch.column("offset").to_pylist()
        ]
        for offset, name in sorted(marks):
            if name == "BeginTransactionRecord":
                self._begin_offset = offset
            else:
                if name == "AbortTransactionRecord" and self._begin_offset is not None:
                    self._aborted.append((self._begin_offset, offset))
                self._begin_offset = None


@dataclass(frozen=True, slots=True)
class _Run:
    """Changes without a gap, in what may be one operation, that reach the end of what was read."""

    from_offset: int
    count: int
    last_time_ms: int


def _last_run(records: RecordColumns, from_offset: int, to_offset: int, before: _Run | None) -> _Run | None:
    """The run at the end of a window; `before` is that at the end of the window before it, which it may go on."""
    batch = records.get(CHANGE_RECORD)
    if batch is None or batch.num_rows == 0:
        return None
    offsets = batch.column("offset").to_numpy()
    times = batch.column("timestamp_ms").to_numpy()
    if offsets[-1] != to_offset - 1:
        return None
    gaps = np.flatnonzero((np.diff(offsets) != 1) | (np.abs(np.diff(times)) > OPERATION_GAP_MS))
    first = int(gaps[-1]) + 1 if len(gaps) else 0
    start, count = int(offsets[first]), len(offsets) - first
    goes_on = first == 0 and before is not None and start == from_offset
    if before is not None and goes_on and abs(int(times[0]) - before.last_time_ms) <= OPERATION_GAP_MS:
        start, count = before.from_offset, before.count + count
    return None if count > MAX_WAITING_CHANGES else _Run(start, count, int(times[-1]))


def _end(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py()) + 1 if batch.num_rows else 0


def _joined(parts: list[RecordColumns]) -> RecordColumns:
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: [batch for part in parts for batch in batches_of(part, name)] for name in names}
    return {name: _behind_each_other(name, batches) for name, batches in found.items() if batches}


def _behind_each_other(name: str, batches: list[pa.RecordBatch]) -> pa.RecordBatch | pa.Table:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches) if name in PARTITION_RECORDS else pa.concat_batches(batches)


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
