"""Records of one type as Arrow columns: every field of every version, in the shape of the newest schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec.columns.buffers import Pieces, run_kernel
from kraft_codec.columns.records import RecordIndex
from kraft_codec.kernels.codes import (
    COLUMN_BYTES,
    COLUMN_FILLED,
    COLUMN_OFFSETS_AT,
    COLUMN_VALIDITY_AT,
    COLUMN_VALUES_AT,
    SCRATCH_BYTES,
)
from kraft_codec.kernels.typed_programs import Column, TypedProgram, typed_program
from kraft_codec.schemas import Field, Message, Type

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
_CELLS: Final = COLUMN_BYTES // 8
_WIDTHS_BYTES: Final[dict[Type, int]] = {
    type_: _UUID_BYTES if type_ is Type.UUID else max(arrow.bit_width // 8, 1)
    for type_, arrow in _ARROW_TYPES.items()
    if type_ not in (Type.STRING, Type.BYTES)
}
"""Bytes of one value as the kernel writes it, which writes a bool as a byte."""
ENVELOPE: Final = (
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("base_offset", pa.int64(), nullable=False),
    pa.field("record_version", pa.int32(), nullable=False),
)
"""What stands before the fields. A field of one of these names gets the prefix `record_`."""
_UNKNOWN: Final = pa.field("unknown_tagged_fields", pa.int32(), nullable=False)
_AROUND: Final = tuple((field.type, field.type.bit_width // 8) for field in (*ENVELOPE, _UNKNOWN))
"""Type and bytes of a value of each column that is no field."""


_SCHEMAS: Final[dict[int, tuple[Message, pa.Schema]]] = {}
"""By the id() of the message, which is held beside the schema so that no other message gets the same id."""


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
    schema = typed_schema(message)
    made = _Buffers(compiled, len(rows), body_bytes)
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    done = run_kernel(
        "fill_columns", records.buffer, rows, len(rows), records.typed_inputs, compiled.starts, compiled.program,
        scratch, made.table, made.envelope,
    )  # fmt: skip
    if done != len(rows):
        raise ValueError(f"record row {rows[-1 - done]}: the buffer is no longer what was indexed")
    return pa.RecordBatch.from_arrays(made.arrays(schema), schema=schema)


class _Piece(NamedTuple):
    """Room for values of one width: `more` beyond a row each, or beyond as many as all bodies hold of `least_bytes`."""

    width_bytes: int
    least_bytes: int
    more: int
    slot: int
    """Where its address stands in the kernel's table of columns."""

    def size_bytes(self, row_count: int, body_bytes: int) -> int:
        values = body_bytes // self.least_bytes if self.least_bytes else row_count
        return self.width_bytes * (values + self.more)


def _at_top(column: Column) -> Iterator[Column]:
    """Columns with one value per record: the column itself, or the leaves of a struct."""
    if column.number >= 0:
        yield column
    else:
        for child in column.children:
            yield from _at_top(child)


class _Plan:
    """What memory the columns of one record type need: made once, for any number of rows.

    Piece 0 holds the bits of validity side by side: they must be zero, and are made so at once. Then what stands around
    the fields, then `pieces`.
    """

    def __init__(self, compiled: TypedProgram) -> None:
        self.pieces: list[_Piece] = []
        self.validity: dict[int, tuple[int, int]] = {}
        """Of a nullable column: its place among those, and the bytes that one of its values takes at least, or 0."""
        self.offsets: dict[int, int] = {}
        self.values: dict[int, int] = {}
        """Of a column: the number of its piece."""
        for column in compiled.columns:
            self._add(column, 0)
        self.may_be_missing = frozenset(
            column.number for each in compiled.columns for column in _at_top(each) if column.may_be_missing
        )
        """Columns outside of lists that records may lack."""
        self.defaults = [
            (self.values[column.number], column.field)
            for each in compiled.columns
            for column in _at_top(each)
            if column.number in self.may_be_missing & self.values.keys() - self.offsets.keys()
        ]
        """(piece, field) of fixed-width columns that records may lack, prefilled with the field's default."""
        self.slots = np.array([piece.slot for piece in self.pieces], np.int64)
        self.validity_slots = np.array([_CELLS * number + COLUMN_VALIDITY_AT for number in self.validity], np.int64)

    def _add(self, column: Column, least_bytes: int) -> None:
        number, type_ = column.number, column.field.type
        is_text = type_ in (Type.STRING, Type.BYTES)
        if column.is_list or is_text:
            self.offsets[number] = self._piece(4, least_bytes, 1, _CELLS * number + COLUMN_OFFSETS_AT)
        if not column.is_list and is_text:
            self.values[number] = self._piece(1, 1, 0, _CELLS * number + COLUMN_VALUES_AT)
        elif not column.is_list and number >= 0:
            self.values[number] = self._piece(_WIDTHS_BYTES[type_], least_bytes, 0, _CELLS * number + COLUMN_VALUES_AT)
        if column.is_nullable:
            self.validity[number] = len(self.validity), least_bytes
        for child in column.children:
            self._add(child, child.least_bytes if column.is_list else least_bytes)

    def _piece(self, *piece: int) -> int:
        self.pieces.append(_Piece(*piece))
        return len(_AROUND) + len(self.pieces)


_PLANS: Final[dict[int, tuple[TypedProgram, _Plan]]] = {}
"""By the id() of the program, which is held beside the plan so that no other program gets the same id."""


def _plan(compiled: TypedProgram) -> _Plan:
    known = _PLANS.get(id(compiled))
    if known is None:
        known = _PLANS[id(compiled)] = (compiled, _Plan(compiled))
    return known[1]


class _Buffers:
    """Memory for every column of one record type, large enough for whatever its records can hold.

    `table` is the kernel's (`codes.COLUMN_BYTES` a column), `envelope` the addresses of what stands around the fields.
    """

    def __init__(self, compiled: TypedProgram, row_count: int, body_bytes: int) -> None:
        self._compiled = compiled
        self._row_count = row_count
        self._plan = plan = _plan(compiled)
        bits = [
            -(-(body_bytes // least_bytes if least_bytes else row_count) // 64) * 8
            for _, least_bytes in plan.validity.values()
        ]
        self._validity_ends = list(itertools.accumulate(bits, initial=0))
        around = [width_bytes * row_count for _, width_bytes in _AROUND]
        sizes = [piece.size_bytes(row_count, body_bytes) for piece in plan.pieces]
        self._pieces = Pieces([self._validity_ends[-1], *around, *sizes])
        self._pieces.array(0, np.uint8, self._validity_ends[-1])[:] = 0
        first = 1 + len(_AROUND)
        self.envelope = self._pieces.table[1:first]
        self.table = np.zeros((compiled.column_count, _CELLS), np.int64)
        self.table.reshape(-1)[plan.slots] = self._pieces.table[first:]
        self.table.reshape(-1)[plan.validity_slots] = self._pieces.table[0] + np.array(self._validity_ends[:-1])
        for piece in plan.offsets.values():
            self._pieces.array(piece, np.int32, 1)[0] = 0
        for piece, field in plan.defaults:
            self._put_default(piece, field)

    def _put_default(self, piece: int, field: Field) -> None:
        if field.type is Type.UUID:
            values = self._pieces.array(piece, np.uint8, self._row_count * _UUID_BYTES)
            values.reshape(-1, _UUID_BYTES)[:] = np.frombuffer(field.default, np.uint8)
        elif field.type is Type.BOOL:
            self._pieces.array(piece, np.uint8, self._row_count)[:] = field.default
        else:
            kind = _ARROW_TYPES[field.type].to_pandas_dtype()
            self._pieces.array(piece, kind, self._row_count)[:] = field.default

    def arrays(self, schema: pa.Schema) -> list[pa.Array]:
        """Every column as Arrow sees it, in the schema's order, over the buffers that the kernel filled."""
        count = self._row_count
        buffers = self._pieces.buffers(1, [width_bytes * count for _, width_bytes in _AROUND])
        around = [
            pa.Array.from_buffers(arrow, count, [None, buffer])
            for (arrow, _), buffer in zip(_AROUND, buffers, strict=True)
        ]
        columns = self._compiled.columns
        types = schema.types[len(ENVELOPE) : -1]
        fields = [self._array(column, arrow, count) for column, arrow in zip(columns, types, strict=True)]
        return [*around[:-1], *fields, around[-1]]

    def _catch_up(self, column: Column, offsets: npt.NDArray[np.int32], length: int) -> None:
        """Gives a list or text no values in the records after the last that had the field."""
        is_partial = column.number in self._plan.may_be_missing
        if is_partial and (filled := int(self.table[column.number, COLUMN_FILLED])) < length:
            offsets[filled + 1 :] = offsets[filled]

    def _array(self, column: Column, arrow: pa.DataType, length: int, *, is_top: bool = True) -> pa.Array:
        number, type_ = column.number, column.field.type
        if number < 0:
            children = [
                self._array(child, arrow.field(place).type, length, is_top=is_top)
                for place, child in enumerate(column.children)
            ]
            return pa.Array.from_buffers(arrow, length, [None], 0, children=children)
        validity = None
        if number in self._plan.validity:
            start = self._validity_ends[self._plan.validity[number][0]]
            validity = self._pieces.buffer(0, self._validity_ends[-1]).slice(start, -(-length // 8))
        buffers = [validity]
        children = []
        if number in self._plan.offsets:
            offsets = self._pieces.array(self._plan.offsets[number], np.int32, length + 1)
            if is_top:
                self._catch_up(column, offsets, length)
            value_count = int(offsets[length])
            buffers.append(self._pieces.buffer(self._plan.offsets[number], 4 * (length + 1)))
            if column.is_list:
                children = [self._array(column.children[0], arrow.value_type, value_count, is_top=False)]
            else:
                buffers.append(self._pieces.buffer(self._plan.values[number], value_count))
        else:
            if type_ is Type.UUID:
                buffers.append(_uuid_offsets(length))
            buffers.append(self._fixed(type_, self._plan.values[number], length))
        return pa.Array.from_buffers(arrow, length, buffers, children=children)

    def _fixed(self, type_: Type, piece: int, length: int) -> pa.Buffer:
        if type_ is Type.BOOL:
            return pa.py_buffer(np.packbits(self._pieces.array(piece, np.uint8, length), bitorder="little"))
        return self._pieces.buffer(piece, _WIDTHS_BYTES[type_] * length)


_uuid_offsets_known: list[pa.Buffer] = [pa.py_buffer(np.zeros(1, np.int32))]


def _uuid_offsets(length: int) -> pa.Buffer:
    """Where each of `length` uuids starts, and the end: the same for every column, so made once and grown."""
    size_bytes = 4 * (length + 1)
    if _uuid_offsets_known[0].size < size_bytes:
        starts = np.arange(0, _UUID_BYTES * (2 * length + 1), _UUID_BYTES, dtype=np.int32)
        _uuid_offsets_known[0] = pa.py_buffer(starts)
    return _uuid_offsets_known[0].slice(0, size_bytes)


def _arrow_type(column: Column) -> pa.DataType:
    if column.is_list:
        return pa.list_(pa.field("element", _arrow_type(column.children[0]), nullable=False))
    if column.field.type is Type.STRUCT:
        return pa.struct([_arrow_field(child) for child in column.children])
    return _ARROW_TYPES[column.field.type]


def _arrow_field(column: Column) -> pa.Field:
    return pa.field(column.field.column_name, _arrow_type(column), nullable=column.is_nullable)
