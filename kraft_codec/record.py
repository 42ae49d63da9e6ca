"""One record's key and value read and written by their schemas: the readable reference, also used by the engine.

A data record's value is framed (AbstractApiMessageSerde): frame version, apiKey, record version, body. A control
record's key holds its type, its value is the body alone. `kraft_codec.message_reader` says what a body may look like.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.message_reader import (
    UNKNOWN_TAGGED_FIELDS,
    Fields,
    SecretSpan,
    default_fields,
    default_of,
    read_message,
)
from kraft_codec.message_writer import write_message
from kraft_codec.schemas import FRAME_VERSION, METADATA_BY_API_KEY, METADATA_BY_NAME, ControlType, Message
from kraft_codec.varint import Buffer, read_unsigned_varint, write_unsigned_varint

__all__ = [
    "UNKNOWN_TAGGED_FIELDS",
    "Fields",
    "MetadataRecord",
    "SecretSpan",
    "UnknownRecordError",
    "default_fields",
    "default_of",
    "read_control_key",
    "read_control_value",
    "read_message",
    "read_metadata_value",
    "write_control_key",
    "write_control_value",
    "write_message",
    "write_metadata_value",
]

CONTROL_KEY_BYTES: Final = 4


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


def read_metadata_value(
    value: Buffer, position: int = 0, *, text_errors: str = "strict", secrets: list[SecretSpan] | None = None
) -> MetadataRecord:
    """Reads a data record's value (AbstractApiMessageSerde): frame version, apiKey, record version, body, no more.

    `position` is where the value's first byte stands, for errors; those of `secrets` count from that byte.
    UNKNOWN_FRAME_VERSION, UNKNOWN_RECORD_TYPE and UNKNOWN_RECORD_VERSION (UnknownRecordError) carry it. The frame
    version is judged first; then both other varints are read before the type and the version are judged.
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
        fields, body = read_message(message, version, value, body, end, text_errors=text_errors, secrets=secrets)
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
