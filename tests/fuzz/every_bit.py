"""Every bit of a log flipped, every length it can be cut at: what the decoder notices.

A batch's CRC covers its bytes from 21 on. Of what stands before, base offset and leader epoch can change without any
checksum noticing (kafka-dump-log prints `isvalid: true`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kraft_codec import columns

OPEN_TO_THE_CRC = {*range(8), *range(12, 16)}
"""Bytes of a batch's header that no checksum of Kafka's covers: base offset, leader epoch."""


def flips(log: bytes) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """(position, the log with one bit flipped), for every bit; the log is the same memory each time."""
    changed = np.frombuffer(bytearray(log), np.uint8)
    for position in range(len(log)):
        for bit in range(8):
            changed[position] ^= 1 << bit
            yield position, changed
            changed[position] ^= 1 << bit


def flip_every_bit(log: bytes) -> int:
    """How many bits were flipped; AssertionError where anything but the bits of OPEN_TO_THE_CRC changes unnoticed."""
    whole = columns.index_batches(log)
    assert whole.stop is None
    assert not whole.status.any()
    starts, ends = whole.position, whole.position + whole.size_bytes
    undetected: Counter[int] = Counter()
    flipped = 0
    for position, changed in flips(log):
        flipped += 1
        row = int(np.searchsorted(starts, position, side="right")) - 1
        found = columns.index_batches(changed, int(starts[row]), int(ends[row]))
        if found.stop is None and len(found) == 1 and found.status[0] == 0:
            undetected[position - int(starts[row])] += 1
    assert set(undetected) == OPEN_TO_THE_CRC
    assert set(undetected.values()) == {8 * len(whole)}, "each bit of each of those bytes, and no other"
    return flipped


def cut_at_every_length(log: bytes) -> int:
    """How many lengths there are; AssertionError where one does not give the batches before the cut, and its tail."""
    whole = columns.index_batches(log)
    ends = (whole.position + whole.size_bytes).tolist()
    for length in range(len(log) + 1):
        row = int(np.searchsorted(ends, length, side="right"))
        start = int(whole.position[max(row - 1, 0)])
        found = columns.index_batches(log[start:length])
        sound = 0 if row == 0 else 1
        assert len(found) == sound, length
        tail = length - (ends[row - 1] if row else 0)
        if tail == 0:
            assert found.stop is None, length
            continue
        assert found.stop is not None, length
        assert found.stop.position + start == length - tail, length
        assert found.stop.length_bytes == tail
        content = log[length - tail : length]
        assert str(found.stop.reason) == ("ZERO_TAIL" if not any(content) else "TORN_TAIL"), length
    return len(log) + 1


def sound_run(log: bytes, most_bytes: int, seed: int) -> bytes:
    """Sound batches in a row, from a place that the seed chooses; nothing if there are none so small."""
    batches = columns.index_batches(log)
    rows = np.flatnonzero((batches.status == 0) & (batches.size_bytes <= most_bytes))
    if not len(rows):
        return b""
    row = int(rows[seed % len(rows)])
    start = int(batches.position[row])
    end = start
    while row < len(batches) and batches.status[row] == 0:
        after = int(batches.position[row] + batches.size_bytes[row])
        if after - start > most_bytes:
            break
        row, end = row + 1, after
    return log[start:end]
