"""The kernel of `columns.typed_columns`: record bodies of one type into Arrow's buffers, by `typed_programs`.

Values are put at an index: the record's number, or the element's place among all of its list. The offsets of a list or
text say where its values start, so a tag that comes twice simply overwrites. A field that records may lack costs
nothing where it is missing: fixed-width columns hold the default from the start, and the offsets of others are filled
up to the next record that has one (after the last, by the caller).

Buffers are large enough for the worst case: values take no more than the bytes that hold them. So what must be checked
is that no read leaves its record; nothing written can then leave its buffer.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    COLUMN_FILLED,
    COLUMN_OFFSETS_AT,
    COLUMN_VALIDITY_AT,
    COLUMN_VALUES_AT,
    DEFAULT_BYTES,
    END,
    ENVELOPE_BASE_OFFSET,
    ENVELOPE_LEADER_EPOCH,
    ENVELOPE_OFFSET,
    ENVELOPE_TIMESTAMP_MS,
    ENVELOPE_UNKNOWN_TAG_COUNT,
    ENVELOPE_VERSION,
    FRAME_BYTES,
    FRAME_REMAINING,
    FRAME_ROW,
    FRAME_START,
    PUT_BOOL,
    PUT_COLUMN,
    PUT_DEFAULT_AT,
    PUT_ELEMENT_COLUMN,
    PUT_ELEMENT_KIND,
    PUT_ELEMENT_WIDTH,
    PUT_INT8,
    PUT_INT16,
    PUT_INT32,
    PUT_INT64,
    PUT_LIST,
    PUT_LOOP,
    PUT_LOOP_END_ROW,
    PUT_MAY_LAG,
    PUT_NEXT,
    PUT_NEXT_TAG,
    PUT_TAGS,
    PUT_TEXT,
    PUT_UINT16,
    PUT_UUID,
    TAGS_END_ROW,
    TAGS_SIZE,
    TAGS_TABLE_AT,
    TYPED_BASE_OFFSET,
    TYPED_BATCH_ROW,
    TYPED_BODY_POSITION,
    TYPED_LEADER_EPOCH,
    TYPED_OFFSET,
    TYPED_TIMESTAMP_MS,
    TYPED_UNKNOWN_TAG_COUNT,
    TYPED_VALUE_LENGTH,
    TYPED_VALUE_POSITION,
    TYPED_VERSION,
)
from kraft_codec.kernels.memory import (
    column_int32,
    column_int64,
    copy_bytes,
    field_column,
    inlined,
    instruction_at,
    int32_at,
    int32_big_at,
    int64_at,
    load_int8,
    load_int16_big,
    load_int32,
    load_int32_big,
    load_int64_big,
    load_uint8,
    load_uint16_big,
    load_uint32_big,
    prefetch,
    prefetch_int32,
    prefetch_int64,
    put_int32,
    put_int64,
    set_int8_at,
    set_int16_at,
    set_int32_at,
    set_int64_at,
    shared,
    uint8_at,
)
from kraft_codec.kernels.primitives import length_of, unsigned_varint

_BROKEN = -1
_RECORDS_AHEAD = 8
"""Half and twice as many do as well."""
_CACHE_LINE_BYTES = 64
"""Most bodies end within two."""


@inlined
def _copy_uuid(values: int, index: int, source: int, number: int) -> int:
    """Copies one of the uuids at `source` into a column of uuids."""
    set_int64_at(values, 2 * index, int64_at(source, 2 * number))
    return set_int64_at(values, 2 * index + 1, int64_at(source, 2 * number + 1))


@inlined
def _put_fixed(kind: int, source: int, remaining: int, values: int, index: int) -> int:
    """One fixed-width value; returns its width in the record, -1 where it does not fit."""
    if kind == PUT_INT32:
        width = 4
        if remaining >= 4:
            set_int32_at(values, index, load_int32_big(source))
    elif kind == PUT_UUID:
        width = 16
        if remaining >= 16:
            _copy_uuid(values, index, source, 0)
    elif kind == PUT_INT8:
        width = 1
        if remaining >= 1:
            set_int8_at(values, index, load_int8(source))
    elif kind == PUT_INT64:
        width = 8
        if remaining >= 8:
            set_int64_at(values, index, load_int64_big(source))
    elif kind == PUT_INT16:
        width = 2
        if remaining >= 2:
            set_int16_at(values, index, load_int16_big(source))
    elif kind == PUT_UINT16:
        width = 2
        if remaining >= 2:
            set_int32_at(values, index, load_uint16_big(source))
    elif kind == PUT_BOOL:
        width = 1
        if remaining >= 1:
            set_int8_at(values, index, 1 if load_uint8(source) != 0 else 0)
    else:
        width = 4
        if remaining >= 4:
            set_int64_at(values, index, load_uint32_big(source))
    return width if remaining >= width else _BROKEN


@inlined
def _start(instruction: int, column: int, index: int) -> int:
    """Where the values of a list or text start, after the missing ones of rows before were given no values."""
    offsets = int64_at(column, COLUMN_OFFSETS_AT)
    if int32_at(instruction, PUT_MAY_LAG):
        filled = int64_at(column, COLUMN_FILLED)
        last = int32_at(offsets, filled)
        while filled < index:
            filled += 1
            set_int32_at(offsets, filled, last)
        set_int64_at(column, COLUMN_FILLED, index + 1)
        if filled == index:
            return last
    return int32_at(offsets, index)


@inlined
def _put_end(column: int, index: int, start: int, count: int) -> int:
    """Writes where the values end (a negative count is null), and whether the list or text is valid."""
    set_int32_at(int64_at(column, COLUMN_OFFSETS_AT), index + 1, start + max(count, 0))
    validity = int64_at(column, COLUMN_VALIDITY_AT)
    if validity != 0:
        byte = index >> 3
        bit = index & 7
        set_int8_at(validity, byte, (uint8_at(validity, byte) & ~(1 << bit)) | ((1 if count >= 0 else 0) << bit))
    return start


@inlined
def _put_text(base: int, position: int, end: int, instruction: int, column: int, index: int) -> int:
    """A string or bytes; returns the position after it, -1 where it does not fit."""
    raw, after = unsigned_varint(base, position, end)
    length = length_of(raw)
    if after < 0 or length > end - after:
        return _BROKEN
    start = _start(instruction, column, index)
    _put_end(column, index, start, length)
    length = max(length, 0)
    copy_bytes(int64_at(column, COLUMN_VALUES_AT) + start, base + after, length)
    return after + length


@inlined
def _put_list(base: int, position: int, end: int, instruction: int, column: int, index: int, table: int) -> int:
    """A list of numbers or uuids; returns the position after it, -1 where it does not fit."""
    width = int32_at(instruction, PUT_ELEMENT_WIDTH)
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or count * width > end - after:
        return _BROKEN
    start = _start(instruction, column, index)
    _put_end(column, index, start, count)
    values = int64_at(field_column(table, int32_at(instruction, PUT_ELEMENT_COLUMN)), COLUMN_VALUES_AT)
    kind = int32_at(instruction, PUT_ELEMENT_KIND)
    source = base + after
    if kind == PUT_INT32:
        for number in range(count):
            set_int32_at(values, start + number, int32_big_at(source, number))
    elif kind == PUT_UUID:
        for number in range(count):
            _copy_uuid(values, start + number, source, number)
    else:
        for number in range(count):
            _put_fixed(kind, source + width * number, width, values, start + number)
    return after + max(count, 0) * width


@inlined
def _next_tag(base: int, position: int, end: int, instruction: int, program: int, frame: int) -> tuple[int, int]:
    """Passes unknown tagged fields. Returns the position of a known one's value, or after the last, or -1; and the row
    where its program starts, or 0 after the last.
    """
    remaining = int64_at(frame, FRAME_REMAINING)
    while remaining > 0:
        remaining -= 1
        tag, after = unsigned_varint(base, position, end)
        if after < 0:
            return _BROKEN, 0
        size_bytes, after = unsigned_varint(base, after, end)
        if after < 0:
            return _BROKEN, 0
        row = 0
        if 0 <= tag < int32_at(instruction, TAGS_SIZE):
            row = int32_at(program + int32_at(instruction, TAGS_TABLE_AT), tag)
        if row != 0:
            set_int64_at(frame, FRAME_REMAINING, remaining)
            return after, row
        if size_bytes < 0 or size_bytes > end - after:
            return _BROKEN, 0
        position = after + size_bytes
    return position, 0


@inlined
def _enter_loop(
    base: int, position: int, end: int, instruction: int, column: int, row: int, index: int, frame: int
) -> tuple[int, int, int, int]:
    """The position, row, index and frame to go on with: the first element's, or those after an empty list."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or count > end - after:
        return _BROKEN, row, index, frame
    start = _start(instruction, column, index)
    _put_end(column, index, start, count)
    if count <= 0:
        return after, int32_at(instruction, PUT_LOOP_END_ROW), index, frame
    frame += FRAME_BYTES
    set_int64_at(frame, FRAME_REMAINING, count)
    set_int64_at(frame, FRAME_ROW, row)
    set_int64_at(frame, FRAME_START, index)
    return after, row, start, frame


@inlined
def _next_element(row: int, index: int, frame: int) -> tuple[int, int, int]:
    """The row, index and frame to go on with after an element."""
    remaining = int64_at(frame, FRAME_REMAINING) - 1
    set_int64_at(frame, FRAME_REMAINING, remaining)
    if remaining > 0:
        return int64_at(frame, FRAME_ROW), index + 1, frame
    return row, int64_at(frame, FRAME_START), frame - FRAME_BYTES


@shared
def _put_body(base: int, position: int, end: int, row: int, index: int, program: int, frame: int, table: int) -> int:
    """Puts one body's fields into the columns at an index; returns the position after it, -1 where it is broken."""
    while True:
        instruction = instruction_at(program, row)
        op = load_int32(instruction)
        row += 1
        if op < PUT_LIST and op != END:
            column = field_column(table, int32_at(instruction, PUT_COLUMN))
            default = int32_at(instruction, PUT_DEFAULT_AT)
            if default != 0:
                _put_fixed(op, program + default, DEFAULT_BYTES, int64_at(column, COLUMN_VALUES_AT), index)
                continue
            width = _put_fixed(op, base + position, end - position, int64_at(column, COLUMN_VALUES_AT), index)
            position = position + width if width > 0 else _BROKEN
        elif op in (PUT_LIST, PUT_TEXT):
            column = field_column(table, int32_at(instruction, PUT_COLUMN))
            default = int32_at(instruction, PUT_DEFAULT_AT)
            if default != 0:
                _put_end(column, index, _start(instruction, column, index), load_uint8(program + default) - 1)
            elif op == PUT_LIST:
                position = _put_list(base, position, end, instruction, column, index, table)
            else:
                position = _put_text(base, position, end, instruction, column, index)
        elif op in (PUT_TAGS, PUT_NEXT_TAG):
            if op == PUT_TAGS:
                count, position = unsigned_varint(base, position, end)
                frame += FRAME_BYTES
                set_int64_at(frame, FRAME_REMAINING, count if position >= 0 else 0)
            position, row = _next_tag(base, position, end, instruction, program, frame)
            if row == 0:
                row = int32_at(instruction, TAGS_END_ROW)
                frame -= FRAME_BYTES
        elif op == PUT_LOOP:
            column = field_column(table, int32_at(instruction, PUT_COLUMN))
            position, row, index, frame = _enter_loop(base, position, end, instruction, column, row, index, frame)
        elif op == PUT_NEXT:
            row, index, frame = _next_element(row, index, frame)
        else:
            return position
        if position < 0:
            return _BROKEN


@inlined
def _put_envelope(records: int, row: int, envelope: int, number: int) -> int:
    """What the index says of one record, beside its fields."""
    batch = column_int64(records, TYPED_BATCH_ROW, row)
    put_int64(envelope, ENVELOPE_OFFSET, number, column_int64(records, TYPED_OFFSET, row))
    put_int32(envelope, ENVELOPE_LEADER_EPOCH, number, column_int32(records, TYPED_LEADER_EPOCH, batch))
    put_int64(envelope, ENVELOPE_TIMESTAMP_MS, number, column_int64(records, TYPED_TIMESTAMP_MS, row))
    put_int64(envelope, ENVELOPE_BASE_OFFSET, number, column_int64(records, TYPED_BASE_OFFSET, batch))
    put_int32(envelope, ENVELOPE_VERSION, number, column_int32(records, TYPED_VERSION, row))
    unknown_tag_count = column_int32(records, TYPED_UNKNOWN_TAG_COUNT, row)
    put_int32(envelope, ENVELOPE_UNKNOWN_TAG_COUNT, number, unknown_tag_count)
    return number


@inlined
def _prefetch_ahead(base: int, rows: int, row_count: int, records: int, number: int) -> int:
    """Prefetches what later records need: where types alternate, those of one type stand apart in memory.

    The index's row of a record comes first. For the record half as far ahead that row has arrived, and says where its
    body and its batch are.
    """
    row = int64_at(rows, min(number + 2 * _RECORDS_AHEAD, row_count - 1))
    prefetch_int32(records, TYPED_VERSION, row)
    prefetch_int64(records, TYPED_BODY_POSITION, row)
    prefetch_int64(records, TYPED_VALUE_POSITION, row)
    prefetch_int32(records, TYPED_VALUE_LENGTH, row)
    prefetch_int64(records, TYPED_OFFSET, row)
    prefetch_int64(records, TYPED_TIMESTAMP_MS, row)
    prefetch_int64(records, TYPED_BATCH_ROW, row)
    prefetch_int32(records, TYPED_UNKNOWN_TAG_COUNT, row)
    row = int64_at(rows, min(number + _RECORDS_AHEAD, row_count - 1))
    body = base + column_int64(records, TYPED_BODY_POSITION, row)
    prefetch(body)
    prefetch(body + _CACHE_LINE_BYTES)
    batch = column_int64(records, TYPED_BATCH_ROW, row)
    prefetch_int32(records, TYPED_LEADER_EPOCH, batch)
    prefetch_int64(records, TYPED_BASE_OFFSET, batch)
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
    """Puts the bodies of `rows` into the columns of `table`, from index 0 on.

    `records` are the columns of `codes.TYPED_…`, `envelope` those of `codes.ENVELOPE_…`, and `table` has the cells of
    `codes.COLUMN_…` for each column of fields. `program_rows` has the first row of each version's program, from version
    0 on. Returns row_count, or -1 - n at the nth row, which is broken.
    """
    for number in range(row_count):
        _prefetch_ahead(base, rows, row_count, records, number)
        row = int64_at(rows, number)
        _put_envelope(records, row, envelope, number)
        position = column_int64(records, TYPED_BODY_POSITION, row)
        end = column_int64(records, TYPED_VALUE_POSITION, row) + column_int32(records, TYPED_VALUE_LENGTH, row)
        program_row = int32_at(program_rows, column_int32(records, TYPED_VERSION, row))
        if _put_body(base, position, end, program_row, number, program, scratch, table) < 0:
            return -1 - number
    return row_count
