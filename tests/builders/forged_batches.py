"""Batches with other bytes under the CRC that they had."""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c

from kraft_codec.records.batch import ATTRIBUTES_POSITION

FORGED_BYTES = 6


def with_same_crc(batch: bytes, places: Sequence[int]) -> bytes:
    """The batch with some bits of FORGED_BYTES bytes flipped so that its CRC still fits.

    A CRC is linear, so that some change of 48 bits leaves its 32 bits as they are.
    """
    assert len(places) == FORGED_BYTES
    before = google_crc32c.value(batch[ATTRIBUTES_POSITION:])
    basis: dict[int, tuple[int, int]] = {}
    for bit in range(8 * FORGED_BYTES):
        bits = 1 << bit
        effect = google_crc32c.value(_flipped(batch, places, bits)[ATTRIBUTES_POSITION:]) ^ before
        while effect:
            top = effect.bit_length()
            if top not in basis:
                basis[top] = (effect, bits)
                break
            effect, bits = effect ^ basis[top][0], bits ^ basis[top][1]
        else:
            return _flipped(batch, places, bits)
    raise AssertionError("48 bits always cancel in a CRC of 32")


def _flipped(batch: bytes, places: Sequence[int], bits: int) -> bytes:
    changed = bytearray(batch)
    for number, place in enumerate(places):
        changed[place] ^= bits >> (8 * number) & 0xFF
    return bytes(changed)
