"""One record type with its fields as typed columns: what `recordType` of the data source gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.decode import Records
from kraft_audit.replay.plan import Selection
from kraft_codec.columns import typed_columns, typed_schema
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Field, Message, Type
from kraft_codec.tables import RECORDS

_LEADING: Final = ("cluster_id", "source")
_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 22
_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)


def record_type_message(record_type: str, dialect: Dialect) -> Message:
    """The schema of a type by the name that Kafka's tools print. Raises ValueError, naming what there is."""
    known = {message.type_name: message for message in METADATA_RECORDS}
    known |= {control.name: control.message for control in CONTROL_TYPES[dialect].values()}
    if record_type not in known:
        raise ValueError(f"record type {record_type!r}: expected one of {', '.join(sorted(known))}")
    return known[record_type]


def record_type_schema(record_type: str, dialect: Dialect = Dialect.KIP853) -> pa.Schema:
    """cluster_id and source, the envelope, the fields (uuids as Kafka prints them), the plan."""
    return _schema(record_type_message(record_type, dialect))


def _schema(message: Message) -> pa.Schema:
    typed = typed_schema(message)
    places = _field_places(message, typed)
    fields = [
        field.with_type(_text_type(field.type, places[number])) if number in places else field
        for number, field in enumerate(typed)
    ]
    leading = [RECORDS.schema.field(name) for name in _LEADING]
    return pa.schema([*leading, *fields, RECORDS.schema.field("plan")])


def _field_places(message: Message, typed: pa.Schema) -> dict[int, Field]:
    """The field of each column: they stand between the envelope and the count of unknown fields."""
    first = len(typed) - 1 - len(message.fields)
    return {first + number: field for number, field in enumerate(message.fields)}


def record_type_batch(
    records: Records, message: Message, source: str, selection: Selection, *, cluster_id: str, plan: int
) -> pa.RecordBatch:
    """The records of one type among `records`, as `record_type_schema` says."""
    typed = typed_columns(records.index, message)
    places = _field_places(message, typed.schema)
    columns = [
        _as_text(column, places[number]) if number in places else column for number, column in enumerate(typed.columns)
    ]
    leading = [pa.repeat(pa.scalar(value, pa.string()), typed.num_rows) for value in (cluster_id, source)]
    arrays = [*leading, *columns, pa.repeat(pa.scalar(plan, pa.int64()), typed.num_rows)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=_schema(message))
    wanted = _wanted(typed.column("offset").to_numpy(), selection)
    return batch if wanted.all() else batch.filter(pa.array(wanted))


def _wanted(offset: npt.NDArray[np.int64], selection: Selection) -> npt.NDArray[np.bool_]:
    wanted = np.ones(len(offset), bool)
    if selection.from_offset is not None:
        wanted &= offset >= selection.from_offset
    if selection.to_offset is not None:
        wanted &= offset < selection.to_offset
    return wanted


def _holds_uuids(field: Field) -> bool:
    return field.type is Type.UUID or any(_holds_uuids(inner) for inner in field.fields)


def _text_type(type_: pa.DataType, field: Field) -> pa.DataType:
    """The column's type with every uuid as text; names and nullability stay."""
    if not _holds_uuids(field):
        return type_
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_text_type(type_.value_type, field)))
    if pa.types.is_struct(type_):
        pairs = zip(type_, field.fields, strict=True)
        return pa.struct([one.with_type(_text_type(one.type, inner)) for one, inner in pairs])
    return pa.string()


def _as_text(array: pa.Array, field: Field) -> pa.Array:
    if not _holds_uuids(field):
        return array
    type_ = _text_type(array.type, field)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(type_):
        return pa.ListArray.from_arrays(array.offsets, _as_text(array.values, field), type=type_, mask=mask)
    if pa.types.is_struct(type_):
        children = [_as_text(array.field(number), inner) for number, inner in enumerate(field.fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    return _uuid_text(array)


def _uuid_text(array: pa.Array) -> pa.Array:
    """URL-safe base64 without padding, as `kraft_codec.uuids`, for all values at once. No value is null."""
    if not len(array):
        return pa.array([], pa.string())
    _, offsets, content = array.buffers()
    start = int(np.frombuffer(offsets, np.int32)[array.offset])
    values = np.frombuffer(content, np.uint8, len(array) * _UUID_BYTES, start)
    return _encoded(values.reshape(-1, _UUID_BYTES))


def _encoded(uuids: npt.NDArray[np.uint8]) -> pa.StringArray:
    padded = np.zeros((len(uuids), 18), np.uint32)
    padded[:, :_UUID_BYTES] = uuids
    triples = (padded[:, 0::3] << 16) | (padded[:, 1::3] << 8) | padded[:, 2::3]
    sextets = np.stack([(triples >> shift) & 63 for shift in (18, 12, 6, 0)], axis=2).reshape(len(uuids), 24)
    text = np.ascontiguousarray(_ALPHABET[sextets[:, :_UUID_CHARACTERS]])
    ends = np.arange(0, (len(uuids) + 1) * _UUID_CHARACTERS, _UUID_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(len(uuids), pa.py_buffer(ends), pa.py_buffer(text))


def type_names(dialect: Dialect) -> Sequence[str]:
    """Every record type of a dialect by the name that Kafka's tools print."""
    names = {message.type_name for message in METADATA_RECORDS}
    return sorted(names | {control.name for control in CONTROL_TYPES[dialect].values()})
