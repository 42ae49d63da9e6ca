"""Cells, lists and slots, as the partition kernels reach them."""

from __future__ import annotations

from kraft_audit.replay.kernels.layout import ARENA_AT, SHORT_LIST
from kraft_codec.kernels.memory import inlined, load_int32, load_int64, shared, store_int32, store_int64

NO_VALUE = 1 << 40
"""No int32."""


@inlined
def slot(block: int, number: int) -> int:
    """A slot of the control block."""
    return load_int64(block + 8 * number)


@inlined
def set_slot(block: int, number: int, value: int) -> None:
    store_int64(block + 8 * number, value)


@inlined
def cell(row: int, number: int) -> int:
    """A cell of the row at an address."""
    return load_int32(row + 4 * number)


@inlined
def set_cell(row: int, number: int, value: int) -> None:
    store_int32(row + 4 * number, value)


@inlined
def set_pair(row: int, number: int, first: int, second: int) -> None:
    """Two cells that stand side by side, as one word."""
    store_int64(row + 4 * number, (second << 32) | (first & 0xFFFFFFFF))


@inlined
def length_of_list(lists: int, number: int) -> int:
    """Length of a list; `lists` is where the row's list cells begin."""
    return load_int32(lists + 8 * number + 4)


@inlined
def start_of_list(block: int, lists: int, number: int) -> int:
    """The address of a list's first value. Four may be read there, however long the list is."""
    return slot(block, ARENA_AT) + 4 * load_int32(lists + 8 * number)


@inlined
def element(block: int, lists: int, number: int, at: int) -> int:
    return load_int32(start_of_list(block, lists, number) + 4 * at)


@inlined
def _value_within(start: int, at: int, length: int) -> int:
    """An element, or what no element is where the list is shorter."""
    value = load_int32(start + 4 * at)
    return value if at < length else NO_VALUE


@inlined
def is_in(block: int, lists: int, number: int, value: int) -> bool:
    """Whether a list holds a value."""
    start = start_of_list(block, lists, number)
    for at in range(length_of_list(lists, number)):  # noqa: SIM110 (no generator in a kernel)
        if load_int32(start + 4 * at) == value:
            return True
    return False


@shared
def _missing_of_many(block: int, lists: int, number: int, other_lists: int, other_number: int) -> tuple[int, int]:
    count = 0
    first = -1
    for at in range(length_of_list(lists, number)):
        value = element(block, lists, number, at)
        if not is_in(block, other_lists, other_number, value):
            first = value if count == 0 else first
            count += 1
    return count, first


@inlined
def _is_none_of(value: int, first: int, second: int, third: int, fourth: int) -> bool:
    return (value != NO_VALUE) & (value != first) & (value != second) & (value != third) & (value != fourth)


@inlined
def missing(block: int, lists: int, number: int, other_lists: int, other_number: int) -> tuple[int, int]:
    """How many elements of the first list the other one lacks, and the first of them (-1 where it lacks none).

    Nearly all lists are of a few brokers: to compare with four costs less than loops whose ends are guessed wrongly.
    """
    start = start_of_list(block, lists, number)
    length = length_of_list(lists, number)
    other = start_of_list(block, other_lists, other_number)
    other_length = length_of_list(other_lists, other_number)
    if length > SHORT_LIST or other_length > SHORT_LIST:
        return _missing_of_many(block, lists, number, other_lists, other_number)
    first = _value_within(other, 0, other_length)
    second = _value_within(other, 1, other_length)
    third = _value_within(other, 2, other_length)
    fourth = _value_within(other, 3, other_length)
    count = 0
    found = -1
    for before in range(SHORT_LIST):
        value = _value_within(start, SHORT_LIST - 1 - before, length)
        is_missing = _is_none_of(value, first, second, third, fourth)
        count += 1 if is_missing else 0
        found = value if is_missing else found
    return count, found
