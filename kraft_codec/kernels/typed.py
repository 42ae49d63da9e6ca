"""The kernel behind `typed_columns`: record bodies of one type into Arrow's buffers, by programs of `typed_programs`.

Buffers are large enough for the worst case: a list's values take no more than the bytes that hold them. So what must be
checked is that no read leaves its record; nothing written can then leave its buffer.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    COLUMN_BYTES,
    DEFAULT_BYTES,
    END,
    FIND_TAGS,
    MARKS_BYTES,
    OP_BYTES,
    PUT_BOOL,
    PUT_INT8,
    PUT_INT16,
    PUT_INT32,
    PUT_INT64,
    PUT_LIST,
    PUT_LOOP,
    PUT_NEXT,
    PUT_TEXT,
    PUT_UINT16,
    PUT_UUID,
    SLOT_ABSENT,
    SLOTS_BYTES,
    TAGS_END,
)
from kraft_codec.kernels.memory import (
    copy_bytes,
    inlined,
    load_int8,
    load_int16_big,
    load_int32,
    load_int32_big,
    load_int64,
    load_int64_big,
    load_uint8,
    load_uint16_big,
    load_uint32_big,
    shared,
    store_int8,
    store_int16,
    store_int32,
    store_int64,
)
from kraft_codec.kernels.tags import find_tags
from kraft_codec.kernels.varints import length_of, unsigned_varint

_BROKEN = -1


@inlined
def _put_fixed(kind: int, source: int, remaining: int, values: int, index: int) -> int:
    """One fixed-width value as column value `index`; returns its width in the record, -1 where it does not fit."""
    if kind == PUT_INT32:
        if remaining < 4:
            return _BROKEN
        store_int32(values + 4 * index, load_int32_big(source))
        return 4
    if kind == PUT_UUID:
        if remaining < 16:
            return _BROKEN
        store_int64(values + 16 * index, load_int64(source))
        store_int64(values + 16 * index + 8, load_int64(source + 8))
        return 16
    if kind == PUT_INT8:
        if remaining < 1:
            return _BROKEN
        store_int8(values + index, load_int8(source))
        return 1
    if kind == PUT_INT64:
        if remaining < 8:
            return _BROKEN
        store_int64(values + 8 * index, load_int64_big(source))
        return 8
    if kind == PUT_INT16:
        if remaining < 2:
            return _BROKEN
        store_int16(values + 2 * index, load_int16_big(source))
        return 2
    if kind == PUT_UINT16:
        if remaining < 2:
            return _BROKEN
        store_int32(values + 4 * index, load_uint16_big(source))
        return 2
    if kind == PUT_BOOL:
        if remaining < 1:
            return _BROKEN
        store_int8(values + index, 1 if load_uint8(source) != 0 else 0)
        return 1
    if remaining < 4:
        return _BROKEN
    store_int64(values + 8 * index, load_uint32_big(source))
    return 4


@inlined
def _add_validity(column: int, index: int, is_null: bool) -> int:
    """Counts a null, or sets the bit that says there is a value; columns without nulls have no such bits."""
    validity = load_int64(column + 16)
    if is_null:
        store_int64(column + 32, load_int64(column + 32) + 1)
    elif validity != 0:
        byte = validity + (index >> 3)
        store_int8(byte, load_uint8(byte) | (1 << (index & 7)))
    return validity


@inlined
def _put_text(base: int, position: int, end: int, column: int, index: int) -> int:
    """A string or bytes; returns the position behind it, -1 where it does not fit."""
    raw, after = unsigned_varint(base, position, end)
    length = length_of(raw)
    if after < 0 or length > end - after:
        return _BROKEN
    _add_validity(column, index, length < 0)
    length = max(length, 0)
    used = load_int64(column + 40)
    copy_bytes(load_int64(column) + used, base + after, length)
    store_int64(column + 40, used + length)
    store_int32(load_int64(column + 8) + 4 * index + 4, used + length)
    return after + length


@inlined
def _put_count(base: int, position: int, end: int, column: int, index: int, width: int) -> tuple[int, int]:
    """A list's length into its column: (position of the first element, or -1; count)."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or count * width > end - after:
        return _BROKEN, 0
    _add_validity(column, index, count < 0)
    count = max(count, 0)
    offsets = load_int64(column + 8) + 4 * index
    store_int32(offsets + 4, load_int32(offsets) + count)
    return after, count


@inlined
def _put_list(base: int, position: int, end: int, instruction: int, column: int, index: int, table: int) -> int:
    """Numbers or uuids. Arguments: column, column of the values, kind, width. Returns the position behind, or -1."""
    width = load_int32(instruction + 16)
    after, count = _put_count(base, position, end, column, index, width)
    if after < 0:
        return _BROKEN
    values = table + COLUMN_BYTES * load_int32(instruction + 8)
    kind = load_int32(instruction + 12)
    first = load_int64(values + 24)
    address = load_int64(values)
    store_int64(values + 24, first + count)
    source = base + after
    if kind == PUT_INT32:
        for at in range(count):
            store_int32(address + 4 * (first + at), load_int32_big(source + 4 * at))
    elif kind == PUT_UUID:
        for at in range(count):
            store_int64(address + 16 * (first + at), load_int64(source + 16 * at))
            store_int64(address + 16 * (first + at) + 8, load_int64(source + 16 * at + 8))
    else:
        for at in range(count):
            _put_fixed(kind, source + width * at, width, address, first + at)
    return after + count * width


@shared
def _put_body(
    base: int,
    position: int,
    end: int,
    row: int,
    program: int,
    walk_program: int,
    frames: int,
    slots: int,
    marks: int,
    table: int,
) -> int:
    """Puts one body's fields into the columns; returns the position behind it, -1 where it is broken."""
    while True:
        instruction = program + OP_BYTES * row
        op = load_int32(instruction)
        row += 1
        if op >= PUT_INT8 and op != PUT_NEXT:
            column = table + COLUMN_BYTES * load_int32(instruction + 4)
            index = load_int64(column + 24)
            store_int64(column + 24, index + 1)
            slot = load_int32(instruction + 24)
            origin = base
            at = position
            limit = end
            if slot != 0:
                at = load_int64(slots + 8 * slot)
                if at < 0:
                    origin = 0
                    at = program + load_int32(instruction + 28)
                    limit = at + DEFAULT_BYTES
            if op <= PUT_UUID:
                width = _put_fixed(op, origin + at, limit - at, load_int64(column), index)
                at = at + width if width > 0 else _BROKEN
            elif op == PUT_LIST:
                at = _put_list(origin, at, limit, instruction, column, index, table)
            elif op == PUT_TEXT:
                at = _put_text(origin, at, limit, column, index)
            else:
                at, count = _put_count(origin, at, limit, column, index, 1)
                if count > 0:
                    frames += 16
                    store_int64(frames, count)
                    store_int64(frames + 8, row)
                else:
                    row = load_int32(instruction + 8)
            if at == _BROKEN:
                return _BROKEN
            # The value of a tagged field stands apart, but for a list's elements, which follow it.
            if slot == 0 or op == PUT_LOOP:
                position = at
        elif op == FIND_TAGS:
            position = find_tags(base, position, end, instruction, program, slots, walk_program, frames + 16, marks)
            if position < 0:
                return _BROKEN
            store_int64(slots + 8 * (load_int32(instruction + 4) + load_int32(instruction + 8)), position)
        elif op == PUT_NEXT:
            remaining = load_int64(frames) - 1
            store_int64(frames, remaining)
            if remaining > 0:
                row = load_int64(frames + 8)
            else:
                frames -= 16
        elif op == TAGS_END:
            position = load_int64(slots + 8 * load_int32(instruction + 4))
        elif op == END:
            return position


def fill_columns(
    base: int,
    rows: int,
    row_count: int,
    records: int,
    program_rows: int,
    program: int,
    walk_program: int,
    scratch: int,
    table: int,
) -> int:
    """Appends the bodies of `rows` to the columns of `table` (`codes.COLUMN_BYTES` each).

    `records` are the addresses of version, body position, value position, value length; `program_rows` has the first
    row of each version's program, from version 0 on. Returns row_count, or -1 - n at the nth row, which is broken.
    """
    slots = scratch + MARKS_BYTES
    frames = slots + SLOTS_BYTES
    store_int64(slots + 8 * SLOT_ABSENT, -1)
    for number in range(row_count):
        row = load_int64(rows + 8 * number)
        version = load_int32(load_int64(records) + 4 * row)
        position = load_int64(load_int64(records + 8) + 8 * row)
        end = load_int64(load_int64(records + 16) + 8 * row) + load_int32(load_int64(records + 24) + 4 * row)
        first = load_int32(program_rows + 4 * version)
        if _put_body(base, position, end, first, program, walk_program, frames, slots, scratch, table) < 0:
            return -1 - number
    return row_count
