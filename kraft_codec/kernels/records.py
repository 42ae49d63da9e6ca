"""The kernel behind `index_records`: record framing, envelope, type, version, and a sound body, batch by batch."""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BAD_COMPRESSION,
    BAD_RECORD,
    BATCH_HEADER_BYTES,
    FIELD_MARKS,
    MARKS_BYTES,
    NO_SPACE,
    OK,
    RECORD_BYTES_MIN,
    UNKNOWN_CONTROL_TYPE,
    UNKNOWN_FRAME_VERSION,
    UNKNOWN_RECORD_TYPE,
    UNKNOWN_RECORD_VERSION,
)
from kraft_codec.kernels.memory import (
    inlined,
    load_int16,
    load_int16_big,
    load_int32,
    load_int32_big,
    load_int64,
    load_int64_big,
    load_uint8,
    shared,
    store_int8,
    store_int16,
    store_int32,
    store_int64,
)
from kraft_codec.kernels.varints import unsigned_varint, varint, varint_status, varlong
from kraft_codec.kernels.walk import walk

TYPES_PER_KIND = 256
"""The directory of programs: entry = type, or 256 + type for control records: first version, last version, where its
row numbers start; no versions where the type is unknown."""


@inlined
def _bytes_field(base: int, position: int, end: int) -> tuple[int, int, int]:
    """A key or value: (length, or -1 for null; its position, or that of the error; status)."""
    length, start = varint(base, position, end)
    if start < 0:
        return 0, position, varint_status(start)
    if length < 0:
        return -1, start, OK
    if length > end - start:
        return 0, position, BAD_RECORD
    return length, start, OK


@shared
def _skip_headers(base: int, position: int, end: int) -> tuple[int, int]:
    count, at = varint(base, position, end)
    if at < 0:
        return varint_status(at), position
    if count < 0 or count > end - at:
        return BAD_RECORD, position
    for _ in range(count):
        length, start, status = _bytes_field(base, at, end)
        if status != OK:
            return status, start
        if length < 0:
            return BAD_RECORD, at
        length, start, status = _bytes_field(base, start + length, end)
        if status != OK:
            return status, start
        at = start + max(length, 0)
    return OK, at


@inlined
def _frame(base: int, start: int, limit: int, row: int, header: int, columns: int) -> tuple[int, int]:
    """Reads one record's framing into its row: (OK, position behind it) or (status, position of the error)."""
    length, position = varint(base, start, limit)
    if position < 0:
        return varint_status(position), start
    if length < 0 or length > limit - position:
        return BAD_RECORD, start
    end = position + length
    if length == 0:
        return BAD_RECORD, position
    timestamp_delta, after = varlong(base, position + 1, end)
    if after < 0:
        return varint_status(after), position + 1
    position = after
    offset_delta, after = varint(base, position, end)
    if after < 0:
        return varint_status(after), position
    key_length, key_position, status = _bytes_field(base, after, end)
    if status != OK:
        return status, key_position
    value_length, value_position, status = _bytes_field(base, key_position + max(key_length, 0), end)
    if status != OK:
        return status, value_position
    position = value_position + max(value_length, 0)
    if position + 1 == end and load_uint8(base + position) == 0:
        position = end
    else:
        status, position = _skip_headers(base, position, end)
        if status != OK:
            return status, position
        if position != end:
            return BAD_RECORD, position
    is_append_time = load_int16_big(header + 21) & 0x08
    timestamp_ms = load_int64_big(header + 35) if is_append_time else load_int64_big(header + 27) + timestamp_delta
    store_int64(load_int64(columns + 8) + 8 * row, load_int64_big(header) + offset_delta)
    store_int64(load_int64(columns + 16) + 8 * row, timestamp_ms)
    store_int64(load_int64(columns + 56) + 8 * row, start if key_length < 0 else key_position)
    store_int32(load_int64(columns + 64) + 4 * row, key_length)
    store_int64(load_int64(columns + 72) + 8 * row, start if value_length < 0 else value_position)
    store_int32(load_int64(columns + 80) + 4 * row, value_length)
    return OK, end


@inlined
def program_of(directory: int, entry: int, version: int) -> int:
    """The program's first row, or the negative status of a record that stays undecoded."""
    versions = directory + 12 * entry
    last = load_int32(versions + 4)
    if last < 0:
        return -UNKNOWN_RECORD_TYPE
    first = load_int32(versions)
    if version < first or version > last:
        return -UNKNOWN_RECORD_VERSION
    return load_int32(directory + 4 * (load_int32(versions + 8) + version - first))


@inlined
def _data_type(base: int, position: int, end: int, directory: int) -> tuple[int, int, int, int, int]:
    """(status, position, api key, version, program or negative status) of a data record's value."""
    frame_version, at = unsigned_varint(base, position, end)
    if at < 0:
        return varint_status(at), position, -1, -1, 0
    if frame_version != 1:
        return OK, position, -1, -1, -UNKNOWN_FRAME_VERSION
    api_key, after = unsigned_varint(base, at, end)
    if after < 0:
        return varint_status(after), at, -1, -1, 0
    version, body = unsigned_varint(base, after, end)
    if body < 0:
        return varint_status(body), after, -1, -1, 0
    if api_key < 0 or api_key >= TYPES_PER_KIND:
        return OK, body, api_key, version, -UNKNOWN_RECORD_TYPE
    return OK, body, api_key, version, program_of(directory, api_key, version)


@inlined
def _control_type(base: int, row: int, columns: int, directory: int) -> tuple[int, int, int, int, int]:
    """The same of a control record, whose key holds the type."""
    key_position = load_int64(load_int64(columns + 56) + 8 * row)
    value_position = load_int64(load_int64(columns + 72) + 8 * row)
    if load_int32(load_int64(columns + 64) + 4 * row) < 4 or load_int16_big(base + key_position) < 0:
        return BAD_RECORD, key_position, -1, -1, 0
    number = load_int16_big(base + key_position + 2)
    if number < 0 or number >= TYPES_PER_KIND or load_int32(directory + 12 * (TYPES_PER_KIND + number) + 4) < 0:
        return OK, value_position, number, -1, -UNKNOWN_CONTROL_TYPE
    version = load_int32(directory + 12 * (TYPES_PER_KIND + number))
    return OK, value_position, number, version, program_of(directory, TYPES_PER_KIND + number, version)


@inlined
def _body(
    base: int, start: int, row: int, is_control: int, columns: int, directory: int, program: int, scratch: int
) -> tuple[int, int]:
    """Type, version and body of a framed record into its row: (OK, …) or (status, position of the error)."""
    position = load_int64(load_int64(columns + 72) + 8 * row)
    length = load_int32(load_int64(columns + 80) + 4 * row)
    end = position + length
    if is_control:
        status, at, type_number, version, program_row = _control_type(base, row, columns, directory)
        if status == OK and length < 0 and program_row >= 0:
            return BAD_RECORD, start
    elif length < 0:
        return BAD_RECORD, start
    else:
        status, at, type_number, version, program_row = _data_type(base, position, end, directory)
    if status != OK:
        return status, at
    store_int8(load_int64(columns + 24) + row, is_control)
    store_int8(load_int64(columns + 32) + row, -program_row if program_row < 0 else OK)
    store_int32(load_int64(columns + 40) + 4 * row, type_number)
    store_int32(load_int64(columns + 48) + 4 * row, version)
    store_int64(load_int64(columns + 88) + 8 * row, at)
    store_int32(load_int64(columns + 96) + 4 * row, 0)
    kind = type_number + TYPES_PER_KIND * is_control
    store_int16(load_int64(columns + 104) + 2 * row, -1 if program_row < 0 else kind)
    if program_row < 0:
        return OK, at
    unknown_before = load_int64(scratch)
    status, at = walk(base, at, end, program_row, program, scratch + MARKS_BYTES, scratch)
    if status != OK:
        return status, at
    store_int32(load_int64(columns + 96) + 4 * row, load_int64(scratch) - unknown_before)
    if at != end and not is_control:
        return BAD_RECORD, at
    return OK, at


def index_records(
    base: int,
    batch_rows: int,
    batch_positions: int,
    batch_sizes: int,
    batch_count: int,
    columns: int,
    directory: int,
    program: int,
    scratch: int,
    verdicts: int,
    room: int,
) -> int:
    """Fills a row of `columns` (addresses, see `columns.RECORD_COLUMNS`) per record; returns the row count, or NO_SPACE
    where there are more rows than `room`.

    `batch_rows` has the number that each batch's records get. `verdicts` gets two int64 a batch: its status (its rows
    are left out where it is not OK) and the error's position.
    """
    row = 0
    for batch in range(batch_count):
        start = load_int64(batch_positions + 8 * batch)
        limit = start + load_int32(batch_sizes + 4 * batch)
        header = base + start
        attributes = load_int16_big(header + 21)
        is_control = (attributes >> 5) & 1
        count = load_int32_big(header + 57)
        position = start + BATCH_HEADER_BYTES
        status = OK
        at = position
        if attributes & 0x07:
            status, at, count = BAD_COMPRESSION, start + 21, 0
        elif count < 0 or count * RECORD_BYTES_MIN > limit - position:
            status, at, count = BAD_RECORD, start + 57, 0
        first_row = row
        for _ in range(count):
            if row == room:
                return NO_SPACE
            status, record_end = _frame(base, position, limit, row, header, columns)
            at = record_end
            if status == OK:
                store_int64(load_int64(columns) + 8 * row, load_int64(batch_rows + 8 * batch))
                status, at = _body(base, position, row, is_control, columns, directory, program, scratch)
            if status != OK:
                break
            position = record_end
            row += 1
        if status == OK and position != limit:
            status, at = BAD_RECORD, position
        if status != OK:
            row = first_row
        store_int64(verdicts + 16 * batch, status)
        store_int64(verdicts + 16 * batch + 8, at)
    return row


def group_rows(kinds: int, row_count: int, ends: int, rows: int, group_count: int) -> int:
    """Puts row numbers behind each other by kind (from -1 on), ascending within each; returns row_count.

    `kinds` has an int16 a row; `ends` gets for each kind where its rows end, and must be zero before.
    """
    for row in range(row_count):
        group = ends + 8 * (load_int16(kinds + 2 * row) + 1)
        store_int64(group, load_int64(group) + 1)
    start = 0
    for group in range(group_count):
        count = load_int64(ends + 8 * group)
        store_int64(ends + 8 * group, start)
        start += count
    for row in range(row_count):
        group = ends + 8 * (load_int16(kinds + 2 * row) + 1)
        place = load_int64(group)
        store_int64(rows + 8 * place, row)
        store_int64(group, place + 1)
    return row_count


def mark_fields(
    base: int,
    rows: int,
    row_count: int,
    columns: int,
    program_rows: int,
    program: int,
    scratch: int,
    mark_count: int,
    marks: int,
    tags: int,
    tags_room: int,
) -> int:
    """Notes where fields begin and where unknown tagged fields stand, in records that were checked before.

    `rows` are row numbers; `columns` the addresses of body position, value position, value length. `program_rows` has
    an int32 a row. `marks` gets mark_count int64 for each row, `tags` row, position and size of each unknown tagged
    field. Returns how many of those there are, or -1 where a record is no longer sound.
    """
    store_int64(scratch, 0)
    store_int64(scratch + 8, tags_room)
    store_int64(scratch + 16, tags)
    for number in range(row_count):
        row = load_int64(rows + 8 * number)
        store_int64(scratch + 24, row)
        position = load_int64(load_int64(columns) + 8 * row)
        end = load_int64(load_int64(columns + 8) + 8 * row) + load_int32(load_int64(columns + 16) + 4 * row)
        program_row = load_int32(program_rows + 4 * number)
        status, _ = walk(base, position, end, program_row, program, scratch + MARKS_BYTES, scratch)
        if status != OK:
            return -1
        for mark in range(mark_count):
            store_int64(marks + 8 * (number * mark_count + mark), load_int64(scratch + FIELD_MARKS + 8 * mark))
    return load_int64(scratch)
