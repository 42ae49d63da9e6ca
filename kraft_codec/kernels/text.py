"""The kernel behind `json_text`: record bodies as Kafka's JSON, by programs that know names (`text_programs`).

A key's text begins with a comma; when a struct or array ends, the first of its commas becomes its opening bracket. A
tagged field that stands before an untagged one in the schema leaves a hole: its bytes come last, so its text, in the
rare case that there is one, is written at the end and rotated into the hole.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BROKEN,
    END,
    FIND_TAGS,
    IS_BOOL,
    IS_BYTES,
    IS_EMPTY,
    IS_NULL,
    MARKS_BYTES,
    NO_SPACE,
    OK,
    OP_BYTES,
    SLOTS_BYTES,
    TAGS_END,
    TEXT_ARRAY,
    TEXT_BEGIN,
    TEXT_BYTES,
    TEXT_HOLE,
    TEXT_INT32,
    TEXT_LOOP,
    TEXT_NEXT,
    TEXT_ROTATE,
    TEXT_STRUCT,
    TEXT_STRUCT_END,
    TEXT_TAGGED,
)
from kraft_codec.kernels.digits import write_number
from kraft_codec.kernels.memory import (
    copy_bytes,
    inlined,
    load_int32,
    load_int32_big,
    load_int64,
    load_int64_big,
    load_uint8,
    shared,
    store_int8,
    store_int32,
    store_int64,
)
from kraft_codec.kernels.records import TYPES_PER_KIND, program_of
from kraft_codec.kernels.tags import find_tags
from kraft_codec.kernels.text_values import NULL, write_value
from kraft_codec.kernels.varints import length_of, unsigned_varint

_COMMA = 0x2C
_SLACK = 64


@inlined
def _write_key(instruction: int, program: int, out: int) -> int:
    """The text that stands before a value: a comma, the quoted name, a colon; eight bytes at a time."""
    source = program + load_int32(instruction + 4)
    size_bytes = load_int32(instruction + 8)
    for at in range(0, size_bytes, 8):
        store_int64(out + at, load_int64(source + at))
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
    """Numbers or uuids between brackets. Arguments: key, element kind, element width, element's longest text."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0 or (count > 0 and count * load_int32(instruction + 16) > end - after):
        return BROKEN, out
    if count < 0:
        store_int32(out, NULL)
        return after, out + 4
    if limit - out < count * load_int32(instruction + 20):
        return NO_SPACE, out
    kind = load_int32(instruction + 12)
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
    """Whether a tagged field's value is one that JSON leaves out.

    Arguments: slot, row behind the field, test, width, default, slot that notes where the text starts.
    """
    test = load_int32(instruction + 12)
    if test == IS_NULL:
        return length_of(unsigned_varint(base, position, end)[0]) < 0
    if test == IS_EMPTY:
        return length_of(unsigned_varint(base, position, end)[0]) == 0
    default = program + load_int32(instruction + 20)
    if test == IS_BOOL:
        return (load_uint8(base + position) != 0) == (load_uint8(default) != 0)
    if test == IS_BYTES:
        for at in range(load_int32(instruction + 16)):
            if load_uint8(base + position + at) != load_uint8(default + at):
                return False
        return True
    return load_int64_big(base + position) << 1 == 0


@shared
def _rotate(hole: int, text: int, out: int) -> int:
    """Moves the text at `text` to before what stands from `hole` on; behind `out` there is room for it twice."""
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
    base: int, position: int, end: int, instruction: int, row: int, frames: int, out: int
) -> tuple[int, int, int, int]:
    """The position, row, frame and address to go on with: the first element's, or behind a list of none."""
    raw, after = unsigned_varint(base, position, end)
    count = length_of(raw)
    if after < 0:
        return BROKEN, row, frames, out
    if count < 0:
        store_int32(out, NULL)
        return after, load_int32(instruction + 12), frames, out + 4
    if count == 0:
        return after, load_int32(instruction + 12), frames, _close(out, out, 0x5B, 0x5D)
    store_int64(frames + 32, count)
    store_int64(frames + 40, row)
    store_int64(frames + 48, out)
    return after, row, frames + 32, out


@inlined
def _next_element(row: int, frames: int, out: int) -> tuple[int, int, int]:
    """The row, frame and address to go on with behind an element."""
    remaining = load_int64(frames) - 1
    store_int64(frames, remaining)
    if remaining > 0:
        return load_int64(frames + 8), frames, out
    return row, frames - 32, _close(load_int64(frames + 16), out, 0x5B, 0x5D)


@shared
def _write_body(
    base: int,
    position: int,
    end: int,
    row: int,
    program: int,
    walk_program: int,
    constants: int,
    frames: int,
    slots: int,
    marks: int,
    out: int,
    limit: int,
    floats: int,
) -> int:
    """Writes one body's JSON at `out`; returns the address behind it, or a stop."""
    while True:
        instruction = program + OP_BYTES * row
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
            noted = load_int64(slots + 8 * load_int32(instruction + 4))
            store_int64(slots + 8 * load_int32(instruction + 24), out)
            if noted < 0 or _is_default(base, noted, end, instruction, program):
                row = load_int32(instruction + 8)
            else:
                position = noted
        elif op == FIND_TAGS:
            position = find_tags(base, position, end, instruction, program, slots, walk_program, frames + 32, marks)
            store_int64(slots + 8 * (load_int32(instruction + 4) + load_int32(instruction + 8)), position)
        elif op == TAGS_END:
            position = load_int64(slots + 8 * load_int32(instruction + 4))
        elif op in (TEXT_BEGIN, TEXT_STRUCT):
            if out > limit:
                return NO_SPACE
            out = _write_key(instruction, program, out)
            frames += 32
            store_int64(frames, out)
        elif op == TEXT_STRUCT_END:
            out = _close(load_int64(frames), out, 0x7B, 0x7D)
            frames -= 32
        elif op == TEXT_LOOP:
            out = _write_key(instruction, program, out)
            position, row, frames, out = _enter_loop(base, position, end, instruction, row, frames, out)
        elif op == TEXT_NEXT:
            row, frames, out = _next_element(row, frames, out)
        elif op == TEXT_HOLE:
            store_int64(slots + 8 * load_int32(instruction + 4), out)
        elif op == TEXT_ROTATE:  # pragma: no branch - programs hold no other op
            text = load_int64(slots + 8 * load_int32(instruction + 8))
            if limit - out < out - text:
                return NO_SPACE
            _rotate(load_int64(slots + 8 * load_int32(instruction + 4)), text, out)
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
    """Writes the JSON of rows from `first_row` on behind what `text` holds; returns the row at which it stopped.

    `columns` are the addresses of status, is_control, api_key, version, body position, value position, value length.
    Behind `room` bytes of text there must be as many more as all constant texts of one program take, and a hundred.
    `offsets` gets an int32 for each row and one more; it holds the first already. Stops before a row for which there
    may be no room, or (row number negative, less one) at a row that is broken.
    """
    slots = scratch + MARKS_BYTES
    frames = slots + SLOTS_BYTES
    for row in range(first_row, row_count):
        start = load_int32(offsets + 4 * row)
        written = text + start
        if load_uint8(load_int64(columns) + row) == OK:
            is_control = load_uint8(load_int64(columns + 8) + row)
            entry = TYPES_PER_KIND * is_control + load_int32(load_int64(columns + 16) + 4 * row)
            version = load_int32(load_int64(columns + 24) + 4 * row)
            position = load_int64(load_int64(columns + 32) + 8 * row)
            end = load_int64(load_int64(columns + 40) + 8 * row) + load_int32(load_int64(columns + 48) + 4 * row)
            met = load_int64(floats)
            program_row = program_of(directory, entry, version)
            written = _write_body(
                base, position, end, program_row, program, walk_program, constants, frames, slots, scratch, written,
                text + room, floats,
            )  # fmt: skip
            if written < 0:
                store_int64(floats, met)
                return row if written == NO_SPACE else -row - 1
        store_int32(offsets + 4 * row + 4, written - text)
    return row_count
