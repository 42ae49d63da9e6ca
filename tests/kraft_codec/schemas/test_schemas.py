"""The schemas against the table distilled from Kafka's own jars (where it is at hand), and against themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.files.state_files import QUORUM_STATE
from kraft_codec.schemas import (
    CONTROL_RECORDS,
    METADATA_RECORDS,
    Field,
    Message,
    Type,
    Versions,
    snake_case,
)

FACTS = Path(__file__).parents[4] / "shared" / "record-schemas.json"


def check_field(stated: dict[str, Any], field: Field) -> None:
    element = stated["type"].removeprefix("[]")
    assert stated["name"] == field.name
    assert stated["type"].startswith("[]") == field.array
    assert stated.get("tag") == field.tag
    assert (element if element[0].islower() else "struct") == field.type
    assert Versions.parse(stated["versions"]) == field.versions
    nullable = stated.get("nullableVersions")
    assert (Versions.parse(nullable) if nullable else None) == field.nullable
    if "default" in stated:
        assert str(field.default).lower() == {"null": "none"}.get(stated["default"], stated["default"])
    for inner, inner_field in zip(stated.get("fields", []), field.fields, strict=True):
        check_field(inner, inner_field)


@pytest.mark.skipif(not FACTS.exists(), reason="the facts table is not beside the project")
@pytest.mark.parametrize(
    ("section", "messages"),
    [("metadata", METADATA_RECORDS), ("control", CONTROL_RECORDS), ("quorumState", (QUORUM_STATE,))],
)
def test_schemas_equal_the_facts(section: str, messages: tuple[Message, ...]) -> None:
    stated = json.loads(FACTS.read_text())[section]
    assert [row["name"] for row in stated] == [message.name for message in messages]
    for row, message in zip(stated, messages, strict=True):
        number = row["apiKey"] if row["apiKey"] is not None else row.get("controlType", -1)
        assert number == message.number
        assert Versions.parse(row["validVersions"]) == message.versions
        for stated_field, field in zip(row["fields"], message.fields, strict=True):
            check_field(stated_field, field)


@pytest.mark.parametrize("message", METADATA_RECORDS + CONTROL_RECORDS, ids=lambda message: message.name)
def test_schemas_are_sound(message: Message) -> None:
    tags = [field.tag for field in message.fields if field.tag is not None]
    assert len(set(tags)) == len(tags)
    names = [field.column_name for field in message.fields]
    assert len(set(names)) == len(names)
    for field in message.fields:
        assert field.versions.first <= message.versions.last
        assert bool(field.fields) == (field.type is Type.STRUCT)
        if field.default is None:
            assert field.nullable is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LastKnownElr", "last_known_elr"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("NoOpRecord", "no_op_record"),
        ("EndPoints", "end_points"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_versions_refuse_other_notations() -> None:
    with pytest.raises(ValueError, match="expected one of the forms"):
        Versions.parse("1-")
