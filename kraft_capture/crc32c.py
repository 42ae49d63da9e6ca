"""CRC-32C (Castagnoli), which Kafka's record batches carry, in plain Python: quick enough for a metadata log."""

from __future__ import annotations

from functools import lru_cache
from typing import Union

Bytes = Union[bytes, bytearray, memoryview]

_POLYNOMIAL = 0x82F63B78  # reflected: bit i is the coefficient of x^(31 - i)
_FOLDED_BYTES_MIN = 96
"""Shorter input goes byte by byte, which is faster there."""


def _table() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_TABLE = _table()


def crc32c(data: Bytes) -> int:
    """The checksum of the bytes, as RFC 3720 and Kafka's `Crc32C` define it."""
    if len(data) < _FOLDED_BYTES_MIN:
        return _byte_by_byte(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    # The checksum's start value is the same as flipping the first 32 bits of the message.
    folded, bit_count = _fold(int.from_bytes(data, "little") ^ 0xFFFFFFFF, 8 * len(data))
    return _byte_by_byte(folded.to_bytes(bit_count // 8, "little"), 0) ^ 0xFFFFFFFF


def _byte_by_byte(data: Bytes, register: int) -> int:
    table = _TABLE
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register


def _fold(message: int, bit_count: int) -> tuple[int, int]:
    """A shorter message with the same remainder.

    The message is a polynomial whose first bit, bit 0 of the integer, has the highest power. Its front A stands before
    a rest B of b bits: A·x^b + B has the remainder of A·(x^b mod P) + B. Python's long integers do that
    multiplication as 32 shifts at most, at the speed of memory, and each step halves the message.
    """
    while bit_count > 8 * _FOLDED_BYTES_MIN:
        rest_bits = 1 << ((bit_count - 1).bit_length() - 1)
        if bit_count > 2 * rest_bits - 32:
            rest_bits += 64  # so that the product fits into the rest
        front_bits = bit_count - rest_bits
        front = message & ((1 << front_bits) - 1)
        message >>= front_bits
        for power in _powers_of_remainder(rest_bits):
            message ^= front << (rest_bits - front_bits - power)
        bit_count = rest_bits
    return message, bit_count


@lru_cache(maxsize=256)
def _powers_of_remainder(exponent: int) -> tuple[int, ...]:
    """The powers of x in x^exponent mod P."""
    result, base = 1 << 31, 1 << 30  # 1 and x
    while exponent:
        if exponent & 1:
            result = _product(result, base)
        base = _product(base, base)
        exponent >>= 1
    return tuple(31 - bit for bit in range(32) if result >> bit & 1)


def _product(left: int, right: int) -> int:
    """left · right mod P."""
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = (right >> 1) ^ (_POLYNOMIAL if right & 1 else 0)
    return product
