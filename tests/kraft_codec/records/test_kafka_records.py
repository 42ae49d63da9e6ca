"""Every batch and record that Kafka's own classes read from the captures, read here and written again.

The witness is `<key>.records.jsonl.gz`: a line a batch and a line a record, by the classes of the release named in the
scenario. A damaged file's lines end where Kafka's reader ends; what follows is ours to judge.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.errors import Reason
from kraft_codec.records.batch import Batch, BatchHeader, Stop, read_batches, write_batch
from kraft_codec.records.compression import Codec, decompress
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import (
    DecodedRecord,
    decode_records,
    write_control_key,
    write_control_value,
    write_metadata_value,
)
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from kraft_codec.text.java_text import to_json

# The tool that wrote these lines ended in a stack trace (README of the captures).
NO_WITNESS = ("damaged/magic-1-last-batch/",)


def witnessed_files(scenarios: list[Path], suffix: str) -> Iterator[tuple[Path, str, Path]]:
    """(scenario, relative path, witness) for each distinct content."""
    seen = set()
    for scenario in scenarios:
        index = json.loads((scenario / "oracle-files" / "index.json").read_text())
        for relative, key in index.items():
            witness = scenario / "oracle-files" / f"{key}{suffix}"
            if key not in seen and witness.exists() and not relative.startswith(NO_WITNESS):
                seen.add(key)
                yield scenario, relative, witness


def read_lines(witness: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(witness, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def assert_same_header(header: BatchHeader, line: dict[str, Any]) -> None:
    assert line["batch"] is True
    ours = {
        "position": header.position,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "sizeInBytes": header.size_bytes,
        "partitionLeaderEpoch": header.leader_epoch,
        "magic": header.magic,
        "crc": header.crc,
        "attributes": header.attributes,
        "isControl": header.is_control,
        "isTransactional": header.is_transactional,
        "compression": header.codec.name.lower(),
        "baseTimestamp": header.base_timestamp_ms,
        "maxTimestamp": header.max_timestamp_ms,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
    }
    assert {name: line[name] for name in ours} == ours


def assert_same_record(record: DecodedRecord, line: dict[str, Any]) -> None:
    raw = record.raw
    assert record.undecodable is None
    assert record.message is not None
    assert record.version is not None
    assert record.fields is not None
    assert (raw.offset, raw.timestamp_ms, len(raw.headers)) == (line["offset"], line["timestamp"], line["headers"])
    assert (raw.value or b"").hex() == line["valueHex"]
    assert line["keySize"] == (-1 if raw.key is None else len(raw.key))
    if "controlTypeId" in line:
        assert (record.type_number, (raw.key or b"").hex()) == (line["controlTypeId"], line["controlKeyHex"])
        assert CONTROL_TYPES[Dialect.KIP853][line["controlTypeId"]].name == line["controlType"]
    else:
        ours = (record.type_number, record.message.type_name, record.version)
        assert ours == (line["apiKey"], line["type"], line["recordVersion"])
    data = json.loads(to_json(record.message, record.version, record.fields))
    assert json.dumps(data) == json.dumps(line["data"])  # as text, so that the order of the keys counts
    assert (UNKNOWN_TAGGED_FIELDS in record.fields) == ("unknownTaggedFields" in line)


def written_again(header: BatchHeader, records: list[DecodedRecord]) -> bytes:
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for record in records:
        assert record.message is not None
        assert record.version is not None
        assert record.fields is not None
        assert record.type_number is not None
        if header.is_control:
            control_type = CONTROL_TYPES[Dialect.KIP853][record.type_number]
            pairs.append((write_control_key(record.type_number), write_control_value(control_type, record.fields)))
        else:
            pairs.append((None, write_metadata_value(record.message.name, record.version, record.fields)))
    return write_batch(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        timestamp_ms=header.base_timestamp_ms,
        records=pairs,
        is_control=header.is_control,
        timestamps_ms=[record.raw.timestamp_ms for record in records],
    )


def assert_same_bytes(data: bytes, header: BatchHeader, again: bytes) -> None:
    original = data[header.position : header.position + header.size_bytes]
    if header.codec is Codec.NONE:
        assert again == original
    else:  # compressors differ; what they compress must not
        assert again[61:] == decompress(header.codec, original[61:])
        assert again[23:61] == original[23:61]


def check_file(data: bytes, lines: Iterator[dict[str, Any]]) -> Counter[str]:
    """Compares until Kafka's reader ended, and says why ours ended there or went on."""
    counts: Counter[str] = Counter()
    line = next(lines)
    for found in read_batches(data):
        if "end" in line or isinstance(found, Stop) or found.damage is not None:
            assert_same_end(found, line)
            counts["ends by damage"] += 1
            return counts
        assert_same_header(found.header, line)
        records = decode_records(data, found.header)
        for record in records:
            assert_same_record(record, next(lines))
        assert_same_bytes(data, found.header, written_again(found.header, records))
        counts["batches"] += 1
        counts["records"] += len(records)
        line = next(lines)
    assert line["reason"] == "end-of-file"
    assert line["validBytes"] == len(data)
    return counts


def assert_same_end(found: Batch | Stop, line: dict[str, Any]) -> None:
    position = found.position if isinstance(found, Stop) else found.header.position
    if isinstance(found, Batch) and found.damage is Reason.BAD_MAGIC:
        # Kafka's file reader takes any magic above 2 for 2; a controller reads through memory, which refuses it.
        assert line["magic"] == found.header.magic == 18
        return
    assert position == line["validBytes"]
    if isinstance(found, Batch):
        assert found.damage is Reason.BAD_CRC
        assert "Record is corrupt" in line["reason"]
    elif found.reason in (Reason.ZERO_TAIL, Reason.BAD_LENGTH) and found.length_bytes > 17:
        assert "smaller than minimum record overhead" in line["reason"] or line["reason"] == "end-of-file"
    else:
        assert line["reason"] == "end-of-file"  # Kafka's file reader ends silently at a torn tail


def check_all(scenarios: list[Path]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for scenario, relative, witness in witnessed_files(scenarios, ".records.jsonl.gz"):
        try:
            counts += check_file((scenario / relative).read_bytes(), read_lines(witness))
        except AssertionError as error:
            raise AssertionError(f"{scenario.name}/{relative}: {error}") from error
        counts["files"] += 1
    return counts


@pytest.mark.parametrize(
    ("root", "records", "ends"),
    [
        pytest.param("small_corpus", 10_000, 0, marks=pytest.mark.slow),
        pytest.param("corpus", 300_000, 10, marks=pytest.mark.ci),
    ],
)
def test_every_batch_and_record_is_kafkas_and_is_written_back_byte_for_byte(
    root: str, records: int, ends: int, scenarios: list[Path], request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    counts = check_all([scenario for scenario in scenarios if scenario.parent == request.getfixturevalue(root)])
    assert counts["records"] > records
    assert counts["ends by damage"] >= ends
    with capsys.disabled():
        print(f"\n{root}, as Kafka reads it: {dict(counts)}")  # noqa: T201
