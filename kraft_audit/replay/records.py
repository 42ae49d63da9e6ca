"""What the replay reads: typed columns of one window of the log, per record type, and control records as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_codec.schemas import CONTROL_TYPES, Dialect

RecordColumns = Mapping[str, pa.RecordBatch]
"""Message name → typed columns of its records in one window: `offset`, `leader_epoch`, `timestamp_ms` and the fields by
their column names, ascending by offset. A type without records may be absent. Partition records, which are many, may be
a pa.Table instead: some batches behind each other that nobody had to copy."""

ENVELOPE: Final = ("offset", "leader_epoch", "timestamp_ms")


def batches_of(records: RecordColumns, name: str) -> list[pa.RecordBatch]:
    """The batches with records of one type, ascending."""
    found = records.get(name)
    if found is None:
        return []
    batches = [found] if isinstance(found, pa.RecordBatch) else found.to_batches()
    return [batch for batch in batches if batch.num_rows]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One control record: `name` is the type as tables show it ("LEADER_CHANGE"), `fields` go by column name.

    `batch_offset` is the base offset of its batch; None where the reader does not know it.
    """

    offset: int
    leader_epoch: int
    timestamp_ms: int
    name: str
    fields: Mapping[str, Any]
    batch_offset: int | None = None


def control_records(records: RecordColumns, dialect: Dialect = Dialect.KIP853) -> list[ControlRecord]:
    """The control records of a window in log order. They are few, so they are plain values."""
    found: list[ControlRecord] = []
    for control in CONTROL_TYPES[dialect].values():
        batch = records.get(control.message.name)
        if batch is None:
            continue
        for row in batch.to_pylist():
            offset, leader_epoch, timestamp_ms = (row[name] for name in ENVELOPE)
            found.append(ControlRecord(offset, leader_epoch, timestamp_ms, control.name, row))
    return sorted(found, key=lambda record: record.offset)


def rows_in_order(records: RecordColumns, names: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    """The records of the named types as (message name, row) in log order: for types of which a log holds few."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        batch = records.get(name)
        if batch is not None and batch.num_rows:
            found.extend((name, row) for row in batch.to_pylist())
    return sorted(found, key=lambda entry: int(entry[1]["offset"]))


def between(records: RecordColumns, from_offset: int | None, to_offset: int | None) -> dict[str, pa.RecordBatch]:
    """The records with from_offset <= offset < to_offset; None is no bound. Types without any are left out."""
    found = {}
    for name, batch in records.items():
        offsets = batch.column("offset").to_numpy()
        start = 0 if from_offset is None else int(np.searchsorted(offsets, from_offset))
        end = len(offsets) if to_offset is None else int(np.searchsorted(offsets, to_offset))
        if start < end:
            found[name] = batch.slice(start, end - start)
    return found


def end_of(records: RecordColumns, window_end: int) -> int:
    """The offset after the last record of a window: its last batch may reach beyond the window's end."""
    lasts = [int(batch.column("offset")[-1].as_py()) + 1 for batch in records.values() if batch.num_rows]
    return max([window_end, *lasts])
