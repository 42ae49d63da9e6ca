"""Redaction: same value, same fingerprint; changes show; no secret is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import read_metadata_value, write_metadata_value
from kraft_codec.records.redaction import (
    BROKER,
    GROUP,
    TOPIC,
    Redactor,
    is_public_config,
    redact_value,
)
from kraft_codec.schemas import METADATA_BY_NAME
from kraft_codec.text.java_text import to_json

KEY = b"0123456789abcdef"


def redacted(redactor: Redactor, name: str, fields: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    value = bytearray(write_metadata_value(name, 0, fields))
    length = len(value)
    record = redact_value(redactor, value)
    assert len(value) == length
    assert read_metadata_value(value).fields == record.fields
    return bytes(value), record.fields


def config(redactor: Redactor, value: str | None, name: str = "ssl.key.password", resource: str = "1") -> Any:
    fields = {"resourceType": BROKER, "resourceName": resource, "name": name, "value": value}
    return redacted(redactor, "ConfigRecord", fields)[1]["value"]


def test_the_records_that_hold_secrets_are_these() -> None:
    with_secrets = {each.number for each in METADATA_BY_NAME.values() if any(field.secret for field in each.fields)}
    assert with_secrets == {4, 10, 11, 26}


SECRETS = [
    (
        "UserScramCredentialRecord",
        {"name": "alice", "salt": b"SALT-canary-1", "storedKey": b"s" * 64, "serverKey": b"k" * 99},
    ),
    ("DelegationTokenRecord", {"owner": "User:alice", "tokenId": "canary-token-2"}),
    ("RemoveDelegationTokenRecord", {"tokenId": "canary-token-3"}),
    ("ConfigRecord", {"resourceType": 4, "resourceName": "1", "name": "sasl.jaas.config", "value": 'pw="canary-4";'}),
    ("ConfigRecord", {"resourceType": 2, "resourceName": "t", "name": "never.heard.of", "value": "canary-5"}),
    ("ConfigRecord", {"resourceType": 2, "resourceName": "t", "name": "sasl.jaas.config", "value": "canary-é-" * 400}),
    ("NoOpRecord", {UNKNOWN_TAGGED_FIELDS: ((7, b"canary-of-tomorrow"),)}),
]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list | tuple):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


@pytest.mark.parametrize(("name", "fields"), SECRETS)
def test_no_secret_is_left_in_the_bytes_or_the_json(name: str, fields: dict[str, Any]) -> None:
    value, shown = redacted(Redactor(KEY), name, fields)
    secrets = [leaf for leaf in leaves(fields) if leaf not in leaves(shown)]
    assert secrets
    for secret in secrets:
        raw = secret.encode() if isinstance(secret, str) else secret
        assert raw not in value
        assert raw[:8] not in value
        assert raw[-8:] not in value
    assert b"canary" not in value
    assert "canary" not in to_json(read_metadata_value(value).message, 0, shown)


def test_what_is_not_secret_stays() -> None:
    _, shown = redacted(Redactor(KEY), *SECRETS[0])
    assert (shown["name"], shown["mechanism"], shown["iterations"]) == ("alice", 0, 0)
    assert len(shown["salt"]) == len(b"SALT-canary-1")
    assert len(shown["serverKey"]) == 99
    assert config(Redactor(KEY), None) is None
    assert config(Redactor(KEY), "") == ""
    assert config(Redactor(KEY), "2", name="min.insync.replicas") == "2"


@given(st.binary(max_size=120), st.booleans())
def test_a_fingerprint_is_as_long_as_the_value_and_ascii_where_it_is_text(value: bytes, is_text: bool) -> None:
    fingerprint = Redactor(KEY).fingerprint(value, is_text=is_text, subject="s")
    assert len(fingerprint) == len(value)
    if is_text:
        assert fingerprint.isascii()
        assert fingerprint.decode().isprintable()


@given(st.binary(min_size=8, max_size=120), st.binary(min_size=8, max_size=120), st.booleans())
def test_fingerprints_of_long_values_are_equal_just_where_the_values_are(
    left: bytes, right: bytes, is_text: bool
) -> None:
    first, second = Redactor(KEY), Redactor(KEY)
    same = first.fingerprint(left, is_text=is_text, subject="a") == second.fingerprint(
        right, is_text=is_text, subject="b"
    )
    assert same == (left == right)


def test_the_forms_are_recognisable() -> None:
    redactor = Redactor(KEY)
    assert config(redactor, "x" * 25).startswith("redacted:")
    assert config(redactor, "x" * 24).startswith("*")
    assert config(redactor, "x" * 60).endswith("*" * 8)
    assert config(redactor, "x" * 8)[1:].isascii()


def test_another_key_gives_another_fingerprint() -> None:
    values = {config(Redactor(key), "a long password") for key in (KEY, KEY + b"!", b"k" * 64, b"k" * 200)}
    assert len(values) == 4
    with pytest.raises(ValueError, match="15 bytes"):
        Redactor(KEY[:15])


def test_the_same_token_has_the_same_form_where_it_is_made_and_removed() -> None:
    for token in ("a-token-of-22-letters-", "short"):
        redactor = Redactor(KEY)
        _, made = redacted(redactor, "DelegationTokenRecord", {"tokenId": token})
        _, removed = redacted(redactor, "RemoveDelegationTokenRecord", {"tokenId": token})
        assert made["tokenId"] == removed["tokenId"] != token


def test_short_values_count_the_distinct_values_of_their_subject() -> None:
    redactor = Redactor(KEY)
    shown = [config(redactor, value) for value in ("secret", "other", "secret", "s3cret")]
    assert shown == ["****00", "***01", "****00", "****02"]
    assert config(redactor, "hidden", resource="2") == "****00"
    assert [config(redactor, value, name="unknown") for value in ("a", "b", "ab", "abc", "a")] == [
        "0",
        "1",
        "*2",
        "*03",
        "0",
    ]


def test_short_values_go_on_counting_in_a_later_run() -> None:
    first = Redactor(KEY)
    seen = [config(first, value) for value in ("one", "two", "one")]
    state = first.short_values()
    assert "one" not in repr(state)
    later = Redactor(KEY, state)
    assert [config(later, value) for value in ("one", "two", "three")] == [seen[0], seen[1], "***02"]
    assert later.short_values() != state
    assert first.short_values() == state


def test_many_short_values_keep_apart_until_the_numbers_start_over() -> None:
    redactor = Redactor(KEY)
    shown = [config(redactor, f"{number:04}") for number in range(3845)]
    assert len(set(shown[:3844])) == 3844
    assert shown[3844] == shown[0]
    assert shown[61:63] == ["**0z", "**10"]


def test_a_value_that_cannot_be_decoded_is_not_touched_and_its_hash_says_nothing() -> None:
    redactor = Redactor(KEY)
    value = bytearray(write_metadata_value("RemoveDelegationTokenRecord", 0, {"tokenId": "canary-token"}) + b"\x00")
    before = bytes(value)
    with pytest.raises(CodecError) as caught:
        redact_value(redactor, value)
    assert caught.value.reason is Reason.BAD_RECORD
    assert bytes(value) == before
    assert "canary" not in str(caught.value)
    assert redactor.keyed_hash(value) == redactor.keyed_hash(before) != Redactor(KEY + b"!").keyed_hash(before)


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        (TOPIC, "retention.ms"),
        (TOPIC, "min.insync.replicas"),
        (TOPIC, "message.format.version"),
        (BROKER, "log.retention.ms"),
        (BROKER, "leader.replication.throttled.rate"),
        (BROKER, "listener.name.internal.max.connections"),
        (BROKER, "listener.name.internal.scram-sha-256.sasl.server.callback.handler.class"),
        (GROUP, "consumer.session.timeout.ms"),
        (16, "interval.ms"),
    ],
)
def test_known_configs_that_are_not_secret_are_allowed(resource_type: int, name: str) -> None:
    assert is_public_config(resource_type, name)


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        (BROKER, "ssl.keystore.password"),
        (BROKER, "ssl.keystore.key"),
        (BROKER, "sasl.jaas.config"),
        (BROKER, "listener.name.internal.ssl.key.password"),
        (BROKER, "listener.name.internal.plain.sasl.jaas.config"),
        (BROKER, "delegation.token.secret.key"),
        (BROKER, "sasl.oauthbearer.token.endpoint.url"),
        (BROKER, "sasl.oauthbearer.client.credentials.client.secret"),
        (BROKER, "config.providers.vault.param.token"),
        (BROKER, "anything.else"),
        (BROKER, "Retention.ms"),
        (BROKER, "listener.name.internal."),
        (TOPIC, "log.retention.ms"),
        (TOPIC, "listener.name.internal.retention.ms"),
        (8, "retention.ms"),
        (3, "retention.ms"),
        (-1, "retention.ms"),
    ],
)
def test_passwords_unknown_keys_and_keys_of_another_resource_are_not(resource_type: int, name: str) -> None:
    assert not is_public_config(resource_type, name)
