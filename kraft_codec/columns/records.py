"""Records as columns: framing, envelope, type and version, with every body checked by its schema."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_codec.columns.batches import BatchIndex, Unpacked, unpack
from kraft_codec.columns.buffers import Bytes, Pieces, Readable, addresses, byte_array, run_kernel
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import NO_SPACE, OK, REASONS, SCRATCH_BYTES, TYPES_PER_KIND, UNKNOWN_CONTROL_TYPE
from kraft_codec.kernels.programs import walk_programs
from kraft_codec.records.batch import HEADER_BYTES, RECORD_BYTES_MIN
from kraft_codec.records.compression import Codec
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_API_KEY, Dialect, Message


# No slots: what is derived once is stored beside the fields.
@dataclass(frozen=True, eq=False)
class RecordIndex:
    """A row for each record of the selected batches whose records are sound, in order.

    `buffer` is what all positions of keys, values and bodies count in: the buffer that was given, or where compressed
    batches were selected a new one that holds their records after it. `batch_row` points into `batches`.
    `api_key` is the control type where `is_control`, `version` that of the schema; -1 where a record does not say.
    `status` is 0, or the number (in `kernels.codes.REASONS`) of the reason why this record alone is undecodable.
    A length of -1 is null; the position is then the record's own. `unknown_tag_count` counts tagged fields that this
    codec does not know, at any depth.

    `selected` are the rows of the batches that were asked for, with one verdict each: where `batch_status` is not 0,
    the batch is quarantined, `batch_status_position` is the error's position, and none of its records has a row.
    """

    buffer: Bytes
    batches: BatchIndex
    dialect: Dialect
    batch_row: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    timestamp_ms: npt.NDArray[np.int64]
    is_control: npt.NDArray[np.bool_]
    status: npt.NDArray[np.uint8]
    api_key: npt.NDArray[np.int32]
    version: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_length: npt.NDArray[np.int32]
    value_position: npt.NDArray[np.int64]
    value_length: npt.NDArray[np.int32]
    body_position: npt.NDArray[np.int64]
    unknown_tag_count: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int16]
    """The type as one number: the apiKey, or TYPES_PER_KIND + the control type; -1 where undecodable."""
    selected: npt.NDArray[np.int64]
    batch_status: npt.NDArray[np.uint8]
    batch_status_position: npt.NDArray[np.int64]
    packed_position: npt.NDArray[np.int64]
    """Of each row: where the compressed bytes that hold it stand in the buffer that was given, -1 for the others."""

    def __len__(self) -> int:
        return len(self.offset)

    def reason(self, row: int) -> Reason | None:
        """Why a record is undecodable."""
        return REASONS[int(self.status[row])]

    def error_position(self, row: int) -> int:
        """Where in the given buffer an undecodable record's error stands, as `records.record` reports it."""
        if self.packed_position[row] >= 0:
            return int(self.packed_position[row])
        is_key = self.status[row] == UNKNOWN_CONTROL_TYPE
        return int(self.key_position[row] if is_key else self.value_position[row])

    def message(self, *, is_control: bool, api_key: int) -> Message | None:
        """The schema of a type in this index's dialect."""
        if not is_control:
            return METADATA_BY_API_KEY.get(api_key)
        control_type = CONTROL_TYPES[self.dialect].get(api_key)
        return control_type.message if control_type else None

    def rows_of(self, message: Message) -> npt.NDArray[np.int64]:
        """The rows of one record type that can be decoded, ascending; none where this dialect has no such type."""
        if METADATA_BY_API_KEY.get(message.number) is message:
            return self._rows_by_kind.get(message.number, _NO_ROWS)
        for control_type in CONTROL_TYPES[self.dialect].values():
            if control_type.message is message:
                return self._rows_by_kind.get(TYPES_PER_KIND + control_type.number, _NO_ROWS)
        return _NO_ROWS

    def messages(self) -> list[Message]:
        """The record types that are there and can be decoded, metadata records first, by number."""
        split = [(kind >= TYPES_PER_KIND, kind % TYPES_PER_KIND) for kind in self._rows_by_kind if kind >= 0]
        known = [self.message(is_control=is_control, api_key=number) for is_control, number in split]
        return [message for message in known if message is not None]

    @functools.cached_property
    def _rows_by_kind(self) -> dict[int, npt.NDArray[np.int64]]:
        """All rows, ascending, under each kind that is there; the kinds ascend too."""
        ends = np.zeros(2 * TYPES_PER_KIND + 1, np.int64)
        rows = np.empty(len(self), np.int64)
        run_kernel("group_rows", self.kind, len(self), ends, rows, len(ends))
        starts = np.concatenate([[0], ends[:-1]])
        present = np.flatnonzero(ends > starts).tolist()
        return {kind - 1: rows[starts[kind] : ends[kind]] for kind in present}

    @functools.cached_property
    def typed_inputs(self) -> npt.NDArray[np.int64]:
        """Addresses of what the kernel of `typed_columns` reads, in its order."""
        return addresses(
            [
                self.version,
                self.body_position,
                self.value_position,
                self.value_length,
                self.offset,
                self.timestamp_ms,
                self.batch_row,
                self.unknown_tag_count,
                self.batches.leader_epoch,
                self.batches.base_offset,
            ]
        )


_NO_ROWS: Final = np.zeros(0, np.int64)
_RECORD_COLUMN_TYPES: Final[tuple[type[np.generic], ...]] = (
    np.int64, np.int64, np.int64, np.bool_, np.uint8, np.int32, np.int32, np.int64, np.int32, np.int64, np.int32,
    np.int64, np.int32, np.int16,
)  # fmt: skip
_RECORD_COLUMN_BYTES: Final = tuple(np.dtype(kind).itemsize for kind in _RECORD_COLUMN_TYPES)
_USUAL_RECORD_BYTES: Final = 24
"""Few records are smaller; where they are, the kernel runs again with more room."""
RECORD_COLUMNS: Final = (
    "batch_row", "offset", "timestamp_ms", "is_control", "status", "api_key", "version", "key_position", "key_length",
    "value_position", "value_length", "body_position", "unknown_tag_count",
    "kind",
)  # fmt: skip
"""The kernel fills columns by their place in this order."""


def index_records(
    buffer: Readable, batches: BatchIndex, rows: npt.ArrayLike | None = None, dialect: Dialect = Dialect.KIP853
) -> RecordIndex:
    """The records of the batches at `rows` (default: all that can be trusted), as `records.record` reads them.

    `buffer` is the one that `batches` was made of. Batches with a bad CRC or magic may be asked for by their rows.
    Compressed batches are decompressed, all that were selected at once: see `row_groups`.
    """
    data = byte_array(buffer)
    selected = np.flatnonzero(batches.status == OK) if rows is None else np.ascontiguousarray(rows, np.int64)
    # Nearly always all: then nothing is copied.
    is_all = len(selected) == len(batches) and (rows is None or bool((selected == np.arange(len(batches))).all()))
    picked = slice(None) if is_all else selected
    positions, sizes = batches.position[picked], batches.size_bytes[picked]
    if len(positions) and (positions.min() < 0 or (positions + sizes).max() > len(data)):
        raise ValueError("the batches are not of this buffer")
    if len(selected) and selected.min() < 0:
        raise ValueError(f"row {selected.min()}: rows are counted from 0")
    unpacked = unpack(data, positions, sizes, batches.attributes[picked], batches.record_count[picked])
    data, places, place_sizes = (data, positions, sizes) if unpacked is None else unpacked.places
    counts = np.clip(batches.record_count[picked], 0, (place_sizes - HEADER_BYTES) // RECORD_BYTES_MIN)
    room = int(counts.sum(dtype=np.int64))
    # A batch that lies about its count gets no memory for it before its records were seen.
    usual_room = int(place_sizes.sum(dtype=np.int64)) // _USUAL_RECORD_BYTES
    columns, row_count, verdicts = _fill(data, selected, places, place_sizes, min(room, usual_room), dialect)
    while row_count == NO_SPACE:
        usual_room = min(room, 2 * usual_room + 1)
        columns, row_count, verdicts = _fill(data, selected, places, place_sizes, usual_room, dialect)
    if unpacked is not None:
        unpacked.restore(verdicts)
    return _index(data, batches, dialect, selected, columns, verdicts, unpacked)


def _fill(
    data: Bytes,
    selected: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    room: int,
    dialect: Dialect,
) -> tuple[list[npt.NDArray[np.generic]], int, npt.NDArray[np.int64]]:
    """Runs the kernel over the batches with room for so many records: (columns, row count or NO_SPACE, verdicts)."""
    pieces = Pieces([room * width_bytes for width_bytes in _RECORD_COLUMN_BYTES])
    verdicts = np.zeros((len(places), 2), np.int64)
    program, directory = walk_programs(dialect)
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    row_count = run_kernel(
        "index_records", data, selected, places, sizes, len(places), pieces.table, directory, program, scratch,
        verdicts, room,
    )  # fmt: skip
    return pieces.arrays(_RECORD_COLUMN_TYPES, max(row_count, 0)), row_count, verdicts


def _index(
    data: Bytes,
    batches: BatchIndex,
    dialect: Dialect,
    selected: npt.NDArray[np.int64],
    columns: list[npt.NDArray[np.generic]],
    verdicts: npt.NDArray[np.int64],
    unpacked: Unpacked | None,
) -> RecordIndex:
    named: dict[str, Any] = dict(zip(RECORD_COLUMNS, columns, strict=True))
    packed_position = np.broadcast_to(np.int64(-1), len(columns[0]))
    if unpacked is not None:
        order = np.argsort(selected)
        place = order[np.searchsorted(selected, named["batch_row"], sorter=order)]
        packed_position = unpacked.packed_positions[place]
    return RecordIndex(
        buffer=data,
        batches=batches,
        dialect=dialect,
        selected=selected,
        batch_status=verdicts[:, 0].astype(np.uint8),
        batch_status_position=verdicts[:, 1].copy(),
        packed_position=packed_position,
        **named,
    )


def row_groups(batches: BatchIndex, rows: npt.ArrayLike) -> Iterator[npt.NDArray[np.int64]]:
    """The rows in runs to index one at a time, so that memory stays flat: a compressed batch is a run of its own."""
    selected = np.asarray(rows, np.int64)
    is_compressed = batches.codec[selected] != Codec.NONE
    # A run ends before and after each compressed batch.
    cuts = np.flatnonzero(is_compressed[1:] | is_compressed[:-1]) + 1
    yield from (run for run in np.split(selected, cuts) if len(run))
