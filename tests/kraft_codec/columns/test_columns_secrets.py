"""Secrets are overwritten where they stand: as the reference does record by record, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kraft_codec import columns
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import decode_records, write_metadata_value
from kraft_codec.records.redaction import Redactor, redact_value
from kraft_codec.schemas import METADATA_RECORDS
from kraft_codec.text.java_text import to_json

KEY = bytes(range(32))


def redacted_json(log: bytes, redactor: Redactor) -> tuple[list[str | None], bytes]:
    buffer = bytearray(log)
    records = columns.index_records(buffer, columns.index_batches(buffer))
    columns.redact(records, redactor)
    return columns.json_text(records).to_pylist(), records.buffer.tobytes()


def expected_json(log: bytes, redactor: Redactor) -> list[str | None]:
    found: list[str | None] = []
    for batch in read_batches(log):
        if not isinstance(batch, Batch) or batch.damage is not None:
            continue
        for record in decode_records(log, batch.header):
            if record.undecodable is not None:
                found.append(None)
            elif batch.header.is_control:
                found.append(to_json(record.message, record.version, record.fields))
            else:
                value = redact_value(redactor, bytearray(record.raw.value))
                found.append(to_json(value.message, value.version, value.fields))
    return found


def test_small_log(small_log: bytes) -> None:
    fast, slow = Redactor(KEY), Redactor(KEY)
    assert redacted_json(small_log, fast)[0] == expected_json(small_log, slow)
    assert fast.short_values() == slow.short_values()


@pytest.mark.parametrize("scenario", ["crafted/all-records-all-versions", "crafted/compressed-batches", "elr"])
def test_samples(small_corpus: Path, scenario: str) -> None:
    for path in sorted((small_corpus / scenario).rglob("*.log")):
        log = path.read_bytes()
        fast, slow = Redactor(KEY), Redactor(KEY)
        assert redacted_json(log, fast)[0] == expected_json(log, slow)
        assert fast.short_values() == slow.short_values()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_planted_secrets_are_in_no_byte_of_what_is_left(codec: Codec) -> None:
    planted = [f"planted-secret-{number:04}".encode() for number in range(40)]
    values = []
    for secret in planted:
        text = secret.decode()
        values += [
            write_metadata_value("ConfigRecord", 0, {"resourceType": 4, "name": "ssl.key.password", "value": text}),
            write_metadata_value("UserScramCredentialRecord", 0, {"name": "u", "salt": secret, "serverKey": secret}),
            write_metadata_value("DelegationTokenRecord", 0, {"owner": "o", "tokenId": text}),
            write_metadata_value("RemoveDelegationTokenRecord", 0, {"tokenId": text}),
            write_metadata_value("TopicRecord", 0, {"name": "t", UNKNOWN_TAGGED_FIELDS: ((7, secret),)}),
        ]
    records = [(None, value) for value in values]
    log = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=records, codec=codec)
    texts, left = redacted_json(log, Redactor(KEY))
    # Of a compressed batch the packed bytes stand as they were read; nothing is ever made of them.
    assert left.count(b"planted-secret") == 0
    assert not any("planted-secret" in text for text in texts if text)
    assert sum("planted" in text for text in texts if text) == 0


def test_spans_report_null_from_empty_and_whose_they_are() -> None:
    values = [
        write_metadata_value("ConfigRecord", 0, {"resourceType": 2, "resourceName": name, "name": "k", "value": value})
        for name, value in (("a", None), ("b", ""), ("c" * 200, "v" * 300))
    ]
    buffer = bytearray(
        write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=[(None, value) for value in values])
    )
    records = columns.index_records(buffer, columns.index_batches(buffer))
    (spans,) = columns.secret_spans(records)
    assert spans.message.name == "ConfigRecord"
    assert spans.rows.tolist() == [0, 1, 2]
    assert spans.fields["Value"].length.tolist() == [-1, 0, 300]
    assert spans.fields["ResourceName"].length.tolist() == [1, 1, 200]
    position = spans.fields["Value"].position[2]
    assert buffer[position : position + 300] == b"v" * 300


def test_every_secret_of_the_schemas_can_be_found() -> None:
    """Fails for a schema whose secrets stand where `secret_spans` does not look."""
    for message in METADATA_RECORDS:
        if any(field.secret for field in message.fields):
            value = write_metadata_value(message.name, message.versions.last, {})
            buffer = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=[(None, value)])
            records = columns.index_records(buffer, columns.index_batches(buffer))
            (spans,) = columns.secret_spans(records)
            assert {field.name for field in message.fields if field.secret} <= spans.fields.keys()


def test_a_buffer_that_cannot_be_written_is_refused(small_log: bytes) -> None:
    records = columns.index_records(small_log, columns.index_batches(small_log), rows=[0, 1])
    with pytest.raises(ValueError, match="must be writable"):
        columns.redact(records, Redactor(KEY))


def test_a_buffer_that_was_changed_is_noticed(small_log: bytes) -> None:
    """Not promised for every change, but never read beyond: here every body becomes a cut varint."""
    buffer = bytearray(small_log)
    records = columns.index_records(buffer, columns.index_batches(buffer), rows=[0, 1])
    buffer[:] = b"\xff" * len(buffer)
    with pytest.raises(ValueError, match="no longer what was indexed"):
        columns.json_text(records)
    with pytest.raises(ValueError, match="no longer what was indexed"):
        columns.typed_columns(records, records.message(is_control=False, api_key=5))
    with pytest.raises(ValueError, match="no longer what was indexed"):
        list(columns.secret_spans(records))
    assert np.all(records.buffer == 0xFF)
