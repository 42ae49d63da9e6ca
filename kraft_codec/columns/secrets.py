"""Where secrets stand in the bytes of indexed records, so that they are overwritten before anything is made of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_codec.columns.buffers import addresses, run_kernel
from kraft_codec.columns.records import RecordIndex
from kraft_codec.kernels.codes import OK, SCRATCH_BYTES
from kraft_codec.kernels.programs import MARKS_MAX, WIDTH_BYTES, WalkAssembler, versions_of, walk_programs
from kraft_codec.records.redaction import Redactor, is_public_config, is_secret, secret_subject
from kraft_codec.schemas import METADATA_RECORDS, Dialect, Field, Message, Type

_NULL_LENGTH: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class FieldSpans:
    """Where one field's value stands in `RecordIndex.buffer`, a row for each record of the type; length -1 is null."""

    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SecretSpans:
    """The secrets of one record type and version: `rows` of the RecordIndex, and every plain field's place by its name.

    `fields` holds all fields of the message that are no lists, structs or tagged ones: those marked as secret in the
    schema, and those that say whose secret it is. `message` is None for unknown tagged fields, whose meaning is
    not known: `fields` then has the one entry "", and a row of `rows` for each of them.
    """

    message: Message | None
    rows: npt.NDArray[np.int64]
    fields: dict[str, FieldSpans]


_WITH_SECRETS: Final = tuple(message for message in METADATA_RECORDS if any(field.secret for field in message.fields))


def secret_spans(records: RecordIndex) -> Iterator[SecretSpans]:
    """All bytes that may be secret: fields so marked, and the unknown tagged fields of data records.

    Config values are among them whatever the config's name is; `records.redaction.is_secret` knows the public ones.
    """
    for message in _WITH_SECRETS:
        rows = records.rows_of(message)
        if len(rows):
            for version in np.unique(records.version[rows]).tolist():
                yield _marked(records, message, version, rows[records.version[rows] == version])
    with_unknown = np.flatnonzero((records.unknown_tag_count > 0) & ~records.is_control & (records.status == OK))
    if len(with_unknown):
        yield _unknown_tags(records, with_unknown)


def redact(records: RecordIndex, redactor: Redactor) -> npt.NDArray[np.bool_]:
    """Overwrites every secret of the records in `records.buffer`, which must be writable, by its fingerprint.

    The same as `records.redaction.redact_value` on each record in order. Returns which records held a secret.
    """
    if not records.buffer.flags.writeable:
        raise ValueError("secrets are overwritten in place: the buffer must be writable")
    buffer = records.buffer.data
    secrets = [
        secret
        for spans in secret_spans(records)
        for secret in (_unknown_secrets(spans) if spans.message is None else _secrets(buffer, spans, spans.message))
    ]
    is_redacted = np.zeros(len(records), bool)
    # In the order of the log: the short forms of a subject number its values as they come.
    for row, position, length, is_text, subject in sorted(secrets):
        redactor.overwrite(buffer, position, length, is_text=is_text, subject=subject)
        is_redacted[row] = True
    return is_redacted


_Secret = tuple[int, int, int, bool, str]


def _unknown_secrets(spans: SecretSpans) -> Iterator[_Secret]:
    place = spans.fields[""]
    for row, position, length in zip(spans.rows.tolist(), place.position.tolist(), place.length.tolist(), strict=True):
        yield row, position, length, False, secret_subject("", None, {})


def _secrets(buffer: memoryview, spans: SecretSpans, message: Message) -> Iterator[_Secret]:
    chosen = np.arange(len(spans.rows))
    if message.name == "ConfigRecord":
        chosen = _secret_configs(buffer, spans)
    plain = [field for field in message.fields if field.name in spans.fields]
    about = [field for field in plain if not field.secret]
    places = {field.name: _places(spans.fields[field.name], chosen) for field in plain}
    for number, row in enumerate(spans.rows[chosen].tolist()):
        values = {field.json_name: _value(buffer, field, *places[field.name][number]) for field in about}
        for field in plain:
            position, length = places[field.name][number]
            if field.secret and length > 0 and is_secret(message.name, field, values):
                is_text = field.type is Type.STRING
                yield row, position, length, is_text, secret_subject(message.name, field, values)


def _places(spans: FieldSpans, chosen: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(spans.position[chosen].tolist(), spans.length[chosen].tolist(), strict=True))


def _secret_configs(buffer: memoryview, spans: SecretSpans) -> npt.NDArray[np.int64]:
    """Which of the configs are not public. Most are, and their names are few: each name is asked about once."""
    known: dict[tuple[int, bytes], bool] = {}
    secret = []
    types = spans.fields["ResourceType"].position.tolist()
    names = zip(spans.fields["Name"].position.tolist(), spans.fields["Name"].length.tolist(), strict=True)
    for number, (type_position, (position, length)) in enumerate(zip(types, names, strict=True)):
        key = (buffer[type_position], bytes(buffer[position : position + length]))
        is_public = known.get(key)
        if is_public is None:
            resource_type = int.from_bytes(buffer[type_position : type_position + 1], "big", signed=True)
            is_public = known[key] = is_public_config(resource_type, key[1].decode())
        if not is_public:
            secret.append(number)
    return np.array(secret, np.int64)


def _value(buffer: memoryview, field: Field, position: int, length: int) -> Any:
    if length == _NULL_LENGTH:  # pragma: no cover - no record with a secret has a nullable field that names its subject
        return None
    content = bytes(buffer[position : position + length])
    if field.type is Type.STRING:
        return content.decode()
    return content if field.type is Type.BYTES else int.from_bytes(content, "big", signed=True)


def _marked(records: RecordIndex, message: Message, version: int, rows: npt.NDArray[np.int64]) -> SecretSpans:
    present = [number for number, field in enumerate(message.fields) if field.tag is None and version in field.versions]
    program, starts = _mark_programs()
    marks = np.zeros((len(rows), len(message.fields) + 1), np.int64)
    _mark(records, rows, program, np.full(len(rows), starts[message.number, version], np.int32), marks)
    fields = {}
    for number, after in zip(present, [*present[1:], len(message.fields)], strict=True):
        field = message.fields[number]
        if not field.array and field.type is not Type.STRUCT:
            fields[field.name] = _content(records, field, marks[:, number], marks[:, after])
    return SecretSpans(message, rows, fields)


def _content(
    records: RecordIndex, field: Field, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> FieldSpans:
    """Without the length varint, which may have one to five bytes."""
    if field.type in WIDTH_BYTES:
        return FieldSpans(start, end - start)
    prefix = np.ones(len(start), np.int64)
    for byte in range(4):
        goes_on = (prefix == byte + 1) & (records.buffer[np.minimum(start + byte, end - 1)] >= 0x80)
        prefix[goes_on] += 1
    position = start + prefix
    length = end - position
    # Text and bytes of no length: null where the varint is 0.
    is_null = (length == 0) & _is_null(records, start, prefix)
    return FieldSpans(position, np.where(is_null, _NULL_LENGTH, length))


def _is_null(
    records: RecordIndex, start: npt.NDArray[np.int64], prefix: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether a length varint is anything but 1, which is an empty value: what else takes no bytes is null."""
    bits = np.zeros(len(start), np.int64)
    for byte in range(5):
        at = np.minimum(start + byte, len(records.buffer) - 1)
        bits |= np.where(byte < prefix, (records.buffer[at].astype(np.int64) & 0x7F) << (7 * byte), 0)
    return np.asarray((bits & 0xFFFFFFFF) != 1)


def _unknown_tags(records: RecordIndex, rows: npt.NDArray[np.int64]) -> SecretSpans:
    program, _ = walk_programs(records.dialect)
    starts = np.array(
        [_walk_start(records.dialect, int(records.api_key[row]), int(records.version[row])) for row in rows], np.int32
    )
    places = _mark(records, rows, program, starts, np.zeros((len(rows), 0), np.int64))
    return SecretSpans(None, places[:, 0].copy(), {"": FieldSpans(places[:, 1].copy(), places[:, 2].copy())})


def _walk_start(dialect: Dialect, api_key: int, version: int) -> int:
    _, directory = walk_programs(dialect)
    first, _, where = directory[3 * api_key : 3 * api_key + 3].tolist()
    return int(directory[where + version - first])


def _mark(
    records: RecordIndex,
    rows: npt.NDArray[np.int64],
    program: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int32],
    marks: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Runs the kernel over the rows: fills `marks`, returns row, position and size of each unknown tagged field."""
    tags = np.zeros((int(records.unknown_tag_count[rows].sum()), 3), np.int64)
    table = addresses([records.body_position, records.value_position, records.value_length])
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    met = run_kernel(
        "mark_fields", records.buffer, rows, len(rows), table, starts, program,
        scratch, marks.shape[1], marks, tags, len(tags),
    )  # fmt: skip
    if met != len(tags):
        raise ValueError("the buffer is no longer what was indexed")
    return tags


@functools.cache
def _mark_programs() -> tuple[npt.NDArray[np.uint8], dict[tuple[int, int], int]]:
    """Walks with marks of the record types that hold secrets, and where each begins by type and version."""
    assembler = WalkAssembler()
    starts = {}
    for message in METADATA_RECORDS:
        _check_secrets(message)
        if any(field.secret for field in message.fields):
            for version in versions_of(message):
                starts[message.number, version] = assembler.message(message, version, with_marks=True)
    return assembler.table(), starts


def _check_secrets(message: Message) -> None:
    def nested(fields: tuple[Field, ...]) -> Iterator[Field]:
        for field in fields:
            yield from field.fields
            yield from nested(field.fields)

    unreachable = [field.name for field in nested(message.fields) if field.secret]
    unreachable += [field.name for field in message.fields if field.secret and (field.array or field.tag is not None)]
    if unreachable or len(message.fields) >= MARKS_MAX:
        raise ValueError(f"{message.name}: secrets in lists, structs or tagged fields are not supported: {unreachable}")
