"""What the archive holds: every distinct batch, as the readable reference says it should read, and no secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture import archiver
from kraft_codec.columns.rewriting import NO_OP_VALUE
from kraft_codec.errors import CodecError
from kraft_codec.records.batch import Batch, BatchHeader, RawRecord, read_batches, read_records, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor, redact_value
from tests.builders.snapshot_files import SECRETS, SECRETS_VALUE, secret_snapshot

KEY = b"k" * 32
CANARY = b"canary"
UNKNOWN = (b"\x01\x7e\x00" + CANARY, b"\x02" + CANARY, b"\x01\x02\x63" + CANARY)
"""A type, a frame version and a record version that this codec does not know."""


def batches_of(content: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    for found in read_batches(content):
        assert isinstance(found, Batch)
        assert found.damage is None, "every CRC is right"
        yield found.header, content[found.header.position : found.header.position + found.header.size_bytes]


def records_of(header: BatchHeader, batch: bytes) -> list[RawRecord]:
    (found,) = read_batches(batch)
    assert isinstance(found, Batch)
    return list(read_records(batch, found.header))


def expected_value(record: RawRecord, redactor: Redactor) -> bytes:
    """By the readable reference, record by record."""
    value = bytearray(record.value or b"")
    try:
        redact_value(redactor, value)
    except CodecError:
        return NO_OP_VALUE
    return bytes(value)


def runs(reading: Any, path: Path) -> list[dict[str, Any]]:
    """The archive's rows; each says rightly how much it holds."""
    found: list[dict[str, Any]] = reading.of(path)["archive"]
    for run in found:
        headers = [header for header, _ in batches_of(run["content"])]
        counts = run["size_bytes"], run["batch_count"], run["record_count"]
        assert counts == (len(run["content"]), len(headers), sum(header.record_count for header in headers))
    return found


def test_secrets_and_unknown_records(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    log.lead(1, epoch=1)
    log.append(*(write_metadata_value(name, 0, fields) for name, fields in SECRETS))
    log.append(*UNKNOWN, SECRETS_VALUE)
    log.topic("plain")
    node(tmp_path, 1, log.content)
    (run,) = runs(reading, tmp_path)
    assert CANARY not in run["content"]
    original, archived = list(batches_of(log.content)), list(batches_of(run["content"]))
    assert [content for _, content in archived][0::3] == [content for _, content in original][0::3], (
        "what needs no change has none"
    )
    assert [
        (changed["base_offset"], changed["original_crc"], changed["is_redacted"]) for changed in run["changed_batches"]
    ] == [(header.base_offset, header.crc, True) for header, _ in original[1:3]]
    redactor = Redactor(KEY)
    for (header, before), (_, after) in zip(original[1:3], archived[1:3], strict=True):
        expected = [expected_value(record, redactor) for record in records_of(header, before)]
        assert [record.value for record in records_of(header, after)] == expected
    assert len(archived[1][1]) == len(original[1][1]), "secrets are overwritten in place"
    unknown = [(record["offset"], record["type_number"], record["record_version"]) for record in run["unknown_records"]]
    assert unknown == [(7, 126, 0), (8, None, None), (9, 2, 99)]
    hashes = [Redactor(KEY).keyed_hash(value) for value in UNKNOWN]
    assert [(record["value_bytes"], record["value_hash"]) for record in run["unknown_records"]] == [
        (len(value), hashed) for value, hashed in zip(UNKNOWN, hashes, strict=True)
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_compressed_batches(codec: Codec, tmp_path: Path, reading: Any, node: Any) -> None:
    topic = write_metadata_value("TopicRecord", 0, {"name": "orders", "topicId": b"t" * 16})
    batches = [
        write_batch(base_offset=at, leader_epoch=1, timestamp_ms=5, records=[(None, value)] * 3, codec=codec)
        for at, value in ((0, topic), (3, SECRETS_VALUE), (6, UNKNOWN[0]))
    ]
    node(tmp_path, 1, b"".join(batches))
    (run,) = runs(reading, tmp_path)
    (_, plain), (header, secret), (_, unknown) = batches_of(run["content"])
    assert plain == batches[0]
    assert header.codec is codec
    expected = expected_value(records_of(header, batches[1])[0], Redactor(KEY))
    assert [record.value for record in records_of(header, secret)] == [expected] * 3
    assert [record.value for record in records_of(header, unknown)] == [NO_OP_VALUE] * 3


@pytest.mark.slow
def test_every_batch_of_the_samples_is_there_once(small_corpus: Path, reading: Any) -> None:
    """Whatever was read of the logs is in the archive, by the keys that it had."""
    compared = 0
    for scenario in sorted(path for path in small_corpus.iterdir() if (path / "scenario.json").exists()):
        for plan in reading.plans(scenario):
            tables = reading.tables(plan)
            wanted = {
                (row["base_offset"], row["leader_epoch"], row["crc"])
                for row in tables["batches"]
                if row["valid"] and row["source"] == "log"
            }
            found: list[tuple[int, int, int]] = []
            for run in tables["archive"]:
                crcs = {batch["base_offset"]: batch["original_crc"] for batch in run["changed_batches"]}
                headers = [header for header, _ in batches_of(run["content"])]
                assert (headers[0].base_offset, headers[-1].last_offset + 1) == (run["from_offset"], run["to_offset"])
                assert {header.leader_epoch for header in headers} == {run["leader_epoch"]}
                assert run["size_bytes"] == len(run["content"]), "and as many records"
                assert run["record_count"] == sum(header.record_count for header in headers)
                if run["source"] == "log":
                    keys = [
                        (header.base_offset, header.leader_epoch, crcs.get(header.base_offset, header.crc))
                        for header in headers
                    ]
                    assert run["first_crc"] == keys[0][2]
                    assert run["last_crc"] == keys[-1][2]
                    found += keys
            assert sorted(found) == sorted(wanted), scenario.name
            compared += len(found)
    assert compared > 700


def test_runs_are_cut_at_their_size(
    tmp_path: Path, reading: Any, node: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "RUN_BYTES", 1000)
    log.lead(1, epoch=1)
    for number in range(200):
        log.topic(f"topic-{number}")
        if number % 50 == 0:
            log.append(SECRETS_VALUE)
    node(tmp_path, 1, log.content)
    found = runs(reading, tmp_path)
    assert all(1000 <= run["size_bytes"] < 2100 for run in found[:-1])
    assert [run["from_offset"] for run in found[1:]] == [run["to_offset"] for run in found[:-1]]
    assert sum(run["batch_count"] for run in found) == len(log.batches)


def sources(found: list[dict[str, Any]]) -> set[str]:
    return {run["source"] for run in found} - {"log"}


def test_a_snapshot_where_the_log_does_not_connect(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    log.lead(1, epoch=1)
    for number in range(9):
        log.topic(f"topic-{number}")
    connected = tmp_path / "connected"
    node(connected, 1, log.content, files=secret_snapshot(6))
    assert sources(runs(reading, connected)) == set(), "the log itself says what it contains"

    later = tmp_path / "later"
    files = secret_snapshot(5) | secret_snapshot(8)
    node(later, 1, {4: b"".join(log.batches[4:])}, files=files)
    found = runs(reading, later)
    assert sources(found) == {"00000000000000000005-0000000001"}, "the first that the log goes on from, no other"
    assert not any(CANARY in run["content"] for run in found)

    gapped = tmp_path / "gapped"
    node(gapped, 1, {0: b"".join(log.batches[:3]), 5: b"".join(log.batches[5:])}, files=files)
    assert sources(runs(reading, gapped)) == {"00000000000000000005-0000000001"}

    alone = tmp_path / "alone"
    node(alone, 1, {}, files=secret_snapshot(8))
    assert sources(runs(reading, alone)) == {"00000000000000000008-0000000001"}
