"""The runs of the table `archive`, found by what they hold and read a block at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.bronze_rows import LOG_SOURCE
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns.batches import index_batches
from kraft_codec.columns.buffers import Bytes, byte_array
from kraft_codec.columns.records import index_records
from kraft_codec.columns.rewriting import plain_image, rewritten, unknown_value
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.records.compression import Codec
from kraft_codec.storage.random_access import Buffer, FileChange, RandomAccess

BLOCK_BYTES: Final = 32 << 20
"""How much is read of the table at a time."""
BLOCKS_HELD: Final = 3
ArchivedKey: TypeAlias = tuple[int, int, int, int]
"""A batch by BATCH_KEY: its CRC is the one that it had on the disk."""


class ArchiveTables(Protocol):
    """What closed plans left of one cluster in a lake."""

    def captures(self) -> pa.Table:
        """All rows of `captures`."""

    def holdings(self) -> pa.Table:
        """The valid rows of `batches`: who held what, from when on, and what was cut off again."""

    def runs(self) -> pa.Table:
        """All rows of `archive` without `content`."""

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        """`leader_epoch`, `from_offset`, `first_crc`, `content` of the runs that begin in a range of offsets."""


@dataclass(frozen=True, slots=True)
class _Block:
    source: str
    from_offset: int
    to_offset: int


class ArchivedRuns:
    """The runs of one cluster by number; a few blocks of them are held, as all copies of a log are read in step."""

    def __init__(self, tables: ArchiveTables) -> None:
        self._tables = tables
        rows = tables.runs()
        order = [("source", "ascending"), ("from_offset", "ascending"), ("leader_epoch", "ascending")]
        self._rows = rows.sort_by([*order, ("first_crc", "ascending")]).to_pylist()
        self._numbers = {
            (row["source"], row["from_offset"], row["leader_epoch"], row["first_crc"]): number
            for number, row in enumerate(self._rows)
        }
        self._block_of: list[int] = []
        self._blocks: list[_Block] = []
        self._divide()
        self._held: OrderedDict[int, dict[int, Bytes]] = OrderedDict()
        self._whole: list[Bytes] = []

    @property
    def sources(self) -> list[str]:
        """`log` and the ids of the snapshots that are kept."""
        return sorted({row["source"] for row in self._rows})

    def content(self, number: int) -> Bytes:
        """The bytes of a run, or of a whole batch. Raises InputError where the table no longer has it."""
        if number >= len(self._rows):
            return self._whole[number - len(self._rows)]
        block = self._block_of[number]
        if block not in self._held:
            self._held[block] = self._read(block)
            if len(self._held) > BLOCKS_HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(block)
        content = self._held[block].get(number)
        if content is None:
            raise InputError("archive", f"run {self._rows[number]['from_offset']} is gone: is the lake being vacuumed?")
        return content

    def batches(self, source: str) -> ArchivedBatches:
        """Every batch of a source, by its original key, in the order of the runs."""
        parts = [self._indexed(number) for number, row in enumerate(self._rows) if row["source"] == source]
        return ArchivedBatches(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def with_whole(self, batches: ArchivedBatches, whole: Mapping[ArchivedKey, Bytes]) -> ArchivedBatches:
        """The batches, those that are here by their key as a disk has them: with secrets, and records of any type."""
        run, position, size_bytes = batches.run.copy(), batches.position.copy(), batches.size_bytes.copy()
        is_changed = batches.is_changed.copy()
        for row, key in batches.changed_keys():
            if key in whole:
                run[row], position[row], size_bytes[row] = len(self._rows) + len(self._whole), 0, len(whole[key])
                is_changed[row] = False
                self._whole.append(whole[key])
        return replace(batches, run=run, position=position, size_bytes=size_bytes, is_changed=is_changed)

    def _indexed(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        row, index = self._rows[number], index_batches(self.content(number))
        if index.stop is not None or (index.status != 0).any() or len(index) != row["batch_count"]:
            raise InputError("archive", f"the run from offset {row['from_offset']} on is not what was written")
        crc = index.crc.astype(np.int64)
        is_changed = np.zeros(len(index), bool)
        for changed in row["changed_batches"]:
            at = index.base_offset == changed["base_offset"]
            crc[at], is_changed[at] = changed["original_crc"], True
        numbers = np.full(len(index), number, np.int64)
        epochs, sizes = index.leader_epoch.astype(np.int64), index.size_bytes.astype(np.int64)
        # Copies, as every run is indexed before any is let go: one column of an index keeps the memory of all.
        base_offset, position = index.base_offset.copy(), index.position.copy()
        return base_offset, index.last_offset, epochs, crc, numbers, position, sizes, is_changed

    def _divide(self) -> None:
        """Blocks of about BLOCK_BYTES; runs that begin at one offset stay together."""
        size = 0
        for row in self._rows:
            last = self._blocks[-1] if self._blocks else None
            is_other_source = last is None or last.source != row["source"]
            if last is None or is_other_source or (size >= BLOCK_BYTES and row["from_offset"] >= last.to_offset):
                self._blocks.append(_Block(row["source"], row["from_offset"], row["from_offset"] + 1))
                size = 0
            else:
                self._blocks[-1] = _Block(last.source, last.from_offset, row["from_offset"] + 1)
            self._block_of.append(len(self._blocks) - 1)
            size += row["size_bytes"]

    def _read(self, number: int) -> dict[int, Bytes]:
        block = self._blocks[number]
        contents = {}
        rows = self._tables.contents(block.source, block.from_offset, block.to_offset)
        for batch in rows.to_batches():
            names = ("from_offset", "leader_epoch", "first_crc")
            keys = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            for key, content in zip(keys, batch.column("content"), strict=True):
                run = self._numbers.get((block.source, *key))
                if run is not None:
                    contents[run] = _as_read(byte_array(content.as_buffer()), self._rows[run]["unknown_records"])
        return contents


def _as_read(content: Bytes, unknown_records: Sequence[Mapping[str, Any]]) -> Bytes:
    """A run as its records were read: what a NoOp stands for cannot be decoded this time either."""
    values = {
        record["offset"]: unknown_value(record["type_number"], record["record_version"])
        for record in unknown_records
        if not record["is_control"]
    }
    if not values:
        return content
    index = index_batches(content)
    parts, copied_to = [], 0
    rows = np.searchsorted(index.base_offset, list(values), side="right") - 1
    # What is damaged stays as it is, and is reported where the run is indexed.
    for row in np.intersect1d(rows, np.flatnonzero(index.status == 0)).tolist():
        image = plain_image(index_records(content, index, [row]), row, len(content))
        start = int(index.position[row])
        parts += [content[copied_to:start].tobytes(), rewritten(image, Codec(int(index.codec[row])), values)]
        copied_to = start + int(index.size_bytes[row])
    return byte_array(b"".join([*parts, content[copied_to:].tobytes()]))


@dataclass(frozen=True, slots=True, eq=False)
class ArchivedBatches:
    """Batches and where they stand: `run`, and `position` in its content. `crc` is the original one.

    `is_changed`: not archived byte for byte, as it holds a secret or a record of an unknown type.
    """

    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    crc: Rows
    run: Rows
    position: Rows
    size_bytes: Rows
    is_changed: Mask

    def __len__(self) -> int:
        return len(self.base_offset)

    def changed_keys(self) -> list[tuple[int, ArchivedKey]]:
        """Row and key of each batch that is not archived byte for byte."""
        rows = np.flatnonzero(self.is_changed)
        keys = zip(*(getattr(self, name)[rows].tolist() for name in BATCH_KEY), strict=True)
        return list(zip(rows.tolist(), keys, strict=True))

    def take(self, rows: Rows) -> ArchivedBatches:
        return ArchivedBatches(*(getattr(self, name)[rows] for name in self.__slots__))

    def in_order(self) -> ArchivedBatches:
        """By offset; of equal batches, which two plans may both have kept, the first."""
        order = np.lexsort((self.crc, self.last_offset, self.leader_epoch, self.base_offset))
        keys = np.stack([getattr(self, name)[order] for name in BATCH_KEY])
        is_new = np.ones(len(order), bool)
        is_new[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        return self.take(order[is_new])

    def numbers_of(self, table: pa.Table) -> Rows:
        """The number here of each row's batch, -1 where it is not kept; the table has BATCH_KEY."""
        here = pa.table({name: getattr(self, name) for name in BATCH_KEY} | {"number": np.arange(len(self))})
        place = pa.array(np.arange(table.num_rows))
        theirs = pa.table({name: table.column(name).cast(pa.int64()) for name in BATCH_KEY}).append_column(
            "place", place
        )
        joined = theirs.join(here, list(BATCH_KEY), join_type="left outer").sort_by("place")
        numbers: npt.NDArray[np.int64] = joined.column("number").fill_null(-1).to_numpy()
        return numbers


class ArchivedFile(RandomAccess):
    """Batches of the archive one after the other, as if they were a file.

    `changed_offsets`: the base offsets of those that are not archived byte for byte.
    """

    def __init__(self, path: str, runs: ArchivedRuns, batches: ArchivedBatches, mtime_ms: int) -> None:
        ends = np.cumsum(batches.size_bytes)
        super().__init__(path, int(ends[-1]) if len(ends) else 0, mtime_ms)
        self.changed_offsets = frozenset(batches.base_offset[batches.is_changed].tolist())
        self._runs = runs
        # Neighbours in a run are one stretch.
        starts = np.ones(len(batches), bool)
        starts[1:] = (batches.run[1:] != batches.run[:-1]) | (
            batches.position[1:] != batches.position[:-1] + batches.size_bytes[:-1]
        )
        first = np.flatnonzero(starts)
        self._run, self._position = batches.run[first], batches.position[first]
        self._start = (ends - batches.size_bytes)[first]

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        written = 0
        for piece in self._pieces(position, len(buffer)):
            buffer[written : written + len(piece)] = piece
            written += len(piece)

    def change(self) -> FileChange:
        return FileChange.NONE

    def close(self) -> None:
        """There is nothing to let go."""

    def _pieces(self, position: int, length: int) -> Iterator[Bytes]:
        number = int(np.searchsorted(self._start, position, side="right")) - 1
        end = position + length
        while position < end:
            inside = position - int(self._start[number])
            stop = int(self._start[number + 1]) if number + 1 < len(self._start) else self.size_bytes
            first = int(self._position[number]) + inside
            count = min(end, stop) - position
            yield self._runs.content(int(self._run[number]))[first : first + count]
            position += count
            number += 1


class InMemoryFile(RandomAccess):
    """A few bytes made from what the tables say."""

    def __init__(self, path: str, content: bytes, mtime_ms: int) -> None:
        super().__init__(path, len(content), mtime_ms)
        self._content = content

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        buffer[:] = np.frombuffer(self._content, np.uint8)[position : position + len(buffer)]

    def change(self) -> FileChange:
        return FileChange.NONE

    def close(self) -> None:
        """There is nothing to let go."""


def planned_length(file: RandomAccess, planned_size_bytes: int | None) -> RandomAccess:
    """Refuses a plan that wants more than there is."""
    if planned_size_bytes is not None and planned_size_bytes > file.size_bytes:
        detail = f"{file.size_bytes} bytes, {planned_size_bytes} were planned"
        raise CodecError(Reason.CHANGED_DURING_READ, file.size_bytes, detail)
    return file


def snapshot_sources(runs: ArchivedRuns) -> list[str]:
    """The snapshots that are kept."""
    return [source for source in runs.sources if source != LOG_SOURCE]
