"""Batch headers as columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kraft_codec.columns_memory import Pieces, address
from kraft_codec.errors import Reason
from kraft_codec.kernels import native
from kraft_codec.kernels.codes import BATCH_HEADER_BYTES, NEED_MORE, OK, REASONS
from kraft_codec.kernels.tables import byte_tables, has_crc32_instruction, lane_tables

Bytes: TypeAlias = npt.NDArray[np.uint8]
Readable: TypeAlias = Any
"""Whatever has the buffer protocol: bytes, bytearray, memoryview, numpy uint8, pa.Buffer."""

_NAME: Final = "decoder"
_CONTROL_BIT: Final = 0x20
_CODEC_BITS: Final = 0x07


@functools.cache
def kernels() -> Mapping[str, native.Function]:
    """The decoder's kernels, loaded or compiled at the first call."""
    return native.library(_NAME, _factory())


def compile_ahead() -> None:
    """To be called by who compiles other kernels first: a first start compiles both at the same time."""
    native.compile_ahead(_NAME, _factory())


def _factory() -> str:
    factory = "with_crc32_instruction" if has_crc32_instruction() else "with_crc32_tables"
    return f"kraft_codec.kernels.decoder:{factory}"


def crc_tables() -> npt.NDArray[np.uint32]:
    """The tables that go with the kernel's way to compute a CRC."""
    return lane_tables() if has_crc32_instruction() else byte_tables()


def byte_array(buffer: Readable) -> Bytes:
    """The buffer's bytes without a copy."""
    return np.frombuffer(buffer, np.uint8) if len(memoryview(buffer)) else np.zeros(0, np.uint8)


def addresses(columns: list[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """A table of column addresses, as kernels take it."""
    return np.array([address(column) for column in columns], np.int64)


@dataclass(frozen=True, slots=True)
class Stop:
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
    `crc_ok` is told for both. `is_continuous` where every batch can be trusted, has possible offsets, begins where the
    one before it ends and has no lower epoch: of these rows alone, so that one or none is. `consumed_bytes` is the end
    of the last row's batch. The columns share their memory: who keeps one keeps all, or copies it.
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
    stop: Stop | None

    def __len__(self) -> int:
        return len(self.position)

    @property
    def last_offset(self) -> npt.NDArray[np.int64]:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.attributes & _CONTROL_BIT) != 0)

    @property
    def codec(self) -> npt.NDArray[np.int16]:
        """The compression codec's number, 5 to 7 are none."""
        return self.attributes & np.int16(_CODEC_BITS)

    def reason(self, row: int) -> Reason | None:
        """What is wrong with a batch."""
        return REASONS[int(self.status[row])]


_COLUMN_TYPES: Final[tuple[type[np.generic], ...]] = (
    np.int64, np.int64, np.int32, np.int32, np.int8, np.uint32, np.int16, np.int32,
    np.int64, np.int64, np.int64, np.int16, np.int32, np.int32, np.bool_, np.uint8,
)  # fmt: skip
_COLUMN_BYTES: Final = tuple(np.dtype(kind).itemsize for kind in _COLUMN_TYPES)
_LEAST_FILL: Final = 1 / 8
"""Columns that fill less of their room are copied: cheap, and the room is free for the next chunk."""
BATCH_COLUMNS: Final = tuple(field.name for field in fields(BatchIndex))[: len(_COLUMN_TYPES)]
"""The kernel fills columns by their place in this order."""


def index_batches(buffer: Readable, start: int = 0, end: int | None = None, *, is_last: bool = True) -> BatchIndex:
    """Every whole batch of buffer[start:end], with the verdicts of `kraft_codec.batch.read_batches`.

    `is_last` says that the file ends where the buffer does. Where it does not, a batch that the chunk cuts is no
    damage: the stop then has no reason, and the caller comes again with the bytes from `consumed_bytes` on and more
    behind them. (Nothing consumed means that the chunk is smaller than one batch, which has 64 MiB at most.)
    """
    data = byte_array(buffer)
    end = len(data) if end is None else end
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"start {start}, end {end}: expected a range of the buffer's {len(data)} bytes")
    place = address(data), start, end, int(is_last)
    room = (end - start) // BATCH_HEADER_BYTES
    pieces = Pieces([room * width_bytes for width_bytes in _COLUMN_BYTES])
    state = np.zeros(3, np.int64)
    tables = crc_tables()
    stopped = kernels()["index_batches"](*place, address(pieces.table), address(tables), address(state))
    row_count, position, is_continuous = state.tolist()
    stop = None
    if stopped != OK:
        stop = Stop(position, end - position, None if stopped == NEED_MORE else REASONS[stopped])
    kept: dict[str, Any] = {
        name: pieces.array(number, kind, row_count)
        for number, (name, kind) in enumerate(zip(BATCH_COLUMNS, _COLUMN_TYPES, strict=True))
    }
    if row_count < _LEAST_FILL * room:
        kept = {name: column.copy() for name, column in kept.items()}
    return BatchIndex(**kept, is_continuous=bool(is_continuous), consumed_bytes=position, stop=stop)


def crc32c(buffer: Readable) -> int:
    """CRC-32C by the decoder's kernel."""
    data = byte_array(buffer)
    tables = crc_tables()
    return kernels()["crc32c"](address(data), len(data), address(tables))
