"""Variable-length integers as Kafka reads and writes them (org.apache.kafka.common.utils.ByteUtils, 4.3).

Readers take (buffer, position, end) and return (value, new position); nothing at or after `end` is read.
Kafka's reader is followed bit for bit:

- an int takes at most 5 bytes, a long at most 10; a continuation bit on the last of these is `BAD_VARINT`;
- non-minimal encodings are accepted, and bits beyond the 32nd or 64th are dropped, as in Java;
- running into `end` is `BAD_RECORD`; both errors carry the position of the integer's first byte.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kraft_codec.errors import CodecError, Reason

BytesLike: TypeAlias = bytes | bytearray | memoryview

INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10


def to_int32(value: int) -> int:
    """The low 32 bits as a signed number: what a Java int keeps of a result."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def to_int64(value: int) -> int:
    """The low 64 bits as a signed number: what a Java long keeps of a result."""
    return ((value + 0x8000_0000_0000_0000) & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000


def read_unsigned_varint(buffer: BytesLike, position: int, end: int) -> tuple[int, int]:
    """An "unsigned" varint: as in Java the result is an int, so the 32nd bit makes it negative."""
    if position < end and buffer[position] < 0x80:
        return buffer[position], position + 1
    bits, new_position = _read_bits(buffer, position, end, INT_BYTES_MAX)
    return to_int32(bits), new_position


def read_varint(buffer: BytesLike, position: int, end: int) -> tuple[int, int]:
    """A zig-zag encoded int."""
    bits, new_position = _read_bits(buffer, position, end, INT_BYTES_MAX)
    bits &= 0xFFFF_FFFF
    return (bits >> 1) ^ -(bits & 1), new_position


def read_varlong(buffer: BytesLike, position: int, end: int) -> tuple[int, int]:
    """A zig-zag encoded long."""
    bits, new_position = _read_bits(buffer, position, end, LONG_BYTES_MAX)
    bits &= 0xFFFF_FFFF_FFFF_FFFF
    return (bits >> 1) ^ -(bits & 1), new_position


def _read_bits(buffer: BytesLike, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    bits = 0
    for index in range(bytes_max):
        if position + index >= end:
            raise CodecError(Reason.BAD_RECORD, position, "the bytes end inside a variable-length integer")
        byte = buffer[position + index]
        bits |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return bits, position + index + 1
    raise CodecError(Reason.BAD_VARINT, position, f"a variable-length integer of more than {bytes_max} bytes")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Appends the shortest encoding of a value of 0 to 2^64 - 1."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Appends the zig-zag encoding of a signed value of 32 bits."""
    write_unsigned_varint(out, ((value << 1) ^ (value >> 31)) & 0xFFFF_FFFF)


def write_varlong(out: bytearray, value: int) -> None:
    """Appends the zig-zag encoding of a signed value of 64 bits."""
    write_unsigned_varint(out, ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF)
