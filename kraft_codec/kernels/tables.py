"""Lookup tables for the CRC kernels, and what this processor can do. No numba."""

from __future__ import annotations

import functools
import platform
from typing import Final

import numpy as np
import numpy.typing as npt

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


def has_crc32_instruction() -> bool:
    """Whether this processor has SSE 4.2's crc32 (every x86-64 server since 2009)."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return False
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("sse4.2", False))
