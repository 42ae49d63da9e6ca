"""One record read or written by its schema: the readable reference, used by the engine and as the tests' oracle.

What is accepted is what Kafka's generated readers accept (MessageDataGenerator, KIP-482, release 4.3), with two
differences that keep an audit honest: text that is not UTF-8 is refused (Kafka puts U+FFFD in its place, so that two
names could become one; its own writer cannot produce such bytes), and a record version above the schema's is never
guessed (Kafka reads it as the newest one that it knows). The rules, in the order in which they are checked:

- a fixed-width value that does not fit before `end`: `BAD_RECORD` at its first byte;
- a string, bytes or array: its length varint minus 1, as a Java int. Below 0 it is null, which is `BAD_RECORD` where
  the field is not nullable at that version; a string above 32,767 bytes, and any length (or element count) above the
  bytes that remain, is `BAD_RECORD`. All at the first byte of the length varint, so nothing is allocated for it;
- text that is not strict UTF-8: `BAD_STRING` at the first byte of the text;
- a bool is true for every byte but 0;
- tagged fields may come in any order and more than once (the last wins); a negative number of them is none; the size
  given for a known tag is read and ignored; a known tag below its versions is `BAD_RECORD` at the tag;
  an unknown one is kept as bytes, and a size of it that is negative or does not fit is `BAD_RECORD` at the size;
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
from kraft_codec.schemas import (
    FRAME_VERSION,
    METADATA_BY_API_KEY,
    METADATA_BY_NAME,
    ControlType,
    Field,
    Message,
    Type,
)
from kraft_codec.varint import Buffer, read_unsigned_varint, to_int32, write_unsigned_varint

UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"
STRING_BYTES_MAX: Final = 0x7FFF
CONTROL_KEY_BYTES: Final = 4

Fields: TypeAlias = dict[str, Any]

_FIXED: Final[dict[Type, struct.Struct]] = {
    Type.INT8: struct.Struct(">b"),
    Type.INT16: struct.Struct(">h"),
    Type.UINT16: struct.Struct(">H"),
    Type.INT32: struct.Struct(">i"),
    Type.UINT32: struct.Struct(">I"),
    Type.INT64: struct.Struct(">q"),
    Type.FLOAT64: struct.Struct(">d"),
    Type.UUID: struct.Struct(">16s"),
}
_BOOL: Final = struct.Struct(">B")


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A data record's value: apiKey, record version, and the fields by its schema."""

    api_key: int
    version: int
    message: Message
    fields: Fields


class UnknownRecordError(CodecError):
    """A data record that this codec does not know: undecodable alone, its batch stays.

    `api_key` and `version` are None where an unknown frame version hides them.
    """

    def __init__(self, reason: Reason, position: int, detail: str, api_key: int | None, version: int | None) -> None:
        super().__init__(reason, position, detail)
        self.api_key = api_key
        self.version = version


def default_fields(fields: Sequence[Field]) -> Fields:
    """What a reader sees where nothing was written. A struct that is no array has its own defaults."""
    return {field.json_name: default_of(field) for field in fields}


def default_of(field: Field) -> Any:
    if field.array:
        return None if field.default is None else list(field.default)
    return default_fields(field.fields) if field.type is Type.STRUCT else field.default


def read_message(
    message: Message, version: int, buffer: Buffer, position: int, end: int, *, text_errors: str = "strict"
) -> tuple[Fields, int]:
    """Reads a message's body from buffer[position:end]; returns its fields and the position after it.

    `text_errors` is the codec error handler for text: "strict" raises BAD_STRING.
    """
    return _Reader(buffer, end, version, text_errors).struct(message.fields, position)


def read_metadata_value(value: Buffer, position: int = 0, *, text_errors: str = "strict") -> MetadataRecord:
    """Reads a data record's value (AbstractApiMessageSerde): frame version, apiKey, record version, body, no more.

    `position` is where the value's first byte stands, for errors. UNKNOWN_FRAME_VERSION, UNKNOWN_RECORD_TYPE and
    UNKNOWN_RECORD_VERSION (UnknownRecordError) carry it. The frame version is judged first; then both other varints
    are read before the type and the version are judged.
    """
    end = len(value)
    try:
        frame_version, body = read_unsigned_varint(value, 0, end)
        if frame_version != FRAME_VERSION:
            raise UnknownRecordError(
                Reason.UNKNOWN_FRAME_VERSION, position, f"frame version {frame_version}", None, None
            )
        api_key, body = read_unsigned_varint(value, body, end)
        version, body = read_unsigned_varint(value, body, end)
        message = METADATA_BY_API_KEY.get(api_key)
        if message is None:
            raise UnknownRecordError(
                Reason.UNKNOWN_RECORD_TYPE, position, f"unknown metadata id {api_key}", api_key, version
            )
        if version not in message.versions:
            raise UnknownRecordError(
                Reason.UNKNOWN_RECORD_VERSION, position, f"{message.name} version {version}", api_key, version
            )
        fields, body = read_message(message, version, value, body, end, text_errors=text_errors)
        if body != end:
            raise CodecError(Reason.BAD_RECORD, body, f"{end - body} bytes after the body of {message.name}")
    except UnknownRecordError:
        raise
    except CodecError as error:
        raise CodecError(error.reason, error.position + position, error.detail) from None
    return MetadataRecord(api_key, version, message, fields)


def read_control_key(key: Buffer | None, position: int = 0) -> int:
    """The type number in a control record's key (ControlRecordType.parseTypeId).

    Int16 version, int16 type; a version above 0 is read as 0 and bytes after the fourth are ignored, as in Kafka.
    BAD_RECORD at `position` for a null key, fewer than four bytes, or a negative version.
    """
    if key is None or len(key) < CONTROL_KEY_BYTES:
        found = "no key" if key is None else f"a key of {len(key)} bytes"
        raise CodecError(Reason.BAD_RECORD, position, f"control record with {found}: expected {CONTROL_KEY_BYTES}")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise CodecError(Reason.BAD_RECORD, position, f"control record key of version {version}")
    return int(number)


def read_control_value(
    control_type: ControlType, value: Buffer, position: int = 0, *, text_errors: str = "strict"
) -> Fields:
    """Reads a control record's value with its dialect's compiled-in version (ControlRecordUtils).

    The value's own `Version` field does not steer the reading, and bytes after the body are ignored, as in Kafka.
    """
    try:
        message, version = control_type.message, control_type.version
        return read_message(message, version, value, 0, len(value), text_errors=text_errors)[0]
    except CodecError as error:
        raise CodecError(error.reason, error.position + position, error.detail) from None


def write_control_key(number: int) -> bytes:
    """A control record's key: int16 version 0, int16 type."""
    return struct.pack(">hh", 0, number)


def write_control_value(control_type: ControlType, fields: Mapping[str, Any]) -> bytes:
    """A control record's value at its dialect's version."""
    return write_message(control_type.message, control_type.version, fields)


def write_metadata_value(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """A data record's value: frame version, apiKey, record version, body."""
    message = METADATA_BY_NAME[name]
    out = bytearray()
    write_unsigned_varint(out, FRAME_VERSION)
    write_unsigned_varint(out, message.number)
    write_unsigned_varint(out, version)
    return bytes(out) + write_message(message, version, fields)


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


@dataclass(frozen=True, slots=True)
class _Reader:
    """The bytes of one message: every method takes a position and returns (value, new position)."""

    buffer: Buffer
    end: int
    version: int
    text_errors: str

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
            value = bytes(self.buffer[position : position + length])
            return self.text(field, value, position) if is_text else value, position + length
        layout = _FIXED.get(field.type, _BOOL)
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

    def text(self, field: Field, value: bytes, position: int) -> str:
        try:
            return value.decode("utf-8", self.text_errors)
        except UnicodeDecodeError:
            detail = f"{field.name} of {len(value)} bytes is not UTF-8"
            raise CodecError(Reason.BAD_STRING, position, detail) from None


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
    elif field.type is Type.UUID and len(value) != _FIXED[Type.UUID].size:
        raise _refused(out, f"{field.name}: a uuid of {len(value)} bytes")
    else:
        try:
            out += _FIXED.get(field.type, _BOOL).pack(value)
        except struct.error as error:
            raise _refused(out, f"{field.name}: {error}") from None


def _write_null(field: Field, version: int, out: bytearray) -> None:
    if field.nullable is None or version not in field.nullable:
        raise _refused(out, f"{field.name} is null")
    out.append(0)


def _refused(out: bytearray, detail: str) -> CodecError:
    return CodecError(Reason.BAD_RECORD, len(out), detail)
