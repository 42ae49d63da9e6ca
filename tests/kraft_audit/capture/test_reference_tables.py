"""Whole tables against the readable codec: each batch and record of every log and every snapshot, in one row each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import DecodedRecord, decode_records
from kraft_codec.text.java_text import to_json
from kraft_engine.runs.simulate import simulate

pytestmark = pytest.mark.slow
SAMPLES = ("divergence", "dynamic-quorum", "elr", "jbod", "mini-3.9.2", "mini-4.4.0", "torn-write",
           "static-to-dynamic-upgrade", "uncommitted-voter-change")  # fmt: skip
ENGINE = (("random", 1), ("random-raft", 3), ("random-upgrade", 3), ("every-record-type", 4))
Rows = set[tuple[Any, ...]]


def of_reference(folder: Path, suffix: str) -> tuple[Rows, Rows]:
    """(batches, records) of all sound batches; NoOps have no row, and are counted in logs alone."""
    batches: Rows = set()
    records: Rows = set()
    for path in sorted(folder.rglob(f"*{suffix}")):
        content = path.read_bytes()
        for found in read_batches(content):
            if isinstance(found, Batch) and found.damage is None:
                header = found.header
                decoded = decode_records(content, header)
                real_records = [
                    record for record in decoded if record.message is None or record.message.type_name != "NO_OP_RECORD"
                ]
                noops = len(decoded) - len(real_records) if suffix == ".log" else None
                key = (header.base_offset, header.last_offset, header.leader_epoch, header.crc)
                batches.add((*key, header.is_control, len(decoded), noops, header.size_bytes))
                records |= {
                    (header.leader_epoch, header.crc, *described(record, header.is_control)) for record in real_records
                }
    return batches, records


def described(record: DecodedRecord, is_control: bool) -> Iterator[Any]:
    assert record.message is not None
    assert record.raw.value is not None
    yield from (record.raw.offset, record.raw.timestamp_ms, is_control, record.type_number, len(record.raw.value))
    yield None if is_control else record.version
    yield json.dumps(json.loads(to_json(record.message, record.version or 0, record.fields or {})), sort_keys=True)


def of_tables(tables: dict[str, list[dict[str, Any]]], is_log: bool) -> tuple[Rows, Rows]:
    batches = {
        (
            row["base_offset"], row["last_offset"], row["leader_epoch"], row["crc"], row["is_control"],
            row["record_count"], row["noop_count"] if is_log else None, row["size_bytes"],
        )
        for row in tables["batches"]
        if (row["source"] == "log") is is_log and row["valid"]
    }  # fmt: skip
    records = {
        (
            row["leader_epoch"], row["batch_crc"], row["offset"], row["timestamp_ms"], row["is_control"],
            row["control_type"] if row["is_control"] else row["api_key"], row["value_bytes"], row["record_version"],
            json.dumps(json.loads(row["record"]), sort_keys=True),
        )
        for row in tables["records"]
        if (row["source"] == "log") is is_log
    }  # fmt: skip
    return batches, records


def compare(folder: Path, reading: Any) -> int:
    tables = reading.revealed(folder)
    compared = 0
    for suffix, is_log in ((".log", True), (".checkpoint", False)):
        batches, records = of_reference(folder, suffix)
        seen_batches, seen_records = of_tables(tables, is_log)
        assert seen_batches == batches
        # Of snapshots of one name that differ in the time in their header, one stands for all.
        assert seen_records == records if is_log else seen_records <= records
        compared += len(seen_records)
    return compared


@pytest.mark.parametrize("name", SAMPLES)
def test_tables_of_samples_are_the_references(name: str, small_corpus: Path, reading: Any) -> None:
    assert compare(small_corpus / name, reading) > 20


@pytest.mark.parametrize(("scenario", "seed"), ENGINE)
def test_tables_of_engine_logs_are_the_references(scenario: str, seed: int, tmp_path: Path, reading: Any) -> None:
    simulate(scenario, seed, tmp_path / "run")
    assert compare(tmp_path / "run", reading) > 5
