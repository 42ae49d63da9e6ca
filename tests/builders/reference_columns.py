"""What the columns of a record must hold, from the readable reference's fields."""

from __future__ import annotations

from typing import Any

from kraft_codec.records.batch import BatchHeader
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import DecodedRecord
from kraft_codec.schemas import Field, Type
from kraft_codec.text.java_text import to_json


def expected_json(record: DecodedRecord) -> str | None:
    """The text of `json_text`: null where a record alone is undecodable."""
    if record.message is None or record.fields is None or record.version is None:
        return None
    return to_json(record.message, record.version, record.fields)


def expected_columns(record: DecodedRecord, header: BatchHeader) -> dict[str, Any]:
    """The row of `typed_columns` for a record that can be decoded."""
    assert record.message is not None
    envelope = {
        "offset": record.raw.offset,
        "leader_epoch": header.leader_epoch,
        "timestamp_ms": record.raw.timestamp_ms,
        "base_offset": header.base_offset,
        "record_version": record.version,
    }
    fields = typed_fields(record.message.fields, record.fields)
    renamed = {f"record_{name}" if name in envelope else name: value for name, value in fields.items()}
    return envelope | renamed | {"unknown_tagged_fields": unknown_tag_count(record.fields)}


def unknown_tag_count(value: Any) -> int:
    """Tagged fields that this codec does not know, at any depth."""
    if isinstance(value, dict):
        own = len(value.get(UNKNOWN_TAGGED_FIELDS, ()))
        return own + sum(unknown_tag_count(inner) for name, inner in value.items() if name != UNKNOWN_TAGGED_FIELDS)
    return sum(map(unknown_tag_count, value)) if isinstance(value, list) else 0


def typed_fields(fields: tuple[Field, ...], values: Any) -> dict[str, Any]:
    """A message's fields under the names of its columns."""
    return {field.column_name: _typed_value(field, values[field.json_name]) for field in fields}


def _typed_value(field: Field, value: Any) -> Any:
    if value is None or field.type is not Type.STRUCT:
        return value
    return (
        [typed_fields(field.fields, element) for element in value] if field.array else typed_fields(field.fields, value)
    )
