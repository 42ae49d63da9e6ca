"""Varints as Kafka's ByteUtils reads them, with a fast path for one byte, and whether bytes are UTF-8.

A varint has at most 5 bytes (10 for a varlong); bits beyond 32 (64) are dropped, longer forms than needed are accepted.
A read gives (value, new position). The new position is CUT where the range ends inside the varint and OVERLONG where
its last possible byte has a continuation bit; `varint_status` says which damage that is.

UTF-8 is strict: no overlong form, no surrogate, nothing above U+10FFFF (as Python decodes).
"""

from __future__ import annotations

from kraft_codec.kernels.codes import BAD_RECORD, BAD_VARINT
from kraft_codec.kernels.memory import inlined, load_int64, load_uint8, shared

CUT = -1
OVERLONG = -2


@inlined
def varint_status(after: int) -> int:
    """The status of a read whose new position is negative."""
    return BAD_RECORD if after == CUT else BAD_VARINT


@shared
def _long_unsigned_varint(base: int, position: int, end: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while shift < 35:
        if position >= end:
            return 0, CUT
        byte = load_uint8(base + position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, position
        shift += 7
    return 0, OVERLONG


@inlined
def unsigned_varint(base: int, position: int, end: int) -> tuple[int, int]:
    """An "unsigned" value: as in Java the result is an int, so the 32nd bit makes it negative."""
    if position >= end:
        return 0, CUT
    byte = load_uint8(base + position)
    if byte < 0x80:
        return byte, position + 1
    return _long_unsigned_varint(base, position, end)


@inlined
def varint(base: int, position: int, end: int) -> tuple[int, int]:
    """A zig-zag encoded int."""
    value, after = unsigned_varint(base, position, end)
    return ((value & 0xFFFFFFFF) >> 1) ^ -(value & 1), after


@shared
def _long_varlong(base: int, position: int, end: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while shift < 70:
        if position >= end:
            return 0, CUT
        byte = load_uint8(base + position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position
        shift += 7
    return 0, OVERLONG


@inlined
def varlong(base: int, position: int, end: int) -> tuple[int, int]:
    """A zig-zag encoded long."""
    if position >= end:
        return 0, CUT
    byte = load_uint8(base + position)
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _long_varlong(base, position, end)


@inlined
def length_of(raw: int) -> int:
    """A length or count from its varint: one less, as a Java int; below 0 is null."""
    return (((raw - 1) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


HIGH_BITS = -0x7F7F7F7F7F7F7F80
"""The top bit of each of eight bytes, as a signed number."""


@inlined
def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


@shared
def _is_utf8_tail(address: int, end: int) -> bool:
    while address < end:
        first = load_uint8(address)
        if first < 0x80:
            address += 1
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        size_bytes = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
        if address + size_bytes > end:
            return False
        second = load_uint8(address + 1)
        if not _is_continuation(second):
            return False
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        for at in range(2, size_bytes):
            if not _is_continuation(load_uint8(address + at)):
                return False
        address += size_bytes
    return True


@inlined
def is_utf8(address: int, size_bytes: int) -> bool:
    """Eight ASCII bytes at a time; from the first other byte on byte by byte, to the end."""
    end = address + size_bytes
    while address + 8 <= end:
        if load_int64(address) & HIGH_BITS != 0:
            return _is_utf8_tail(address, end)
        address += 8
    while address < end:
        if load_uint8(address) >= 0x80:
            return _is_utf8_tail(address, end)
        address += 1
    return True
