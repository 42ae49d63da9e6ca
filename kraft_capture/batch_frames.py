"""Where record batches begin and end in the bytes of a log segment, and whether they are whole and valid.

Sources: `DefaultRecordBatch` (magic 2). Only the header is read; records stay as they are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kraft_capture.crc32c import crc32c

_HEADER = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_OVERHEAD_BYTES = 12
_LENGTH_MIN = 61 - _OVERHEAD_BYTES
_CRC_FROM = 21
_CONTROL = 0x20
BATCH_BYTES_MAX = 64 << 20
"""A length above it is damage; Kafka's controllers write batches of 8 MiB at most."""

UNFINISHED = "unfinished"
"""The bytes end inside a batch: it is being written, or was never written to its end."""


@dataclass(frozen=True)
class BatchMark:
    """The last batch of what was read: what must still be there for the log to be the same log.

    `segment` is a file name, `position` and `size` are in it; `epoch` is the batch's leader epoch.
    """

    segment: str
    position: int
    size: int
    sha256: str
    base_offset: int
    end_offset: int
    epoch: int


@dataclass(frozen=True)
class Frames:
    """Whole, valid batches at the start of some bytes.

    `size` is their length in bytes; `end_offset` is exclusive; `last_at` and `last_size` are the last batch's place.
    `stopped` says why no further batch follows (None: the bytes end with a batch); `wanted` is how many bytes the next
    batch needs, where its header says so.
    """

    size: int
    first_offset: int
    end_offset: int
    last_base_offset: int
    last_epoch: int
    last_at: int
    last_size: int
    has_control: bool
    stopped: str | None
    wanted: int


def frame_batches(data: memoryview, next_offset: int | None, epoch: int) -> Frames:
    """Reads batches until the bytes end or one is not whole and valid.

    `next_offset` is where the first batch must start (None: anywhere), `epoch` is the lowest that it may have.
    """
    at, total = 0, len(data)
    first: int | None = None
    last_at = last_size = 0
    last_base = -1
    has_control = False
    stopped: str | None = None
    wanted = 0
    while at < total:
        stopped, size, wanted = _problem(data, at, total, next_offset, epoch)
        if stopped is not None:
            break
        base_offset, _, epoch, _, _, attributes, delta = _HEADER.unpack_from(data, at)
        has_control = has_control or bool(attributes & _CONTROL)
        first = base_offset if first is None else first
        last_at, last_size, last_base = at, size, base_offset
        next_offset = base_offset + delta + 1
        at += size
    start = next_offset if first is None else first
    return Frames(at, start or 0, next_offset or 0, last_base, epoch, last_at, last_size, has_control, stopped, wanted)


def _problem(data: memoryview, at: int, total: int, next_offset: int | None, epoch: int) -> tuple[str | None, int, int]:
    """(why the bytes here are no whole, valid batch or None, its size, the bytes that it needs)."""
    if total - at < _HEADER.size:
        return UNFINISHED, 0, _HEADER.size
    base_offset, length, batch_epoch, magic, crc, _, delta = _HEADER.unpack_from(data, at)
    if not any(data[at : at + _HEADER.size]):
        return "zeros", 0, 0
    if not _LENGTH_MIN <= length <= BATCH_BYTES_MAX:
        return f"a batch length of {length}", 0, 0
    if magic != 2:
        return f"a batch of format {magic}", 0, 0
    if delta < 0 or (next_offset is not None and base_offset != next_offset):
        return f"offset {base_offset}, where {next_offset} follows", 0, 0
    if batch_epoch < epoch:
        return f"epoch {batch_epoch} after {epoch}", 0, 0
    size = length + _OVERHEAD_BYTES
    if size > total - at:
        return UNFINISHED, 0, size
    if crc32c(data[at + _CRC_FROM : at + size]) != crc:
        return "a CRC that does not fit the bytes", 0, 0
    return None, size, 0
