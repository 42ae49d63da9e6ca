"""Where the partition kernels find slots, rows, cells and lists: their only arithmetic with addresses."""

from __future__ import annotations

from kraft_audit.replay.kernels import layout
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared

NO_VALUE = 1 << 40
"""No int32."""


slot = memory.int64_at
"""slot(block, number): a slot of the control block."""
set_slot = memory.set_int64_at
cell = memory.int32_at
"""cell(row, number): a cell of the row at an address."""
set_cell = memory.set_int32_at


@inlined
def set_pair(row: int, number: int, first: int, second: int) -> None:
    """Two cells that stand side by side, as one word."""
    memory.store_int64(row + 4 * number, (second << 32) | (first & 0xFFFFFFFF))


@inlined
def partition_row(block: int, index: int) -> int:
    """The row of a partition's state."""
    return slot(block, layout.PARTITIONS_AT) + layout.PARTITION_BYTES * index


@inlined
def topic_row(block: int, topic: int) -> int:
    """The row of a topic."""
    return slot(block, layout.TOPICS_AT) + layout.TOPIC_BYTES * topic


@inlined
def output_row(block: int, number: int) -> int:
    """A row that comes out: a partition's state and what changed it."""
    return slot(block, layout.OUTPUT_AT) + layout.OUTPUT_BYTES * number


@inlined
def input_row(rows: int, number: int) -> int:
    """A row that goes in: the content of a PartitionRecord or PartitionChangeRecord."""
    return rows + layout.INPUT_BYTES * number


@inlined
def rare_event(table: int, number: int) -> int:
    """An event other than a partition's own record, in the input of the merge."""
    return slot(table, layout.MERGE_RARE) + layout.RARE_BYTES * number


@inlined
def state_lists(row: int) -> int:
    """Where the list cells of a partition's state begin."""
    return row + 4 * layout.LISTS


@inlined
def record_lists(record: int) -> int:
    """Where the list cells of an input row begin."""
    return record + 4 * layout.INPUT_LISTS


@inlined
def length_of_list(lists: int, number: int) -> int:
    """Length of a list; `lists` is where the row's list cells begin."""
    return cell(lists, 2 * number + 1)


@inlined
def values_from(values: int, start: int) -> int:
    """The address of the value at a place among int32 values."""
    return values + 4 * start


@inlined
def arena_values(block: int, start: int) -> int:
    """The address of the arena's value at a place."""
    return values_from(slot(block, layout.ARENA_AT), start)


@inlined
def start_of_list(block: int, lists: int, number: int) -> int:
    """The address of a list's first value. Four may be read there, however long the list is."""
    return arena_values(block, cell(lists, 2 * number))


@inlined
def element(block: int, lists: int, number: int, at: int) -> int:
    """A value of a list."""
    return cell(start_of_list(block, lists, number), at)


@inlined
def set_list(row: int, number: int, start: int, length: int) -> None:
    """Where a list of a partition's state stands in the arena, and its length."""
    set_pair(row, layout.LISTS + 2 * number, start, length)


@inlined
def context_cell(block: int, event: int, number: int) -> int:
    """A cell of an event's context."""
    return memory.column_int32(block, layout.CONTEXTS_AT, layout.CONTEXT_CELLS * event + number)


@inlined
def set_context_cell(block: int, event: int, number: int, value: int) -> None:
    memory.put_int32(block, layout.CONTEXTS_AT, layout.CONTEXT_CELLS * event + number, value)


@inlined
def _value_within(start: int, at: int, length: int) -> int:
    """A value of a list, or NO_VALUE where the list is shorter."""
    value = cell(start, at)
    return value if at < length else NO_VALUE


@inlined
def is_in(block: int, lists: int, number: int, value: int) -> bool:
    """Whether a list holds a value."""
    start = start_of_list(block, lists, number)
    for at in range(length_of_list(lists, number)):  # noqa: SIM110 (no generator in a kernel)
        if cell(start, at) == value:
            return True
    return False


@shared
def _missing_of_many(block: int, lists: int, number: int, second_lists: int, second_number: int) -> tuple[int, int]:
    count = 0
    first = -1
    for at in range(length_of_list(lists, number)):
        value = element(block, lists, number, at)
        if not is_in(block, second_lists, second_number, value):
            first = value if count == 0 else first
            count += 1
    return count, first


@inlined
def _is_none_of(value: int, first: int, second: int, third: int, fourth: int) -> bool:
    return (value != NO_VALUE) & (value != first) & (value != second) & (value != third) & (value != fourth)


@inlined
def missing(block: int, lists: int, number: int, second_lists: int, second_number: int) -> tuple[int, int]:
    """How many elements of the first list the second one lacks, and the first of them (-1 where it lacks none).

    Nearly all lists are of a few brokers: to compare with four costs less than loops whose ends are guessed wrongly.
    """
    start = start_of_list(block, lists, number)
    length = length_of_list(lists, number)
    second_start = start_of_list(block, second_lists, second_number)
    second_length = length_of_list(second_lists, second_number)
    if length > layout.SHORT_LIST or second_length > layout.SHORT_LIST:
        return _missing_of_many(block, lists, number, second_lists, second_number)
    first = _value_within(second_start, 0, second_length)
    second = _value_within(second_start, 1, second_length)
    third = _value_within(second_start, 2, second_length)
    fourth = _value_within(second_start, 3, second_length)
    count = 0
    first_missing = -1
    for before in range(layout.SHORT_LIST):
        value = _value_within(start, layout.SHORT_LIST - 1 - before, length)
        is_missing = _is_none_of(value, first, second, third, fourth)
        count += 1 if is_missing else 0
        first_missing = value if is_missing else first_missing
    return count, first_missing
