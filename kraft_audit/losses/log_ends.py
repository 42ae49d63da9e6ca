"""Where the log of one partition ends on a disk: after its last valid batch, as Kafka's recovery would leave it.

Source: `LogLoader.recoverLog`, Kafka 4.3. No record is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind, parse_file_name
from kraft_codec.files.indexes import MAX_INDEX_BYTES, parse_offset_index
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.storage.random_access import EntryKind, RandomAccess, Storage, join

PREFIX: Final = struct.Struct(">qi")
PLAUSIBLE_BATCH_BYTES_MAX: Final = 128 << 20
"""A batch longer than that is taken for damage: max.message.bytes is 1 MiB by default."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The offset after the last valid batch, the epoch of that batch (None: no batch is left), and the first offset."""

    end_offset: int
    leader_epoch: int | None
    start_offset: int


def log_end(storage: Storage, path: str) -> PartitionEnd | None:
    """The end of one partition folder; None where it has no segment, as in a copy of small files. Raises CodecError."""
    segments = segments_of(storage, path)
    for base_offset, name in reversed(segments):
        with storage.open(join(path, name)) as file:
            last = None
            for batch in _valid_batches(file, _start(storage, path, base_offset, file.size_bytes)):
                last = batch.header
            if last is None:  # an index that points beyond what is valid
                for batch in _valid_batches(file, 0):
                    last = batch.header
        if last is not None:
            return PartitionEnd(last.last_offset + 1, last.leader_epoch, segments[0][0])
    return PartitionEnd(segments[-1][0], None, segments[0][0]) if segments else None


def segments_of(storage: Storage, path: str) -> list[tuple[int, str]]:
    """(base offset, name) of each segment in a folder, in order. Raises CodecError."""
    parsed = [parse_file_name(entry.name) for entry in storage.list_dir(path).entries if entry.kind is EntryKind.FILE]
    return sorted((name.base_offset or 0, name.name) for name in parsed if name and name.kind is FileKind.SEGMENT)


def _start(storage: Storage, path: str, base_offset: int, size_bytes: int) -> int:
    """Where the last indexed batch of a segment starts, so that a gigabyte before it need not be read."""
    try:
        index = parse_offset_index(storage.read_small(join(path, f"{base_offset:020d}.index"), MAX_INDEX_BYTES))
    except CodecError:
        return 0
    positions = index.positions
    return int(positions[-1]) if len(positions) and 0 <= positions[-1] < size_bytes else 0


def _valid_batches(file: RandomAccess, position: int) -> Iterator[Batch]:
    """Batches up to the first that Kafka's recovery would cut at."""
    while position + PREFIX.size <= file.size_bytes:
        _, length = PREFIX.unpack(file.read_at(position, PREFIX.size).tobytes())
        size_bytes = PREFIX.size + length
        if not 0 < length <= PLAUSIBLE_BATCH_BYTES_MAX or position + size_bytes > file.size_bytes:
            return
        batch = next(read_batches(file.read_at(position, size_bytes).data), None)
        if not isinstance(batch, Batch) or batch.damage is not None:
            return
        yield batch
        position += size_bytes
