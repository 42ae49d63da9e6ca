"""Record types that Kafka does not have (yet): every field type in every place that a schema may put one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_codec import columns
from kraft_codec.columns import secrets
from kraft_codec.kernels import programs, text_programs, typed_programs
from kraft_codec.kernels.codes import SLOTS_BYTES
from kraft_codec.records.batch import write_batch
from kraft_codec.records.message import default_fields, write_message
from kraft_codec.records.record import write_metadata_value
from kraft_codec.schemas import (
    METADATA_BY_API_KEY,
    METADATA_BY_NAME,
    METADATA_RECORDS,
    Field,
    Message,
    Type,
    Versions,
)
from kraft_codec.schemas.model import array, bytes_, float64, int32, message, string, struct, uuid
from tests.builders.message_values import structs
from tests.builders.property_examples import quickly

SCALARS = [type_ for type_ in Type if type_ is not Type.STRUCT]
DEFAULTS: dict[Type, Any] = {
    Type.BOOL: True, Type.INT8: -1, Type.INT16: -2, Type.UINT16: 40_000, Type.INT32: -3, Type.UINT32: 3_000_000_000,
    Type.INT64: -(2**40), Type.FLOAT64: 1.5, Type.UUID: bytes(range(16)),
}  # fmt: skip
"""Other than zero. Texts and lists have no default but an empty one in any of Kafka's schemas."""
ZEROS: dict[Type, Any] = {Type.BOOL: False, Type.FLOAT64: 0.0, Type.UUID: bytes(16), Type.STRING: "", Type.BYTES: b""}


def scalar(name: str, kind: Type, versions: str = "0+", *, tag: int | None = None, default: Any = ...) -> Field:
    absent = ZEROS.get(kind, 0) if default is ... else default
    return Field(name, kind, Versions.parse(versions), tag=tag, default=absent)


def everywhere(prefix: str) -> tuple[Field, ...]:
    """A field of each type, tagged ones before, between and after plain ones, some in later versions alone."""
    fields: list[Field] = []
    tags = iter(range(20))
    for kind in SCALARS:
        name = f"{prefix}{kind.value.capitalize()}"
        if kind is not Type.BYTES:  # tags from 20 on are drawn as unknown ones
            fields.append(scalar(f"{name}Tagged", kind, tag=next(tags)))
        fields.append(scalar(name, kind))
        fields.append(scalar(f"{name}Later", kind, "1+"))
        if kind in DEFAULTS:
            fields.append(scalar(f"{name}Other", kind, tag=next(tags), default=DEFAULTS[kind]))
            fields.append(scalar(f"{name}LaterOther", kind, "1+", default=DEFAULTS[kind]))
    fields.append(string(f"{prefix}TextOrNull", "1+", nullable="1+", default=None))
    fields.append(bytes_(f"{prefix}BytesOrNull", tag=next(tags), nullable="0+", default=None))
    return tuple(fields)


def lists() -> tuple[Field, ...]:
    fields: list[Field] = []
    for number, kind in enumerate(SCALARS):
        name = f"Of{kind.value.capitalize()}"
        fields += [array(name, kind), array(f"{name}OrNull", kind, "1+", nullable="1+", default=None)]
        fields.append(array(f"{name}Tagged", kind, tag=number))
    inner = (*everywhere("Inner")[:12], array("Numbers", Type.INT16, "1+"), array("Gone", Type.INT8, "0"))
    inner = (*inner, string("TextOrNull", "1+", nullable="1+", default=None))
    fields += [array("Structs", inner), array("StructsTagged", inner[:6], tag=len(SCALARS))]
    fields.append(struct("Inline", int32("Number"), uuid("Name"), float64("Share", tag=0)))
    return tuple(fields)


INVENTED = (
    message(100, "EveryFieldRecord", "0-1", *everywhere("Top")),
    message(101, "EveryListRecord", "0-1", *lists()),
)
LATER = message(102, "LaterRecord", "1-2", int32("Number"), string("Text", "2+"))
TAGGED_LAST = message(
    103, "TaggedRecord", "0", *(scalar(f"Of{kind.value}", kind, tag=n) for n, kind in enumerate(SCALARS))
)
EVERY = (*INVENTED, LATER, TAGGED_LAST)


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    """Both codecs know the invented types, for these tests alone."""
    caches = (programs.walk_programs, text_programs.text_programs, secrets._mark_programs)
    with pytest.MonkeyPatch.context() as patched:
        for module in (programs, secrets):
            patched.setattr(module, "METADATA_RECORDS", (*METADATA_RECORDS, *EVERY))
        for message_type in EVERY:
            patched.setitem(METADATA_BY_API_KEY, message_type.number, message_type)
            patched.setitem(METADATA_BY_NAME, message_type.name, message_type)
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def one_batch(values: list[bytes]) -> bytes:
    return write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=[(None, value) for value in values])


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("invented", INVENTED, ids=lambda message_type: message_type.name)
def test_what_is_absent_has_its_default(agree, invented: Message, version: int) -> None:
    seen = agree(one_batch([write_metadata_value(invented.name, version, {})] * 2))
    assert (seen.records, seen.undecodable, seen.quarantined) == (2, 0, ())


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("invented", INVENTED, ids=lambda message_type: message_type.name)
@settings(max_examples=quickly(20), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_drawn_values(agree, invented: Message, version: int, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(structs(invented.fields, version), min_size=1, max_size=3))
    seen = agree(one_batch([write_metadata_value(invented.name, version, fields) for fields in drawn]))
    assert (seen.records, seen.undecodable, seen.quarantined) == (len(drawn), 0, ())


def test_versions_that_do_not_begin_with_0(agree) -> None:
    """No release has such a record: Kafka's start at 0, and may drop their first version as its requests have."""
    values = [
        write_metadata_value(LATER.name, 1, {"number": 7}),
        write_metadata_value(LATER.name, 2, {"text": "later"}),
    ]
    seen = agree(one_batch(values))
    assert (seen.records, seen.undecodable, seen.quarantined) == (2, 0, ())
    outside = agree(
        one_batch([value[:2] + bytes([version]) + value[3:] for value, version in zip(values, (0, 3), strict=True)])
    )
    assert (outside.records, outside.undecodable) == (2, 2)


@pytest.mark.parametrize("kind", SCALARS)
def test_a_tagged_value_may_be_the_last_of_a_record(agree, kind: Type) -> None:
    """As the recovery state of a partition change that says nothing else: no count of tagged fields follows it."""
    name = f"of{kind.value}"
    (field,) = (field for field in TAGGED_LAST.fields if field.json_name == name)
    seen = agree(one_batch([write_metadata_value(TAGGED_LAST.name, 0, {name: _other(field, 0)})]))
    assert (seen.records, seen.undecodable, seen.quarantined) == (1, 0, ())


@pytest.mark.parametrize("invented", INVENTED, ids=lambda message_type: message_type.name)
def test_a_default_that_was_written_all_the_same(agree, invented: Message) -> None:
    """Other writers than Kafka's may write a tagged field that has its default: it reads as if it were absent."""
    body = write_message(invented, 1, {})
    count = 0
    entries = b""
    for field in sorted(
        (tagged for tagged in invented.fields if tagged.tag is not None), key=lambda tagged: tagged.tag or 0
    ):
        untagged = Field(
            field.name, field.type, field.versions, field.array, field.nullable, None, field.default, field.fields
        )
        alone = Message(0, "Alone", invented.versions, (untagged,))
        content = write_message(alone, 1, {})[:-1]  # without its own count of tagged fields
        entries += bytes([field.tag or 0, len(content)]) + content
        count += 1
    assert body.endswith(b"\0")
    value = bytes([1, invented.number, 1]) + body[:-1] + bytes([count]) + entries
    assert agree(one_batch([value])).records == 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("invented", INVENTED, ids=lambda message_type: message_type.name)
def test_a_body_that_is_cut_after_its_index_is_refused(invented: Message, version: int) -> None:
    """Whatever field a byte is missing from, neither text nor typed columns are made of what remains."""
    body = write_metadata_value(invented.name, version, _one_of_each(invented, version))
    log = one_batch([body])
    records = columns.index_records(log, columns.index_batches(log))
    header_bytes = int(records.body_position[0] - records.value_position[0])
    for length in range(header_bytes, len(body)):
        records.value_length[0] = length
        with pytest.raises(ValueError, match="no longer what was indexed"):
            columns.json_text(records)
        with pytest.raises(ValueError, match="no longer what was indexed"):
            columns.typed_columns(records, invented)


def _one_of_each(invented: Message, version: int) -> dict[str, Any]:
    """Every field of the version with another value than its default, lists with two elements."""
    return {field.json_name: _other(field, version) for field in invented.fields if version in field.versions}


def _other(field: Field, version: int) -> Any:
    if field.type is Type.STRUCT:
        inner = {child.json_name: _other(child, version) for child in field.fields if version in child.versions}
        whole = {**default_fields(field.fields), **inner}
        return [whole, whole] if field.array else whole
    value: Any = {Type.BOOL: True, Type.UUID: bytes(range(1, 17)), Type.STRING: "text", Type.BYTES: b"bytes"}.get(
        field.type, 7
    )
    if field.array:
        return [value, value]
    return not value if value == field.default else value


UNSUPPORTED = {
    "a default that is a text": (scalar("Name", Type.STRING, tag=0, default="x"),),
    "a default that is a list": (array("Names", Type.INT8, tag=0, default=[1]),),
    "a text with a default within a list": (array("Outer", (scalar("Name", Type.STRING, "1+", default="x"),)),),
    "a struct that may be missing": (
        array("Outer", (Field("Inner", Type.STRUCT, Versions.parse("1+"), fields=(int32("A"),)),)),
    ),
    "a tagged struct": (Field("Inner", Type.STRUCT, Versions.parse("0+"), tag=0, default={}, fields=(int32("A"),)),),
    "too many tagged fields": tuple(int32(f"N{number}", tag=number) for number in range(SLOTS_BYTES // 8 + 1)),
}


@pytest.mark.parametrize("fields", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_schema_that_no_program_can_be_made_of_is_refused(fields: tuple[Field, ...]) -> None:
    """When a release brings such a schema, the programs are not made: nothing is decoded wrongly."""
    asked = message(104, "OddRecord", "0-1", *fields)
    refusals = []
    for work in (
        lambda: text_programs.TextAssembler(programs.WalkAssembler()).message(asked, 0),
        lambda: typed_programs.typed_program(asked),
    ):
        try:
            work()
        except ValueError as problem:
            refusals.append(str(problem))
    assert any("not supported" in text or "tagged fields" in text for text in refusals)


def test_a_secret_where_no_walk_marks_one_is_refused() -> None:
    hidden = Field("Password", Type.STRING, Versions.parse("0+"), tag=0, default="", secret=True)
    within = array("Users", (Field("Password", Type.STRING, Versions.parse("0+"), default="", secret=True),))
    for field in (hidden, within):
        with pytest.raises(ValueError, match="secrets in lists, structs or tagged fields"):
            secrets._check_secrets(message(103, "SecretRecord", "0", field))
