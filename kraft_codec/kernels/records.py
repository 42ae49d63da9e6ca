"""The kernel of `columns.index_records`: record framing, envelope, type, version and a sound body, batch by batch.

Its siblings `group_rows` and `mark_fields` work on the rows that it fills.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BAD_COMPRESSION,
    BAD_RECORD,
    DIRECTORY_CELLS,
    DIRECTORY_FIRST_VERSION,
    DIRECTORY_LAST_VERSION,
    DIRECTORY_STARTS,
    FIRST_FIELD_MARK,
    MARK_BODY_POSITION,
    MARK_VALUE_LENGTH,
    MARK_VALUE_POSITION,
    MARKED_ROW,
    MARKS_BYTES,
    NO_SPACE,
    OK,
    RECORD_API_KEY,
    RECORD_BATCH_ROW,
    RECORD_BODY_POSITION,
    RECORD_IS_CONTROL,
    RECORD_KEY_LENGTH,
    RECORD_KEY_POSITION,
    RECORD_KIND,
    RECORD_OFFSET,
    RECORD_STATUS,
    RECORD_TIMESTAMP_MS,
    RECORD_UNKNOWN_TAG_COUNT,
    RECORD_VALUE_LENGTH,
    RECORD_VALUE_POSITION,
    RECORD_VERSION,
    TYPES_PER_KIND,
    UNKNOWN_CONTROL_TYPE,
    UNKNOWN_FRAME_VERSION,
    UNKNOWN_RECORD_TYPE,
    UNKNOWN_RECORD_VERSION,
    UNKNOWN_TAG_COUNT,
    UNKNOWN_TAG_ROOM,
    UNKNOWN_TAGS_AT,
)
from kraft_codec.kernels.memory import (
    batch_attributes,
    batch_base_offset,
    batch_base_timestamp_ms,
    batch_max_timestamp_ms,
    batch_record_count,
    column_int32,
    column_int64,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    load_int16_big,
    load_uint8,
    put_int8,
    put_int16,
    put_int32,
    put_int64,
    set_int64_at,
    shared,
)
from kraft_codec.kernels.primitives import unsigned_varint, varint, varint_status, varlong
from kraft_codec.kernels.walk import walk
from kraft_codec.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    RECORD_BYTES_MIN,
    RECORD_COUNT_POSITION,
)


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
def _frame(base: int, start: int, limit: int, row: int, batch: int, columns: int) -> tuple[int, int]:
    """Reads one record's framing into its row: (OK, position after it) or (status, position of the error)."""
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
    timestamp_ms = batch_base_timestamp_ms(batch) + timestamp_delta
    if batch_attributes(batch) & LOG_APPEND_TIME_BIT:
        timestamp_ms = batch_max_timestamp_ms(batch)
    put_int64(columns, RECORD_OFFSET, row, batch_base_offset(batch) + offset_delta)
    put_int64(columns, RECORD_TIMESTAMP_MS, row, timestamp_ms)
    put_int64(columns, RECORD_KEY_POSITION, row, start if key_length < 0 else key_position)
    put_int32(columns, RECORD_KEY_LENGTH, row, key_length)
    put_int64(columns, RECORD_VALUE_POSITION, row, start if value_length < 0 else value_position)
    put_int32(columns, RECORD_VALUE_LENGTH, row, value_length)
    return OK, end


@inlined
def _directory_cell(directory: int, entry: int, cell: int) -> int:
    return int32_at(directory, DIRECTORY_CELLS * entry + cell)


@inlined
def program_of(directory: int, entry: int, version: int) -> int:
    """The program's first row, or the negative status of a record that stays undecoded."""
    last = _directory_cell(directory, entry, DIRECTORY_LAST_VERSION)
    if last < 0:
        return -UNKNOWN_RECORD_TYPE
    first = _directory_cell(directory, entry, DIRECTORY_FIRST_VERSION)
    if version < first or version > last:
        return -UNKNOWN_RECORD_VERSION
    return int32_at(directory, _directory_cell(directory, entry, DIRECTORY_STARTS) + version - first)


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
    key_position = column_int64(columns, RECORD_KEY_POSITION, row)
    value_position = column_int64(columns, RECORD_VALUE_POSITION, row)
    # A control record's key: int16 version, int16 type.
    if column_int32(columns, RECORD_KEY_LENGTH, row) < 4 or load_int16_big(base + key_position) < 0:
        return BAD_RECORD, key_position, -1, -1, 0
    number = load_int16_big(base + key_position + 2)
    entry = TYPES_PER_KIND + number
    if number < 0 or number >= TYPES_PER_KIND or _directory_cell(directory, entry, DIRECTORY_LAST_VERSION) < 0:
        return OK, value_position, number, -1, -UNKNOWN_CONTROL_TYPE
    version = _directory_cell(directory, entry, DIRECTORY_FIRST_VERSION)
    return OK, value_position, number, version, program_of(directory, entry, version)


@inlined
def _body(
    base: int, start: int, row: int, is_control: int, columns: int, directory: int, program: int, scratch: int
) -> tuple[int, int]:
    """Type, version and body of a framed record into its row: (OK, …) or (status, position of the error)."""
    position = column_int64(columns, RECORD_VALUE_POSITION, row)
    length = column_int32(columns, RECORD_VALUE_LENGTH, row)
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
    put_int8(columns, RECORD_IS_CONTROL, row, is_control)
    put_int8(columns, RECORD_STATUS, row, -program_row if program_row < 0 else OK)
    put_int32(columns, RECORD_API_KEY, row, type_number)
    put_int32(columns, RECORD_VERSION, row, version)
    put_int64(columns, RECORD_BODY_POSITION, row, at)
    put_int32(columns, RECORD_UNKNOWN_TAG_COUNT, row, 0)
    kind = type_number + TYPES_PER_KIND * is_control
    put_int16(columns, RECORD_KIND, row, -1 if program_row < 0 else kind)
    if program_row < 0:
        return OK, at
    unknown_before = int64_at(scratch, UNKNOWN_TAG_COUNT)
    status, at = walk(base, at, end, program_row, program, scratch + MARKS_BYTES, scratch)
    if status != OK:
        return status, at
    put_int32(columns, RECORD_UNKNOWN_TAG_COUNT, row, int64_at(scratch, UNKNOWN_TAG_COUNT) - unknown_before)
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
    """Fills a row of `columns` per record; returns the row count, or NO_SPACE where there are more rows than `room`.

    `batch_rows` has the number that each batch's records get. `verdicts` gets two int64 a batch: its status (its rows
    are left out where it is not OK) and the error's position.
    """
    row = 0
    for number in range(batch_count):
        start = int64_at(batch_positions, number)
        limit = start + int32_at(batch_sizes, number)
        batch = base + start
        is_control = 1 if batch_attributes(batch) & CONTROL_BIT else 0
        count = batch_record_count(batch)
        position = start + HEADER_BYTES
        status = OK
        at = position
        if batch_attributes(batch) & CODEC_BITS:
            status, at, count = BAD_COMPRESSION, start + ATTRIBUTES_POSITION, 0
        elif count < 0 or count * RECORD_BYTES_MIN > limit - position:
            status, at, count = BAD_RECORD, start + RECORD_COUNT_POSITION, 0
        first_row = row
        for _ in range(count):
            if row == room:
                return NO_SPACE
            status, record_end = _frame(base, position, limit, row, batch, columns)
            at = record_end
            if status == OK:
                put_int64(columns, RECORD_BATCH_ROW, row, int64_at(batch_rows, number))
                status, at = _body(base, position, row, is_control, columns, directory, program, scratch)
            if status != OK:
                break
            position = record_end
            row += 1
        if status == OK and position != limit:
            status, at = BAD_RECORD, position
        if status != OK:
            row = first_row
        set_int64_at(verdicts, 2 * number, status)
        set_int64_at(verdicts, 2 * number + 1, at)
    return row


def group_rows(kinds: int, row_count: int, ends: int, rows: int, group_count: int) -> int:
    """Puts row numbers one after another by kind (from -1 on), ascending within each; returns row_count.

    `kinds` has an int16 a row; `ends` gets for each kind where its rows end, and must be zero before.
    """
    for row in range(row_count):
        group = int16_at(kinds, row) + 1
        set_int64_at(ends, group, int64_at(ends, group) + 1)
    start = 0
    for group in range(group_count):
        count = int64_at(ends, group)
        set_int64_at(ends, group, start)
        start += count
    for row in range(row_count):
        group = int16_at(kinds, row) + 1
        place = int64_at(ends, group)
        set_int64_at(rows, place, row)
        set_int64_at(ends, group, place + 1)
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

    `rows` are row numbers; `columns` are those of `codes.MARK_…`. `program_rows` has an int32 a row. `marks` gets
    mark_count int64 for each row, `tags` row, position and size of each unknown tagged field. Returns how many of those
    there are, or -1 where a record is no longer sound.
    """
    set_int64_at(scratch, UNKNOWN_TAG_COUNT, 0)
    set_int64_at(scratch, UNKNOWN_TAG_ROOM, tags_room)
    set_int64_at(scratch, UNKNOWN_TAGS_AT, tags)
    for number in range(row_count):
        row = int64_at(rows, number)
        set_int64_at(scratch, MARKED_ROW, row)
        position = column_int64(columns, MARK_BODY_POSITION, row)
        end = column_int64(columns, MARK_VALUE_POSITION, row) + column_int32(columns, MARK_VALUE_LENGTH, row)
        program_row = int32_at(program_rows, number)
        status, _ = walk(base, position, end, program_row, program, scratch + MARKS_BYTES, scratch)
        if status != OK:
            return -1
        for mark in range(mark_count):
            set_int64_at(marks, number * mark_count + mark, int64_at(scratch, FIRST_FIELD_MARK + mark))
    return int64_at(scratch, UNKNOWN_TAG_COUNT)
