"""Single values as JSON text at an address: strings with their escapes, bytes, numbers, uuids, floats."""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BROKEN,
    NO_SPACE,
    TEXT_BOOL,
    TEXT_BYTES,
    TEXT_INT8,
    TEXT_INT16,
    TEXT_INT32,
    TEXT_INT64,
    TEXT_STRING,
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
from kraft_codec.kernels.varints import length_of, unsigned_varint

NULL = 0x6C6C756E
"""The four letters, as a number that is stored at once."""
_ONES = 0x0101010101010101
_HIGH_BITS = -0x7F7F7F7F7F7F7F80
_TRUE = 0x65757274
_FALSE = 0x65736C6166
_QUOTE, _BACKSLASH = 0x22, 0x5C
_TEXT_GROWTH = 6


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
        store_int32(out, NULL)
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
def write_value(
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
