"""Numbers, uuids and bytes as text at an address. All return the address behind what they wrote."""

from __future__ import annotations

from kraft_codec.kernels.codes import BASE64_DIGITS, BASE64_URL_PAIRS, DIGIT_PAIRS
from kraft_codec.kernels.memory import (
    inlined,
    load_int64_big,
    load_uint8,
    load_uint16,
    shared,
    store_int8,
    store_int16,
    store_int32,
)

_ROOM_FOR_INT64 = 20
_SMALLEST_INT64 = -0x8000000000000000


@shared
def _write_long_number(out: int, value: int, constants: int) -> int:
    """A value of three digits or more: pairs of digits from the end, behind where they will stand, then moved there."""
    at = out + 2 * _ROOM_FOR_INT64
    end = at
    while value >= 100:
        at -= 2
        store_int16(at, load_uint16(constants + DIGIT_PAIRS + 2 * (value % 100)))
        value //= 100
    if value >= 10:
        at -= 2
        store_int16(at, load_uint16(constants + DIGIT_PAIRS + 2 * value))
    else:
        at -= 1
        store_int8(at, 48 + value)
    size_bytes = end - at
    for moved in range(size_bytes):
        store_int8(out + moved, load_uint8(at + moved))
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
            store_int16(out, load_uint16(constants + DIGIT_PAIRS + 2 * 8))
            return out + 2
        value = -value
    if value < 10:
        store_int8(out, 48 + value)
        return out + 1
    if value < 100:
        store_int16(out, load_uint16(constants + DIGIT_PAIRS + 2 * value))
        return out + 2
    return _write_long_number(out, value, constants)


@shared
def write_uuid(out: int, address: int, constants: int) -> int:
    """22 characters of URL-safe base64: ten times 12 bits as two characters, then the last 8 bits."""
    pairs = constants + BASE64_URL_PAIRS
    high = load_int64_big(address)
    low = load_int64_big(address + 8)
    for number in range(5):
        store_int16(out + 2 * number, load_uint16(pairs + 2 * ((high >> (52 - 12 * number)) & 0xFFF)))
    store_int16(out + 10, load_uint16(pairs + 2 * (((high & 0xF) << 8) | ((low >> 56) & 0xFF))))
    for number in range(4):
        store_int16(out + 12 + 2 * number, load_uint16(pairs + 2 * ((low >> (44 - 12 * number)) & 0xFFF)))
    store_int16(out + 20, load_uint16(pairs + 2 * ((low & 0xFF) << 4)))
    return out + 22


@shared
def write_base64(out: int, address: int, size_bytes: int, constants: int) -> int:
    """Standard base64 with padding."""
    digits = constants + BASE64_DIGITS
    end = address + size_bytes
    while address + 3 <= end:
        bits = (load_uint8(address) << 16) | (load_uint8(address + 1) << 8) | load_uint8(address + 2)
        store_int8(out, load_uint8(digits + (bits >> 18)))
        store_int8(out + 1, load_uint8(digits + ((bits >> 12) & 63)))
        store_int8(out + 2, load_uint8(digits + ((bits >> 6) & 63)))
        store_int8(out + 3, load_uint8(digits + (bits & 63)))
        address += 3
        out += 4
    remaining = end - address
    if remaining > 0:
        bits = load_uint8(address) << 16
        if remaining == 2:
            bits |= load_uint8(address + 1) << 8
        store_int32(out, 0x3D3D3D3D)
        store_int8(out, load_uint8(digits + (bits >> 18)))
        store_int8(out + 1, load_uint8(digits + ((bits >> 12) & 63)))
        if remaining == 2:
            store_int8(out + 2, load_uint8(digits + ((bits >> 6) & 63)))
        out += 4
    return out
