"""The columnar decoder's oracle: the readable reference, asked about the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kraft_codec import columns
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import Batch, Stop, read_batches, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import (
    DecodedRecord,
    decode_records,
    write_control_key,
    write_control_value,
    write_metadata_value,
)
from kraft_codec.schemas import CONTROL_TYPES, Dialect, Message
from tests.builders.reference_columns import expected_columns, expected_json, unknown_tag_count

Agree = Callable[..., "Agreement"]


@dataclass(frozen=True)
class Agreement:
    """What both decoders said, once they were found to say the same."""

    batches: int
    records: int
    undecodable: int
    quarantined: tuple[str, ...]
    stop: str | None


@pytest.fixture(scope="session")
def agree() -> Agree:
    """Decodes bytes twice and compares batches, verdicts, rows, text and typed columns; returns what was seen."""
    return compare


def compare(buffer: bytes, *, dialect: Dialect = Dialect.KIP853, typed: bool = True) -> Agreement:
    batches = columns.index_batches(buffer)
    expected, stop = _compare_batches(buffer, batches)
    records = columns.index_records(buffer, batches, dialect=dialect)
    trusted = [batch for batch in expected if batch.damage is None]
    assert records.selected.tolist() == [row for row, batch in enumerate(expected) if batch.damage is None]
    rows: list[tuple[int, DecodedRecord]] = []
    quarantined = []
    for number, batch in enumerate(trusted):
        verdict = (REASONS[records.batch_status[number]], int(records.batch_status_position[number]))
        decoded = _decoded(buffer, batch, dialect)
        if isinstance(decoded, CodecError):
            assert verdict == (decoded.reason, decoded.position), decoded
            quarantined.append(str(decoded.reason))
            continue
        assert verdict[0] is None, verdict
        rows += [(int(records.selected[number]), record) for record in decoded]
    _compare_envelopes(records, rows)
    text = columns.json_text(records)
    text.validate(full=True)
    assert text.to_pylist() == [expected_json(record) for _, record in rows]
    if typed:
        _compare_typed(records, rows, expected)
    undecodable = sum(record.undecodable is not None for _, record in rows)
    return Agreement(len(expected), len(rows), undecodable, tuple(quarantined), stop)


def _decoded(buffer: bytes, batch: Batch, dialect: Dialect) -> list[DecodedRecord] | CodecError:
    try:
        return decode_records(buffer, batch.header, dialect)
    except CodecError as error:
        return error


def _compare_batches(buffer: bytes, batches: columns.BatchIndex) -> tuple[list[Batch], str | None]:
    expected: list[Batch] = []
    stop = None
    for found in read_batches(buffer):
        if isinstance(found, Stop):
            stop = found
        else:
            expected.append(found)
    assert len(batches) == len(expected)
    for row, batch in enumerate(expected):
        header = batch.header
        for name in header.__slots__:
            assert getattr(batches, name)[row] == getattr(header, name), name
        assert batches.reason(row) == batch.damage
        assert batches.last_offset[row] == header.last_offset
        assert batches.is_control[row] == header.is_control
    if stop is None:
        assert batches.stop is None
        assert batches.consumed_bytes == len(buffer)
        return expected, None
    assert batches.stop == columns.ChunkStop(stop.position, stop.length_bytes, stop.reason)
    assert batches.consumed_bytes == stop.position
    return expected, str(stop.reason)


def _compare_envelopes(records: columns.RecordIndex, rows: list[tuple[int, DecodedRecord]]) -> None:
    assert len(records) == len(rows)
    for row, (batch_row, record) in enumerate(rows):
        assert records.batch_row[row] == batch_row
        assert records.offset[row] == record.raw.offset
        assert records.timestamp_ms[row] == record.raw.timestamp_ms
        for content, position, length in (
            (record.raw.key, records.key_position[row], records.key_length[row]),
            (record.raw.value, records.value_position[row], records.value_length[row]),
        ):
            assert (records.buffer[position : position + length].tobytes() if length >= 0 else None) == content
        if record.undecodable is not None:
            error = record.undecodable
            assert (records.reason(row), records.error_position(row)) == (error.reason, error.position)
            continue
        assert records.reason(row) is None
        assert (records.api_key[row], records.version[row]) == (record.type_number, record.version)
        assert records.unknown_tag_count[row] == unknown_tag_count(record.fields)


def _compare_typed(records: columns.RecordIndex, rows: list[tuple[int, DecodedRecord]], batches: list[Batch]) -> None:
    messages: dict[int, Message] = {id(record.message): record.message for _, record in rows if record.message}
    for message in messages.values():
        table = columns.typed_columns(records, message)
        table.validate(full=True)
        assert table.schema == columns.typed_schema(message)
        found = table.to_pylist()
        chosen = [(batch_row, record) for batch_row, record in rows if record.message is message]
        assert len(found) == len(chosen)
        for values, (batch_row, record) in zip(found, chosen, strict=True):
            assert _comparable(values) == _comparable(expected_columns(record, batches[batch_row].header))


def _comparable(value: Any) -> Any:
    """NaN equals itself and -0.0 differs from 0.0, at any depth."""
    if isinstance(value, dict):
        return {name: _comparable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_comparable(inner) for inner in value]
    return np.float64(value).tobytes() if isinstance(value, float) else value


@pytest.fixture(scope="session")
def small_log() -> bytes:
    """Three batches: control records, records of many types, and one with text, lists, structs and unknown tags."""
    kip853 = CONTROL_TYPES[Dialect.KIP853]
    voter = {"voterId": 1, "voterDirectoryId": bytes(range(16)), "endpoints": [{"name": "C", "host": "é", "port": 9}]}
    control = [
        (write_control_key(2), write_control_value(kip853[2], {"leaderId": 1, "voters": [{"voterId": 1}]})),
        (write_control_key(5), write_control_value(kip853[5], {"kRaftVersion": 1})),
        (write_control_key(6), write_control_value(kip853[6], {"voters": [voter]})),
        (write_control_key(99), b"unknown"),
    ]
    partition = {"replicas": [1, 2, 3], "isr": [1], "directories": [bytes(16)] * 3, "leaderRecoveryState": 1}
    broker = {
        "endPoints": [{"name": "A", "host": "h", "port": 65535, "securityProtocol": 1}],
        "features": [{"name": "f", "maxSupportedVersion": 3}, {"name": ""}],
        "cordonedLogDirs": [],
        UNKNOWN_TAGGED_FIELDS: ((9, b"later"),),
    }
    data = [
        ("PartitionRecord", 2, partition),
        ("PartitionChangeRecord", 2, {"isr": [], "leader": -1, "eligibleLeaderReplicas": [1], "lastKnownElr": [2]}),
        ("PartitionChangeRecord", 0, {"isr": [3], "replicas": [4]}),
        ("ConfigRecord", 0, {"resourceType": 2, "resourceName": "orders", "name": "k", "value": None}),
        ("UserScramCredentialRecord", 0, {"name": "u", "salt": b"s", "storedKey": b"", "serverKey": bytes(9)}),
        ("DelegationTokenRecord", 0, {"renewers": ["a", ""], "tokenId": "secret"}),
        ("ClientQuotaRecord", 0, {"entity": [{"entityType": "user"}], "key": "q", "value": 1e7}),
        ("RegisterBrokerRecord", 4, broker),
        ("NoOpRecord", 0, {}),
    ]
    values = [(None, write_metadata_value(*record)) for record in data]
    times = {"leader_epoch": 4, "timestamp_ms": 1_700_000_000_000}
    return (
        write_batch(base_offset=0, records=control, is_control=True, **times)
        + write_batch(base_offset=4, records=values, **times)
        + write_batch(base_offset=13, records=values[:3], codec=Codec.GZIP, **times)
    )
