"""Schemas compiled to programs that fill Arrow buffers, and the columns that they fill: what `typed` interprets."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.kernels.codes import (
    DEFAULT_BYTES,
    END,
    PUT_BOOL,
    PUT_DEFAULT_AT,
    PUT_INT8,
    PUT_INT16,
    PUT_INT32,
    PUT_INT64,
    PUT_LIST,
    PUT_LOOP,
    PUT_LOOP_END_ROW,
    PUT_MAY_LAG,
    PUT_NEXT,
    PUT_NEXT_TAG,
    PUT_TAGS,
    PUT_TEXT,
    PUT_UINT16,
    PUT_UINT32,
    PUT_UUID,
    TAGS_END_ROW,
    TAGS_SIZE,
    TAGS_TABLE_AT,
)
from kraft_codec.kernels.programs import (
    NUMBER_FORMATS,
    WIDTH_BYTES,
    Assembler,
    is_fixed,
    versions_of,
)
from kraft_codec.schemas import Field, Message, Type

_PUT_OPS: Final[dict[Type, int]] = {
    Type.BOOL: PUT_BOOL,
    Type.INT8: PUT_INT8,
    Type.INT16: PUT_INT16,
    Type.UINT16: PUT_UINT16,
    Type.INT32: PUT_INT32,
    Type.UINT32: PUT_UINT32,
    Type.INT64: PUT_INT64,
    Type.FLOAT64: PUT_INT64,
    Type.UUID: PUT_UUID,
}
_NULL_BYTES: Final = b"\x00"
_EMPTY_BYTES: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Column:
    """One column that a program fills: of a field, or of the elements of an array field.

    `number` is its place in the kernel's table (none for a struct, which has no buffers of its own); `children` are a
    list's elements or a struct's fields. `least_bytes` is what one value takes in a record at least, in any version.
    """

    field: Field
    number: int
    is_list: bool
    least_bytes: int
    children: tuple[Column, ...] = ()

    @property
    def is_nullable(self) -> bool:
        """Null in some version, or absent there with null as what the reader sees. Elements are never null."""
        return self.is_list == self.field.array and (self.field.nullable is not None or self.field.default is None)

    @property
    def may_be_missing(self) -> bool:
        """Tagged, or not in all versions."""
        return not _is_always_there(self.field)


@dataclass(frozen=True, slots=True, eq=False)
class TypedProgram:
    """One record type: its columns in schema order, and for every version from 0 on where its program starts."""

    message: Message
    columns: tuple[Column, ...]
    column_count: int
    program: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int32]


class _Layout:
    """Numbers the columns of a message; the same for all its versions."""

    def __init__(self) -> None:
        self.count = 0

    def columns(self, fields: Sequence[Field]) -> tuple[Column, ...]:
        return tuple(self._column(field) for field in fields)

    def _column(self, field: Field) -> Column:
        if not field.array:
            return self._element(field)
        number = self._next()
        return Column(field, number, True, 1, (self._element(field),))

    def _element(self, field: Field) -> Column:
        if field.type is Type.STRUCT:
            children = self.columns(field.fields)
            least = 1 + sum(child.least_bytes for child in children if _is_always_there(child.field))
            return Column(field, -1, False, least, children)
        return Column(field, self._next(), False, WIDTH_BYTES.get(field.type, 1))

    def _next(self) -> int:
        self.count += 1
        return self.count - 1


def _is_always_there(field: Field) -> bool:
    return field.tag is None and field.versions.first == 0 and field.versions.last >= 0x7FFF


class _TypedAssembler(Assembler):
    """At the top of a message a missing field is left out: the buffers hold its default, or catch up later. Within the
    elements of a list, whose number is not known before, its default is put before the tagged fields are.
    """

    def message(self, columns: Sequence[Column], version: int) -> int:
        start = self.next_row
        self._struct(columns, version, is_top=True)
        self.emit(END)
        return start

    def _struct(self, columns: Sequence[Column], version: int, *, is_top: bool) -> None:
        for column in columns:
            if column.field.tag is None and version in column.field.versions:
                self._value(column, version, is_top=is_top)
        for column in columns:
            if not is_top and (column.field.tag is not None or version not in column.field.versions):
                self._default(column)
        tagged = {column.field.tag: column for column in columns if column.field.tag is not None}
        starts = [0] * (max(tagged, default=-1) + 1)
        tag_rows = [self.emit(PUT_TAGS)]
        for tag, column in tagged.items():
            if version in column.field.versions:
                starts[tag] = self.next_row
                self._value(column, version, is_top=is_top)
                tag_rows.append(self.emit(PUT_NEXT_TAG))
        for row in tag_rows:
            self.patch(row, TAGS_END_ROW, self.next_row)
            self.patch(row, TAGS_SIZE, len(starts))
            self.point_at_numbers(row, TAGS_TABLE_AT, starts)

    def _value(self, column: Column, version: int, *, is_top: bool) -> None:
        """The value of a field, or of a list's element, that is next in the bytes."""
        field = column.field
        if not column.is_list and field.type is Type.STRUCT:
            if not field.array and (field.tag is not None or field.versions.first > 0):
                raise ValueError(f"{field.name}: a struct that may be missing is not supported")
            self._struct(column.children, version, is_top=is_top and not field.array)
            return
        if not column.is_list:
            row = self.emit(_PUT_OPS.get(field.type, PUT_TEXT), column.number)
        elif is_fixed(field):
            element = column.children[0].number
            row = self.emit(PUT_LIST, column.number, element, _PUT_OPS[field.type], WIDTH_BYTES[field.type])
        else:
            row = self.emit(PUT_LOOP, column.number)
            self._value(column.children[0], version, is_top=False)
            self.emit(PUT_NEXT)
            self.patch(row, PUT_LOOP_END_ROW, self.next_row)
        self.patch(row, PUT_MAY_LAG, int(is_top and column.may_be_missing))

    def _default(self, column: Column) -> None:
        if column.number < 0:
            raise ValueError(f"{column.field.name}: a struct that may be missing is not supported")
        kind = PUT_TEXT if column.is_list else _PUT_OPS.get(column.field.type, PUT_TEXT)
        row = self.emit(kind, column.number)
        self.point_at(row, PUT_DEFAULT_AT, default_bytes(column.field).ljust(DEFAULT_BYTES, b"\0"))


def default_bytes(field: Field) -> bytes:
    """A field's default as it would stand in a record: null or empty where it is a list, text or bytes."""
    if field.default is None:
        return _NULL_BYTES
    if field.array or field.type in (Type.STRING, Type.BYTES):
        if len(field.default):
            raise ValueError(f"{field.name}: a default of {field.default!r} is not supported")
        return _EMPTY_BYTES
    if field.type is Type.UUID:
        return bytes(field.default)
    return struct.pack(NUMBER_FORMATS[field.type], field.default)


_COMPILED: Final[dict[int, TypedProgram]] = {}
"""By identity: two dialects give one name to different messages, and a schema with lists has no hash."""


def typed_program(message: Message) -> TypedProgram:
    """The program of one record type, for all its versions."""
    compiled = _COMPILED.get(id(message))
    if compiled is None:
        compiled = _COMPILED[id(message)] = _compile(message)
    return compiled


def _compile(message: Message) -> TypedProgram:
    layout = _Layout()
    columns = layout.columns(message.fields)
    assembler = _TypedAssembler()
    starts = np.zeros(message.versions.last + 1, np.int32)
    for version in versions_of(message):
        starts[version] = assembler.message(columns, version)
    return TypedProgram(message, columns, layout.count, assembler.table(), starts)
