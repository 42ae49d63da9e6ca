"""The distinct batches of one reading, held for whoever wants their records after it.

The store has three levels. Batches stay in memory up to a budget, with their decoded records where the reading decoded
them. Beyond it they go, compressed, to a temporary file without a name. Where that is full or cannot be written they
are read from the storage again, one copy of each. What is in the file has its headers beside it, so no byte is framed
or checked twice; its records are indexed again, because an index takes as long to unpack as to make.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.decoded_records import Decoder, Records
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.scanner import ChangedError, Chunk, FileTally
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns import BatchIndex, index_batches, redact, row_groups
from kraft_codec.errors import Reason
from kraft_codec.storage.random_access import Buffer, join

MEMORY_BYTES_MAX: Final = 48 << 20
RECORD_FILE_BYTES_MAX: Final = 8 << 30
Wanted = Callable[[Chunk], Mask]
_INDEX_COLUMNS: Final = tuple(
    column.name for column in fields(BatchIndex) if column.name not in ("is_continuous", "consumed_bytes", "stop")
)


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """Where a piece is in a spool, and its sizes."""

    position: int
    packed_bytes: int
    size_bytes: int


class Spool:
    """Pieces of bytes, compressed, in a temporary file without a name."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, content: Buffer) -> SpoolPlace | None:
        """Keeps a piece; None where the spool is full, or the temporary folder cannot hold it."""
        packed = pa.compress(content, codec="lz4", asbytes=True)
        if self._bytes + len(packed) > self._bytes_max:
            return None
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as this object
            self._file.seek(self._bytes)
            written = 0
            while written < len(packed):
                written += self._file.write(memoryview(packed)[written:])
        except OSError:
            self._bytes_max = 0
            return None
        place = SpoolPlace(self._bytes, len(packed), len(content))
        self._bytes += len(packed)
        return place

    def load(self, place: SpoolPlace) -> Buffer:
        """A piece, not to be written to. Raises ValueError once the spool is closed."""
        if self._file is None:
            raise ValueError("the reading is closed")
        packed = os.pread(self._file.fileno(), place.packed_bytes, place.position)
        return np.frombuffer(pa.decompress(packed, place.size_bytes, codec="lz4"), np.uint8)

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class _InFile:
    """A chunk in the spool, and the file and position that it was read from."""

    place: SpoolPlace
    batch_count: int
    tally: FileTally
    file_position: int


@dataclass(frozen=True, slots=True)
class _InStorage:
    """Where a chunk can be read again. `rows` are its batches among those that are framed there, None for all."""

    replica: Replica
    tally: FileTally
    file_position: int
    size_bytes: int
    rows: Rows | None
    batch_count: int
    last_crc: int


@dataclass(slots=True, eq=False)
class StoredBatches:
    """Some batches of one file, in the order of the log.

    `branches` are their branches, one number where all are on the same. `place` is a private chunk in memory, or where
    to get one, None once they are dropped. `records` are there where the reading has decoded the batches in memory;
    `is_redacted` says whether secrets in them are overwritten.
    """

    branches: int | npt.NDArray[np.int32]
    first_offset: int
    last_base_offset: int
    end_offset: int
    place: Chunk | _InFile | _InStorage | None
    records: list[Records] | None = None
    is_redacted: bool = False


@dataclass(slots=True, eq=False)
class StoredWindow:
    """The batches of one window of offsets [from_offset, to_offset)."""

    from_offset: int
    to_offset: int
    parts: list[StoredBatches] = field(default_factory=list)


class RecordStore:
    """Holds batches; one for each reading, closed with it.

    `bytes_read_again` counts what had to be read from the storage a second time.
    """

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX, file_bytes_max: int = RECORD_FILE_BYTES_MAX) -> None:
        self.bytes_read_again = 0
        self._memory_bytes_max = memory_bytes_max
        self._memory_bytes = 0
        self._spool = Spool(file_bytes_max)
        self._dtypes: list[np.dtype[Any]] = []

    def add(
        self, replica: Replica, chunk: Chunk, rows: Rows, branches: Rows | None = None
    ) -> tuple[StoredBatches, Chunk]:
        """Takes the batches at `rows` of a chunk, before anything in them is overwritten.

        Returns them with a private chunk that holds them and nothing else: in it they may be decoded and redacted.
        """
        private = _private_chunk(chunk, rows)
        stored = StoredBatches(
            _compact(branches),
            int(private.base_offset[0]),
            int(private.base_offset[-1]),
            int(private.last_offset[-1]) + 1,
            private,
        )
        if self._memory_bytes + _chunk_bytes(private) <= self._memory_bytes_max:
            self._memory_bytes += _chunk_bytes(private)
        else:
            stored.place = self._write(private) or _in_storage(replica, chunk, rows, private)
        return stored, private

    def keep_records(self, stored: StoredBatches, records: list[Records], *, is_redacted: bool) -> None:
        """Keeps what was decoded from the private chunk of batches that are in memory."""
        if isinstance(stored.place, Chunk):
            stored.records, stored.is_redacted = records, is_redacted
            self._memory_bytes += sum(_record_bytes(part) for part in records)

    def drop(self, stored: StoredBatches) -> None:
        """Lets go of batches in memory. Room in the file is not used again."""
        if isinstance(stored.place, Chunk):
            self._memory_bytes -= _chunk_bytes(stored.place) + sum(map(_record_bytes, stored.records or ()))
        stored.place = stored.records = None

    def records(
        self, stored: StoredBatches, decoder: Decoder, wanted: Wanted | None = None
    ) -> Iterator[tuple[Records, Mask]]:
        """The records of the batches that `wanted` picks from their chunk (None: all), secrets redacted.

        The mask says which rows of `Records.index.selected` are wanted: where batches were decoded before, others are
        among them.
        """
        if stored.records is None:
            chunk = self.chunk(stored)
            rows = chunk.rows if wanted is None else chunk.rows[wanted(chunk)]
            for group in row_groups(chunk.index, rows):
                yield decoder.records(chunk, group), np.ones(len(group), bool)
            return
        if not stored.is_redacted and decoder.redactor is not None:
            for part in stored.records:
                part.is_redacted = redact(part.index, decoder.redactor)
            stored.is_redacted = True
        for part in stored.records:
            mask = np.ones(len(part.chunk), bool) if wanted is None else wanted(part.chunk)
            yield part, mask[part.index.selected]

    def chunk(self, stored: StoredBatches) -> Chunk:
        """The batches as they were read, in memory of the caller's own.

        Raises ChangedError where they must be read again and are not there any more.
        """
        match stored.place:
            case Chunk() as chunk:
                return replace(chunk, buffer=chunk.buffer.copy())
            case _InFile() as place:
                return self._load(place)
            case _InStorage() as place:
                return self._read_again(place)
        raise ValueError("these batches were dropped")

    def close(self) -> None:
        """Lets go of the file."""
        self._spool.close()

    def _write(self, private: Chunk) -> _InFile | None:
        columns = [getattr(private.index, name) for name in _INDEX_COLUMNS]
        self._dtypes = [column.dtype for column in columns]
        place = self._spool.add(np.concatenate([private.buffer, *(column.view(np.uint8) for column in columns)]))
        return None if place is None else _InFile(place, len(private), private.tally, private.file_position)

    def _load(self, stored: _InFile) -> Chunk:
        content, count = self._spool.load(stored.place), stored.batch_count
        end = len(content) - count * sum(dtype.itemsize for dtype in self._dtypes)
        start, columns = end, {}
        for name, dtype in zip(_INDEX_COLUMNS, self._dtypes, strict=True):
            columns[name] = content[start : start + count * dtype.itemsize].copy().view(dtype)
            start += count * dtype.itemsize
        index = BatchIndex(**columns, is_continuous=False, consumed_bytes=end, stop=None)
        return Chunk(stored.tally, content[:end].copy(), stored.file_position, index, np.arange(count))

    def _read_again(self, place: _InStorage) -> Chunk:
        replica, tally, position = place.replica, place.tally, place.file_position
        path = join(replica.plan.path, tally.plan.name)
        with replica.storage.open(path, tally.plan.to_position) as file:
            buffer = file.read_at(position, place.size_bytes)
        self.bytes_read_again += place.size_bytes
        index = index_batches(buffer)
        rows = np.arange(len(index)) if place.rows is None else place.rows
        is_same = len(rows) == place.batch_count and int(rows[-1]) < len(index) and not index.status[rows].any()
        if not is_same or int(index.crc[rows[-1]]) != place.last_crc:
            raise ChangedError(Reason.CHANGED_DURING_READ, position, f"{tally.plan.name} changed after it was read")
        return Chunk(tally, buffer, position, index, rows)


def _private_chunk(chunk: Chunk, rows: Rows) -> Chunk:
    """A copy of the bytes from the first of some batches to the end of the last, and of their headers."""
    index = chunk.index
    start = int(index.position[rows[0]])
    end = int(index.position[rows[-1]]) + int(index.size_bytes[rows[-1]])
    columns = {name: getattr(index, name)[rows] for name in _INDEX_COLUMNS}
    columns["position"] = columns["position"] - start
    own = BatchIndex(**columns, is_continuous=False, consumed_bytes=end - start, stop=None)
    buffer = chunk.buffer[start:end].copy()
    return Chunk(chunk.tally, buffer, chunk.file_position + start, own, np.arange(len(rows)))


def _in_storage(replica: Replica, chunk: Chunk, rows: Rows, private: Chunk) -> _InStorage:
    """Where to read the batches again. Bytes between them that were refused are read too."""
    first, last = int(rows[0]), int(rows[-1])
    between = None if last - first + 1 == len(rows) else rows - first
    size_bytes, last_crc = len(private.buffer), int(chunk.index.crc[last])
    return _InStorage(replica, chunk.tally, private.file_position, size_bytes, between, len(rows), last_crc)


def _compact(branches: Rows | None) -> int | npt.NDArray[np.int32]:
    if branches is None:
        return 0
    first = int(branches[0])
    return first if (branches == first).all() else branches.astype(np.int32)


def _chunk_bytes(chunk: Chunk) -> int:
    return chunk.buffer.nbytes + len(chunk) * _HEADER_BYTES


def _record_bytes(records: Records) -> int:
    own = records.index.buffer
    unpacked = 0 if own is records.chunk.buffer or own.base is records.chunk.buffer else own.nbytes
    return unpacked + len(records.index) * _RECORD_BYTES


_HEADER_BYTES: Final = 120
"""Of a batch in memory: the columns of its header, and those that a chunk repeats."""
_RECORD_BYTES: Final = 80
"""Of a record in memory: the columns of its index."""
