"""The records of one batch with their values decoded: what the columnar decoder must agree with, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from kraft_codec.batch import HEADER_BYTES, BatchHeader, RawRecord, read_records
from kraft_codec.compression import Codec
from kraft_codec.errors import CodecError, Reason
from kraft_codec.record import (
    Fields,
    UnknownRecordError,
    read_control_key,
    read_control_value,
    read_metadata_value,
)
from kraft_codec.schemas import CONTROL_TYPES, Dialect, Message
from kraft_codec.varint import Buffer


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


def decode_records(
    buffer: Buffer, header: BatchHeader, dialect: Dialect = Dialect.KIP853, *, text_errors: str = "strict"
) -> list[DecodedRecord]:
    """The records of a batch with their values decoded.

    Raises CodecError where a record's framing is broken or its body does not fit its schema: the batch as a whole
    cannot be trusted. A frame version, record type, record version or control type that is unknown makes that record
    alone undecodable. A data record without a value, a control record of a known type without one, and a control
    record without a key of four bytes are BAD_RECORD (at the record, or at the key where there is one).
    Records are judged one by one, framing before value, so the error is that of the first broken record.
    """
    decode = _decode_control if header.is_control else _decode_data
    try:
        return [decode(record, dialect, text_errors) for record in read_records(buffer, header)]
    except CodecError as error:
        if error.position < header.position + HEADER_BYTES or header.codec is Codec.NONE:
            raise
        raise CodecError(error.reason, header.position + HEADER_BYTES, error.detail) from None


def _decode_control(record: RawRecord, dialect: Dialect, text_errors: str) -> DecodedRecord:
    number = read_control_key(record.key, record.key_position)
    control_type = CONTROL_TYPES[dialect].get(number)
    if control_type is None:
        error = CodecError(Reason.UNKNOWN_CONTROL_TYPE, record.key_position, f"control type {number}")
        return DecodedRecord(record, number, None, None, None, error)
    if record.value is None:
        raise CodecError(Reason.BAD_RECORD, record.position, f"{control_type.name} without a value")
    fields = read_control_value(control_type, record.value, record.value_position, text_errors=text_errors)
    return DecodedRecord(record, number, control_type.version, control_type.message, fields, None)


def _decode_data(record: RawRecord, dialect: Dialect, text_errors: str) -> DecodedRecord:
    if record.value is None:
        raise CodecError(Reason.BAD_RECORD, record.position, "a data record without a value")
    try:
        decoded = read_metadata_value(record.value, record.value_position, text_errors=text_errors)
    except UnknownRecordError as error:
        # Kept as a value, without the frames that it went through: they would hold the whole batch.
        return DecodedRecord(record, error.api_key, error.version, None, None, error.with_traceback(None))
    return DecodedRecord(record, decoded.api_key, decoded.version, decoded.message, decoded.fields, None)
