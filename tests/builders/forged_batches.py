"""Batches with other bytes: under the CRC that they had, under one that fits, and under one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import google_crc32c

from kraft_audit.commands.cli import run_command
from kraft_codec.columns.rewriting import with_new_crc
from kraft_codec.records.batch import ATTRIBUTES_POSITION, Batch, BatchHeader, read_batches

FORGED_BYTES = 6
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
TIMES = (*range(32, 35), *range(40, 43))
"""The low bytes of the two timestamps of a batch: no state depends on them."""


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


def batches_of(segment: Path) -> list[tuple[BatchHeader, bytes]]:
    """Header and bytes of each batch of a segment."""
    content = segment.read_bytes()
    found = [each.header for each in read_batches(content) if isinstance(each, Batch)]
    return [(each, content[each.position : each.position + each.size_bytes]) for each in found]


def altered(segment: Path, change: Callable[[bytes], bytes]) -> int:
    """Changes a batch in the middle of a segment in place; its offset."""
    batches = batches_of(segment)
    header, content = batches[len(batches) // 3]
    changed = change(content)
    assert changed != content
    assert len(changed) == len(content)
    whole = segment.read_bytes()
    segment.write_bytes(whole[: header.position] + changed + whole[header.position + len(content) :])
    return header.base_offset


def renewed(content: bytes) -> bytes:
    """Another time, and the CRC that fits it."""
    return bytes(with_new_crc(content[:34] + bytes([content[34] ^ 1]) + content[35:]))


def forged(content: bytes) -> bytes:
    """Other times, and the same CRC."""
    return with_same_crc(content, TIMES)


def broken(content: bytes) -> bytes:
    """A bit that flipped: the CRC does not fit."""
    return content[:34] + bytes([content[34] ^ 1]) + content[35:]


def pack_disks(disks: Path, out: Path, *more: str) -> int:
    """The exit code of `evidence`."""
    return run_command(["evidence", str(disks), "--out", str(out), *more])
