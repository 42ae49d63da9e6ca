"""The kernel of `columns.json_text`: record bodies as Kafka's JSON, by programs that know names (`text_programs`).

A key's text begins with a comma; when a struct or array ends, the first of its commas becomes its opening bracket. A
tagged field that stands before an untagged one in the schema leaves a hole: its bytes come last, so its text, in the
rare case that there is one, is written at the end and rotated into the hole.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BROKEN,
    ELEMENT_KIND,
    ELEMENT_TEXT_BYTES_MAX,
    ELEMENT_WIDTH,
    END,
    FIND_TAGS,
    FLOATS_MET,
    FRAME_BYTES,
    FRAME_REMAINING,
    FRAME_ROW,
    FRAME_START,
    HOLE_SLOT,
    HOLE_TEXT_SLOT,
    IS_BOOL,
    IS_BYTES,
    IS_EMPTY,
    IS_NULL,
    JSON_API_KEY,
    JSON_BODY_POSITION,
    JSON_IS_CONTROL,
    JSON_STATUS,
    JSON_VALUE_LENGTH,
    JSON_VALUE_POSITION,
    JSON_VERSION,
    KEY_AT,
    KEY_BYTES,
    MARKS_BYTES,
    NO_SPACE,
    OK,
    SLOTS_BYTES,
    TAGGED_DEFAULT_AT,
    TAGGED_END_ROW,
    TAGGED_SLOT,
    TAGGED_TEST,
    TAGGED_TEXT_SLOT,
    TAGGED_WIDTH,
    TAGS_END,
    TAGS_END_SLOT,
    TEXT_ARRAY,
    TEXT_BEGIN,
    TEXT_BYTES,
    TEXT_HOLE,
    TEXT_INT32,
    TEXT_LOOP,
    TEXT_LOOP_END_ROW,
    TEXT_NEXT,
    TEXT_ROTATE,
    TEXT_STRUCT,
    TEXT_STRUCT_END,
    TEXT_TAGGED,
    TYPES_PER_KIND,
)
from kraft_codec.kernels.memory import (
    column_int32,
    column_int64,
    column_uint8,
    copy_bytes,
    inlined,
    instruction_at,
    int32_at,
    int64_at,
    load_int32,
    load_int32_big,
    load_int64_big,
    load_uint8,
    set_int32_at,
    set_int64_at,
    shared,
    store_int8,
    store_int32,
    uint8_at,
)
from kraft_codec.kernels.primitives import length_of, unsigned_varint
from kraft_codec.kernels.records import program_of
from kraft_codec.kernels.text_values import NULL, write_number, write_value
from kraft_codec.kernels.walk import find_tags

_COMMA = 0x2C
_SLACK = 64


@inlined
def _write_key(instruction: int, program: int, out: int) -> int:
    """The text that stands before a value: a comma, the quoted name, a colon; eight bytes at a time."""
    source = program + int32_at(instruction, KEY_AT)
    size_bytes = int32_at(instruction, KEY_BYTES)
    for word in range((size_bytes + 7) >> 3):
        set_int64_at(out, word, int64_at(source, word))
    return out + size_bytes


@inlined
def _close(opening: int, out: int, left: int, right: int) -> int:
    """Puts the brackets: the left one in the place of the first comma, where anything was written."""
    if opening == out:
        out += 1
    store_int8(opening, left)
    store_int8(out, right)
    return out + 1


@inlined
def _write_array(
    instruction: int, base: int, position: int, end: int, out: int, limit: int, constants: int, floats: int
) -> tuple[int, int]:
    """Numbers or uuids between brackets."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or (count > 0 and count * int32_at(instruction, ELEMENT_WIDTH) > end - after):
        return BROKEN, out
    if count < 0:
        store_int32(out, NULL)
        return after, out + 4
    if limit - out < count * int32_at(instruction, ELEMENT_TEXT_BYTES_MAX):
        return NO_SPACE, out
    kind = int32_at(instruction, ELEMENT_KIND)
    opening = out
    position = after
    if kind == TEXT_INT32:
        for _ in range(count):
            store_int8(out, _COMMA)
            out = write_number(out + 1, load_int32_big(base + position), constants)
            position += 4
    else:
        for _ in range(count):
            store_int8(out, _COMMA)
            position, out = write_value(kind, base, position, end, out + 1, limit, constants, floats)
    return position, _close(opening, out, 0x5B, 0x5D)


@inlined
def _is_default(base: int, position: int, end: int, instruction: int, program: int) -> bool:
    """Whether a tagged field's value is its default, which JSON leaves out."""
    test = int32_at(instruction, TAGGED_TEST)
    if test == IS_NULL:
        return length_of(unsigned_varint(base, position, end)[0]) < 0
    if test == IS_EMPTY:
        return length_of(unsigned_varint(base, position, end)[0]) == 0
    default = program + int32_at(instruction, TAGGED_DEFAULT_AT)
    if test == IS_BOOL:
        return (load_uint8(base + position) != 0) == (load_uint8(default) != 0)
    if test == IS_BYTES:
        for at in range(int32_at(instruction, TAGGED_WIDTH)):
            if load_uint8(base + position + at) != uint8_at(default, at):
                return False
        return True
    return load_int64_big(base + position) << 1 == 0


@shared
def _rotate(hole: int, text: int, out: int) -> int:
    """Moves the text at `text` to before what stands from `hole` on; after `out` there is room for it twice."""
    size_bytes = out - text
    copy_bytes(out + _SLACK, text, size_bytes)
    at = text - 1
    while at >= hole:
        store_int8(at + size_bytes, load_uint8(at))
        at -= 1
    copy_bytes(hole, out + _SLACK, size_bytes)
    return size_bytes


@inlined
def _enter_loop(
    base: int, position: int, end: int, instruction: int, row: int, frame: int, out: int
) -> tuple[int, int, int, int]:
    """The position, row, frame and address to go on with: the first element's, or those after an empty list."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0:
        return BROKEN, row, frame, out
    if count < 0:
        store_int32(out, NULL)
        return after, int32_at(instruction, TEXT_LOOP_END_ROW), frame, out + 4
    if count == 0:
        return after, int32_at(instruction, TEXT_LOOP_END_ROW), frame, _close(out, out, 0x5B, 0x5D)
    frame += FRAME_BYTES
    set_int64_at(frame, FRAME_REMAINING, count)
    set_int64_at(frame, FRAME_ROW, row)
    set_int64_at(frame, FRAME_START, out)
    return after, row, frame, out


@inlined
def _next_element(row: int, frame: int, out: int) -> tuple[int, int, int]:
    """The row, frame and address to go on with after an element."""
    remaining = int64_at(frame, FRAME_REMAINING) - 1
    set_int64_at(frame, FRAME_REMAINING, remaining)
    if remaining > 0:
        return int64_at(frame, FRAME_ROW), frame, out
    return row, frame - FRAME_BYTES, _close(int64_at(frame, FRAME_START), out, 0x5B, 0x5D)


@shared
def _write_body(
    base: int,
    position: int,
    end: int,
    row: int,
    program: int,
    walk_program: int,
    constants: int,
    frame: int,
    slots: int,
    marks: int,
    out: int,
    limit: int,
    floats: int,
) -> int:
    """Writes one body's JSON at `out`; returns the address after it, or a stop."""
    while True:
        instruction = instruction_at(program, row)
        op = load_int32(instruction)
        row += 1
        if op <= TEXT_BYTES:
            if op == END:
                return out
            out = _write_key(instruction, program, out)
            position, out = write_value(op, base, position, end, out, limit, constants, floats)
        elif op == TEXT_ARRAY:
            out = _write_key(instruction, program, out)
            position, out = _write_array(instruction, base, position, end, out, limit, constants, floats)
        elif op == TEXT_TAGGED:
            value = int64_at(slots, int32_at(instruction, TAGGED_SLOT))
            set_int64_at(slots, int32_at(instruction, TAGGED_TEXT_SLOT), out)
            if value < 0 or _is_default(base, value, end, instruction, program):
                row = int32_at(instruction, TAGGED_END_ROW)
            else:
                position = value
        elif op == FIND_TAGS:
            inner_frame = frame + FRAME_BYTES
            position = find_tags(base, position, end, instruction, program, slots, walk_program, inner_frame, marks)
        elif op == TAGS_END:
            position = int64_at(slots, int32_at(instruction, TAGS_END_SLOT))
        elif op in (TEXT_BEGIN, TEXT_STRUCT):
            if out > limit:
                return NO_SPACE
            out = _write_key(instruction, program, out)
            frame += FRAME_BYTES
            set_int64_at(frame, FRAME_START, out)
        elif op == TEXT_STRUCT_END:
            out = _close(int64_at(frame, FRAME_START), out, 0x7B, 0x7D)
            frame -= FRAME_BYTES
        elif op == TEXT_LOOP:
            out = _write_key(instruction, program, out)
            position, row, frame, out = _enter_loop(base, position, end, instruction, row, frame, out)
        elif op == TEXT_NEXT:
            row, frame, out = _next_element(row, frame, out)
        elif op == TEXT_HOLE:
            set_int64_at(slots, int32_at(instruction, HOLE_SLOT), out)
        elif op == TEXT_ROTATE:  # pragma: no branch - programs hold no other op
            text = int64_at(slots, int32_at(instruction, HOLE_TEXT_SLOT))
            if limit - out < out - text:
                return NO_SPACE
            _rotate(int64_at(slots, int32_at(instruction, HOLE_SLOT)), text, out)
        if position < 0:
            return NO_SPACE if position == NO_SPACE else BROKEN


def write_json(
    base: int,
    first_row: int,
    row_count: int,
    columns: int,
    directory: int,
    program: int,
    walk_program: int,
    constants: int,
    scratch: int,
    text: int,
    room: int,
    offsets: int,
    floats: int,
) -> int:
    """Writes the JSON of rows from `first_row` on after what `text` holds; returns the row at which it stopped.

    `columns` are those of `codes.JSON_…`. After `room` bytes of text there must be as many more as all constant texts
    of one program take, and a hundred.
    `offsets` gets an int32 for each row and one more; it holds the first already. Stops before a row for which there
    may be no room, or (row number negative, less one) at a row that is broken.
    """
    slots = scratch + MARKS_BYTES
    frames = slots + SLOTS_BYTES
    for row in range(first_row, row_count):
        written = text + int32_at(offsets, row)
        if column_uint8(columns, JSON_STATUS, row) == OK:
            entry = TYPES_PER_KIND * column_uint8(columns, JSON_IS_CONTROL, row) + column_int32(
                columns, JSON_API_KEY, row
            )
            position = column_int64(columns, JSON_BODY_POSITION, row)
            end = column_int64(columns, JSON_VALUE_POSITION, row) + column_int32(columns, JSON_VALUE_LENGTH, row)
            float_count = int64_at(floats, FLOATS_MET)
            program_row = program_of(directory, entry, column_int32(columns, JSON_VERSION, row))
            written = _write_body(
                base, position, end, program_row, program, walk_program, constants, frames, slots, scratch, written,
                text + room, floats,
            )  # fmt: skip
            if written < 0:
                set_int64_at(floats, FLOATS_MET, float_count)
                return row if written == NO_SPACE else -row - 1
        set_int32_at(offsets, row + 1, written - text)
    return row_count
