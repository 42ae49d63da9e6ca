"""The records of one type as a table of their own: the data source's option `recordType`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.plan import Selection
from kraft_audit.capture.records import Records
from kraft_audit.tables.bronze import RECORDS
from kraft_codec.columns import typed_columns, typed_schema
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Field, Message, Type
from kraft_codec.text.java_text import UUID_ALPHABET, UUID_BYTES, UUID_TEXT_CHARACTERS

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
    for place, field in enumerate(message.fields, first):
        columns[place] = _as_text(columns[place], field)
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
