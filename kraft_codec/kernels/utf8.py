"""Whether bytes are UTF-8, strictly: no overlong form, no surrogate, nothing above U+10FFFF (as Python decodes)."""

from __future__ import annotations

from kraft_codec.kernels.memory import inlined, load_int64, load_uint8, shared

_HIGH_BITS = -0x7F7F7F7F7F7F7F80
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
    """Eight ASCII bytes at a time; the first others are looked at one by one, to the end."""
    end = address + size_bytes
    while address + 8 <= end:
        if load_int64(address) & _HIGH_BITS != 0:
            return _is_utf8_tail(address, end)
        address += 8
    while address < end:
        if load_uint8(address) >= 0x80:
            return _is_utf8_tail(address, end)
        address += 1
    return True
