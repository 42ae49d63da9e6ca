"""One window's records of partitions as rows of int32 for the replay kernel, and their lists as one run of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.interning import UuidNumbers, uuid_values
from kraft_audit.replay.kernels import layout
from kraft_audit.replay.records import RecordColumns

PARTITION_RECORD: Final = "PartitionRecord"
CHANGE_RECORD: Final = "PartitionChangeRecord"
_LISTS: Final = {
    layout.REPLICAS: "replicas",
    layout.ISR: "isr",
    layout.ELR: "eligible_leader_replicas",
    layout.LAST_KNOWN_ELR: "last_known_elr",
    layout.ADDING_REPLICAS: "adding_replicas",
    layout.REMOVING_REPLICAS: "removing_replicas",
}
_NO_CHANGE_OF_EPOCH: Final = 0

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionInputs:
    """`rows` (INPUT_CELLS wide): PartitionRecords, then PartitionChangeRecords; list starts count in `values`."""

    rows: Int32s
    values: Int32s
    created_count: int
    offsets: Int64s
    leader_epochs: Int32s
    times_ms: Int64s


def partition_inputs(records: RecordColumns, topics: UuidNumbers, directories: UuidNumbers) -> PartitionInputs:
    """Reads both record types of a window; unknown topics and directories get new numbers."""
    batches = [batch for name in (PARTITION_RECORD, CHANGE_RECORD) if (batch := _filled(records, name)) is not None]
    created = _filled(records, PARTITION_RECORD)
    row_count = sum(batch.num_rows for batch in batches)
    rows = np.empty((row_count, layout.INPUT_CELLS), np.int32)
    values: list[Int32s] = []
    used = 0
    first = 0
    for batch in batches:
        part = rows[first : first + batch.num_rows]
        used = _fill(part, batch, topics, directories, values, used)
        first += batch.num_rows
    return PartitionInputs(
        rows,
        np.concatenate(values) if values else np.zeros(0, np.int32),
        0 if created is None else created.num_rows,
        _column(batches, "offset", np.int64),
        _column(batches, "leader_epoch", np.int32),
        _column(batches, "timestamp_ms", np.int64),
    )


def _filled(records: RecordColumns, name: str) -> pa.RecordBatch | None:
    batch = records.get(name)
    return batch if batch is not None and batch.num_rows else None


def _column(batches: list[pa.RecordBatch], name: str, type_: Any) -> Any:
    parts = [batch.column(name).to_numpy(zero_copy_only=False) for batch in batches]
    return np.concatenate(parts).astype(type_, copy=False) if parts else np.zeros(0, type_)


def _fill(
    rows: Int32s, batch: pa.RecordBatch, topics: UuidNumbers, directories: UuidNumbers, values: list[Int32s], used: int
) -> int:
    """Fills the rows of one batch and appends its lists' values behind the `used` before; returns the new count."""
    rows[:, layout.LEADER] = batch.column("leader")
    rows[:, layout.RECOVERY_STATE] = batch.column("leader_recovery_state")
    for cell, name in ((layout.LEADER_EPOCH, "record_leader_epoch"), (layout.PARTITION_EPOCH, "partition_epoch")):
        rows[:, cell] = batch.column(name) if name in batch.schema.names else _NO_CHANGE_OF_EPOCH
    rows[:, layout.INPUT_TOPIC] = topics.numbers(uuid_values(batch.column("topic_id")))
    rows[:, layout.INPUT_PARTITION] = batch.column("partition_id")
    for number, name in _LISTS.items():
        column = batch.column(name)
        used = _fill_list(rows, number, column, column.values.to_numpy(zero_copy_only=False), values, used)
    column = batch.column("directories")
    directory_numbers = directories.numbers(uuid_values(column.values))
    return _fill_list(rows, layout.DIRECTORIES, column, directory_numbers, values, used)


def _fill_list(
    rows: Int32s, number: int, column: pa.ListArray, column_values: Int32s, values: list[Int32s], used: int
) -> int:
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, np.int32(-1))
    start = layout.INPUT_LISTS + 2 * number
    first = offsets[0] if len(offsets) else 0
    last = offsets[-1] if len(offsets) else 0
    rows[:, start] = offsets[:-1] + (used - first)
    rows[:, start + 1] = lengths
    values.append(column_values[first:last].astype(np.int32, copy=False))
    return used + int(last - first)
