"""JSON text as Jackson and Java 17 give it: the expected texts were printed by them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_NAME, Dialect
from kraft_codec.text.java_text import double_text, quoted, to_json

# Double.toString of JDK 17.
DOUBLES = [
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (7.0, "7.0"),
    (0.1, "0.1"),
    (100.0, "100.0"),
    (1234.5, "1234.5"),
    (9999999.0, "9999999.0"),
    (1e7, "1.0E7"),
    (-1048576.0, "-1048576.0"),
    (1.23456789e8, "1.23456789E8"),
    (0.001, "0.001"),
    (0.00099, "9.9E-4"),
    (1e-4, "1.0E-4"),
    (1e22, "1.0E22"),
    (9.223372036854775807e18, "9.223372036854776E18"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (5e-324, "4.9E-324"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (float("nan"), "NaN"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles_print_as_java_prints_them(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_as_itself_from_a_form_that_java_uses(value: float) -> None:
    text = double_text(value)
    assert float(text) == value
    magnitude = abs(value)
    assert ("E" in text) == (magnitude != 0 and not 1e-3 <= magnitude < 1e7)
    mantissa = text.partition("E")[0].lstrip("-")
    whole, _, fraction = mantissa.partition(".")
    assert whole
    assert fraction
    assert "E" not in text or len(whole) == 1


def test_text_is_escaped_as_jackson_does() -> None:
    assert quoted('a"b\\c/\b\t\n\f\r\x00\x1f\x7f é 😀 \u2028') == (
        '"a\\"b\\\\c/\\b\\t\\n\\f\\r\\u0000\\u001F\x7f é 😀 \u2028"'
    )


@given(st.text())
def test_any_text_is_valid_json(text: str) -> None:
    assert json.loads(quoted(text)) == text


def test_fields_print_as_kafka_dump_log_prints_them() -> None:
    scram = METADATA_BY_NAME["UserScramCredentialRecord"]
    fields = {
        "name": "u",
        "mechanism": 1,
        "salt": b"\xfb\xff",
        "storedKey": b"",
        "serverKey": b"abc",
        "iterations": 4096,
    }
    assert to_json(scram, 0, fields) == (
        '{"name":"u","mechanism":1,"salt":"+/8=","storedKey":"","serverKey":"YWJj","iterations":4096}'
    )
    quota = METADATA_BY_NAME["ClientQuotaRecord"]
    entity = [{"entityType": "user", "entityName": None}]
    assert to_json(quota, 0, {"entity": entity, "key": "k", "value": float("nan"), "remove": True}) == (
        '{"entity":[{"entityType":"user","entityName":null}],"key":"k","value":"NaN","remove":true}'
    )


def test_tagged_defaults_and_unknown_fields_are_left_out_but_an_empty_list_is_not() -> None:
    change = METADATA_BY_NAME["PartitionChangeRecord"]
    fields = {"partitionId": 3, "topicId": bytes(16), "isr": [], "leader": -2, UNKNOWN_TAGGED_FIELDS: ((99, b"x"),)}
    assert to_json(change, 2, fields) == '{"partitionId":3,"topicId":"AAAAAAAAAAAAAAAAAAAAAA","isr":[]}'


def test_a_field_that_the_version_lacks_is_left_out() -> None:
    leader_change = CONTROL_TYPES[Dialect.KIP853][2].message
    voters = [{"voterId": 1, "voterDirectoryId": bytes(16)}]
    fields = {"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": []}
    assert (
        to_json(leader_change, 0, fields) == '{"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    )
    assert '"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"' in to_json(leader_change, 1, fields)
