"""How kafka-dump-log prints a record's value: JSON, or what its decoder said (ClusterMetadataLogMessageParser, 4.3)."""

from __future__ import annotations

import struct
from typing import Any, Final

from kraft_codec import java_text
from kraft_codec.batch import RawRecord
from kraft_codec.errors import CodecError, Reason
from kraft_codec.json_text import to_json
from kraft_codec.record import Fields, read_control_key, read_control_value, read_message
from kraft_codec.redaction import Redactor, redact_value
from kraft_codec.schemas import CONTROL_TYPES, FRAME_VERSION, METADATA_BY_API_KEY, Dialect, Message, Type
from kraft_codec.varint import read_unsigned_varint

_INT16_MAX: Final = 0x7FFF
_END_TXN_MARKERS: Final = {0: "ABORT", 1: "COMMIT"}


def payload_text(record: RawRecord, redactor: Redactor | None) -> str:
    """A data record's JSON, or `Error at <offset>, skipping. <message>`."""
    value = bytearray(record.value or b"")
    if redactor is not None:
        try:
            redact_value(redactor, value)
        except CodecError as error:
            known = f"{len(value)} bytes, keyed hash {redactor.keyed_hash(value)}"
            return _skipped(record, f"{error.reason}: {known}")
    try:
        message, version, fields = _read_as_kafka(value)
        data = to_json(message, max(0, version), fields)
    except _ParseError as error:
        return _skipped(record, str(error))
    return f'{{"type":"{message.type_name}","version":{version},"data":{data}}}'


def control_text(record: RawRecord, dialect: Dialect) -> str:
    """What follows a control record's metadata; raises CodecError where Kafka's tool throws."""
    number = read_control_key(record.key, record.key_position)
    if number in _END_TXN_MARKERS:
        return f" endTxnMarker: {_END_TXN_MARKERS[number]} coordinatorEpoch: {_coordinator_epoch(record)}"
    control_type = CONTROL_TYPES[dialect].get(number)
    if control_type is None:
        return f" controlType: UNKNOWN({number})"
    if record.value is None:
        raise CodecError(Reason.BAD_RECORD, record.position, f"{control_type.name} without a value")
    fields = read_control_value(control_type, record.value, record.value_position, text_errors=java_text.ERRORS)
    # The tool writes JSON at the version that the value says of itself, which is not always the one it was read with;
    # its writers just compare, so that a negative one is as good as 0.
    version = max(0, fields.get("version", control_type.version))
    return f" {control_type.dump_label} {to_json(control_type.message, version, fields)}"


class _ParseError(Exception):
    """The message of Kafka's MetadataParseException."""


def _skipped(record: RawRecord, message: str) -> str:
    return f"Error at {record.offset}, skipping. {message}"


def _read_as_kafka(value: bytearray) -> tuple[Message, int, Fields]:
    """AbstractApiMessageSerde.read. A record version above the schema's is read as the newest known, as there."""
    end = len(value)
    frame_version, body = _short(value, 0, "frame version")
    if frame_version == 0:
        raise _ParseError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != FRAME_VERSION:
        raise _ParseError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    api_key, body = _short(value, body, "type")
    version, body = _short(value, body, "version")
    message = METADATA_BY_API_KEY.get(api_key)
    if message is None:
        unsupported = "org.apache.kafka.common.errors.UnsupportedVersionException"
        raise _ParseError(f"{unsupported}: Unknown metadata id {api_key}")
    try:
        fields, body = read_message(message, max(0, version), value, body, end, text_errors=java_text.ERRORS)
    except CodecError:
        raise _ParseError(f"Failed to deserialize record with type {api_key}") from None
    if version > message.versions.last and _has_structs(message, fields):
        raise _ParseError(f"Failed to deserialize record with type {api_key}")
    if body != end:
        raise _ParseError(f"Found {end - body} byte(s) of garbage after {api_key}")
    return message, version, fields


def _short(value: bytearray, position: int, entity: str) -> tuple[int, int]:
    """AbstractApiMessageSerde.unsignedIntToShort: a negative int passes, and keeps its low 16 bits."""
    try:
        number, position = read_unsigned_varint(value, position, len(value))
    except CodecError:
        raise _ParseError(f"Error while reading {entity}") from None
    if number > _INT16_MAX:
        raise _ParseError(f"Value for {entity} was too large.")
    return int(struct.unpack(">h", struct.pack(">H", number & 0xFFFF))[0]), position


def _has_structs(message: Message, fields: Fields) -> bool:
    """Kafka's nested readers refuse a version above those that they know; the reader of the message itself does not."""
    return any(field.type is Type.STRUCT and fields[field.json_name] for field in message.fields)


def _coordinator_epoch(record: RawRecord) -> Any:
    """EndTransactionMarker.deserialize: int16 version, int32 epoch; fewer bytes or a version below 0 make it throw."""
    value = record.value
    if value is None or len(value) < 6:
        raise CodecError(Reason.BAD_RECORD, record.position, "an end transaction marker without its 6 bytes")
    version, epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise CodecError(Reason.BAD_RECORD, record.value_position, f"an end transaction marker of version {version}")
    return epoch
