"""The contracts of the tables, and one record type as typed columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kraft_audit.capture.decoded_records import record_type_schema, record_types
from kraft_audit.capture.plan import Selection
from kraft_audit.commands.state import StatePart
from kraft_audit.replay.cluster_replay import REPLAY_TABLES
from kraft_audit.tables.bronze import ARCHIVE, BATCHES, BRONZE, CAPTURES, DECODE_ERRORS, NODE_CARDS, RECORDS
from kraft_audit.tables.contract import build_batch, build_rows, slices
from kraft_audit.tables.silver import EXPOSURE_CHANGES, SILVER, STATE_TABLES
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import open_storage
from tests.builders.readings import typed_rows

KEY = b"k" * 32
CANARY = "canary"


@pytest.mark.parametrize("table", BRONZE.values(), ids=lambda table: table.name)
def test_a_contract_says_everything(table: Any) -> None:
    names = table.column_names
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert table.comment
    assert table.grain
    assert table.retention
    for column in table.columns:
        assert column.comment, column.name
        assert column.name == column.name.lower()
        assert not column.name.endswith("_ms") or column.type == pa.int64()
    assert table.schema.names == list(names)


def test_every_table_of_states_is_a_part_of_the_state() -> None:
    """A table is added by its contract: the comparison of snapshots, counts and costs of the log read it there."""
    replayed = REPLAY_TABLES - {EXPOSURE_CHANGES.name}
    assert STATE_TABLES.keys() == replayed, "a table that is replayed has no subject in its contract"
    for table in STATE_TABLES.values():
        assert table.key == ("cluster_id", *table.subject, "from_offset"), table.name
        assert table.part, table.name
        assert table.change, table.name
    parts = [table.part for table in SILVER.values() if table.part]
    assert sorted(parts) == sorted(StatePart), "commands.state.StatePart has other parts than the contracts"


def row_of(table: Any) -> dict[str, Any]:
    values = {pa.string(): "x", pa.bool_(): True, pa.timestamp("us", "UTC"): 5, pa.binary(): b"x"}
    return {
        column.name: None if column.nullable else [] if pa.types.is_list(column.type) else values.get(column.type, 5)
        for column in table.columns
    }


@pytest.mark.parametrize("table", BRONZE.values(), ids=lambda table: table.name)
def test_batches_have_the_schema_exactly(table: Any) -> None:
    batch = build_rows(table, [row_of(table), row_of(table)])
    assert batch.schema == table.schema
    assert batch.num_rows == 2
    for column in table.columns:
        if not column.nullable:
            with pytest.raises(ValueError, match=f"{table.name}.{column.name} must not be null"):
                build_rows(table, [row_of(table) | {column.name: None}])


def test_what_does_not_fit_a_contract_is_refused() -> None:
    columns = {name: [value] for name, value in row_of(RECORDS).items()}
    with pytest.raises(ValueError, match="has no columns \\['other'\\]"):
        build_batch(RECORDS, {**columns, "other": [1]}, 1)
    with pytest.raises(ValueError, match="needs column record"):
        build_batch(RECORDS, {name: value for name, value in columns.items() if name != "record"}, 1)
    with pytest.raises(ValueError, match=r"records\.offset has 2 rows, expected 1"):
        build_batch(RECORDS, {**columns, "offset": np.array([1, 2])}, 1)
    assert [part.num_rows for part in slices(build_rows(RECORDS, [row_of(RECORDS)] * 5), 2)] == [2, 2, 1]


def test_rows_of_every_table_have_its_schema(small_corpus: Path, reading: Any) -> None:
    seen = set()
    for scenario in ("torn-write", "divergence"):
        for name, batch in reading.rows(reading.plan(small_corpus / scenario)):
            contract = BRONZE[name]
            assert batch.schema == contract.schema
            batch.validate(full=True)
            seen.add(name)
    others = {"files", BATCHES.name, RECORDS.name, ARCHIVE.name, DECODE_ERRORS.name}
    assert seen == {CAPTURES.name, NODE_CARDS.name, *others}


def test_large_results_come_in_batches_of_65000_rows(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    value = write_metadata_value("RemoveTopicRecord", 0, {"topicId": b"t" * 16})
    for _ in range(7):
        log.append(*[value] * 10_000)
    sizes = [
        batch.num_rows
        for name, batch in reading.rows(reading.plan(node(tmp_path, 1, log.content)))
        if name == "records"
    ]
    assert sizes == [65_000, 5_000]


def typed(reading: Any, path: Path, record_type: str, **options: Any) -> list[dict[str, Any]]:
    found = []
    for plan in reading.plans(path):
        for batch in typed_rows(plan, record_type, open_storage=open_storage, redactor=Redactor(KEY), **options):
            assert batch.schema == record_type_schema(record_type)
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def test_a_selection_of_offsets_gives_the_records_within_it(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    """Bounds inside a batch cut it."""
    usual_log.append(*[write_metadata_value("TopicRecord", 0, {"name": f"many-{number}"}) for number in range(5)])
    folder = node(tmp_path, 1, usual_log.content)
    whole = typed(reading, folder, "TOPIC_RECORD")
    end = usual_log.next_offset
    for bounds in ((end - 4, end - 1), (None, end - 2), (3, None), (3, 4)):
        remaining = typed(reading, folder, "TOPIC_RECORD", selection=Selection(*bounds))
        assert remaining == [row for row in whole if (bounds[0] or 0) <= row["offset"] < (bounds[1] or end)]
        assert remaining


def test_every_record_type_as_columns(small_corpus: Path, reading: Any) -> None:
    """The typed fields say what the JSON says, in every version of every type."""
    folder = small_corpus / "crafted" / "all-records-all-versions"
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in reading.of(folder)["records"]:
        if row["record"] is not None:
            by_type.setdefault(row["record_type"], []).append(row)
    compared = 0
    for record_type in record_types(Dialect.KIP853):
        rows = typed(reading, folder, record_type)
        expected = by_type.get(record_type, [])
        assert [(row["offset"], row["leader_epoch"]) for row in rows] == [
            (row["offset"], row["leader_epoch"]) for row in expected
        ] or record_type == "NO_OP_RECORD"
        for row, second in zip(rows, expected, strict=False):
            fields = json.loads(second["record"])
            for name in ("topicId", "brokerId", "name", "isr", "replicas", "directories", "incarnationId"):
                column = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
                if name in fields and column in row:
                    assert row[column] == fields[name], (record_type, name)
                    compared += 1
    assert compared > 100


def test_typed_rows_of_a_real_log(small_corpus: Path, reading: Any) -> None:
    rows = typed(reading, small_corpus / "torn-write", "PARTITION_RECORD")
    assert rows
    assert all(len(row["topic_id"]) == 22 for row in rows)
    offsets = [row["offset"] for row in rows if row["source"] == "log"]
    start = offsets[len(offsets) // 2]
    later = typed(reading, small_corpus / "torn-write", "PARTITION_RECORD", selection=Selection(from_offset=start))
    assert [row for row in later if row["source"] == "log"] == [
        row for row in rows if row["source"] == "log" and row["offset"] >= start
    ]
    with pytest.raises(ValueError, match="NO_SUCH_RECORD"):
        record_type_schema("NO_SUCH_RECORD")


def test_no_secret_reaches_a_table(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    """Planted everywhere a secret may stand: known fields, unknown records, refused batches, damaged tails."""
    config = {
        "resourceType": 4,
        "resourceName": "1",
        "name": "ssl.keystore.password",
        "value": f"{CANARY}-config-value",
    }
    public = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "86400000"}
    scram = {
        "name": "alice", "mechanism": 1, "salt": f"{CANARY}-salt".encode(), "storedKey": f"{CANARY}-stored".encode(),
        "serverKey": f"{CANARY}-server".encode(), "iterations": 4096,
    }  # fmt: skip
    log.append(write_metadata_value("ConfigRecord", 0, config), write_metadata_value("ConfigRecord", 0, public))
    log.append(write_metadata_value("UserScramCredentialRecord", 0, scram))
    log.append(write_metadata_value("RemoveDelegationTokenRecord", 0, {"tokenId": f"{CANARY}-token"}))
    log.append(b"\x01\x7e\x00" + f"{CANARY}-unknown".encode())
    log.append(b"\x01\x02\x00\xff\xff" + f"{CANARY}-unsound".encode())
    content = bytearray(log.content)
    torn = log.append(write_metadata_value("ConfigRecord", 0, config))
    for number, tail in ((1, torn[:-3]), (2, torn[:-30] + bytes(30))):
        node(tmp_path, number, bytes(content) + tail)
    plan = reading.plan(tmp_path)
    rows = reading.rows(plan)
    assert {name for name, _ in rows} == {
        "captures",
        "node_cards",
        "files",
        "batches",
        "records",
        "archive",
        "decode_errors",
    }
    for _, batch in rows:
        for array in batch.columns:
            for buffer in array.buffers():
                assert buffer is None or CANARY.encode() not in buffer.to_pybytes()
    records = reading.tables(plan)["records"]
    assert [row["is_redacted"] for row in records] == [True, False, True, True, False]
    assert json.loads(records[1]["record"])["value"] == "86400000"
    assert len(json.loads(records[0]["record"])["value"]) == len(config["value"])
    for record_type in ("CONFIG_RECORD", "USER_SCRAM_CREDENTIAL_RECORD"):
        shown = typed(reading, tmp_path, record_type)
        assert shown
        assert CANARY not in str(shown)
