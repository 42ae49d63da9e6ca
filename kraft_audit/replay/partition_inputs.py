"""One window's records of partitions as rows of int32 for the replay kernel, their lists as one run of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.interning import UuidNumbers, uuid_values
from kraft_audit.replay.kernels import layout
from kraft_audit.replay.kernels.native import kernel
from kraft_audit.replay.records import RecordColumns, batches_of
from kraft_codec.columns_memory import address

PARTITION_RECORD: Final = "PartitionRecord"
CHANGE_RECORD: Final = "PartitionChangeRecord"
_LISTS: Final = {
    layout.REPLICAS: "replicas",
    layout.ISR: "isr",
    layout.ELR: "eligible_leader_replicas",
    layout.LAST_KNOWN_ELR: "last_known_elr",
    layout.ADDING_REPLICAS: "adding_replicas",
    layout.REMOVING_REPLICAS: "removing_replicas",
    layout.DIRECTORIES: "directories",
}
_NUMBERS: Final = {
    layout.IN_LEADER: ("leader", pa.int32(), 4),
    layout.IN_RECOVERY_STATE: ("leader_recovery_state", pa.int8(), 1),
    layout.IN_LEADER_EPOCH: ("record_leader_epoch", pa.int32(), 4),
    layout.IN_PARTITION_EPOCH: ("partition_epoch", pa.int32(), 4),
    layout.IN_PARTITION: ("partition_id", pa.int32(), 4),
}
"""Column name, type and bytes of a value. A change record has no epochs: they follow from the state before it."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
_NO_VALUES: Final = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class PartitionInputs:
    """A window's PartitionRecords, then its PartitionChangeRecords. `value_count` is the length of all their lists."""

    parts: tuple[_Part, ...]
    created_count: int
    value_count: int
    offsets: Int64s
    leader_epochs: Int32s
    times_ms: Int64s

    def fill(self, rows: Int32s, arena: Int32s, used: int) -> int:
        """Writes the records as rows of INPUT_CELLS, their lists behind the `used` values of `arena`.

        Returns the length of the longest list.
        """
        first = longest = 0
        for part in self.parts:
            for number, (first_offset, values) in part.values.items():
                arena[used : used + len(values)] = values
                part.table[layout.IN_LISTS + 4 * number + 3] = used - first_offset
                used += len(values)
            found = kernel("fill_inputs")(
                address(part.table),
                part.row_count,
                address(rows) + layout.INPUT_BYTES * first,
            )
            longest = max(longest, found)
            first += part.row_count
        return longest


def partition_inputs(records: RecordColumns, topics: UuidNumbers, directories: UuidNumbers) -> PartitionInputs:
    """Reads both record types of a window; unknown topics and directories get new numbers."""
    created = batches_of(records, PARTITION_RECORD)
    batches = created + batches_of(records, CHANGE_RECORD)
    parts = tuple(_part(batch, topics, directories) for batch in batches)
    return PartitionInputs(
        parts,
        sum(batch.num_rows for batch in created),
        sum(part.value_count for part in parts),
        _column(batches, "offset", np.int64),
        _column(batches, "leader_epoch", np.int32),
        _column(batches, "timestamp_ms", np.int64),
    )


def _column(batches: list[pa.RecordBatch], name: str, type_: Any) -> Any:
    parts = [batch.column(name).to_numpy(zero_copy_only=False) for batch in batches]
    return np.ascontiguousarray(np.concatenate(parts), type_) if parts else np.zeros(0, type_)


@dataclass(frozen=True, slots=True)
class _Part:
    """One record type of a window as the kernel reads it: `table` holds addresses in what `held` keeps alive.

    `values`: of each list column, the first offset and all values, which go into the arena.
    """

    table: Int64s
    row_count: int
    value_count: int
    values: dict[int, tuple[int, Int32s]]
    held: tuple[Any, ...]


def _part(batch: pa.RecordBatch, topics: UuidNumbers, directories: UuidNumbers) -> _Part:
    table = [0] * layout.IN_COLUMNS
    topic_numbers = topics.numbers(uuid_values(batch.column("topic_id")))
    table[layout.IN_TOPIC] = address(topic_numbers)
    held: list[Any] = [batch, topic_numbers]
    names = set(batch.schema.names)
    for cell, (name, type_, width_bytes) in _NUMBERS.items():
        if name in names:
            column = _of_type(batch.column(name), type_)
            held.append(column)
            table[cell] = column.buffers()[1].address + width_bytes * column.offset
    value_count = 0
    lists: dict[int, tuple[int, Int32s]] = {}
    for number, name in _LISTS.items():
        column = batch.column(name)
        validity, offsets, *content = column.buffers()
        first, end = _bounds(column, offsets)
        if number == layout.DIRECTORIES:
            values = directories.numbers(uuid_values(column.values.slice(first, end - first)))
        else:
            values = _int32s(column.values, content[-1], first, end)
        lists[number] = (first, values)
        at = layout.IN_LISTS + 4 * number
        table[at] = offsets.address + 4 * column.offset
        table[at + 1] = validity.address if validity is not None and column.null_count else 0
        table[at + 2] = column.offset
        value_count += end - first
    return _Part(np.array(table, np.int64), batch.num_rows, value_count, lists, tuple(held))


def _of_type(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


def _bounds(column: pa.ListArray, offsets: pa.Buffer) -> tuple[int, int]:
    """Where the values of a list column start and end among those that its array holds."""
    found = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return int(found[0]), int(found[-1])


def _int32s(values: pa.Array, content: pa.Buffer | None, first: int, end: int) -> Int32s:
    """Some values of an array of int32, whose last buffer is `content`, without a copy."""
    if first == end or content is None:
        return _NO_VALUES
    return np.frombuffer(content, np.int32, end - first, 4 * (values.offset + first))
