"""The walk over one body by its schema's program: is every length, count and text sound, and where does it end?

One interpreter serves every record type and version; `programs.walk_programs` writes the programs. The order of checks
and the positions of errors are those of `kraft_codec.records.record`, the readable reference.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    ARRAY_COUNT,
    ARRAY_NULLABLE,
    ARRAY_WIDTH,
    BAD_RECORD,
    BAD_STRING,
    END,
    FIND_ELEMENT_WIDTH,
    FIND_FIRST_SLOT,
    FIND_PROGRAM_ROW,
    FIND_SIZE,
    FIND_SLOT,
    FIND_SLOT_COUNT,
    FIND_TABLE_AT,
    FIND_WIDTH,
    FIRST_FIELD_MARK,
    FRAME_REMAINING,
    FRAME_ROW,
    LOOP,
    LOOP_END_ROW,
    LOOP_NULLABLE,
    MARK,
    MARK_NUMBER,
    MARKED_ROW,
    NEXT,
    NEXT_TAG,
    OK,
    SKIP,
    SKIP_ARRAY,
    SKIP_BYTES,
    SKIP_NULLABLE,
    SKIP_TEXT,
    SKIP_WIDTH,
    SKIP_WIDTHS_AT,
    TAG_KIND,
    TAG_NULLABLE,
    TAG_OF_FIXED,
    TAG_OF_LIST,
    TAG_OF_PROGRAM,
    TAG_PROGRAM_ROW,
    TAG_UNKNOWN,
    TAG_WIDTH,
    TAGS,
    TAGS_END_ROW,
    TAGS_SIZE,
    TAGS_TABLE_AT,
    UNKNOWN_TAG_CELLS,
    UNKNOWN_TAG_COUNT,
    UNKNOWN_TAG_ROOM,
    UNKNOWN_TAGS_AT,
    WALK_FRAME_BYTES,
)
from kraft_codec.kernels.memory import (
    inlined,
    instruction_at,
    int32_at,
    int64_at,
    load_int32,
    set_int64_at,
    shared,
    tag_entry,
)
from kraft_codec.kernels.primitives import is_utf8, length_of, unsigned_varint, varint_status
from kraft_codec.records.message import STRING_BYTES_MAX


@shared
def _first_that_does_not_fit(instruction: int, program: int, position: int, end: int) -> int:
    """Of fixed-width fields that one SKIP passes together: where the first begins that ends after `end`."""
    widths = program + int32_at(instruction, SKIP_WIDTHS_AT)
    number = 0
    while end - position >= int32_at(widths, number):
        position += int32_at(widths, number)
        number += 1
    return position


@inlined
def skip_text(base: int, position: int, end: int, is_nullable: int) -> tuple[int, int]:
    """(OK, position after it) or (status, position of the error)."""
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
    """Elements of `width` bytes: (OK, position after them) or (status, position of the error)."""
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
    number = int64_at(marks, UNKNOWN_TAG_COUNT)
    set_int64_at(marks, UNKNOWN_TAG_COUNT, number + 1)
    if number < int64_at(marks, UNKNOWN_TAG_ROOM):
        tags = int64_at(marks, UNKNOWN_TAGS_AT)
        set_int64_at(tags, UNKNOWN_TAG_CELLS * number, int64_at(marks, MARKED_ROW))
        set_int64_at(tags, UNKNOWN_TAG_CELLS * number + 1, position)
        set_int64_at(tags, UNKNOWN_TAG_CELLS * number + 2, size_bytes)
    return number


@inlined
def _next_tag(
    base: int, position: int, end: int, instruction: int, program: int, frame: int, marks: int
) -> tuple[int, int, int]:
    """Passes tagged fields whose values are unknown, of fixed width or lists of such.

    Returns (OK, position, row): the row where the program of another known tag's value starts and the position of that
    value, or row 0 and the position after the last tagged field; or (status, position of the error, 0). The size that
    stands before a known tag's value is read but not used, as in Kafka's generated readers.
    """
    remaining = int64_at(frame, FRAME_REMAINING)
    while remaining > 0:
        remaining -= 1
        tag, size_position = unsigned_varint(base, position, end)
        if size_position < 0:
            return varint_status(size_position), position, 0
        size_bytes, after = unsigned_varint(base, size_position, end)
        if after < 0:
            return varint_status(after), size_position, 0
        entry = program
        kind = TAG_UNKNOWN
        if 0 <= tag < int32_at(instruction, TAGS_SIZE):
            entry = tag_entry(program + int32_at(instruction, TAGS_TABLE_AT), tag)
            kind = int32_at(entry, TAG_KIND)
        if kind == TAG_OF_LIST:
            status, position = skip_array(base, after, end, int32_at(entry, TAG_WIDTH), int32_at(entry, TAG_NULLABLE))
            if status != OK:
                return status, position, 0
        elif kind == TAG_OF_FIXED:
            if int32_at(entry, TAG_WIDTH) > end - after:
                return BAD_RECORD, after, 0
            position = after + int32_at(entry, TAG_WIDTH)
        elif kind == TAG_UNKNOWN:
            if size_bytes < 0 or size_bytes > end - after:
                return BAD_RECORD, size_position, 0
            _note_unknown_tag(after, size_bytes, marks)
            position = after + size_bytes
        elif kind == TAG_OF_PROGRAM:
            set_int64_at(frame, FRAME_REMAINING, remaining)
            return OK, after, int32_at(entry, TAG_PROGRAM_ROW)
        else:
            return BAD_RECORD, position, 0
    return OK, position, 0


@inlined
def _enter_loop(base: int, position: int, end: int, instruction: int, row: int, frame: int) -> tuple[int, int]:
    """The row and the frame to go on with: the first element's, or those after an empty list."""
    count = length_of(unsigned_varint(base, position, end)[0])
    if count <= 0:
        return int32_at(instruction, LOOP_END_ROW), frame
    frame += WALK_FRAME_BYTES
    set_int64_at(frame, FRAME_REMAINING, count)
    set_int64_at(frame, FRAME_ROW, row)
    return row, frame


@inlined
def _next_element(row: int, frame: int) -> tuple[int, int]:
    """The row and the frame to go on with after an element."""
    remaining = int64_at(frame, FRAME_REMAINING) - 1
    set_int64_at(frame, FRAME_REMAINING, remaining)
    if remaining > 0:
        return int64_at(frame, FRAME_ROW), frame
    return row, frame - WALK_FRAME_BYTES


@shared
def walk(base: int, position: int, end: int, start: int, program: int, frame: int, marks: int) -> tuple[int, int]:
    """Runs the program from row `start`: (OK, position after the body) or (status, position of the error).

    From `frame` on there is room for one frame a level of nesting and one more; `marks` takes notes (`codes`).
    """
    row = start
    while True:
        instruction = instruction_at(program, row)
        op = load_int32(instruction)
        row += 1
        status = OK
        at = position
        if op == SKIP:
            if end - position < int32_at(instruction, SKIP_WIDTH):
                return BAD_RECORD, _first_that_does_not_fit(instruction, program, position, end)
            at = position + int32_at(instruction, SKIP_WIDTH)
        elif op == SKIP_ARRAY:
            width = int32_at(instruction, ARRAY_WIDTH)
            is_nullable = int32_at(instruction, ARRAY_NULLABLE)
            for _ in range(int32_at(instruction, ARRAY_COUNT)):
                status, at = skip_array(base, position, end, width, is_nullable)
                if status != OK:
                    return status, at
                position = at
        elif op in (TAGS, NEXT_TAG):
            if op == TAGS:
                count, after = unsigned_varint(base, position, end)
                if after < 0:
                    return varint_status(after), position
                position = after
                frame += WALK_FRAME_BYTES
                set_int64_at(frame, FRAME_REMAINING, count)
            status, at, row = _next_tag(base, position, end, instruction, program, frame, marks)
            if row == 0:
                row = int32_at(instruction, TAGS_END_ROW)
                frame -= WALK_FRAME_BYTES
        elif op == SKIP_TEXT:
            status, at = skip_text(base, position, end, int32_at(instruction, SKIP_NULLABLE))
        elif op == LOOP:
            status, at = skip_array(base, position, end, 0, int32_at(instruction, LOOP_NULLABLE))
            row, frame = _enter_loop(base, position, end, instruction, row, frame)
        elif op == NEXT:
            row, frame = _next_element(row, frame)
        elif op == SKIP_BYTES:
            status, at = skip_array(base, position, end, 1, int32_at(instruction, SKIP_NULLABLE))
        elif op == MARK:
            set_int64_at(marks, FIRST_FIELD_MARK + int32_at(instruction, MARK_NUMBER), position)
        elif op == END:  # pragma: no branch - programs hold no other op
            return OK, position
        if status != OK:
            return status, at
        position = at


@inlined
def find_tags(
    base: int,
    position: int,
    end: int,
    instruction: int,
    program: int,
    slots: int,
    walk_program: int,
    frame: int,
    marks: int,
) -> int:
    """Fills the struct's slots (below 0 is absent); returns the position after its tagged fields, -1 if broken.

    The slot after them gets that position too. So the values can be read in any order. A known tag's value is passed by
    its schema and not by the size that stands before it, as in Kafka's generated readers; of a tag that comes twice the
    last is noted.
    """
    first_slot = int32_at(instruction, FIND_FIRST_SLOT)
    for number in range(int32_at(instruction, FIND_SLOT_COUNT)):
        set_int64_at(slots, first_slot + number, -1)
    count, at = unsigned_varint(base, position, end)
    if at < 0:
        return -1
    for _ in range(count):
        tag, after = unsigned_varint(base, at, end)
        if after < 0:
            return -1
        size_bytes, after = unsigned_varint(base, after, end)
        if after < 0:
            return -1
        entry = program
        slot = 0
        if 0 <= tag < int32_at(instruction, FIND_SIZE):
            entry = tag_entry(program + int32_at(instruction, FIND_TABLE_AT), tag)
            slot = int32_at(entry, FIND_SLOT)
        if slot == 0:
            if size_bytes < 0 or size_bytes > end - after:
                return -1
            at = after + size_bytes
            continue
        set_int64_at(slots, slot - 1, after)
        status = OK
        if int32_at(entry, FIND_WIDTH) > 0:
            at = after + int32_at(entry, FIND_WIDTH)
        elif int32_at(entry, FIND_ELEMENT_WIDTH) > 0:
            status, at = skip_array(base, after, end, int32_at(entry, FIND_ELEMENT_WIDTH), 1)
        else:
            status, at = walk(base, after, end, int32_at(entry, FIND_PROGRAM_ROW), walk_program, frame, marks)
        if status != OK or at > end:
            return -1
    set_int64_at(slots, first_slot + int32_at(instruction, FIND_SLOT_COUNT), at)
    return at
