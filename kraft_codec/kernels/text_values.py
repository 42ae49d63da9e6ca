"""Single values as JSON text at an address: strings with their escapes, bytes, numbers, uuids, floats.

What writes returns the address after what it wrote.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import (
    BASE64_DIGITS,
    BASE64_URL_PAIRS,
    BROKEN,
    DIGIT_PAIRS,
    FLOATS_BITS_AT,
    FLOATS_ENDS_AT,
    FLOATS_MET,
    FLOATS_ROOM,
    FLOATS_TEXTS_AT,
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
from kraft_codec.kernels.memory import (
    column_int32,
    copy_bytes,
    inlined,
    int64_at,
    load_int8,
    load_int16_big,
    load_int32_big,
    load_int64,
    load_int64_big,
    load_uint8,
    load_uint16_big,
    load_uint32_big,
    put_int64,
    set_int8_at,
    set_int16_at,
    set_int64_at,
    shared,
    store_int8,
    store_int16,
    store_int32,
    store_int64,
    uint8_at,
    uint16_at,
)
from kraft_codec.kernels.primitives import HIGH_BITS, length_of, unsigned_varint

NULL = 0x6C6C756E
"""The four letters, as a number that is stored at once."""
_ONES = 0x0101010101010101
_TRUE = 0x65757274
_FALSE = 0x65736C6166
_QUOTE, _BACKSLASH = 0x22, 0x5C
_TEXT_GROWTH = 6
_ROOM_FOR_INT64 = 20
_SMALLEST_INT64 = -0x8000000000000000


@shared
def _write_long_number(out: int, value: int, constants: int) -> int:
    """A value of three digits or more: pairs of digits from its end, written further on and then moved to `out`."""
    at = out + 2 * _ROOM_FOR_INT64
    end = at
    while value >= 100:
        at -= 2
        store_int16(at, uint16_at(constants + DIGIT_PAIRS, value % 100))
        value //= 100
    if value >= 10:
        at -= 2
        store_int16(at, uint16_at(constants + DIGIT_PAIRS, value))
    else:
        at -= 1
        store_int8(at, 48 + value)
    size_bytes = end - at
    for moved in range(size_bytes):
        set_int8_at(out, moved, uint8_at(at, moved))
    return out + size_bytes


@inlined
def write_number(out: int, value: int, constants: int) -> int:
    """A decimal number of 20 characters at most; up to 40 bytes from `out` on may be overwritten."""
    if 0 <= value < 10:
        store_int8(out, 48 + value)
        return out + 1
    if value < 0:
        store_int8(out, 45)
        out += 1
        if value == _SMALLEST_INT64:
            # It has no positive counterpart: its first 17 digits, then its last two.
            out = _write_long_number(out, 92233720368547758, constants)
            store_int16(out, uint16_at(constants + DIGIT_PAIRS, 8))
            return out + 2
        value = -value
    if value < 10:
        store_int8(out, 48 + value)
        return out + 1
    if value < 100:
        store_int16(out, uint16_at(constants + DIGIT_PAIRS, value))
        return out + 2
    return _write_long_number(out, value, constants)


@shared
def write_uuid(out: int, address: int, constants: int) -> int:
    """22 characters of URL-safe base64: ten times 12 bits as two characters, then the last 8 bits."""
    pairs = constants + BASE64_URL_PAIRS
    high = load_int64_big(address)
    low = load_int64_big(address + 8)
    for number in range(5):
        set_int16_at(out, number, uint16_at(pairs, (high >> (52 - 12 * number)) & 0xFFF))
    set_int16_at(out, 5, uint16_at(pairs, ((high & 0xF) << 8) | ((low >> 56) & 0xFF)))
    for number in range(4):
        set_int16_at(out, 6 + number, uint16_at(pairs, (low >> (44 - 12 * number)) & 0xFFF))
    set_int16_at(out, 10, uint16_at(pairs, (low & 0xFF) << 4))
    return out + 22


@shared
def write_base64(out: int, address: int, size_bytes: int, constants: int) -> int:
    """Standard base64 with padding."""
    digits = constants + BASE64_DIGITS
    end = address + size_bytes
    while address + 3 <= end:
        bits = (load_uint8(address) << 16) | (uint8_at(address, 1) << 8) | uint8_at(address, 2)
        set_int8_at(out, 0, uint8_at(digits, bits >> 18))
        set_int8_at(out, 1, uint8_at(digits, (bits >> 12) & 63))
        set_int8_at(out, 2, uint8_at(digits, (bits >> 6) & 63))
        set_int8_at(out, 3, uint8_at(digits, bits & 63))
        address += 3
        out += 4
    remaining = end - address
    if remaining > 0:
        bits = load_uint8(address) << 16
        if remaining == 2:
            bits |= uint8_at(address, 1) << 8
        store_int32(out, 0x3D3D3D3D)
        set_int8_at(out, 0, uint8_at(digits, bits >> 18))
        set_int8_at(out, 1, uint8_at(digits, (bits >> 12) & 63))
        if remaining == 2:
            set_int8_at(out, 2, uint8_at(digits, (bits >> 6) & 63))
        out += 4
    return out


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
            if special & HIGH_BITS != 0:
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

    `floats` has the cells of `codes.FLOATS_…`.
    """
    number = int64_at(floats, FLOATS_MET)
    set_int64_at(floats, FLOATS_MET, number + 1)
    texts = int64_at(floats, FLOATS_TEXTS_AT)
    if texts == 0:
        if number < int64_at(floats, FLOATS_ROOM):
            put_int64(floats, FLOATS_BITS_AT, number, load_int64_big(address))
        return out
    start = column_int32(floats, FLOATS_ENDS_AT, number)
    size_bytes = column_int32(floats, FLOATS_ENDS_AT, number + 1) - start
    copy_bytes(out, texts + start, size_bytes)
    return out + size_bytes


@inlined
def write_value(
    kind: int, base: int, position: int, end: int, out: int, limit: int, constants: int, floats: int
) -> tuple[int, int]:
    """A value that is no struct: (position after it, out), the position negative for a stop."""
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
