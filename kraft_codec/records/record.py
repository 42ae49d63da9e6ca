"""A record's key and value read and written by their schemas: the readable reference, also used by the engine.

A data record's value is framed (AbstractApiMessageSerde): frame version, apiKey, record version, body. A control
record's key holds its type, its value is the body alone. `records.message` says what a body may look like.
`decode_records` gives all records of a batch: what the columnar decoder must agree with, row by row.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import HEADER_BYTES, BatchHeader, RawRecord, read_records
from kraft_codec.records.compression import Codec
from kraft_codec.records.message import (
    Fields,
    SecretSpan,
    read_message,
    write_message,
)
from kraft_codec.records.varint import BytesLike, read_unsigned_varint, write_unsigned_varint
from kraft_codec.schemas import (
    CONTROL_TYPES,
    FRAME_VERSION,
    METADATA_BY_API_KEY,
    METADATA_BY_NAME,
    ControlType,
    Dialect,
    Message,
)

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
    value: BytesLike, position: int = 0, *, secrets: list[SecretSpan] | None = None
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
        fields, body = read_message(message, version, value, body, end, secrets=secrets)
        if body != end:
            raise CodecError(Reason.BAD_RECORD, body, f"{end - body} bytes after the body of {message.name}")
    except UnknownRecordError:
        raise
    except CodecError as error:
        raise CodecError(error.reason, error.position + position, error.detail) from None
    return MetadataRecord(api_key, version, message, fields)


def read_control_key(key: BytesLike | None, position: int = 0) -> int:
    """The type number in a control record's key (ControlRecordType.parseTypeId).

    Int16 version, int16 type; a version above 0 is read as 0 and bytes after the fourth are ignored, as in Kafka.
    BAD_RECORD at `position` for a null key, fewer than four bytes, or a negative version.
    """
    if key is None or len(key) < CONTROL_KEY_BYTES:
        key_text = "no key" if key is None else f"a key of {len(key)} bytes"
        raise CodecError(Reason.BAD_RECORD, position, f"control record with {key_text}: expected {CONTROL_KEY_BYTES}")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise CodecError(Reason.BAD_RECORD, position, f"control record key of version {version}")
    return int(number)


def read_control_value(
    control_type: ControlType, value: BytesLike, position: int = 0, *, text_errors: str = "strict"
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


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record with its value decoded, or the error that makes it alone undecodable (its fields are None then).

    `type_number` is the apiKey of a data record, the control type of a control record; `version` that of its schema.
    What an undecodable record does not reveal is None.
    """

    raw: RawRecord
    type_number: int | None
    version: int | None
    message: Message | None
    fields: Fields | None
    undecodable: CodecError | None


def decode_records(buffer: BytesLike, header: BatchHeader, dialect: Dialect = Dialect.KIP853) -> list[DecodedRecord]:
    """The records of a batch with their values decoded.

    Raises CodecError where a record's framing is broken or its body does not fit its schema: the batch as a whole
    cannot be trusted. A frame version, record type, record version or control type that is unknown makes that record
    alone undecodable. A data record without a value, a control record of a known type without one, and a control
    record without a key of four bytes are BAD_RECORD (at the record, or at the key where there is one).
    Records are judged one by one, framing before value, so the error is that of the first broken record.
    """
    decode = _decode_control if header.is_control else _decode_data
    try:
        return [decode(record, dialect) for record in read_records(buffer, header)]
    except CodecError as error:
        if error.position < header.position + HEADER_BYTES or header.codec is Codec.NONE:
            raise
        raise CodecError(error.reason, header.position + HEADER_BYTES, error.detail) from None


def _decode_control(record: RawRecord, dialect: Dialect) -> DecodedRecord:
    number = read_control_key(record.key, record.key_position)
    control_type = CONTROL_TYPES[dialect].get(number)
    if control_type is None:
        error = CodecError(Reason.UNKNOWN_CONTROL_TYPE, record.key_position, f"control type {number}")
        return DecodedRecord(record, number, None, None, None, error)
    if record.value is None:
        raise CodecError(Reason.BAD_RECORD, record.position, f"{control_type.name} without a value")
    fields = read_control_value(control_type, record.value, record.value_position)
    return DecodedRecord(record, number, control_type.version, control_type.message, fields, None)


def _decode_data(record: RawRecord, dialect: Dialect) -> DecodedRecord:
    if record.value is None:
        raise CodecError(Reason.BAD_RECORD, record.position, "a data record without a value")
    try:
        decoded = read_metadata_value(record.value, record.value_position)
    except UnknownRecordError as error:
        # Kept as a value, without the frames that it went through: they would hold the whole batch.
        return DecodedRecord(record, error.api_key, error.version, None, None, error.with_traceback(None))
    return DecodedRecord(record, decoded.api_key, decoded.version, decoded.message, decoded.fields, None)
