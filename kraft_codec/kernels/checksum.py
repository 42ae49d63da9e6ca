"""CRC-32C (Castagnoli) of bytes at an address: by the processor's own instruction, or by tables, eight bytes at a time.

Which one a process compiles is decided by what its processor has. The tables are built by `tables`.
"""

from __future__ import annotations

from kraft_codec.kernels.memory import (
    crc32_eight_bytes,
    crc32_one_byte,
    inlined,
    load_int64,
    load_uint8,
    load_uint32,
)

LANE_BYTES = 256
"""The instruction gives a result every cycle but each takes three: long ranges go through it in three lanes."""


@inlined
def _shifted(crc: int, tables: int) -> int:
    """The CRC after LANE_BYTES further zero bytes: four lookups instead of LANE_BYTES steps."""
    return (
        load_uint32(tables + 4 * (crc & 0xFF))
        ^ load_uint32(tables + 1024 + 4 * ((crc >> 8) & 0xFF))
        ^ load_uint32(tables + 2048 + 4 * ((crc >> 16) & 0xFF))
        ^ load_uint32(tables + 3072 + 4 * ((crc >> 24) & 0xFF))
    )


@inlined
def crc32c_by_instruction(address: int, size_bytes: int, tables: int) -> int:
    """`tables`: four tables of 256 uint32 that append LANE_BYTES zero bytes to a CRC."""
    crc = 0xFFFFFFFF
    end = address + size_bytes
    while address + 3 * LANE_BYTES <= end:
        second = 0
        third = 0
        lane_end = address + LANE_BYTES
        while address < lane_end:
            crc = crc32_eight_bytes(crc, load_int64(address))
            second = crc32_eight_bytes(second, load_int64(address + LANE_BYTES))
            third = crc32_eight_bytes(third, load_int64(address + 2 * LANE_BYTES))
            address += 8
        crc = _shifted(_shifted(crc, tables) ^ second, tables) ^ third
        address += 2 * LANE_BYTES
    while address + 8 <= end:
        crc = crc32_eight_bytes(crc, load_int64(address))
        address += 8
    while address < end:
        crc = crc32_one_byte(crc, load_uint8(address))
        address += 1
    return crc ^ 0xFFFFFFFF


@inlined
def crc32c_by_tables(address: int, size_bytes: int, tables: int) -> int:
    """`tables`: eight tables of 256 uint32, table k for a byte that k further bytes follow (slicing by eight)."""
    crc = 0xFFFFFFFF
    end = address + size_bytes
    while address + 8 <= end:
        low = crc ^ load_uint32(address)
        high = load_uint32(address + 4)
        crc = (
            load_uint32(tables + 7168 + 4 * (low & 0xFF))
            ^ load_uint32(tables + 6144 + 4 * ((low >> 8) & 0xFF))
            ^ load_uint32(tables + 5120 + 4 * ((low >> 16) & 0xFF))
            ^ load_uint32(tables + 4096 + 4 * (low >> 24))
            ^ load_uint32(tables + 3072 + 4 * (high & 0xFF))
            ^ load_uint32(tables + 2048 + 4 * ((high >> 8) & 0xFF))
            ^ load_uint32(tables + 1024 + 4 * ((high >> 16) & 0xFF))
            ^ load_uint32(tables + 4 * (high >> 24))
        )
        address += 8
    while address < end:
        crc = (crc >> 8) ^ load_uint32(tables + 4 * ((crc ^ load_uint8(address)) & 0xFF))
        address += 1
    return crc ^ 0xFFFFFFFF
