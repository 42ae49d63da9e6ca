"""Batch headers as columns, and compressed batches made readable for the kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_codec.columns.buffers import Bytes, Pieces, Readable, byte_array, run_kernel
from kraft_codec.errors import CodecError, Reason
from kraft_codec.kernels.codes import NEED_MORE, OK, REASONS, status_of
from kraft_codec.kernels.library import crc_tables
from kraft_codec.records.batch import ATTRIBUTES_POSITION, CODEC_BITS, CONTROL_BIT, HEADER_BYTES
from kraft_codec.records.compression import Codec, decompress


@dataclass(frozen=True, slots=True)
class ChunkStop:
    """Why the walk ended before the buffer did: all of buffer[position:] is unread.

    `reason` is TORN_TAIL, ZERO_TAIL or BAD_LENGTH, or None where the chunk just ends inside a batch (not `is_last`).
    """

    position: int
    length_bytes: int
    reason: Reason | None


@dataclass(frozen=True, slots=True, eq=False)
class BatchIndex:
    """A row for each whole batch, in the order of the bytes (DefaultRecordBatch's header).

    `status` is 0 for a batch that can be trusted, else the number of BAD_MAGIC or BAD_CRC in `kernels.codes.REASONS`;
    `crc_ok` is set for both. `is_continuous` where every batch can be trusted, has possible offsets, begins where the
    one before it ends and has no lower epoch: of these rows alone, so that one or none is. `consumed_bytes` is the end
    of the last row's batch. The columns share their memory: a caller that holds one holds all, unless it copies.
    """

    position: npt.NDArray[np.int64]
    base_offset: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int32]
    leader_epoch: npt.NDArray[np.int32]
    magic: npt.NDArray[np.int8]
    crc: npt.NDArray[np.uint32]
    attributes: npt.NDArray[np.int16]
    last_offset_delta: npt.NDArray[np.int32]
    base_timestamp_ms: npt.NDArray[np.int64]
    max_timestamp_ms: npt.NDArray[np.int64]
    producer_id: npt.NDArray[np.int64]
    producer_epoch: npt.NDArray[np.int16]
    base_sequence: npt.NDArray[np.int32]
    record_count: npt.NDArray[np.int32]
    crc_ok: npt.NDArray[np.bool_]
    status: npt.NDArray[np.uint8]
    is_continuous: bool
    consumed_bytes: int
    stop: ChunkStop | None

    def __len__(self) -> int:
        return len(self.position)

    @property
    def last_offset(self) -> npt.NDArray[np.int64]:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.attributes & CONTROL_BIT) != 0)

    @property
    def codec(self) -> npt.NDArray[np.int16]:
        """The compression codec's number, 5 to 7 are none."""
        return self.attributes & np.int16(CODEC_BITS)

    def reason(self, row: int) -> Reason | None:
        """What is wrong with a batch."""
        return REASONS[int(self.status[row])]


_BATCH_COLUMN_TYPES: Final[tuple[type[np.generic], ...]] = (
    np.int64, np.int64, np.int32, np.int32, np.int8, np.uint32, np.int16, np.int32,
    np.int64, np.int64, np.int64, np.int16, np.int32, np.int32, np.bool_, np.uint8,
)  # fmt: skip
_BATCH_COLUMN_BYTES: Final = tuple(np.dtype(kind).itemsize for kind in _BATCH_COLUMN_TYPES)
_LEAST_FILL: Final = 1 / 8
"""Columns that fill less of their room are copied: cheap, and the room is free for the next chunk."""
BATCH_COLUMNS: Final = tuple(field.name for field in fields(BatchIndex))[: len(_BATCH_COLUMN_TYPES)]
"""The kernel fills columns by their place in this order."""


def index_batches(buffer: Readable, start: int = 0, end: int | None = None, *, is_last: bool = True) -> BatchIndex:
    """Every whole batch of buffer[start:end], with the verdicts of `kraft_codec.records.batch.read_batches`.

    `is_last` says that the file ends where the buffer does. Where it does not, a batch that the chunk cuts is no
    damage: the stop then has no reason, and the caller comes again with the bytes from `consumed_bytes` on and more
    after them. (Nothing consumed means that the chunk is smaller than one batch, which has 64 MiB at most.)
    """
    data = byte_array(buffer)
    end = len(data) if end is None else end
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"start {start}, end {end}: expected a range of the buffer's {len(data)} bytes")
    room = (end - start) // HEADER_BYTES
    pieces = Pieces([room * width_bytes for width_bytes in _BATCH_COLUMN_BYTES])
    state = np.zeros(3, np.int64)
    stopped = run_kernel("index_batches", data, start, end, int(is_last), pieces.table, crc_tables(), state)
    row_count, position, is_continuous = state.tolist()
    stop = None
    if stopped != OK:
        stop = ChunkStop(position, end - position, None if stopped == NEED_MORE else REASONS[stopped])
    columns: dict[str, Any] = dict(zip(BATCH_COLUMNS, pieces.arrays(_BATCH_COLUMN_TYPES, row_count), strict=True))
    if row_count < _LEAST_FILL * room:
        columns = {name: column.copy() for name, column in columns.items()}
    return BatchIndex(**columns, is_continuous=bool(is_continuous), consumed_bytes=position, stop=stop)


def kernel_crc32c(buffer: Readable) -> int:
    """CRC-32C by the decoder's kernel."""
    data = byte_array(buffer)
    return run_kernel("crc32c", data, len(data), crc_tables())


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """A buffer with the images after the given bytes, and where each selected batch stands in it."""

    buffer: Bytes
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    original_positions: npt.NDArray[np.int64]
    failures: dict[int, CodecError]

    @property
    def places(self) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        return self.buffer, self.positions, self.sizes

    @property
    def packed_positions(self) -> npt.NDArray[np.int64]:
        """Per selected batch: the position of its compressed bytes, -1 where it has none."""
        is_image = self.positions != self.original_positions
        return np.where(is_image, self.original_positions + HEADER_BYTES, -1)

    def restore(self, verdicts: npt.NDArray[np.int64]) -> None:
        """Makes the kernel's verdicts (status, position) say where the error stands in the given bytes."""
        for row in np.flatnonzero(self.positions != self.original_positions).tolist():
            if row in self.failures:
                verdicts[row] = status_of(self.failures[row].reason), self.failures[row].position
            elif verdicts[row, 0] != OK:
                # No byte of a record has a position in the file, but those of the header have.
                inside = verdicts[row, 1] - self.positions[row]
                verdicts[row, 1] = self.original_positions[row] + min(inside, HEADER_BYTES)


def unpack(
    data: Bytes,
    positions: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    attributes: npt.NDArray[np.int16],
    record_counts: npt.NDArray[np.int32],
) -> Unpacked | None:
    """None where no batch is compressed. Each payload is bounded as `kraft_codec.records.compression` bounds it."""
    codecs = attributes & CODEC_BITS
    compressed = np.flatnonzero((codecs != Codec.NONE) & (codecs <= max(Codec)))
    if not len(compressed):
        return None
    new_positions, new_sizes = positions.copy(), sizes.copy()
    failures: dict[int, CodecError] = {}
    pieces = [data.tobytes()]
    end = len(data)
    for row in compressed.tolist():
        start, body = int(positions[row]), int(positions[row]) + HEADER_BYTES
        header = bytearray(data[start:body])
        header[ATTRIBUTES_POSITION + 1] &= ~CODEC_BITS
        payload = b""
        if record_counts[row] >= 0:
            try:
                payload = decompress(
                    Codec(int(codecs[row])), data[body : start + int(sizes[row])].tobytes(), position=body
                )
            except CodecError as error:
                failures[row] = error
        new_positions[row], new_sizes[row] = end, HEADER_BYTES + len(payload)
        pieces += [bytes(header), payload]
        end += HEADER_BYTES + len(payload)
    # A bytearray, because secrets are overwritten in place.
    buffer = np.frombuffer(bytearray().join(pieces), np.uint8)
    return Unpacked(buffer, new_positions, new_sizes, positions, failures)
