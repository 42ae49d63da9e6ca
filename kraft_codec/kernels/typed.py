"""The kernel behind `typed_columns`: record bodies of one type into Arrow's buffers, by programs of `typed_programs`.

Values are put at an index: the record's number, or the element's place among all of its list. The offsets of a list or
text say where its values start, so a tag that comes twice simply overwrites. A field that records may lack costs
nothing where it is missing: fixed-width columns hold the default from the start, and the offsets of others are filled
up to the next record that has one (by the caller behind the last).

Buffers are large enough for the worst case: values take no more than the bytes that hold them. So what must be checked
is that no read leaves its record; nothing written can then leave its buffer.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    COLUMN_BYTES,
    DEFAULT_BYTES,
    END,
    OP_BYTES,
    PUT_BOOL,
    PUT_INT8,
    PUT_INT16,
    PUT_INT32,
    PUT_INT64,
    PUT_LIST,
    PUT_LOOP,
    PUT_NEXT,
    PUT_NEXT_TAG,
    PUT_TAGS,
    PUT_TEXT,
    PUT_UINT16,
    PUT_UUID,
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
    prefetch,
    shared,
    store_int8,
    store_int16,
    store_int32,
    store_int64,
)
from kraft_codec.kernels.varints import length_of, unsigned_varint

_BROKEN = -1
_AHEAD = 8
"""Records; half and twice as many do as well."""
_LINE_BYTES = 64
"""Of the cache. Most bodies end within two."""


@inlined
def _put_fixed(kind: int, source: int, remaining: int, values: int, index: int) -> int:
    """One fixed-width value; returns its width in the record, -1 where it does not fit."""
    if kind == PUT_INT32:
        width = 4
        if remaining >= 4:
            store_int32(values + 4 * index, load_int32_big(source))
    elif kind == PUT_UUID:
        width = 16
        if remaining >= 16:
            store_int64(values + 16 * index, load_int64(source))
            store_int64(values + 16 * index + 8, load_int64(source + 8))
    elif kind == PUT_INT8:
        width = 1
        if remaining >= 1:
            store_int8(values + index, load_int8(source))
    elif kind == PUT_INT64:
        width = 8
        if remaining >= 8:
            store_int64(values + 8 * index, load_int64_big(source))
    elif kind == PUT_INT16:
        width = 2
        if remaining >= 2:
            store_int16(values + 2 * index, load_int16_big(source))
    elif kind == PUT_UINT16:
        width = 2
        if remaining >= 2:
            store_int32(values + 4 * index, load_uint16_big(source))
    elif kind == PUT_BOOL:
        width = 1
        if remaining >= 1:
            store_int8(values + index, 1 if load_uint8(source) != 0 else 0)
    else:
        width = 4
        if remaining >= 4:
            store_int64(values + 8 * index, load_uint32_big(source))
    return width if remaining >= width else _BROKEN


@inlined
def _start(instruction: int, column: int, index: int) -> int:
    """Where the values of a list or text start, after its missing ones before were given no values."""
    offsets = load_int64(column + 8)
    if load_int32(instruction + 24):
        filled = load_int64(column + 24)
        last = load_int32(offsets + 4 * filled)
        while filled < index:
            filled += 1
            store_int32(offsets + 4 * filled, last)
        store_int64(column + 24, index + 1)
        if filled == index:
            return last
    return load_int32(offsets + 4 * index)


@inlined
def _put_end(column: int, index: int, start: int, count: int) -> int:
    """Says where the values end (the number of them is negative for null), and whether there are any to be had."""
    store_int32(load_int64(column + 8) + 4 * index + 4, start + max(count, 0))
    validity = load_int64(column + 16)
    if validity != 0:
        byte = validity + (index >> 3)
        bit = index & 7
        store_int8(byte, (load_uint8(byte) & ~(1 << bit)) | ((1 if count >= 0 else 0) << bit))
    return start


@inlined
def _put_text(base: int, position: int, end: int, instruction: int, column: int, index: int) -> int:
    """A string or bytes; returns the position behind it, -1 where it does not fit."""
    raw, after = unsigned_varint(base, position, end)
    length = length_of(raw)
    if after < 0 or length > end - after:
        return _BROKEN
    start = _start(instruction, column, index)
    _put_end(column, index, start, length)
    length = max(length, 0)
    copy_bytes(load_int64(column) + start, base + after, length)
    return after + length


@inlined
def _put_list(base: int, position: int, end: int, instruction: int, column: int, index: int, table: int) -> int:
    """Numbers or uuids. Arguments: column, column of the values, kind, width. Returns the position behind, or -1."""
    width = load_int32(instruction + 16)
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or count * width > end - after:
        return _BROKEN
    start = _start(instruction, column, index)
    _put_end(column, index, start, count)
    address = load_int64(table + COLUMN_BYTES * load_int32(instruction + 8))
    kind = load_int32(instruction + 12)
    source = base + after
    if kind == PUT_INT32:
        for at in range(count):
            store_int32(address + 4 * (start + at), load_int32_big(source + 4 * at))
    elif kind == PUT_UUID:
        for at in range(count):
            store_int64(address + 16 * (start + at), load_int64(source + 16 * at))
            store_int64(address + 16 * (start + at) + 8, load_int64(source + 16 * at + 8))
    else:
        for at in range(count):
            _put_fixed(kind, source + width * at, width, address, start + at)
    return after + max(count, 0) * width


@inlined
def _next_tag(base: int, position: int, end: int, instruction: int, program: int, frames: int) -> tuple[int, int]:
    """Passes unknown tagged fields. Returns the position of a known one's value, or behind the last, or -1; and the row
    where its program starts, or 0 behind the last. Arguments: row behind the tags, table size, distance of the table.
    """
    remaining = load_int64(frames)
    while remaining > 0:
        remaining -= 1
        tag, after = unsigned_varint(base, position, end)
        if after < 0:
            return _BROKEN, 0
        size_bytes, after = unsigned_varint(base, after, end)
        if after < 0:
            return _BROKEN, 0
        row = 0
        if 0 <= tag < load_int32(instruction + 8):
            row = load_int32(program + load_int32(instruction + 12) + 4 * tag)
        if row != 0:
            store_int64(frames, remaining)
            return after, row
        if size_bytes < 0 or size_bytes > end - after:
            return _BROKEN, 0
        position = after + size_bytes
    return position, 0


@inlined
def _enter_loop(
    base: int, position: int, end: int, instruction: int, column: int, row: int, index: int, frames: int
) -> tuple[int, int, int, int]:
    """The position, row, index and frame to go on with: the first element's, or behind a list of none."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or count > end - after:
        return _BROKEN, row, index, frames
    start = _start(instruction, column, index)
    _put_end(column, index, start, count)
    if count <= 0:
        return after, load_int32(instruction + 8), index, frames
    store_int64(frames + 32, count)
    store_int64(frames + 40, row)
    store_int64(frames + 48, index)
    return after, row, start, frames + 32


@inlined
def _next_element(row: int, index: int, frames: int) -> tuple[int, int, int]:
    """The row, index and frame to go on with behind an element."""
    remaining = load_int64(frames) - 1
    store_int64(frames, remaining)
    if remaining > 0:
        return load_int64(frames + 8), index + 1, frames
    return row, load_int64(frames + 16), frames - 32


@shared
def _put_body(base: int, position: int, end: int, row: int, index: int, program: int, frames: int, table: int) -> int:
    """Puts one body's fields into the columns at an index; returns the position behind it, -1 where it is broken."""
    while True:
        instruction = program + OP_BYTES * row
        op = load_int32(instruction)
        row += 1
        if op < PUT_LIST and op != END:
            column = table + COLUMN_BYTES * load_int32(instruction + 4)
            default = load_int32(instruction + 28)
            if default != 0:
                _put_fixed(op, program + default, DEFAULT_BYTES, load_int64(column), index)
                continue
            width = _put_fixed(op, base + position, end - position, load_int64(column), index)
            position = position + width if width > 0 else _BROKEN
        elif op in (PUT_LIST, PUT_TEXT):
            column = table + COLUMN_BYTES * load_int32(instruction + 4)
            default = load_int32(instruction + 28)
            if default != 0:
                _put_end(column, index, _start(instruction, column, index), load_uint8(program + default) - 1)
            elif op == PUT_LIST:
                position = _put_list(base, position, end, instruction, column, index, table)
            else:
                position = _put_text(base, position, end, instruction, column, index)
        elif op in (PUT_TAGS, PUT_NEXT_TAG):
            if op == PUT_TAGS:
                count, position = unsigned_varint(base, position, end)
                frames += 32
                store_int64(frames, count if position >= 0 else 0)
            position, row = _next_tag(base, position, end, instruction, program, frames)
            if row == 0:
                row = load_int32(instruction + 4)
                frames -= 32
        elif op == PUT_LOOP:
            column = table + COLUMN_BYTES * load_int32(instruction + 4)
            position, row, index, frames = _enter_loop(base, position, end, instruction, column, row, index, frames)
        elif op == PUT_NEXT:
            row, index, frames = _next_element(row, index, frames)
        else:
            return position
        if position < 0:
            return _BROKEN


@inlined
def _put_envelope(records: int, row: int, envelope: int, number: int) -> int:
    """Offset, leader epoch, timestamp, base offset, version and the count of unknown tagged fields of one record.

    Read from offset, timestamp, batch row, unknown tag count of records, then leader epoch and base offset of batches.
    """
    batch = load_int64(load_int64(records + 48) + 8 * row)
    store_int64(load_int64(envelope) + 8 * number, load_int64(load_int64(records + 32) + 8 * row))
    store_int32(load_int64(envelope + 8) + 4 * number, load_int32(load_int64(records + 64) + 4 * batch))
    store_int64(load_int64(envelope + 16) + 8 * number, load_int64(load_int64(records + 40) + 8 * row))
    store_int64(load_int64(envelope + 24) + 8 * number, load_int64(load_int64(records + 72) + 8 * batch))
    store_int32(load_int64(envelope + 32) + 4 * number, load_int32(load_int64(records) + 4 * row))
    store_int32(load_int64(envelope + 40) + 4 * number, load_int32(load_int64(records + 56) + 4 * row))
    return number


@inlined
def _ask_ahead(base: int, rows: int, row_count: int, records: int, number: int) -> int:
    """Asks for what later records need: where types alternate, those of one type stand apart, and no processor guesses.

    What the index says of a record is asked first; that of half as far ahead is there and tells its body and batch.
    """
    row = load_int64(rows + 8 * min(number + 2 * _AHEAD, row_count - 1))
    prefetch(load_int64(records) + 4 * row)
    prefetch(load_int64(records + 8) + 8 * row)
    prefetch(load_int64(records + 16) + 8 * row)
    prefetch(load_int64(records + 24) + 4 * row)
    prefetch(load_int64(records + 32) + 8 * row)
    prefetch(load_int64(records + 40) + 8 * row)
    prefetch(load_int64(records + 48) + 8 * row)
    prefetch(load_int64(records + 56) + 4 * row)
    row = load_int64(rows + 8 * min(number + _AHEAD, row_count - 1))
    body = base + load_int64(load_int64(records + 8) + 8 * row)
    prefetch(body)
    prefetch(body + _LINE_BYTES)
    batch = load_int64(load_int64(records + 48) + 8 * row)
    prefetch(load_int64(records + 64) + 4 * batch)
    prefetch(load_int64(records + 72) + 8 * batch)
    return number


def fill_columns(
    base: int,
    rows: int,
    row_count: int,
    records: int,
    program_rows: int,
    program: int,
    scratch: int,
    table: int,
    envelope: int,
) -> int:
    """Puts the bodies of `rows` into the columns of `table` (`codes.COLUMN_BYTES` each), from index 0 on.

    `records` are the addresses of version, body position, value position, value length, and of what `_put_envelope`
    reads; `envelope` of what it writes. `program_rows` has the first row of each version's program, from version 0 on.
    Returns row_count, or -1 - n at the nth row, which is broken.
    """
    for number in range(row_count):
        _ask_ahead(base, rows, row_count, records, number)
        row = load_int64(rows + 8 * number)
        version = load_int32(load_int64(records) + 4 * row)
        _put_envelope(records, row, envelope, number)
        position = load_int64(load_int64(records + 8) + 8 * row)
        end = load_int64(load_int64(records + 16) + 8 * row) + load_int32(load_int64(records + 24) + 4 * row)
        first = load_int32(program_rows + 4 * version)
        if _put_body(base, position, end, first, number, program, scratch, table) < 0:
            return -1 - number
    return row_count
