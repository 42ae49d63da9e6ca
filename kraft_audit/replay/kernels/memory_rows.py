"""Cells, lists and slots, as the partition kernels reach them."""

from __future__ import annotations

from kraft_audit.replay.kernels.layout import ARENA_AT
from kraft_codec.kernels.memory import inlined, load_int32, load_int64, store_int32, store_int64


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
def length_of_list(lists: int, number: int) -> int:
    """Length of a list; `lists` is where the row's list cells begin."""
    return load_int32(lists + 8 * number + 4)


@inlined
def is_in(block: int, lists: int, number: int, value: int) -> bool:
    """Whether a list holds a value."""
    start = slot(block, ARENA_AT) + 4 * load_int32(lists + 8 * number)
    for at in range(length_of_list(lists, number)):  # noqa: SIM110 (no generator in a kernel)
        if load_int32(start + 4 * at) == value:
            return True
    return False


@inlined
def element(block: int, lists: int, number: int, at: int) -> int:
    return load_int32(slot(block, ARENA_AT) + 4 * (load_int32(lists + 8 * number) + at))


@inlined
def missing_count(block: int, lists: int, number: int, other_lists: int, other_number: int) -> int:
    """How many elements of the first list the other one lacks."""
    count = 0
    for at in range(length_of_list(lists, number)):
        if not is_in(block, other_lists, other_number, element(block, lists, number, at)):
            count += 1
    return count


@inlined
def first_missing(block: int, lists: int, number: int, other_lists: int, other_number: int) -> int:
    """The first element of the first list that the other one lacks, or -1."""
    for at in range(length_of_list(lists, number)):
        value = element(block, lists, number, at)
        if not is_in(block, other_lists, other_number, value):
            return value
    return -1
