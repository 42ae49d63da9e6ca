"""The text of `kafka-dump-log --cluster-metadata-decoder --deep-iteration`, by lines (DumpLogSegments, release 4.3).

The tool reads on where an audit would not: after a bad CRC, and with any magic from 2 on. It prints a value that it
cannot decode as an error in that record's line, and where its record iterator throws, the dump ends there: so it does
here, by a CodecError after all lines before. Values are printed as ClusterMetadataLogMessageParser (4.3) prints them:
JSON, or what its decoder said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Protocol

from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import FileKind, parse_file_name
from kraft_codec.records.batch import (
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    RawRecord,
    computed_crc,
    read_header,
    read_records,
)
from kraft_codec.records.message import Fields, read_message
from kraft_codec.records.record import read_control_key, read_control_value
from kraft_codec.records.redaction import Redactor, redact_value
from kraft_codec.records.varint import read_unsigned_varint, to_int32
from kraft_codec.schemas import CONTROL_TYPES, FRAME_VERSION, METADATA_BY_API_KEY, Dialect, Message, Type
from kraft_codec.text import java_text
from kraft_codec.text.java_text import to_json

_CHUNK_BYTES: Final = 1024 * 1024
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
_LEGACY_OVERHEAD_BYTES: Final = (
    14  # LegacyRecord.RECORD_OVERHEAD_V0, the least batchLength that the tool's reader takes
)
_DELETE_HORIZON_BIT: Final = 0x40
_NO_SEQUENCE: Final = -1
_INT32_MAX: Final = 0x7FFF_FFFF


class Source(Protocol):
    """What a dump reads from: `kraft_codec.storage.opener` gives such objects."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""

    def read_at(self, position: int, length: int, /) -> Any:
        """Exactly `length` bytes from `position` on, as a buffer."""


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes at hand as a Source."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_at(self, position: int, length: int, /) -> memoryview:
        return memoryview(self.data)[position : position + length]


def dump_lines(
    source: Source, path: str, *, dialect: Dialect = Dialect.KIP853, redactor: Redactor | None = None
) -> Iterator[str]:
    """The lines for a file, without line ends; they call it `path`, whose last part decides how it is read.

    With a redactor they hold no secret: its values are overwritten before they are decoded, and of what is unknown only
    length and keyed hash are shown. Holds one chunk and one batch in memory.

    Raises CodecError where Kafka's tool throws (with BAD_COMPRESSION, BAD_RECORD, … at that position), for a batch with
    the record format of magic 0 or 1 (BAD_MAGIC: Kafka has an older parser for those, which no metadata log ever held),
    and for one above 64 MiB (LIMIT).
    """
    name = PurePosixPath(path).name
    yield f"Dumping {path}"
    title = _title(name, path)
    yield title
    if title.startswith("Ignoring"):
        return
    gaps: dict[int, int] = {}
    yield from _batch_lines(source, path, name, gaps, _Values(dialect, redactor))
    if gaps:
        yield f"Non-consecutive offsets in {path}"
        yield from (f"  {before} is followed by {after}" for before, after in sorted(gaps.items()))


def _title(name: str, path: str) -> str:
    known = parse_file_name(name)
    match known.kind if known is not None else None:
        case FileKind.SEGMENT if known is not None:
            return f"Log starting offset: {known.base_offset}"
        case FileKind.BOOTSTRAP_SNAPSHOT:
            return "KRaft bootstrap snapshot"
        case FileKind.SNAPSHOT if known is not None:
            return f"Snapshot end offset: {known.base_offset}, epoch: {known.epoch}"
        case _:
            return f"Ignoring unknown file {path}"


@dataclass(frozen=True, slots=True)
class _Values:
    """How a record's value and its headers' keys become text."""

    dialect: Dialect
    redactor: Redactor | None

    def header_keys(self, record: RawRecord) -> str:
        """KRaft writes no headers, so a key may say anything."""
        decoded = java_text.decoded if self.redactor is None else self.redactor.keyed_hash
        return ",".join(decoded(key) for key, _ in record.headers)

    def text(self, record: RawRecord, header: BatchHeader) -> str:
        if header.is_control:
            return control_text(record, self.dialect)
        return f" payload: {payload_text(record, self.redactor)}"


def _batch_lines(source: Source, path: str, name: str, gaps: dict[int, int], values: _Values) -> Iterator[str]:
    window = _Window(source)
    position, last_offset, end = 0, -1, source.size_bytes
    while position < end - HEADER_UP_TO_MAGIC_BYTES:
        batch_length = struct.unpack(">i", window.read(position + 8, 4))[0]
        if batch_length < _LEGACY_OVERHEAD_BYTES:
            yield (
                "org.apache.kafka.common.errors.CorruptRecordException: "
                f"Found record size {batch_length} smaller than minimum record overhead "
                f"({_LEGACY_OVERHEAD_BYTES}) in file {path}."
            )
            return
        size_bytes = batch_length + LOG_OVERHEAD_BYTES
        if size_bytes > end - position:
            break
        buffer = _batch_bytes(window, position, size_bytes)
        header = read_header(buffer, 0)
        if header.magic < MAGIC:
            raise CodecError(Reason.BAD_MAGIC, position, f"a batch of magic {header.magic}")
        yield _batch_line(header, position, is_valid=computed_crc(buffer, header) == header.crc)
        for record in _records(buffer, header, position):
            if record.offset != last_offset + 1:
                gaps[last_offset] = record.offset
            last_offset = record.offset
            yield _record_line(record, header, values)
        position += size_bytes
    if position < end:
        yield f"Found {end - position} invalid bytes at the end of {name}"


def _batch_bytes(window: _Window, position: int, size_bytes: int) -> bytes:
    if size_bytes > _BATCH_BYTES_MAX:
        raise CodecError(Reason.LIMIT, position, f"a batch of {size_bytes} bytes")
    if size_bytes < HEADER_BYTES:
        raise CodecError(Reason.BAD_LENGTH, position, f"a batch of {size_bytes} bytes, fewer than its header has")
    return window.read(position, size_bytes)


def _records(buffer: bytes, header: BatchHeader, position: int) -> Iterator[RawRecord]:
    """The records that the tool prints: with bytes left after the last record, its iterator throws before it."""
    held: RawRecord | None = None
    count = 0
    try:
        if header.record_count == 0:
            return
        for record in read_records(buffer, header, is_count_checked=False):
            if held is not None:
                yield held
            held = record
            count += 1
    except CodecError as error:
        if held is not None and count < header.record_count:
            yield held
        raise CodecError(error.reason, position + error.position, error.detail) from None
    if held is not None:  # pragma: no branch - a count above 0 gives a record or an error
        yield held


def _batch_line(header: BatchHeader, position: int, *, is_valid: bool) -> str:
    last_sequence = _NO_SEQUENCE
    if header.base_sequence != _NO_SEQUENCE:
        last_sequence = _incremented(header.base_sequence, header.last_offset_delta)
    has_delete_horizon = header.attributes & _DELETE_HORIZON_BIT
    delete_horizon = f"OptionalLong[{header.base_timestamp_ms}]" if has_delete_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)} "
        f"isControl: {_bool(header.is_control)} deleteHorizonMs: {delete_horizon} position: {position} "
        f"{_time_name(header)}: {header.max_timestamp_ms} size: {header.size_bytes} magic: {header.magic} "
        f"compresscodec: {header.codec.name.lower()} crc: {header.crc} isvalid: {_bool(is_valid)}"
    )


def _record_line(record: RawRecord, header: BatchHeader, values: _Values) -> str:
    sequence = _NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = _incremented(header.base_sequence, to_int32(record.offset - header.base_offset))
    return (
        f"| offset: {record.offset} {_time_name(header)}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
        f"sequence: {sequence} headerKeys: [{values.header_keys(record)}]{values.text(record, header)}"
    )


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _incremented(sequence: int, increment: int) -> int:
    """DefaultRecordBatch.incrementSequence, in the arithmetic of Java's int."""
    if sequence > to_int32(_INT32_MAX - increment):
        return to_int32(increment - (_INT32_MAX - sequence) - 1)
    return to_int32(sequence + increment)


class _Window:
    """Small reads out of large ones."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = 0
        self._chunk = b""

    def read(self, position: int, length: int) -> bytes:
        offset = position - self._start
        if offset < 0 or offset + length > len(self._chunk):
            wanted = min(max(length, _CHUNK_BYTES), self._source.size_bytes - position)
            self._chunk = bytes(self._source.read_at(position, wanted))
            self._start, offset = position, 0
        return self._chunk[offset : offset + length]


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
