"""Decoded records: each distinct batch decoded once, its records redacted, then as typed columns, as JSON, or
those of one type as a table of their own (the data source's option `recordType`).

Control records are few, so they are plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.plan import Selection
from kraft_audit.capture.scanner import Chunk, ValueHash
from kraft_audit.tables.bronze import RECORDS
from kraft_audit.tables.contract import build_batch
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns import RecordIndex, index_records, json_text, redact, row_groups, typed_columns, typed_schema
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import OK, REASONS
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_NAME, METADATA_RECORDS, Dialect, Field, Message, Type
from kraft_codec.text.java_text import UUID_ALPHABET, UUID_BYTES, UUID_TEXT_CHARACTERS

NO_OP_API_KEY: Final = METADATA_BY_NAME["NoOpRecord"].number
NOT_DECODED: Final = -1
ENVELOPE: Final = ("offset", "leader_epoch", "timestamp_ms")

RecordColumns = Mapping[str, pa.RecordBatch]
"""Message name → typed columns of its records in one window: `offset`, `leader_epoch`, `timestamp_ms` and the fields by
their column names, ascending by offset. A type without records may be absent. Partition records, which are many, may be
a pa.Table instead: several batches in a row that did not have to be copied into one."""


@dataclass(slots=True, eq=False)
class DecodedBatches:
    """What decoding said of each distinct batch of a window, one element a batch.

    `status` is a kernel's status (0: sound), `error_in_batch` where in the batch the error stands, and `noop_count`
    NOT_DECODED where the batch was not asked for.
    """

    status: npt.NDArray[np.uint8]
    error_in_batch: Rows
    noop_count: Rows

    @classmethod
    def unknown(cls, count: int) -> DecodedBatches:
        return cls(np.zeros(count, np.uint8), np.zeros(count, np.int64), np.full(count, NOT_DECODED, np.int64))


@dataclass(slots=True, eq=False)
class Records:
    """The records of some batches of one chunk, secrets overwritten.

    `is_redacted` marks the records that held a secret.
    """

    index: RecordIndex
    chunk: Chunk
    is_redacted: Mask

    @property
    def leader_epoch(self) -> Rows:
        """That of each record's batch."""
        return self.chunk.index.leader_epoch[self.index.batch_row].astype(np.int64)

    @property
    def batch_crc(self) -> Rows:
        """That of each record's batch."""
        return self.chunk.index.crc[self.index.batch_row].astype(np.int64)

    def file_position(self, row: int) -> int:
        """Where an undecodable record's error stands in its file."""
        return self.chunk.file_position + self.index.error_position(row)

    def reason(self, row: int) -> Reason:
        return self.index.reason(row) or Reason.BAD_RECORD


class Decoder:
    """Decodes by one dialect, with the redactor of one cluster; None where nothing decoded leaves this process."""

    def __init__(self, dialect: Dialect, redactor: Redactor | None) -> None:
        self.dialect = dialect
        self.redactor = redactor

    def batches(self, chunk: Chunk, numbers: Rows, rows: Rows) -> Iterator[tuple[Rows, Records]]:
        """(numbers, records) of a chunk's batches at `rows`, which go by `numbers`."""
        start = 0
        for group in row_groups(chunk.index, rows):
            yield numbers[start : start + len(group)], self.records(chunk, group)
            start += len(group)

    def records(self, chunk: Chunk, rows: Rows) -> Records:
        """The records of a chunk's batches at `rows`; each batch may be asked for once, as its bytes change."""
        index = index_records(chunk.buffer, chunk.index, rows, self.dialect)
        is_redacted = np.zeros(len(index), bool) if self.redactor is None else redact(index, self.redactor)
        return Records(index, chunk, is_redacted)


def judge(decoded: DecodedBatches, numbers: Rows, records: Records) -> None:
    """Notes what decoding said of the batches `numbers`, which `records` are of."""
    index = records.index
    decoded.status[numbers] = index.batch_status
    decoded.error_in_batch[numbers] = index.batch_status_position - records.chunk.index.position[index.selected]
    is_noop = _is_noop(index)
    place = np.searchsorted(index.selected, index.batch_row[is_noop])
    counts = np.bincount(place, minlength=len(index.selected))
    decoded.noop_count[numbers] = np.where(index.batch_status == OK, counts, NOT_DECODED)


def _is_noop(index: RecordIndex) -> Mask:
    mask: Mask = (index.api_key == NO_OP_API_KEY) & ~index.is_control & (index.status == OK)
    return mask


def reason_of(status: int) -> Reason:
    """The reason that a status which is not OK stands for."""
    return REASONS[status] or Reason.BAD_RECORD


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Typed records of one window of a branch: offsets [from_offset, to_offset).

    Missing in it are records of unknown types or versions and whole batches that are unsound: `undecoded` has their
    offsets, of a batch its base offset, ascending.
    """

    from_offset: int
    to_offset: int
    records: RecordColumns
    undecoded: Rows = field(default_factory=lambda: np.zeros(0, np.int64))


def batches_of(records: RecordColumns, name: str) -> list[pa.RecordBatch]:
    """The non-empty batches with records of one type, ascending by offset."""
    rows = records.get(name)
    if rows is None:
        return []
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return [batch for batch in batches if batch.num_rows]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One control record: `name` is its type as tables show it ("LEADER_CHANGE"), `fields` are by column name.

    `batch_offset` is the base offset of its batch, None where it is not known.
    """

    offset: int
    leader_epoch: int
    timestamp_ms: int
    name: str
    fields: Mapping[str, Any]
    batch_offset: int | None = None

    @property
    def batch_start(self) -> int:
        """The base offset of its batch as far as it is known, else its own."""
        return self.offset if self.batch_offset is None else self.batch_offset


def control_records(records: RecordColumns, dialect: Dialect = Dialect.KIP853) -> list[ControlRecord]:
    """The control records of a window in log order."""
    controls: list[ControlRecord] = []
    for control in CONTROL_TYPES[dialect].values():
        batch = records.get(control.message.name)
        if batch is None:
            continue
        for row in batch.to_pylist():
            offset, leader_epoch, timestamp_ms = (row[name] for name in ENVELOPE)
            controls.append(ControlRecord(offset, leader_epoch, timestamp_ms, control.name, row))
    return sorted(controls, key=lambda record: record.offset)


def controls_of(index: RecordIndex, dialect: Dialect) -> list[ControlRecord]:
    """The control records of an index, as values."""
    messages = [control.message for control in CONTROL_TYPES[dialect].values()]
    return control_records(typed_records([index], messages), dialect)


def typed_records(
    indexes: Sequence[RecordIndex], messages: Sequence[Message], wanted: Sequence[Mask | None] = ()
) -> RecordColumns:
    """Typed columns of the types that occur in some indexes, one after the other.

    `wanted` are, for each index, a mask of its rows; None, or no entry, is all of them.
    """
    columns: dict[str, pa.RecordBatch] = {}
    present = {message.name for index in indexes for message in index.messages()}
    masks = [*wanted, *[None] * (len(indexes) - len(wanted))]
    for message in messages:
        if message.name not in present:
            continue
        batches = [
            batch
            for index, mask in zip(indexes, masks, strict=True)
            if (batch := _typed_batch(index, message, mask)) is not None
        ]
        if batches:
            columns[message.name] = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return columns


def _typed_batch(index: RecordIndex, message: Message, mask: Mask | None) -> pa.RecordBatch | None:
    rows = index.rows_of(message)
    if not len(rows):
        return None
    if mask is None or mask[rows].all():
        return typed_columns(index, message)
    is_wanted = mask[rows]
    return typed_columns(index, message).filter(pa.array(is_wanted)) if is_wanted.any() else None


def rows_in_order(records: RecordColumns, names: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    """The records of the named types as (message name, row) in log order; for types that are rare in a log."""
    named_rows: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        batch = records.get(name)
        if batch is not None and batch.num_rows:
            named_rows.extend((name, row) for row in batch.to_pylist())
    return sorted(named_rows, key=lambda entry: int(entry[1]["offset"]))


def between(records: RecordColumns, from_offset: int | None, to_offset: int | None) -> dict[str, pa.RecordBatch]:
    """The records with from_offset <= offset < to_offset; None is no bound. Types without records are left out."""
    batches = {}
    for name, batch in records.items():
        offsets = batch.column("offset").to_numpy()
        start = 0 if from_offset is None else int(np.searchsorted(offsets, from_offset))
        end = len(offsets) if to_offset is None else int(np.searchsorted(offsets, to_offset))
        if start < end:
            batches[name] = batch.slice(start, end - start)
    return batches


def end_of(records: RecordColumns, window_end: int) -> int:
    """The offset after the last record of a window: its last batch may cross the window's end."""
    lasts = [int(batch.column("offset")[-1].as_py()) + 1 for batch in records.values() if batch.num_rows]
    return max([window_end, *lasts])


def records_batch(
    records: Records, source: str, selection: Selection, keyed_hash: ValueHash, *, cluster_id: str, plan: int
) -> pa.RecordBatch:
    """Rows of `records` for the selected records; NoOps are only counted, in `batches`.

    `keyed_hash` hashes the values that cannot be decoded: they may hold secrets.
    """
    index = records.index
    types = record_type_column(index)
    is_known = index.api_key >= 0
    wanted = selection.includes(index.offset)
    wanted &= ~_is_noop(index)
    if selection.record_types is not None:
        is_asked = pc.is_in(types, pa.array(selection.record_types, pa.string()))
        wanted &= is_asked.to_numpy(zero_copy_only=False)
    batch = build_batch(
        RECORDS,
        {
            "cluster_id": cluster_id,
            "source": source,
            "offset": index.offset,
            "leader_epoch": records.leader_epoch,
            "batch_crc": records.batch_crc,
            "timestamp_ms": index.timestamp_ms,
            "is_control": index.is_control,
            "api_key": pa.array(index.api_key, mask=index.is_control | ~is_known),
            "control_type": pa.array(index.api_key, mask=~index.is_control | ~is_known),
            "record_type": types,
            "record_version": pa.array(index.version, mask=index.is_control | (index.version < 0)),
            "record": json_text(index),
            "value_bytes": np.maximum(index.value_length, 0),
            "value_hash": _value_hashes(index, keyed_hash),
            "is_redacted": records.is_redacted,
            "plan": plan,
        },
        len(index),
    )
    return batch if wanted.all() else batch.filter(pa.array(wanted))


def record_type_column(index: RecordIndex) -> pa.StringArray:
    """The type of each record as Kafka's tools print it, UNKNOWN(n) for a type that the codec does not know."""
    codes, place = np.unique(index.api_key.astype(np.int64) * 2 + index.is_control, return_inverse=True)
    names = [_type_name(index, code // 2, is_control=bool(code % 2)) for code in codes.tolist()]
    return pa.array(names, pa.string()).take(pa.array(place))


def _type_name(index: RecordIndex, number: int, *, is_control: bool) -> str:
    if number < 0:
        return "UNKNOWN"
    if is_control:
        control_type = CONTROL_TYPES[index.dialect].get(number)
        return control_type.name if control_type else f"UNKNOWN({number})"
    message = index.message(is_control=False, api_key=number)
    return message.type_name if message else f"UNKNOWN({number})"


def _value_hashes(index: RecordIndex, keyed_hash: ValueHash) -> pa.Array:
    undecodable = np.flatnonzero(index.status != OK)
    if not len(undecodable):
        return pa.nulls(len(index), pa.string())
    hashes: list[str | None] = [None] * len(index)
    for row in undecodable.tolist():
        hashes[row] = value_hash(index, row, keyed_hash)
    return pa.array(hashes, pa.string())


def value_hash(index: RecordIndex, row: int, keyed_hash: ValueHash) -> str:
    """The keyed hash of one record's value."""
    position, length = int(index.value_position[row]), max(int(index.value_length[row]), 0)
    return keyed_hash(index.buffer[position : position + length].data)


_LEADING: Final = ("cluster_id", "source")


def record_types(dialect: Dialect) -> dict[str, Message]:
    """The schema of each record type of a dialect by the name that Kafka's tools print."""
    known = {message.type_name: message for message in METADATA_RECORDS}
    return known | {control.name: control.message for control in CONTROL_TYPES[dialect].values()}


def record_type_message(record_type: str, dialect: Dialect) -> Message:
    """The schema of one record type. Raises ValueError naming the known types."""
    known = record_types(dialect)
    if record_type not in known:
        raise ValueError(f"record type {record_type!r}: expected one of {', '.join(sorted(known))}")
    return known[record_type]


def record_type_schema(record_type: str, dialect: Dialect = Dialect.KIP853) -> pa.Schema:
    """The columns of a record type: cluster_id, source, envelope, fields (uuids as Kafka prints them), plan."""
    message = record_type_message(record_type, dialect)
    return _with_text(pa.RecordBatch.from_pylist([], typed_schema(message)), message, "", "", 0).schema


def record_type_batch(
    records: Records, message: Message, source: str, selection: Selection, *, cluster_id: str, plan: int
) -> pa.RecordBatch:
    """The selected records of one type, with the columns of `record_type_schema`."""
    typed = typed_columns(records.index, message)
    wanted = selection.includes(typed.column("offset").to_numpy())
    return _with_text(typed if wanted.all() else typed.filter(pa.array(wanted)), message, cluster_id, source, plan)


def _with_text(typed: pa.RecordBatch, message: Message, cluster_id: str, source: str, plan: int) -> pa.RecordBatch:
    """Typed columns, uuids as text, between source and plan; the last one counts unknown tagged fields."""
    first = typed.num_columns - 1 - len(message.fields)
    columns, fields = list(typed.columns), list(typed.schema)
    for place, column in enumerate(message.fields, first):
        columns[place] = _as_text(columns[place], column)
        fields[place] = fields[place].with_type(columns[place].type)
    leading = [pa.repeat(pa.scalar(value, pa.string()), typed.num_rows) for value in (cluster_id, source)]
    names = [RECORDS.schema.field(name) for name in _LEADING]
    schema = pa.schema([*names, *fields, RECORDS.schema.field("plan")])
    plans = pa.repeat(pa.scalar(plan, pa.int64()), typed.num_rows)
    return pa.RecordBatch.from_arrays([*leading, *columns, plans], schema=schema)


def _holds_uuids(field: Field) -> bool:
    return field.type is Type.UUID or any(_holds_uuids(inner) for inner in field.fields)


def _as_text(array: pa.Array, field: Field) -> pa.Array:
    """A column with every uuid as text; names and nullability do not change."""
    if not _holds_uuids(field):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(array.type):
        values = _as_text(array.values, field)
        type_ = pa.list_(array.type.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=mask)
    if pa.types.is_struct(array.type):
        children = [_as_text(array.field(number), inner) for number, inner in enumerate(field.fields)]
        fields = [own.with_type(child.type) for own, child in zip(array.type, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    return _uuid_text(array)


def _uuid_text(array: pa.Array) -> pa.Array:
    """The text of uuids, as `uuid_text` gives it, for all values at once. No value is null."""
    if not len(array):
        return pa.array([], pa.string())
    _, offsets, content = array.buffers()
    start = int(np.frombuffer(offsets, np.int32)[array.offset])
    values = np.frombuffer(content, np.uint8, len(array) * UUID_BYTES, start)
    return _encoded(values.reshape(-1, UUID_BYTES))


def _encoded(uuids: npt.NDArray[np.uint8]) -> pa.StringArray:
    padded = np.zeros((len(uuids), 18), np.uint32)
    padded[:, :UUID_BYTES] = uuids
    triples = (padded[:, 0::3] << 16) | (padded[:, 1::3] << 8) | padded[:, 2::3]
    sextets = np.stack([(triples >> shift) & 63 for shift in (18, 12, 6, 0)], axis=2).reshape(len(uuids), 24)
    alphabet = np.frombuffer(UUID_ALPHABET, np.uint8)
    text = np.ascontiguousarray(alphabet[sextets[:, :UUID_TEXT_CHARACTERS]])
    ends = np.arange(0, (len(uuids) + 1) * UUID_TEXT_CHARACTERS, UUID_TEXT_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(len(uuids), pa.py_buffer(ends), pa.py_buffer(text))
