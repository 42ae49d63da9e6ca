"""Schemas compiled to rows of numbers: what the kernels interpret. Adding a record type adds rows here, never a kernel.

A program is a table of int32, OP_COLUMNS to a row: the op code, then its arguments. Data that ops point to (widths, tag
tables, texts) lies after the rows in the same memory, addressed by its distance in bytes from the table's start.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.kernels.codes import (
    ARRAY_COUNT,
    DIRECTORY_CELLS,
    DIRECTORY_LAST_VERSION,
    END,
    FIND_PROGRAM_ROW,
    FIND_TABLE_AT,
    FIND_TAGS,
    FIRST_FIELD_MARK,
    LOOP,
    LOOP_END_ROW,
    MARK,
    MARKS_BYTES,
    NEXT,
    NEXT_TAG,
    OP_BYTES,
    OP_COLUMNS,
    SKIP,
    SKIP_ARRAY,
    SKIP_BYTES,
    SKIP_TEXT,
    SKIP_WIDTHS_AT,
    SLOTS_BYTES,
    TAG_NOT_IN_VERSION,
    TAG_OF_FIXED,
    TAG_OF_LIST,
    TAG_OF_PROGRAM,
    TAG_UNKNOWN,
    TAGS,
    TAGS_END_ROW,
    TAGS_SIZE,
    TAGS_TABLE_AT,
    TYPES_PER_KIND,
)
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Field, Message, Type

WIDTH_BYTES: Final[dict[Type, int]] = {
    Type.BOOL: 1,
    Type.INT8: 1,
    Type.INT16: 2,
    Type.UINT16: 2,
    Type.INT32: 4,
    Type.UINT32: 4,
    Type.INT64: 8,
    Type.FLOAT64: 8,
    Type.UUID: 16,
}
NUMBER_FORMATS: Final[dict[Type, str]] = {
    Type.BOOL: ">B",
    Type.INT8: ">b",
    Type.INT16: ">h",
    Type.UINT16: ">H",
    Type.INT32: ">i",
    Type.UINT32: ">I",
    Type.INT64: ">q",
    Type.FLOAT64: ">d",
}
MARKS_MAX: Final = MARKS_BYTES // 8 - FIRST_FIELD_MARK


class Assembler:
    """Collects a program's rows and its data; `table` lays both out in one piece of memory."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._data = bytearray()
        self._data_arguments: list[tuple[int, int]] = []
        # Row 0 stands for "no program", so that 0 can mean an unknown tag.
        self.emit(END)

    def emit(self, op: int, *arguments: int) -> int:
        """Appends a row and returns its number."""
        self._rows.append([op, *arguments, *[0] * (OP_COLUMNS - 1 - len(arguments))])
        return len(self._rows) - 1

    @property
    def next_row(self) -> int:
        return len(self._rows)

    def patch(self, row: int, argument: int, value: int) -> None:
        """Sets an argument (1 is the first) that was not known when the row was emitted."""
        self._rows[row][argument] = value

    def point_at(self, row: int, argument: int, data: bytes) -> None:
        """Makes an argument the distance of `data`, which is appended, from the table's start."""
        self._rows[row][argument] = len(self._data)
        self._data_arguments.append((row, argument))
        self._data += data + bytes(-len(data) % 8)

    def point_at_numbers(self, row: int, argument: int, numbers: Sequence[int]) -> None:
        self.point_at(row, argument, np.array(numbers, np.int32).tobytes())

    def table(self) -> npt.NDArray[np.uint8]:
        """Rows, then data, then room to read eight bytes at a time after the last."""
        rows = np.array(self._rows, np.int32)
        for row, argument in self._data_arguments:
            rows[row, argument] += OP_BYTES * len(self._rows)
        return np.frombuffer(rows.tobytes() + bytes(self._data) + bytes(64), np.uint8)


def is_nullable(field: Field, version: int) -> bool:
    return field.nullable is not None and version in field.nullable


def is_fixed(field: Field) -> bool:
    """Whether one value of the field's type has a fixed width."""
    return field.type in WIDTH_BYTES


class WalkAssembler(Assembler):
    """Programs for `walk`: they know widths, nullability and tags, not names."""

    def message(self, message: Message, version: int, *, with_marks: bool = False) -> int:
        """A program that walks a whole body. With marks: notes where each untagged field of the message begins."""
        start = self.next_row
        self._struct(message.fields, version, with_marks=with_marks)
        self.emit(END)
        return start

    def value(self, field: Field, version: int) -> int:
        """A program that walks one value of a (tagged) field."""
        start = self.next_row
        self._field(field, version)
        self.emit(END)
        return start

    def _struct(self, fields: Sequence[Field], version: int, *, with_marks: bool = False) -> None:
        widths: list[int] = []
        for number, field in enumerate(fields):
            if field.tag is not None or version not in field.versions:
                continue
            if with_marks:
                self._flush(widths)
                self.emit(MARK, number)
            if is_fixed(field) and not field.array:
                widths.append(WIDTH_BYTES[field.type])
                continue
            self._flush(widths)
            self._field(field, version)
        self._flush(widths)
        if with_marks:
            self.emit(MARK, len(fields))
        self._tags(fields, version)

    def _flush(self, widths: list[int]) -> None:
        """Fixed-width fields that follow each other are passed in one step."""
        if widths:
            row = self.emit(SKIP, sum(widths))
            self.point_at_numbers(row, SKIP_WIDTHS_AT, widths)
            widths.clear()

    def _field(self, field: Field, version: int) -> None:
        nullable = int(is_nullable(field, version))
        if field.array and is_fixed(field):
            self._skip_array(WIDTH_BYTES[field.type], nullable)
        elif field.array:
            loop = self.emit(LOOP, nullable)
            self._value(field, version, nullable=0)
            self.emit(NEXT)
            self.patch(loop, LOOP_END_ROW, self.next_row)
        else:
            self._value(field, version, nullable=nullable)

    def _skip_array(self, width: int, nullable: int) -> None:
        """Arrays alike that follow each other are passed by one op: its third argument counts them."""
        alike = [SKIP_ARRAY, width, nullable]
        if self._rows[-1][:3] == alike:
            self._rows[-1][ARRAY_COUNT] += 1
        else:
            self.emit(*alike, 1)

    def _value(self, field: Field, version: int, *, nullable: int) -> None:
        """A value of no fixed width."""
        if field.type is Type.STRUCT:
            self._struct(field.fields, version)
        elif field.type is Type.STRING:
            self.emit(SKIP_TEXT, nullable)
        else:
            self.emit(SKIP_BYTES, nullable)

    def _tags(self, fields: Sequence[Field], version: int) -> None:
        tagged = {field.tag: field for field in fields if field.tag is not None}
        entries = [[TAG_UNKNOWN, 0, 0, 0] for _ in range(max(tagged, default=-1) + 1)]
        tag_rows = [self.emit(TAGS)]
        for tag, field in tagged.items():
            width = WIDTH_BYTES.get(field.type, 0)
            if version not in field.versions:
                entries[tag] = [TAG_NOT_IN_VERSION, 0, 0, 0]
            elif width:
                kind = TAG_OF_LIST if field.array else TAG_OF_FIXED
                entries[tag] = [kind, width, int(is_nullable(field, version)), 0]
            else:
                entries[tag] = [TAG_OF_PROGRAM, 0, 0, self.next_row]
                self._field(field, version)
                tag_rows.append(self.emit(NEXT_TAG))
        for row in tag_rows:
            self.patch(row, TAGS_END_ROW, self.next_row)
            self.patch(row, TAGS_SIZE, len(entries))
            self.point_at_numbers(row, TAGS_TABLE_AT, [number for entry in entries for number in entry])


class TagSlots:
    """Gives slots to tagged fields and emits FIND_TAGS: for programs that read tagged fields where they want."""

    def __init__(self, assembler: Assembler, walks: WalkAssembler) -> None:
        self._assembler = assembler
        self._walks = walks
        self._next = 0

    def begin(self, first_slot: int = 0) -> None:
        """A new program: slots are its own, from the first that it may give."""
        self._next = first_slot

    def new_slot(self) -> int:
        if 8 * self._next >= SLOTS_BYTES:
            raise ValueError(f"a message with more than {SLOTS_BYTES // 8} tagged fields")
        self._next += 1
        return self._next - 1

    def find(self, fields: Sequence[Field], version: int) -> tuple[dict[str, int], int]:
        """Emits the op. Returns the slot of each tagged field by name, and the one that holds the struct's end."""
        tagged = {field.tag: field for field in fields if field.tag is not None and version in field.versions}
        slots = {field.name: self.new_slot() for field in tagged.values()}
        end_slot = self.new_slot()
        size = max(tagged, default=-1) + 1
        entries = [0] * (4 * size)
        for tag, field in tagged.items():
            width = WIDTH_BYTES.get(field.type, 0)
            entry = [slots[field.name] + 1, 0 if field.array else width, width if field.array else 0, 0]
            if not width:
                entry[FIND_PROGRAM_ROW] = self._walks.value(field, version)
            entries[4 * tag : 4 * tag + 4] = entry
        row = self._assembler.emit(FIND_TAGS, end_slot - len(slots), len(slots), size)
        self._assembler.point_at_numbers(row, FIND_TABLE_AT, entries)
        return slots, end_slot


def versions_of(message: Message) -> range:
    return range(message.versions.first, message.versions.last + 1)


class Directory:
    """Which program belongs to a record type and version: what `records.program_of` reads."""

    def __init__(self) -> None:
        self._versions = np.zeros((2 * TYPES_PER_KIND, DIRECTORY_CELLS), np.int32)
        self._versions[:, DIRECTORY_LAST_VERSION] = -1
        self._starts: list[int] = []

    def add(self, entry: int, first_version: int, starts: Sequence[int]) -> None:
        where = self._versions.size + len(self._starts)
        self._versions[entry] = first_version, first_version + len(starts) - 1, where
        self._starts += starts

    def table(self) -> npt.NDArray[np.int32]:
        return np.concatenate([self._versions.ravel(), np.array(self._starts, np.int32)])


def directory_of(assemble: Callable[[Message, int], int], dialect: Dialect) -> Directory:
    """Assembles every metadata record and every control record of a dialect; `assemble` gives a program's first row."""
    directory = Directory()
    for message in METADATA_RECORDS:
        starts = [assemble(message, version) for version in versions_of(message)]
        directory.add(message.number, message.versions.first, starts)
    for number, control_type in CONTROL_TYPES[dialect].items():
        start = assemble(control_type.message, control_type.version)
        directory.add(TYPES_PER_KIND + number, control_type.version, [start])
    return directory


@functools.cache
def walk_programs(dialect: Dialect) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The programs that check every metadata record and every control record of a dialect, and their directory."""
    assembler = WalkAssembler()
    directory = directory_of(assembler.message, dialect)
    return assembler.table(), directory.table()
