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
    TEXT_BOOL,
    TEXT_BYTES,
    TEXT_HOLE,
    TEXT_INT8,
    TEXT_INT16,
    TEXT_INT32,
    TEXT_INT64,
    TEXT_LOOP,
    TEXT_NEXT,
    TEXT_ROTATE,
    TEXT_STRING,
    TEXT_STRUCT,
    TEXT_STRUCT_END,
    TEXT_TAGGED,
    TEXT_UINT16,
    TEXT_UINT32,
    TEXT_UUID,
)
from kraft_codec.kernels.digits import write_base64, write_number, write_uuid
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
    store_int32,
    store_int64,
)
from kraft_codec.kernels.records import TYPES_PER_KIND, program_of
from kraft_codec.kernels.tags import find_tags
from kraft_codec.kernels.varints import length_of, unsigned_varint

_ONES = 0x0101010101010101
_HIGH_BITS = -0x7F7F7F7F7F7F7F80
_NULL = 0x6C6C756E
_TRUE = 0x65757274
_FALSE = 0x65736C6166
_COMMA, _QUOTE, _BACKSLASH = 0x2C, 0x22, 0x5C
_TEXT_GROWTH = 6
_SLACK = 64


@shared
def _write_escaped_byte(out: int, byte: int) -> int:
    """A character that JSON escapes, as Jackson does."""
    store_int8(out, _BACKSLASH)
    letter = 0
    if byte in (_QUOTE, _BACKSLASH):
        letter = byte
    elif byte == 8:
        letter = 0x62
    elif byte == 9:
        letter = 0x74
    elif byte == 10:
        letter = 0x6E
    elif byte == 12:
        letter = 0x66
    elif byte == 13:
        letter = 0x72
    if letter != 0:
        store_int8(out + 1, letter)
        return out + 2
    store_int32(out + 1, 0x303075)
    store_int8(out + 4, 0x30 + (byte >> 4))
    low = byte & 15
    store_int8(out + 5, 0x30 + low if low < 10 else 0x37 + low)
    return out + 6


@inlined
def _write_text(out: int, address: int, size_bytes: int) -> int:
    """A JSON string: eight bytes at a time while none of them needs an escape."""
    end = address + size_bytes
    store_int8(out, _QUOTE)
    out += 1
    while address < end:
        while address + 8 <= end:
            eight = load_int64(address)
            quotes = eight ^ (_ONES * _QUOTE)
            backslashes = eight ^ (_ONES * _BACKSLASH)
            special = (eight - _ONES * 0x20) & ~eight
            special |= (quotes - _ONES) & ~quotes
            special |= (backslashes - _ONES) & ~backslashes
            if special & _HIGH_BITS != 0:
                break
            store_int64(out, eight)
            address += 8
            out += 8
        upto = min(end, address + 8)
        while address < upto:
            byte = load_uint8(address)
            if byte < 0x20 or byte in (_QUOTE, _BACKSLASH):
                out = _write_escaped_byte(out, byte)
            else:
                store_int8(out, byte)
                out += 1
            address += 1
    store_int8(out, _QUOTE)
    return out + 1


@inlined
def _write_variable(
    kind: int, base: int, position: int, end: int, out: int, limit: int, constants: int
) -> tuple[int, int]:
    """A string or bytes: (position, out), the position negative for a stop."""
    raw, after = unsigned_varint(base, position, end)
    length = length_of(raw)
    if after < 0 or length > end - after:
        return BROKEN, out
    if length < 0:
        store_int32(out, _NULL)
        return after, out + 4
    if limit - out < _TEXT_GROWTH * length:
        return NO_SPACE, out
    if kind == TEXT_STRING:
        return after + length, _write_text(out, base + after, length)
    store_int8(out, _QUOTE)
    out = write_base64(out + 1, base + after, length, constants)
    store_int8(out, _QUOTE)
    return after + length, out + 1


@shared
def _write_float(address: int, out: int, floats: int) -> int:
    """Its text from the table, or where there is none yet, its bits into the table for the caller to format.

    `floats`: how many were met, room for bits, address of the bits, address of the texts or 0, address of their ends.
    """
    number = load_int64(floats)
    store_int64(floats, number + 1)
    texts = load_int64(floats + 24)
    if texts == 0:
        if number < load_int64(floats + 8):
            store_int64(load_int64(floats + 16) + 8 * number, load_int64_big(address))
        return out
    ends = load_int64(floats + 32) + 4 * number
    start = load_int32(ends)
    size_bytes = load_int32(ends + 4) - start
    copy_bytes(out, texts + start, size_bytes)
    return out + size_bytes


@inlined
def _write_value(
    kind: int, base: int, position: int, end: int, out: int, limit: int, constants: int, floats: int
) -> tuple[int, int]:
    """One value that is no struct: (position behind it, out), the position negative for a stop."""
    address = base + position
    if kind == TEXT_INT32:
        width = 4
        if end - position >= 4:
            out = write_number(out, load_int32_big(address), constants)
    elif kind == TEXT_UUID:
        width = 16
        if end - position >= 16:
            store_int8(out, _QUOTE)
            out = write_uuid(out + 1, address, constants)
            store_int8(out, _QUOTE)
            out += 1
    elif kind in (TEXT_STRING, TEXT_BYTES):
        return _write_variable(kind, base, position, end, out, limit, constants)
    elif kind == TEXT_INT64:
        width = 8
        if end - position >= 8:
            out = write_number(out, load_int64_big(address), constants)
    elif kind in (TEXT_INT16, TEXT_UINT16):
        width = 2
        if end - position >= 2:
            value = load_int16_big(address) if kind == TEXT_INT16 else load_uint16_big(address)
            out = write_number(out, value, constants)
    elif kind == TEXT_INT8:
        width = 1
        if end - position >= 1:
            out = write_number(out, load_int8(address), constants)
    elif kind == TEXT_BOOL:
        width = 1
        if end - position >= 1:
            is_true = load_uint8(address) != 0
            store_int64(out, _TRUE if is_true else _FALSE)
            out += 4 if is_true else 5
    elif kind == TEXT_UINT32:
        width = 4
        if end - position >= 4:
            out = write_number(out, load_uint32_big(address), constants)
    else:
        width = 8
        if end - position >= 8:
            out = _write_float(address, out, floats)
    if end - position < width:
        return BROKEN, out
    return position + width, out


@inlined
def _write_key(instruction: int, program: int, out: int) -> int:
    """The text that stands before a value: a comma, the quoted name, a colon; eight bytes at a time."""
    source = program + load_int32(instruction + 4)
    size_bytes = load_int32(instruction + 8)
    for at in range(0, size_bytes, 8):
        store_int64(out + at, load_int64(source + at))
    return out + size_bytes


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
        store_int32(out, _NULL)
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
            position, out = _write_value(kind, base, position, end, out + 1, limit, constants, floats)
    if count == 0:
        out += 1
    store_int8(opening, 0x5B)
    store_int8(out, 0x5D)
    return position, out + 1


@inlined
def _is_default(base: int, position: int, end: int, instruction: int, program: int) -> bool:
    """Whether a tagged field's value is one that JSON leaves out. Arguments: slot, skip to, test, width, default."""
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
    text = out
    while True:
        instruction = program + OP_BYTES * row
        op = load_int32(instruction)
        row += 1
        if op <= TEXT_BYTES:
            if op == END:
                return out
            out = _write_key(instruction, program, out)
            position, out = _write_value(op, base, position, end, out, limit, constants, floats)
        elif op == TEXT_ARRAY:
            out = _write_key(instruction, program, out)
            position, out = _write_array(instruction, base, position, end, out, limit, constants, floats)
        elif op == TEXT_TAGGED:
            noted = load_int64(slots + 8 * load_int32(instruction + 4))
            text = out
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
            opening = load_int64(frames)
            frames -= 32
            if opening == out:
                out += 1
            store_int8(opening, 0x7B)
            store_int8(out, 0x7D)
            out += 1
        elif op == TEXT_LOOP:
            out = _write_key(instruction, program, out)
            raw, after = unsigned_varint(base, position, end)
            count = length_of(raw)
            position = after
            if count > 0:
                frames += 32
                store_int64(frames, count)
                store_int64(frames + 8, row)
                store_int64(frames + 16, out)
            else:
                row = load_int32(instruction + 12)
                store_int32(out, _NULL if count < 0 else 0x5D5B)
                out += 4 if count < 0 else 2
        elif op == TEXT_NEXT:
            remaining = load_int64(frames) - 1
            store_int64(frames, remaining)
            if remaining > 0:
                row = load_int64(frames + 8)
            else:
                store_int8(load_int64(frames + 16), 0x5B)
                store_int8(out, 0x5D)
                out += 1
                frames -= 32
        elif op == TEXT_HOLE:
            store_int64(slots + 8 * load_int32(instruction + 4), out)
        elif op == TEXT_ROTATE:
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
