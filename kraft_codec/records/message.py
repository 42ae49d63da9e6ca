"""The body of a message, read and written by its schema.

The writer gives the bytes of Kafka's generated writers (MessageDataGenerator, KIP-482, release 4.3). The reader accepts
what its generated readers accept, with two differences that keep an audit honest. Text that is not UTF-8 is refused;
Kafka puts U+FFFD in its place, so that two names could become one; its own writer cannot produce such bytes. A record
version above the schema's is never guessed: Kafka reads it as the newest version that it knows. The rules, in the order
in which they are checked:

- a fixed-width value that does not fit before `end`: `BAD_RECORD` at its first byte;
- a string, bytes or array: its length varint minus 1, as a Java int. Below 0 it is null, which is `BAD_RECORD` where
  the field is not nullable at that version; a string above 32,767 bytes, and any length (or element count) above the
  bytes that remain, is `BAD_RECORD`. All at the first byte of the length varint, so nothing is allocated for it;
- text that is not strict UTF-8: `BAD_STRING` at the first byte of the text;
- a bool is true for every byte but 0;
- tagged fields may come in any order and more than once (the last wins); a negative number of them is none; the size
  given for a known tag is read and ignored; a known tag below its versions is `BAD_RECORD` at the tag;
  an unknown one stays as bytes, and a size of it that is negative or does not fit is `BAD_RECORD` at the size;
- after a metadata record's body nothing may follow (`BAD_RECORD` at the first byte left); after a control record's
  body Kafka does not look, so anything may.

A message is a dict keyed by `Field.json_name` that holds every field: one that is absent from the bytes has its
default. Uuids are 16 bytes, arrays lists, structs dicts. Unknown tagged fields, where there are any, are a tuple of
(tag, bytes) under UNKNOWN_TAGGED_FIELDS of the message or struct that carried them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.varint import BytesLike, read_unsigned_varint, to_int32, write_unsigned_varint
from kraft_codec.schemas import Field, Message, Type

UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"
STRING_BYTES_MAX: Final = 0x7FFF

Fields: TypeAlias = dict[str, Any]

FIXED: Final[dict[Type, struct.Struct]] = {
    Type.BOOL: struct.Struct(">B"),
    Type.INT8: struct.Struct(">b"),
    Type.INT16: struct.Struct(">h"),
    Type.UINT16: struct.Struct(">H"),
    Type.INT32: struct.Struct(">i"),
    Type.UINT32: struct.Struct(">I"),
    Type.INT64: struct.Struct(">q"),
    Type.FLOAT64: struct.Struct(">d"),
    Type.UUID: struct.Struct(">16s"),
}


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """Where a value stands that may be secret: a field so marked, or (`field` is None) an unknown tagged field."""

    field: Field | None
    position: int
    length_bytes: int


def default_fields(fields: Sequence[Field]) -> Fields:
    """What a reader sees where nothing was written. A struct that is no array has its own defaults."""
    return {field.json_name: default_of(field) for field in fields}


def default_of(field: Field) -> Any:
    if field.array:
        return None if field.default is None else list(field.default)
    return default_fields(field.fields) if field.type is Type.STRUCT else field.default


def read_message(
    message: Message,
    version: int,
    buffer: BytesLike,
    position: int,
    end: int,
    *,
    text_errors: str = "strict",
    secrets: list[SecretSpan] | None = None,
) -> tuple[Fields, int]:
    """Reads a message's body from buffer[position:end]; returns its fields and the position after it.

    `text_errors` is the codec error handler for text ("strict" raises BAD_STRING); to `secrets`, where given, is added
    where each value stands that may be secret.
    """
    return _Reader(buffer, end, version, text_errors, secrets).struct(message.fields, position)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The bytes of one message: every method takes a position and returns (value, new position)."""

    buffer: BytesLike
    end: int
    version: int
    text_errors: str
    secrets: list[SecretSpan] | None

    def struct(self, fields: Sequence[Field], position: int) -> tuple[Fields, int]:
        values: Fields = {}
        for field in fields:
            if field.tag is None and self.version in field.versions:
                values[field.json_name], position = self.field(field, position)
            else:
                values[field.json_name] = default_of(field)
        return values, self.tagged_fields(fields, position, values)

    def tagged_fields(self, fields: Sequence[Field], position: int, values: Fields) -> int:
        count, position = read_unsigned_varint(self.buffer, position, self.end)
        unknown: list[tuple[int, bytes]] = []
        # Every round reads at least two bytes or raises, so a huge count is bounded by the bytes that remain.
        for _ in range(count):
            tag_position = position
            tag, size_position = read_unsigned_varint(self.buffer, position, self.end)
            size_bytes, position = read_unsigned_varint(self.buffer, size_position, self.end)
            field = next((known for known in fields if known.tag == tag), None)
            if field is None:
                if not 0 <= size_bytes <= self.end - position:
                    raise CodecError(Reason.BAD_RECORD, size_position, f"tagged field {tag} of {size_bytes} bytes")
                unknown.append((tag, bytes(self.buffer[position : position + size_bytes])))
                self.note_secret(None, position, size_bytes)
                position += size_bytes
            elif self.version not in field.versions:
                raise CodecError(Reason.BAD_RECORD, tag_position, f"tag {tag} ({field.name}) at version {self.version}")
            else:
                values[field.json_name], position = self.field(field, position)
        if unknown:
            values[UNKNOWN_TAGGED_FIELDS] = tuple(unknown)
        return position

    def field(self, field: Field, position: int) -> tuple[Any, int]:
        nullable = field.nullable is not None and self.version in field.nullable
        if not field.array:
            return self.value(field, position, nullable)
        count, position = self.length(field, position, nullable)
        if count is None:
            return None, position
        elements = []
        for _ in range(count):
            element, position = self.value(field, position, False)
            elements.append(element)
        return elements, position

    def value(self, field: Field, position: int, nullable: bool) -> tuple[Any, int]:
        """One value of the field's type: the field's own, or an element of its array."""
        if field.type is Type.STRUCT:
            return self.struct(field.fields, position)
        if field.type is Type.STRING or field.type is Type.BYTES:
            is_text = field.type is Type.STRING
            length, position = self.length(field, position, nullable, STRING_BYTES_MAX if is_text else None)
            if length is None:
                return None, position
            if field.secret:
                self.note_secret(field, position, length)
            value = bytes(self.buffer[position : position + length])
            return self.text(field, value, position) if is_text else value, position + length
        layout = FIXED[field.type]
        if layout.size > self.end - position:
            detail = f"{field.name}: {self.end - position} of {layout.size} bytes"
            raise CodecError(Reason.BAD_RECORD, position, detail)
        value = layout.unpack_from(self.buffer, position)[0]
        return (value != 0 if field.type is Type.BOOL else value), position + layout.size

    def length(
        self, field: Field, position: int, nullable: bool, length_max: int | None = None
    ) -> tuple[int | None, int]:
        """A length or element count that fits before `end`, or None for null, and the position after its varint."""
        length_plus_one, body = read_unsigned_varint(self.buffer, position, self.end)
        length = to_int32(length_plus_one - 1)
        if length < 0:
            if not nullable:
                raise CodecError(Reason.BAD_RECORD, position, f"{field.name} is null")
            return None, body
        if length > self.end - body or (length_max is not None and length > length_max):
            detail = f"{field.name} of length {length}, {self.end - body} bytes remain"
            raise CodecError(Reason.BAD_RECORD, position, detail)
        return length, body

    def note_secret(self, field: Field | None, position: int, length_bytes: int) -> None:
        if self.secrets is not None:
            self.secrets.append(SecretSpan(field, position, length_bytes))

    def text(self, field: Field, value: bytes, position: int) -> str:
        try:
            return value.decode("utf-8", self.text_errors)
        except UnicodeDecodeError:
            detail = f"{field.name} of {len(value)} bytes is not UTF-8"
            raise CodecError(Reason.BAD_STRING, position, detail) from None


def write_message(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """Kafka's bytes of a message's body. A missing key stands for the default.

    Raises CodecError (position = bytes written so far) where Kafka's writer throws: a version outside the schema's,
    a value that is not the default at a version that lacks the field, null where none may be, a string or number out
    of range, unknown tagged fields that are not ascending or bear a known tag. Also for a key that no field has.
    """
    if version not in message.versions:
        raise CodecError(Reason.UNKNOWN_RECORD_VERSION, 0, f"{message.name} has no version {version}")
    out = bytearray()
    _write_struct(message.fields, version, fields, out)
    return bytes(out)


def _write_struct(fields: Sequence[Field], version: int, values: Mapping[str, Any], out: bytearray) -> None:
    known = {field.json_name for field in fields}
    for name in values:
        if name not in known and name != UNKNOWN_TAGGED_FIELDS:
            raise _refused(out, f"no field is named {name!r}")
    tagged: list[tuple[int, bytes]] = []
    for field in fields:
        value = values.get(field.json_name, ...)
        if value is ...:
            value = default_of(field)
        if version not in field.versions:
            if value != default_of(field):
                raise _refused(out, f"{field.name} does not exist at version {version}")
        elif field.tag is None:
            _write_field(field, version, value, out)
        elif value != default_of(field):
            tagged.append((field.tag, _tagged_bytes(field, version, value)))
    _write_tagged_fields(fields, tagged, values.get(UNKNOWN_TAGGED_FIELDS, ()), out)


def _tagged_bytes(field: Field, version: int, value: Any) -> bytes:
    inner = bytearray()
    _write_field(field, version, value, inner)
    return bytes(inner)


def _write_tagged_fields(
    fields: Sequence[Field], tagged: list[tuple[int, bytes]], unknown: Sequence[tuple[int, bytes]], out: bytearray
) -> None:
    defined = {field.tag for field in fields}
    previous = -1
    for tag, _ in unknown:
        if tag <= previous or tag in defined:
            raise _refused(out, f"unknown tagged field {tag}: tags must ascend and differ from the known ones")
        previous = tag
    section = sorted([*tagged, *unknown])
    write_unsigned_varint(out, len(section))
    for tag, value in section:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(value))
        out += value


def _write_field(field: Field, version: int, value: Any, out: bytearray) -> None:
    if not field.array:
        _write_value(field, version, value, out)
    elif value is None:
        _write_null(field, version, out)
    else:
        write_unsigned_varint(out, len(value) + 1)
        for element in value:
            _write_value(field, version, element, out, element=True)


def _write_value(field: Field, version: int, value: Any, out: bytearray, *, element: bool = False) -> None:
    if value is None:
        if element:
            raise _refused(out, f"{field.name}: an element is null")
        _write_null(field, version, out)
    elif field.type is Type.STRUCT:
        _write_struct(field.fields, version, value, out)
    elif field.type is Type.STRING:
        try:
            text = value.encode("utf-8")
        except UnicodeEncodeError:
            raise _refused(out, f"{field.name}: a lone surrogate has no UTF-8 form") from None
        if len(text) > STRING_BYTES_MAX:
            raise _refused(out, f"{field.name}: {len(text)} bytes, of at most {STRING_BYTES_MAX}")
        write_unsigned_varint(out, len(text) + 1)
        out += text
    elif field.type is Type.BYTES:
        write_unsigned_varint(out, len(value) + 1)
        out += value
    elif field.type is Type.UUID and len(value) != FIXED[Type.UUID].size:
        raise _refused(out, f"{field.name}: a uuid of {len(value)} bytes")
    else:
        try:
            out += FIXED[field.type].pack(value)
        except struct.error as error:
            raise _refused(out, f"{field.name}: {error}") from None


def _write_null(field: Field, version: int, out: bytearray) -> None:
    if field.nullable is None or version not in field.nullable:
        raise _refused(out, f"{field.name} is null")
    out.append(0)


def _refused(out: bytearray, detail: str) -> CodecError:
    return CodecError(Reason.BAD_RECORD, len(out), detail)
