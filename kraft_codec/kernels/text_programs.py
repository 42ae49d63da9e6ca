"""Schemas compiled to programs that write Kafka's JSON: what `text` interprets."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.kernels.codes import (
    BASE64_DIGITS,
    BASE64_URL_PAIRS,
    DIGIT_PAIRS,
    END,
    IS_BOOL,
    IS_BYTES,
    IS_EMPTY,
    IS_NULL,
    IS_ZERO_FLOAT,
    KEY_AT,
    TAGGED_DEFAULT_AT,
    TAGGED_END_ROW,
    TAGGED_TEXT_SLOT,
    TAGS_END,
    TEXT_ARRAY,
    TEXT_BEGIN,
    TEXT_BOOL,
    TEXT_BYTES,
    TEXT_FLOAT64,
    TEXT_HOLE,
    TEXT_INT8,
    TEXT_INT16,
    TEXT_INT32,
    TEXT_INT64,
    TEXT_LOOP,
    TEXT_LOOP_END_ROW,
    TEXT_NEXT,
    TEXT_ROTATE,
    TEXT_STRING,
    TEXT_STRUCT,
    TEXT_STRUCT_END,
    TEXT_TAGGED,
    TEXT_UINT16,
    TEXT_UINT32,
    TEXT_UUID,
)
from kraft_codec.kernels.programs import (
    NUMBER_FORMATS,
    WIDTH_BYTES,
    Assembler,
    TagSlots,
    WalkAssembler,
    directory_of,
    is_fixed,
)
from kraft_codec.schemas import Dialect, Field, Message, Type

_TEXT_OPS: Final[dict[Type, int]] = {
    Type.BOOL: TEXT_BOOL,
    Type.INT8: TEXT_INT8,
    Type.INT16: TEXT_INT16,
    Type.UINT16: TEXT_UINT16,
    Type.INT32: TEXT_INT32,
    Type.UINT32: TEXT_UINT32,
    Type.INT64: TEXT_INT64,
    Type.FLOAT64: TEXT_FLOAT64,
    Type.UUID: TEXT_UUID,
    Type.STRING: TEXT_STRING,
    Type.BYTES: TEXT_BYTES,
}
_UNUSED_SLOT: Final = 0
_LONGEST_VALUE_TEXT: Final = 32
"""Of any fixed-width value: "-Infinity" in quotes, 24 digits of a float, a uuid in quotes; and a comma."""


class TextAssembler(Assembler):
    """Programs that write text. `constant_bytes` is the most that the constant parts of one program take."""

    def __init__(self, walks: WalkAssembler) -> None:
        super().__init__()
        self._tags = TagSlots(self, walks)
        self._program_bytes = 0
        self.constant_bytes = 0

    def message(self, message: Message, version: int) -> int:
        self._program_bytes = 0
        self._tags.begin(_UNUSED_SLOT + 1)
        start = self.next_row
        self._struct(TEXT_BEGIN, "", message.fields, version)
        self.emit(END)
        self.constant_bytes = max(self.constant_bytes, self._program_bytes)
        return start

    def _keyed(self, op: int, key: str, *arguments: int) -> int:
        """An op that writes a key first. Every text is written eight bytes at a time, so up to seven beyond its end."""
        row = self.emit(op, 0, len(key.encode()), *arguments)
        self.point_at(row, KEY_AT, key.encode())
        self._program_bytes += len(key.encode()) + 8 + _LONGEST_VALUE_TEXT
        return row

    def _struct(self, op: int, key: str, fields: Sequence[Field], version: int) -> None:
        self._keyed(op, key)
        present = [field for field in fields if version in field.versions]
        untagged = [number for number, field in enumerate(present) if field.tag is None]
        last_untagged = max(untagged, default=-1)
        holes: list[tuple[Field, int]] = []
        for field in present[: last_untagged + 1]:
            if field.tag is None:
                self._field(field, version)
            else:
                hole = self._tags.new_slot()
                self._tags.new_slot()  # the next one notes where the text that goes into the hole starts
                self.emit(TEXT_HOLE, hole)
                holes.append((field, hole))
        slots, end_slot = self._tags.find(fields, version)
        # From the last hole to the first: what is rotated into one must not move another that is still to be filled.
        for field, hole in reversed(holes):
            self._tagged(field, version, slots[field.name], hole)
        for field in present[last_untagged + 1 :]:
            self._tagged(field, version, slots[field.name])
        self.emit(TAGS_END, end_slot)
        self.emit(TEXT_STRUCT_END)

    def _tagged(self, field: Field, version: int, slot: int, hole: int | None = None) -> None:
        test, width, default = _default_test(field)
        row = self.emit(TEXT_TAGGED, slot, 0, test, width)
        self.point_at(row, TAGGED_DEFAULT_AT, default)
        self.patch(row, TAGGED_TEXT_SLOT, _UNUSED_SLOT if hole is None else hole + 1)
        self._field(field, version)
        if hole is not None:
            self.emit(TEXT_ROTATE, hole, hole + 1)
        self.patch(row, TAGGED_END_ROW, self.next_row)

    def _field(self, field: Field, version: int) -> None:
        key = f',"{field.json_name}":'
        if not field.array:
            self._value(field, version, key)
        elif is_fixed(field):
            self._keyed(TEXT_ARRAY, key, _TEXT_OPS[field.type], WIDTH_BYTES[field.type], _LONGEST_VALUE_TEXT)
        else:
            loop = self._keyed(TEXT_LOOP, key)
            self._value(field, version, ",")
            self.emit(TEXT_NEXT)
            self.patch(loop, TEXT_LOOP_END_ROW, self.next_row)

    def _value(self, field: Field, version: int, key: str) -> None:
        if field.type is Type.STRUCT:
            self._struct(TEXT_STRUCT, key, field.fields, version)
        else:
            self._keyed(_TEXT_OPS[field.type], key)


def _default_test(field: Field) -> tuple[int, int, bytes]:
    """Which test recognises a tagged field's default, the value's width and the default's bytes."""
    if field.default is None:
        return IS_NULL, 0, b""
    if field.array or field.type in (Type.STRING, Type.BYTES):
        if len(field.default):
            raise ValueError(f"{field.name}: a tagged field's default of {field.default!r} is not supported")
        return IS_EMPTY, 0, b""
    if field.type is Type.STRUCT:
        raise ValueError(f"{field.name}: a tagged struct that is no array is not supported")
    width = WIDTH_BYTES[field.type]
    if field.type is Type.UUID:
        return IS_BYTES, width, field.default
    if field.type is Type.FLOAT64 and field.default == 0:
        return IS_ZERO_FLOAT, width, bytes(width)
    test = IS_BOOL if field.type is Type.BOOL else IS_BYTES
    return test, width, struct.pack(NUMBER_FORMATS[field.type], field.default)


@functools.cache
def text_constants() -> npt.NDArray[np.uint8]:
    """What the kernel looks up: all pairs of digits, base64's digits, and URL-safe base64's pairs of 12 bits."""
    pairs = "".join(f"{number:02}" for number in range(100)).encode()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    url_digits = letters + "-_"
    url_pairs = "".join(first + second for first in url_digits for second in url_digits).encode()
    blob = bytearray(BASE64_URL_PAIRS + len(url_pairs))
    for start, content in (
        (DIGIT_PAIRS, pairs),
        (BASE64_DIGITS, (letters + "+/").encode()),
        (BASE64_URL_PAIRS, url_pairs),
    ):
        blob[start : start + len(content)] = content
    return np.frombuffer(bytes(blob), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class TextPrograms:
    """`program` and `walk_program` in memory, their directory, and the room that constant texts need."""

    program: npt.NDArray[np.uint8]
    walk_program: npt.NDArray[np.uint8]
    directory: npt.NDArray[np.int32]
    constant_bytes: int


@functools.cache
def text_programs(dialect: Dialect) -> TextPrograms:
    """The programs of every metadata record and every control record of a dialect."""
    walks = WalkAssembler()
    assembler = TextAssembler(walks)
    directory = directory_of(assembler.message, dialect)
    return TextPrograms(assembler.table(), walks.table(), directory.table(), assembler.constant_bytes)
