"""Varints as Kafka's ByteUtils reads them, with a fast path for one byte.

At most 5 bytes (10 for a varlong); bits beyond 32 (64) are dropped, longer forms than needed are accepted. A read gives
(value, new position). The new position is CUT where the range ends inside the varint and OVERLONG where its last
possible byte still asks for more; `varint_status` says which damage that is.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import BAD_RECORD, BAD_VARINT
from kraft_codec.kernels.memory import inlined, load_uint8, shared

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
