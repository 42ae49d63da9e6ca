"""Where a log goes on behind bytes that are no batch.

Kafka cuts a log at the first bytes that it cannot frame. What stands behind them is evidence all the same: a sector of
zeros in the middle of a log leaves whole batches after it. They are found by what a header must look like, and believed
only where the CRC is right.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.batch import BATCH_LENGTH_MAX, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, crc32c, read_header
from kraft_codec.random_access import Buffer, RandomAccess

SEARCH_BYTES: Final = 1 << 20
CHECKED_BYTES_FACTOR: Final = 2
CHECKED_BYTES_FREE: Final = 16 << 20
OFFSETS_AHEAD_MAX: Final = 1 << 40
_MAGIC_AT: Final = 16
_CRC_COVERED_FROM: Final = 21


def next_batch(file: RandomAccess, position: int, *, at_least_offset: int) -> int | None:
    """The position of the first whole batch with a right CRC in file[position:]; None where there is none.

    `at_least_offset` is where the log stands: earlier offsets, and such far ahead, are chance or a trap. Time is
    bounded by the bytes that remain: when false headers have cost twice those, the search ends.
    """
    budget = CHECKED_BYTES_FREE + CHECKED_BYTES_FACTOR * (file.size_bytes - position)
    while True:
        # A header whose first bytes are zero may begin before the next byte that is not.
        position = max(position, file.next_data(position) - (HEADER_BYTES - 1))
        length = min(SEARCH_BYTES, file.size_bytes - position)
        if length < HEADER_BYTES:
            return None
        window = file.read_at(position, length)
        for candidate in _candidates(window, at_least_offset).tolist():
            size_bytes = read_header(window.data, candidate).size_bytes
            if position + candidate + size_bytes > file.size_bytes:
                continue
            budget -= size_bytes
            if budget < 0:
                return None
            if _is_batch(file, position + candidate, size_bytes):
                return position + int(candidate)
        position += length - (HEADER_BYTES - 1)


def _candidates(window: Buffer, at_least_offset: int) -> npt.NDArray[np.int64]:
    """Where a header with magic 2, a length that a batch may have and an offset that may follow could start."""
    starts = len(window) - HEADER_BYTES + 1
    likely = np.flatnonzero(window[_MAGIC_AT : _MAGIC_AT + starts] == MAGIC)
    length = _big_endian(window, likely + 8, 4)
    likely = likely[(length >= HEADER_BYTES - LOG_OVERHEAD_BYTES) & (length <= BATCH_LENGTH_MAX)]
    offset = _big_endian(window, likely, 8)
    return likely[(offset >= at_least_offset) & (offset < at_least_offset + OFFSETS_AHEAD_MAX)]


def _big_endian(window: Buffer, positions: npt.NDArray[np.int64], size_bytes: int) -> npt.NDArray[np.int64]:
    value = np.zeros(len(positions), np.int64)
    for byte in range(size_bytes):
        value = (value << 8) | window[positions + byte]
    return value


def _is_batch(file: RandomAccess, position: int, size_bytes: int) -> bool:
    batch = file.read_at(position, size_bytes).data
    return crc32c(batch[_CRC_COVERED_FROM:]) == read_header(batch, 0).crc
