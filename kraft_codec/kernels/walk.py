"""The walk over one body by its schema's program: is every length, count and text sound, and where does it end?

One interpreter for every record type and version (`programs.walk_program` writes the programs). The order of checks and
the positions of errors are those of `kraft_codec.record`, the readable reference.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BAD_RECORD,
    BAD_STRING,
    END,
    FIELD_MARKS,
    LOOP,
    MARK,
    NEXT,
    NEXT_TAG,
    OK,
    OP_BYTES,
    SKIP,
    SKIP_ARRAY,
    SKIP_BYTES,
    SKIP_TEXT,
    STRING_BYTES_MAX,
    TAG_ENTRY_BYTES,
    TAG_OF_FIXED,
    TAG_OF_LIST,
    TAG_OF_PROGRAM,
    TAG_UNKNOWN,
    TAGS,
)
from kraft_codec.kernels.memory import inlined, load_int32, load_int64, shared, store_int64
from kraft_codec.kernels.utf8 import is_utf8
from kraft_codec.kernels.varints import length_of, unsigned_varint, varint_status


@shared
def _first_that_does_not_fit(instruction: int, program: int, position: int, end: int) -> int:
    """Of fixed-width fields that one SKIP passes together: where the first begins that ends behind `end`."""
    widths = program + load_int32(instruction + 8)
    while end - position >= load_int32(widths):
        position += load_int32(widths)
        widths += 4
    return position


@inlined
def skip_text(base: int, position: int, end: int, is_nullable: int) -> tuple[int, int]:
    """(OK, position behind it) or (status, position of the error)."""
    raw, after = unsigned_varint(base, position, end)
    if after < 0:
        return varint_status(after), position
    length = length_of(raw)
    if length < 0:
        return (OK, after) if is_nullable else (BAD_RECORD, position)
    if length > STRING_BYTES_MAX or length > end - after:
        return BAD_RECORD, position
    if not is_utf8(base + after, length):
        return BAD_STRING, after
    return OK, after + length


@inlined
def skip_array(base: int, position: int, end: int, width: int, is_nullable: int) -> tuple[int, int]:
    """Elements of `width` bytes: (OK, position behind them) or (status, position of the error)."""
    raw, after = unsigned_varint(base, position, end)
    if after < 0:
        return varint_status(after), position
    count = length_of(raw)
    if count < 0:
        return (OK, after) if is_nullable else (BAD_RECORD, position)
    remaining = end - after
    if count > remaining:
        return BAD_RECORD, position
    if count * width > remaining:
        return BAD_RECORD, after + remaining // width * width
    return OK, after + count * width


@shared
def _note_unknown_tag(position: int, size_bytes: int, marks: int) -> int:
    """Counts it, and notes whose it is, where and how long, while there is room."""
    number = load_int64(marks)
    store_int64(marks, number + 1)
    if number < load_int64(marks + 8):
        place = load_int64(marks + 16) + 24 * number
        store_int64(place, load_int64(marks + 24))
        store_int64(place + 8, position)
        store_int64(place + 16, size_bytes)
    return number


@inlined
def _next_tag(
    base: int, position: int, end: int, instruction: int, program: int, frames: int, marks: int
) -> tuple[int, int, int]:
    """Passes tagged fields whose values are unknown, of fixed width or lists of such.

    Returns (OK, position, row): the row where the program of another known tag's value starts and the position of that
    value, or row 0 and the position behind the last tagged field; or (status, position of the error, 0). The size that
    stands before a known tag's value is read but not looked at, as in Kafka's generated readers.
    Arguments of the op: row behind the tags, table size, distance of the table: of each tag (TAG_ENTRY_BYTES) what it
    is, the width, whether a list may be null, the row of its program.
    """
    remaining = load_int64(frames)
    while remaining > 0:
        remaining -= 1
        tag, size_position = unsigned_varint(base, position, end)
        if size_position < 0:
            return varint_status(size_position), position, 0
        size_bytes, after = unsigned_varint(base, size_position, end)
        if after < 0:
            return varint_status(after), size_position, 0
        entry = program
        what = TAG_UNKNOWN
        if 0 <= tag < load_int32(instruction + 8):
            entry = program + load_int32(instruction + 12) + TAG_ENTRY_BYTES * tag
            what = load_int32(entry)
        if what == TAG_OF_LIST:
            status, position = skip_array(base, after, end, load_int32(entry + 4), load_int32(entry + 8))
            if status != OK:
                return status, position, 0
        elif what == TAG_OF_FIXED:
            if load_int32(entry + 4) > end - after:
                return BAD_RECORD, after, 0
            position = after + load_int32(entry + 4)
        elif what == TAG_UNKNOWN:
            if size_bytes < 0 or size_bytes > end - after:
                return BAD_RECORD, size_position, 0
            _note_unknown_tag(after, size_bytes, marks)
            position = after + size_bytes
        elif what == TAG_OF_PROGRAM:
            store_int64(frames, remaining)
            return OK, after, load_int32(entry + 12)
        else:
            return BAD_RECORD, position, 0
    return OK, position, 0


@inlined
def _enter_loop(base: int, position: int, end: int, instruction: int, row: int, frames: int) -> tuple[int, int]:
    """The row and the frame to go on with: the first element's, or behind a list of none."""
    count = length_of(unsigned_varint(base, position, end)[0])
    if count <= 0:
        return load_int32(instruction + 8), frames
    store_int64(frames + 16, count)
    store_int64(frames + 24, row)
    return row, frames + 16


@inlined
def _next_element(row: int, frames: int) -> tuple[int, int]:
    """The row and the frame to go on with behind an element."""
    remaining = load_int64(frames) - 1
    store_int64(frames, remaining)
    if remaining > 0:
        return load_int64(frames + 8), frames
    return row, frames - 16


@shared
def walk(base: int, position: int, end: int, start: int, program: int, frames: int, marks: int) -> tuple[int, int]:
    """Runs the program from row `start`: (OK, position behind the body) or (status, position of the error).

    `frames` is room for 16 bytes per level of nesting behind its first 16, `marks` for notes (`codes.FIELD_MARKS`).
    """
    row = start
    while True:
        instruction = program + OP_BYTES * row
        op = load_int32(instruction)
        row += 1
        status = OK
        at = position
        if op == SKIP:
            if end - position < load_int32(instruction + 4):
                return BAD_RECORD, _first_that_does_not_fit(instruction, program, position, end)
            at = position + load_int32(instruction + 4)
        elif op == SKIP_ARRAY:
            for _ in range(load_int32(instruction + 12)):
                status, at = skip_array(base, position, end, load_int32(instruction + 4), load_int32(instruction + 8))
                if status != OK:
                    return status, at
                position = at
        elif op in (TAGS, NEXT_TAG):
            if op == TAGS:
                count, after = unsigned_varint(base, position, end)
                if after < 0:
                    return varint_status(after), position
                position = after
                frames += 16
                store_int64(frames, count)
            status, at, row = _next_tag(base, position, end, instruction, program, frames, marks)
            if row == 0:
                row = load_int32(instruction + 4)
                frames -= 16
        elif op == SKIP_TEXT:
            status, at = skip_text(base, position, end, load_int32(instruction + 4))
        elif op == LOOP:
            status, at = skip_array(base, position, end, 0, load_int32(instruction + 4))
            row, frames = _enter_loop(base, position, end, instruction, row, frames)
        elif op == NEXT:
            row, frames = _next_element(row, frames)
        elif op == SKIP_BYTES:
            status, at = skip_array(base, position, end, 1, load_int32(instruction + 4))
        elif op == MARK:
            store_int64(marks + FIELD_MARKS + 8 * load_int32(instruction + 4), position)
        elif op == END:  # pragma: no branch - programs hold no other op
            return OK, position
        if status != OK:
            return status, at
        position = at
