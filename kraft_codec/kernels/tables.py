"""Lookup tables for the CRC kernels, and what this processor can do. No numba."""

from __future__ import annotations

import functools
import platform
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.kernels.codes import BASE64_DIGITS, BASE64_URL_PAIRS, DIGIT_PAIRS

POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli, reversed."""
LANE_BYTES: Final = 256


@functools.cache
def byte_tables() -> npt.NDArray[np.uint32]:
    """Eight tables of 256: table k gives the CRC of a byte that k zero bytes follow."""
    tables = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(POLYNOMIAL), crc >> 1).astype(np.uint32)
    tables[0] = crc
    for number in range(1, 8):
        tables[number] = (tables[number - 1] >> 8) ^ crc[tables[number - 1] & 0xFF]
    return tables


@functools.cache
def lane_tables() -> npt.NDArray[np.uint32]:
    """Four tables of 256: table k gives what a CRC's byte k becomes after LANE_BYTES zero bytes."""
    crc = byte_tables()[0]
    tables = np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for _ in range(LANE_BYTES):
        tables = (tables >> 8) ^ crc[tables & 0xFF]
    return np.ascontiguousarray(tables, np.uint32)


@functools.cache
def text_constants() -> npt.NDArray[np.uint8]:
    """What the text kernel looks up: all pairs of digits, base64's digits, and URL-safe base64's pairs of 12 bits."""
    pairs = "".join(f"{number:02}" for number in range(100)).encode()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    url_digits = letters + "-_"
    url_pairs = "".join(first + second for first in url_digits for second in url_digits).encode()
    blob = bytearray(BASE64_URL_PAIRS + len(url_pairs))
    for start, content in (
        (DIGIT_PAIRS, pairs),
        (BASE64_DIGITS, (letters + "+/").encode()),
        (BASE64_URL_PAIRS, url_pairs),
    ):
        blob[start : start + len(content)] = content
    return np.frombuffer(bytes(blob), np.uint8)


@functools.cache
def has_crc32_instruction() -> bool:
    """Whether this processor has SSE 4.2's crc32 (every x86-64 server since 2009)."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return False
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("sse4.2", False))
