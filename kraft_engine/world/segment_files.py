"""A segment's files from its batches: the log, its offset index, its time index (OffsetIndex, TimeIndex)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kraft_codec.file_names import offset_index_name, segment_name, time_index_name
from kraft_codec.files.indexes import (
    PREALLOCATED_OFFSET_INDEX_BYTES,
    PREALLOCATED_TIME_INDEX_BYTES,
    OffsetIndex,
    TimeIndex,
    format_offset_index,
    format_time_index,
)

INDEX_INTERVAL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch's bytes, its last offset, and its largest timestamp in milliseconds."""

    octets: bytes
    last_offset: int
    timestamp_ms: int


class Segment:
    """One segment as it grows: batches are appended, index entries follow by Kafka's rule of 4,096 bytes."""

    __slots__ = ("_newest", "_offsets", "_since_entry", "_times", "base_offset", "octets")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.octets = bytearray()
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []
        self._since_entry = 0
        self._newest = (-1, base_offset)

    def append(self, batch: EncodedBatch) -> int:
        """Returns the position at which the batch begins."""
        position = len(self.octets)
        if batch.timestamp_ms > self._newest[0]:
            self._newest = (batch.timestamp_ms, batch.last_offset)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self._offsets.append((batch.last_offset - self.base_offset, position))
            self._add_time()
            self._since_entry = 0
        self._since_entry += len(batch.octets)
        self.octets += batch.octets
        return position

    def close(self) -> None:
        """Rolled, closed or recovered: the largest timestamp gets its entry."""
        if self.octets:
            self._add_time()

    def _add_time(self) -> None:
        timestamp_ms, offset = self._newest
        if not self._times or timestamp_ms > self._times[-1][0]:
            self._times.append((timestamp_ms, offset - self.base_offset))

    def write(self, folder: Path, *, preallocated: bool = False) -> None:
        """Writes the three files; `preallocated` indexes have the 10 MB of an active segment on a running node."""
        offsets, times = self._offsets, self._times
        index = OffsetIndex(
            np.array([entry[0] for entry in offsets], np.int32),
            np.array([entry[1] for entry in offsets], np.int32),
            PREALLOCATED_OFFSET_INDEX_BYTES if preallocated else 8 * len(offsets),
        )
        time_index = TimeIndex(
            np.array([entry[0] for entry in times], np.int64),
            np.array([entry[1] for entry in times], np.int32),
            PREALLOCATED_TIME_INDEX_BYTES if preallocated else 12 * len(times),
        )
        (folder / segment_name(self.base_offset)).write_bytes(bytes(self.octets))
        (folder / offset_index_name(self.base_offset)).write_bytes(format_offset_index(index))
        (folder / time_index_name(self.base_offset)).write_bytes(format_time_index(time_index))
