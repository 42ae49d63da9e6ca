"""Logs with changed bytes whose checksums are right again."""

from __future__ import annotations

import struct

import google_crc32c

HEADER_BYTES = 61


CRC_FROM = 21


def with_right_crcs(log: bytes | bytearray) -> bytes:
    """The adversary's log: what the batches' lengths frame gets CRCs that are right again."""
    repaired = bytearray(log)
    position = 0
    while position + HEADER_BYTES <= len(repaired):
        end = position + 12 + struct.unpack_from(">i", repaired, position + 8)[0]
        if not position + HEADER_BYTES <= end <= len(repaired):
            break
        struct.pack_into(">I", repaired, position + 17, google_crc32c.value(bytes(repaired[position + CRC_FROM : end])))
        position = end
    return bytes(repaired)
