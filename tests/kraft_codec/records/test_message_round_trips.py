"""Every message in every version, with drawn values and unknown tagged fields: written, read, written again."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS, default_fields, read_message, write_message
from kraft_codec.records.record import decode_records, read_metadata_value, write_control_key, write_metadata_value
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_NAME, METADATA_RECORDS, Dialect, Field, Message, Type
from kraft_codec.text.java_text import to_json
from tests.builders.message_values import SCALARS as EVERY_SCALAR
from tests.builders.property_examples import quickly

CONTROL_MESSAGES = {
    (dialect, control.number): control.message for dialect, types in CONTROL_TYPES.items() for control in types.values()
}
MESSAGES = [*METADATA_RECORDS, *CONTROL_MESSAGES.values()]
CASES = [(message, version) for message in MESSAGES for version in range(message.versions.last + 1)]
CASE_NAMES = [f"{message.name}-v{version}" for message, version in CASES]

SCALARS = EVERY_SCALAR | {Type.FLOAT64: st.floats(allow_nan=False)}


def field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    value = struct_values(field.fields, version) if field.type is Type.STRUCT else SCALARS[field.type]
    if field.array:
        value = st.lists(value, max_size=4)
    if field.nullable is not None and version in field.nullable:
        value = st.none() | value
    return value


def unknown_tags(fields: tuple[Field, ...]) -> st.SearchStrategy[tuple[tuple[int, bytes], ...]]:
    defined = {field.tag for field in fields}
    tags = (st.integers(0, 40) | st.integers(0, 2**31 - 1)).filter(lambda tag: tag not in defined)
    drawn = st.dictionaries(tags, st.binary(max_size=9), max_size=3)
    return drawn.map(lambda found: tuple(sorted(found.items())))


@st.composite
def struct_values(draw: st.DrawFn, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    values = default_fields(fields)
    for field in fields:
        if version in field.versions:
            values[field.json_name] = draw(field_values(field, version))
    unknown = draw(unknown_tags(fields))
    if unknown:
        values[UNKNOWN_TAGGED_FIELDS] = unknown
    return values


@pytest.mark.slow
@pytest.mark.parametrize(("message", "version"), CASES, ids=CASE_NAMES)
@settings(max_examples=quickly(20), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_is_read_back_and_written_the_same(data: st.DataObject, message: Message, version: int) -> None:
    values = data.draw(struct_values(message.fields, version))
    body = write_message(message, version, values)
    read, end = read_message(message, version, b"\xaa" + body + b"\xbb", 1, 1 + len(body))
    assert end == 1 + len(body)
    assert read == values
    assert write_message(message, version, read) == body


@pytest.mark.slow
@pytest.mark.parametrize(("message", "version"), CASES, ids=CASE_NAMES)
@settings(max_examples=quickly(15), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_json_holds_every_field_of_the_version_in_schema_order(
    data: st.DataObject, message: Message, version: int
) -> None:
    values = data.draw(struct_values(message.fields, version))
    shown = json.loads(to_json(message, version, values))
    expected = [
        field
        for field in message.fields
        if version in field.versions and (field.tag is None or values[field.json_name] != field.default)
    ]
    assert list(shown) == [field.json_name for field in expected]
    for field in expected:
        if field.type in (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.UINT16, Type.BOOL, Type.STRING):
            assert shown[field.json_name] == values[field.json_name]
        if field.type is Type.FLOAT64 and math.isfinite(values[field.json_name]):
            assert shown[field.json_name] == values[field.json_name]


@settings(max_examples=quickly(60), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_batch_of_drawn_records_is_read_back(data: st.DataObject) -> None:
    drawn = []
    for message in data.draw(st.lists(st.sampled_from(METADATA_RECORDS), min_size=1, max_size=4)):
        version = data.draw(st.integers(0, message.versions.last))
        drawn.append((message, version, data.draw(struct_values(message.fields, version))))
    values = [write_metadata_value(message.name, version, fields) for message, version, fields in drawn]
    base_offset = data.draw(st.integers(0, 2**62))
    batch = write_batch(
        base_offset=base_offset, leader_epoch=3, timestamp_ms=17, records=[(None, value) for value in values]
    )
    (found,) = read_batches(batch)
    assert isinstance(found, Batch)
    assert found.damage is None
    records = decode_records(batch, found.header)
    assert [(r.message, r.version, r.fields) for r in records] == drawn
    assert [r.raw.offset for r in records] == list(range(base_offset, base_offset + len(values)))
    assert {r.raw.timestamp_ms for r in records} == {17}
    for record, value in zip(records, values, strict=True):
        assert batch[record.raw.value_position :].startswith(value)


@pytest.mark.parametrize("dialect", Dialect)
def test_every_control_record_of_every_dialect_goes_through_a_batch(dialect: Dialect) -> None:
    for number, control_type in CONTROL_TYPES[dialect].items():
        value = write_message(control_type.message, control_type.version, {})
        batch = write_batch(
            base_offset=0,
            leader_epoch=1,
            timestamp_ms=5,
            records=[(write_control_key(number), value)],
            is_control=True,
        )
        (found,) = read_batches(batch)
        assert isinstance(found, Batch)
        assert found.header.is_control
        (record,) = decode_records(batch, found.header, dialect)
        assert (record.type_number, record.message) == (number, control_type.message)
        assert record.fields == default_fields(control_type.message.fields)


def partition_change(version: int, **fields: Any) -> bytes:
    return write_metadata_value("PartitionChangeRecord", version, fields)


def test_absent_and_empty_lists_of_a_change_differ() -> None:
    absent = read_metadata_value(partition_change(2)).fields
    empty = read_metadata_value(partition_change(2, isr=[], eligibleLeaderReplicas=[])).fields
    assert (absent["isr"], absent["eligibleLeaderReplicas"]) == (None, None)
    assert (empty["isr"], empty["eligibleLeaderReplicas"]) == ([], [])


@pytest.mark.parametrize(
    ("name", "version", "fields", "what"),
    [
        ("PartitionChangeRecord", 1, {"eligibleLeaderReplicas": [1]}, "EligibleLeaderReplicas does not exist"),
        ("TopicRecord", 1, {}, "no version 1"),
        ("TopicRecord", 0, {"name": None}, "Name is null"),
        ("TopicRecord", 0, {"name": "x" * 0x8000}, "32768 bytes"),
        ("TopicRecord", 0, {"name": "\ud800"}, "lone surrogate"),
        ("TopicRecord", 0, {"topicId": bytes(15)}, "uuid of 15 bytes"),
        ("TopicRecord", 0, {"topicid": bytes(16)}, "no field is named 'topicid'"),
        ("PartitionRecord", 0, {"leader": 2**31}, "Leader"),
        ("PartitionRecord", 0, {"isr": None}, "Isr is null"),
        ("DelegationTokenRecord", 0, {"renewers": [None]}, "an element is null"),
        ("NoOpRecord", 0, {UNKNOWN_TAGGED_FIELDS: ((3, b""), (2, b""))}, "tags must ascend"),
        ("PartitionRecord", 0, {UNKNOWN_TAGGED_FIELDS: ((1, b""),)}, "differ from the known"),
    ],
)
def test_what_kafka_would_not_write_is_refused(name: str, version: int, fields: dict[str, Any], what: str) -> None:
    with pytest.raises(CodecError, match=what):
        write_metadata_value(name, version, fields)


def test_a_string_of_the_longest_allowed_length_goes_through() -> None:
    value = write_metadata_value("TopicRecord", 0, {"name": "é" * 16383})
    assert read_metadata_value(value).fields["name"] == "é" * 16383


def test_known_records_have_all_their_versions_and_no_more() -> None:
    for message in METADATA_BY_NAME.values():
        newest = write_metadata_value(message.name, message.versions.last, {})
        assert read_metadata_value(newest).message is message
        with pytest.raises(CodecError) as caught:
            read_metadata_value(newest[:2] + bytes([message.versions.last + 1]) + newest[3:])
        assert caught.value.reason is Reason.UNKNOWN_RECORD_VERSION
