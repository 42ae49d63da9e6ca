"""The body of a message written by its schema: the bytes that Kafka's generated writers give (KIP-482, release 4.3)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kraft_codec.errors import CodecError, Reason
from kraft_codec.message_reader import FIXED, STRING_BYTES_MAX, UNKNOWN_TAGGED_FIELDS, default_of
from kraft_codec.schemas import Field, Message, Type
from kraft_codec.varint import write_unsigned_varint


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
