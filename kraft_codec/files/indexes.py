"""The binary files beside a segment: offset index, time index, aborted transactions, producer state.

Sources: `OffsetIndex`, `TimeIndex`, `AbstractIndex`, `TransactionIndex`, `ProducerStateManager` (storage, 3.9 to
4.4). The indexes of the active segment are preallocated: zeros follow the last entry. All integers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from kraft_codec.errors import CodecError, Reason

MAX_INDEX_BYTES: Final = 64 << 20
MAX_PRODUCER_STATE_BYTES: Final = 64 << 20
PREALLOCATED_OFFSET_INDEX_BYTES: Final = 10_485_760
PREALLOCATED_TIME_INDEX_BYTES: Final = 10_485_756

_OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp_ms", ">i8"), ("relative_offset", ">i4")])
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
_ABORTED_VERSION: Final = 0
_PRODUCER_HEADER: Final = struct.Struct(">hIi")
_PRODUCER_ENTRY: Final = struct.Struct(">qhiqiqiq")
_PRODUCER_VERSION: Final = 1
_CRC_END: Final = 6


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """`.index`: the last offset of a batch, less the segment's base offset, and where the batch starts in the file."""

    relative_offsets: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """`.timeindex`: the largest timestamp so far, and the last offset of its batch less the segment's base offset."""

    timestamps_ms: npt.NDArray[np.int64]
    relative_offsets: npt.NDArray[np.int32]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of `.txnindex`: a producer's records from first to last offset (that of its marker) were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One idempotent or transactional producer in a `.snapshot` file; a metadata log never has any."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def parse_offset_index(data: bytes) -> OffsetIndex:
    """Reads `.index`. The zeros at its end are unused: an entry of a real index has a position above 0."""
    entries = _entries(data, _OFFSET_ENTRY)
    index = OffsetIndex(entries["relative_offset"].astype(np.int32), entries["position"].astype(np.int32), len(data))
    _require_ascending(index.relative_offsets, _OFFSET_ENTRY.itemsize, "offset")
    _require_ascending(index.positions, _OFFSET_ENTRY.itemsize, "position")
    return index


def format_offset_index(index: OffsetIndex) -> bytes:
    """The entries, then zeros up to `size_bytes`."""
    entries = np.zeros(len(index.positions), _OFFSET_ENTRY)
    entries["relative_offset"] = index.relative_offsets
    entries["position"] = index.positions
    return _padded(entries, index.size_bytes)


def parse_time_index(data: bytes) -> TimeIndex:
    """Reads `.timeindex`."""
    entries = _entries(data, _TIME_ENTRY)
    index = TimeIndex(entries["timestamp_ms"].astype(np.int64), entries["relative_offset"].astype(np.int32), len(data))
    _require_ascending(index.timestamps_ms, _TIME_ENTRY.itemsize, "timestamp")
    _require_ascending(index.relative_offsets, _TIME_ENTRY.itemsize, "offset", may_repeat=True)
    return index


def format_time_index(index: TimeIndex) -> bytes:
    """The entries, then zeros up to `size_bytes`."""
    entries = np.zeros(len(index.timestamps_ms), _TIME_ENTRY)
    entries["timestamp_ms"] = index.timestamps_ms
    entries["relative_offset"] = index.relative_offsets
    return _padded(entries, index.size_bytes)


def parse_transaction_index(data: bytes) -> tuple[AbortedTransaction, ...]:
    """Reads `.txnindex`: entries of 34 bytes, version 0, by the offset of their markers; a metadata log has none."""
    if len(data) > MAX_INDEX_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_INDEX_BYTES}")
    if len(data) % _ABORTED_ENTRY.size:
        last = len(data) - len(data) % _ABORTED_ENTRY.size
        raise CodecError(Reason.BAD_FILE, last, f"{len(data)} bytes are no multiple of {_ABORTED_ENTRY.size}")
    entries = []
    for number, (version, *fields) in enumerate(_ABORTED_ENTRY.iter_unpack(data)):
        if version != _ABORTED_VERSION:
            position = number * _ABORTED_ENTRY.size
            raise CodecError(Reason.BAD_FILE, position, f"version {version}: expected {_ABORTED_VERSION}")
        entries.append(AbortedTransaction(*fields))
    return tuple(entries)


def parse_producer_state(data: bytes) -> tuple[ProducerEntry, ...]:
    """Reads `.snapshot`: version 1, the CRC-32C of what follows it, a count, entries of 46 bytes."""
    if len(data) > MAX_PRODUCER_STATE_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_PRODUCER_STATE_BYTES}")
    if len(data) < _PRODUCER_HEADER.size:
        raise CodecError(Reason.BAD_FILE, len(data), f"{len(data)} bytes, expected at least {_PRODUCER_HEADER.size}")
    version, crc, count = _PRODUCER_HEADER.unpack_from(data)
    if version != _PRODUCER_VERSION:
        raise CodecError(Reason.BAD_FILE, 0, f"version {version}: expected {_PRODUCER_VERSION}")
    if google_crc32c.value(data[_CRC_END:]) != crc:
        raise CodecError(Reason.BAD_CRC, 2, "the CRC of the producer state does not match")
    if count < 0 or len(data) != _PRODUCER_HEADER.size + count * _PRODUCER_ENTRY.size:
        raise CodecError(Reason.BAD_FILE, _CRC_END, f"{count} entries do not fit {len(data)} bytes")
    return tuple(ProducerEntry(*fields) for fields in _PRODUCER_ENTRY.iter_unpack(data[_PRODUCER_HEADER.size :]))


def format_producer_state(entries: tuple[ProducerEntry, ...] = ()) -> bytes:
    """The ten bytes `0001 48674bc7 00000000` where there are no producers, as always in a metadata log."""
    body = struct.pack(">i", len(entries)) + b"".join(
        _PRODUCER_ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp_ms,
            entry.coordinator_epoch,
            entry.current_transaction_first_offset,
        )
        for entry in entries
    )
    return struct.pack(">hI", _PRODUCER_VERSION, google_crc32c.value(body)) + body


def _entries(data: bytes, entry: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The entries before the zeros at the end."""
    if len(data) > MAX_INDEX_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_INDEX_BYTES}")
    if len(data) % entry.itemsize:
        last = len(data) - len(data) % entry.itemsize
        raise CodecError(Reason.BAD_FILE, last, f"{len(data)} bytes are no multiple of {entry.itemsize}")
    used = np.flatnonzero(np.frombuffer(data, np.uint8))
    count = int(used[-1]) // entry.itemsize + 1 if len(used) else 0
    return np.frombuffer(data, entry, count)


def _require_ascending(
    values: npt.NDArray[np.signedinteger], entry_bytes: int, name: str, *, may_repeat: bool = False
) -> None:
    if not len(values):
        return
    falls = np.flatnonzero(values[1:] < values[:-1] if may_repeat else values[1:] <= values[:-1])
    if values[0] < 0:
        raise CodecError(Reason.BAD_FILE, 0, f"the first {name} is negative")
    if len(falls):
        raise CodecError(Reason.BAD_FILE, (int(falls[0]) + 1) * entry_bytes, f"the {name} does not grow")


def _padded(entries: npt.NDArray[np.void], size_bytes: int) -> bytes:
    content = entries.tobytes()
    if len(content) > size_bytes:
        raise ValueError(f"{len(entries)} entries take {len(content)} bytes, more than {size_bytes}")
    return content.ljust(size_bytes, b"\0")
