"""The text form of uuids, against ids that Kafka printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.text.java_text import uuid_bytes, uuid_text

# The metadata topic's id (Uuid.METADATA_TOPIC_ID) and a topic id with its bytes from a captured log.
KNOWN = [
    ("AAAAAAAAAAAAAAAAAAAAAQ", bytes(15) + b"\x01"),
    ("J6uR_qoWQlOG2ictJ6JM4w", bytes.fromhex("27ab91feaa16425386da272d27a24ce3")),
]


@pytest.mark.parametrize(("text", "value"), KNOWN)
def test_text_and_bytes_are_kafkas(text: str, value: bytes) -> None:
    assert uuid_text(value) == text
    assert uuid_bytes(text) == value


@given(st.binary(min_size=16, max_size=16))
def test_bytes_survive_the_text(value: bytes) -> None:
    assert uuid_bytes(uuid_text(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "AAAAAAAAAAAAAAAAAAAAAQ==",
        "AAAAAAAAAAAAAAAAAAAAA+",
        "AAAAAAAAAAAAAAAAAAAAAR",
        "AAAAAAAAAAAAAAAAAAAAA\n",
    ],
)
def test_text_that_no_uuid_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        uuid_bytes(text)


def test_a_uuid_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="15 bytes"):
        uuid_text(bytes(15))
