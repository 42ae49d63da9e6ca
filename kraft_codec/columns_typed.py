"""Records of one type as Arrow columns: every field of every version, in the shape of the newest schema."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec.columns_batches import address, addresses, kernels
from kraft_codec.columns_records import RecordIndex
from kraft_codec.kernels.codes import COLUMN_BYTES, SCRATCH_BYTES
from kraft_codec.kernels.typed_programs import Column, TypedProgram, typed_program
from kraft_codec.schemas import Message, Type

_ARROW_TYPES: Final[dict[Type, pa.DataType]] = {
    Type.BOOL: pa.bool_(),
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.UINT16: pa.int32(),
    Type.INT32: pa.int32(),
    Type.UINT32: pa.int64(),
    Type.INT64: pa.int64(),
    Type.FLOAT64: pa.float64(),
    Type.UUID: pa.binary(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
"""Spark has no unsigned types, and refuses binary of a fixed size."""
_UUID_BYTES: Final = 16
ENVELOPE: Final = (
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("base_offset", pa.int64(), nullable=False),
    pa.field("record_version", pa.int32(), nullable=False),
)
"""What stands before the fields. A field of one of these names gets the prefix `record_`."""
_UNKNOWN: Final = pa.field("unknown_tagged_fields", pa.int32(), nullable=False)


_SCHEMAS: Final[dict[int, tuple[Message, pa.Schema]]] = {}
"""By identity, as programs are."""


def typed_schema(message: Message) -> pa.Schema:
    """The columns of `typed_columns`: the envelope, the fields in schema order, the number of unknown tagged fields."""
    known = _SCHEMAS.get(id(message))
    if known is None:
        known = _SCHEMAS[id(message)] = (message, _schema(message))
    return known[1]


def _schema(message: Message) -> pa.Schema:
    taken = {field.name for field in ENVELOPE}
    fields = [_arrow_field(column) for column in typed_program(message).columns]
    fields = [field.with_name(f"record_{field.name}") if field.name in taken else field for field in fields]
    return pa.schema([*ENVELOPE, *fields, _UNKNOWN])


def typed_columns(records: RecordIndex, message: Message) -> pa.RecordBatch:
    """The records of one type that can be decoded, in order, whatever their versions are.

    A field that a version lacks, and a tagged one that is absent, has what Kafka's reader sees: its default (null where
    that is null). Uuids are 16 bytes; uint16 is int32. Nothing is copied: the kernel's buffers are the result's. Raises
    ValueError where `records.buffer` is no longer what was indexed.
    """
    rows = records.rows_of(message)
    compiled = typed_program(message)
    body_bytes = int(records.value_length[rows].sum(dtype=np.int64))
    made = _Buffers(compiled, len(rows), body_bytes)
    envelope = [np.empty(len(rows), field.type.to_pandas_dtype()) for field in (*ENVELOPE, _UNKNOWN)]
    inputs, outputs = _inputs(records), addresses(envelope)
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    done = kernels()["fill_columns"](
        address(records.buffer), address(rows), len(rows), address(inputs), address(compiled.starts),
        address(compiled.program), address(scratch), address(made.table), address(outputs),
    )  # fmt: skip
    if done != len(rows):
        raise ValueError(f"record row {rows[-1 - done]}: the buffer is no longer what was indexed")
    schema = typed_schema(message)
    arrays = [_numbers(field.type, values) for field, values in zip((*ENVELOPE, _UNKNOWN), envelope, strict=True)]
    unknown = arrays.pop()
    for column in compiled.columns:
        arrays.append(made.array(column, schema.types[len(arrays)], len(rows)))
    return pa.RecordBatch.from_arrays([*arrays, unknown], schema=schema)


def _inputs(records: RecordIndex) -> npt.NDArray[np.int64]:
    """What the kernel reads of records and batches, in its order."""
    return addresses(
        [
            records.version,
            records.body_position,
            records.value_position,
            records.value_length,
            records.offset,
            records.timestamp_ms,
            records.batch_row,
            records.unknown_tag_count,
            records.batches.leader_epoch,
            records.batches.base_offset,
        ]
    )


def _numbers(arrow: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Without a copy, and without pandas, which `pa.array` imports where it is installed."""
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(values)], 0)


class _Buffers:
    """Memory for every column of one record type, large enough for whatever its records can hold.

    A page that the kernel never touches costs nothing: the worst case is address space.
    """

    def __init__(self, compiled: TypedProgram, row_count: int, body_bytes: int) -> None:
        self.table = np.zeros((compiled.column_count, COLUMN_BYTES // 8), np.int64)
        self._body_bytes = body_bytes
        self._values: dict[int, npt.NDArray[Any]] = {}
        self._offsets: dict[int, npt.NDArray[np.int32]] = {}
        self._validity: dict[int, npt.NDArray[np.uint8]] = {}
        for column in compiled.columns:
            self._allocate(column, row_count)
            self._put_defaults(column)

    def _allocate(self, column: Column, room: int) -> None:
        """`room`: the most values that the column can get."""
        number, type_ = column.number, column.field.type
        if column.is_list or type_ in (Type.STRING, Type.BYTES):
            self._offsets[number] = np.empty(room + 1, np.int32)
            self._offsets[number][0] = 0
            self.table[number, 1] = address(self._offsets[number])
        elif number >= 0:
            width = _UUID_BYTES if type_ is Type.UUID else _ARROW_TYPES[type_].bit_width // 8 or 1
            self._values[number] = np.empty(room * width, np.uint8)
        if type_ in (Type.STRING, Type.BYTES) and not column.is_list:
            self._values[number] = np.empty(self._body_bytes, np.uint8)
        if number in self._values:
            self.table[number, 0] = address(self._values[number])
        if column.is_nullable:
            self._validity[number] = np.zeros(-(-room // 8), np.uint8)
            self.table[number, 2] = address(self._validity[number])
        for child in column.children:
            self._allocate(child, self._body_bytes // child.least_bytes if column.is_list else room)

    def _put_defaults(self, column: Column) -> None:
        """Fixed-width fields that records may lack have their default from the start."""
        if column.number < 0:
            for child in column.children:
                self._put_defaults(child)
        elif column.may_be_missing and column.number in self._values and column.number not in self._offsets:
            values = self._values[column.number]
            if column.field.type is Type.UUID:
                values.reshape(-1, _UUID_BYTES)[:] = np.frombuffer(column.field.default, np.uint8)
            elif column.field.type is Type.BOOL:
                values[:] = column.field.default
            else:
                values.view(_ARROW_TYPES[column.field.type].to_pandas_dtype())[:] = column.field.default

    def _catch_up(self, column: Column, length: int) -> npt.NDArray[np.int32]:
        """The offsets of a list or text, with no values for the records behind the last that had the field."""
        offsets = self._offsets[column.number]
        if column.may_be_missing and (filled := int(self.table[column.number, 3])) < length:
            offsets[filled + 1 : length + 1] = offsets[filled]
        return offsets

    def array(self, column: Column, arrow: pa.DataType, length: int, *, is_top: bool = True) -> pa.Array:
        """The column as Arrow sees it, over the buffers that the kernel filled."""
        number, type_ = column.number, column.field.type
        if number < 0:
            children = [
                self.array(child, arrow.field(place).type, length, is_top=is_top)
                for place, child in enumerate(column.children)
            ]
            return pa.Array.from_buffers(arrow, length, [None], 0, children=children)
        validity = pa.py_buffer(self._validity[number]) if number in self._validity else None
        buffers = [validity]
        children = []
        if number in self._offsets:
            offsets = self._catch_up(column, length) if is_top else self._offsets[number]
            buffers.append(pa.py_buffer(offsets))
            if column.is_list:
                children = [self.array(column.children[0], arrow.value_type, int(offsets[length]), is_top=False)]
        elif type_ is Type.UUID:
            buffers.append(pa.py_buffer(np.arange(0, _UUID_BYTES * (length + 1), _UUID_BYTES, dtype=np.int32)))
        if number in self._values:
            values = self._values[number]
            packed = np.packbits(values[:length], bitorder="little") if type_ is Type.BOOL else values
            buffers.append(pa.py_buffer(packed))
        return pa.Array.from_buffers(arrow, length, buffers, children=children)


def _arrow_type(column: Column) -> pa.DataType:
    if column.is_list:
        return pa.list_(pa.field("element", _arrow_type(column.children[0]), nullable=False))
    if column.field.type is Type.STRUCT:
        return pa.struct([_arrow_field(child) for child in column.children])
    return _ARROW_TYPES[column.field.type]


def _arrow_field(column: Column) -> pa.Field:
    return pa.field(column.field.column_name, _arrow_type(column), nullable=column.is_nullable)
