"""`dump` as rows: what each format gives, which rows the options choose, what of them may leave."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from kraft_audit.tables.bronze import RECORDS
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_metadata_value
from tests.builders.captures import SMALL_CORPUS

CAPTURE = f"{SMALL_CORPUS}/divergence/11-dead-node-diverged"
PLANTED = "hunter2-and-more-than-enough-letters"
PLANTED_SHORT = "s3cr3t"
HOSTILE_TEXT = "=cmd|' /C calc'!A0\x1b[31m\u202etxt.exe\x9b"


def node_dir(folder: Path, records: list[tuple[str, dict[str, object]]]) -> Path:
    """A node dir whose log holds these records in one batch."""
    log_dir = folder / "node-1" / "__cluster_metadata-0"
    log_dir.mkdir(parents=True)
    (folder / "node-1" / "meta.properties").write_text("version=1\ncluster.id=SPA6Lw-19VaaSAxl6jMkhw\nnode.id=1\n")
    values = [(None, write_metadata_value(name, 0, fields)) for name, fields in records]
    batch = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1_700_000_000_000, records=values)
    (log_dir / "00000000000000000000.log").write_bytes(batch)
    return folder / "node-1"


def config(name: str, value: str) -> tuple[str, dict[str, object]]:
    return "ConfigRecord", {"resourceType": 2, "resourceName": "orders", "name": name, "value": value}


def jsonl(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_and_jsonl_are_the_rows_of_the_table(kraft_audit) -> None:
    lines = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl").out)
    assert lines == json.loads(kraft_audit("dump", CAPTURE, "-o", "json").out)
    assert list(lines[0]) == list(RECORDS.column_names)
    assert len({(row["source"], row["offset"], row["leader_epoch"], row["batch_crc"]) for row in lines}) == len(lines)


def test_records_are_kafkas_own_json(kraft_audit, small_corpus: Path) -> None:
    """Against what Kafka's classes said of node 2's log."""
    index = json.loads((small_corpus / "divergence/oracle-files/index.json").read_text())
    log = "11-dead-node-diverged/node-2/__cluster_metadata-0/00000000000000000000.log"
    oracle = small_corpus / f"divergence/oracle-files/{index[log]}.dump.txt.gz"
    theirs = {}
    for line in gzip.decompress(oracle.read_bytes()).decode().splitlines():
        if " payload: " in line:
            head, _, payload = line.partition(" payload: ")
            theirs[int(head.split()[2])] = json.loads(payload)["data"]
    rows = jsonl(kraft_audit("dump", CAPTURE, "--node", "2", "--file", "*0.log", "-o", "jsonl", "--reveal-secrets").out)
    ours = {row["offset"]: row["record"] for row in rows if not row["is_control"]}
    no_ops = {offset for offset, data in theirs.items() if offset not in ours}
    assert all(theirs[offset] == {} for offset in no_ops)
    assert ours == {offset: data for offset, data in theirs.items() if offset not in no_ops}
    assert len(ours) > 20


def test_csv_is_the_same_rows(kraft_audit) -> None:
    rows = list(csv.DictReader(io.StringIO(kraft_audit("dump", CAPTURE, "-o", "csv").out)))
    lines = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl").out)
    assert [row["record_type"] for row in rows] == [line["record_type"] for line in lines]
    assert [json.loads(row["record"]) for row in rows] == [line["record"] for line in lines]


def test_a_table_has_a_heading_and_a_row_a_record(kraft_audit) -> None:
    lines = kraft_audit("dump", CAPTURE).out.splitlines()
    assert lines[0].split() == ["source", "offset", "epoch", "timestamp_ms", "type", "v", "record"]
    assert len(lines) == 1 + len(jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl").out))


def test_options_choose_rows(kraft_audit) -> None:
    everything = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl").out)
    log = [row for row in everything if row["source"] == "log"]
    in_range = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl", "--from", "10", "--to", "40").out)
    assert in_range == [row for row in log if 10 <= row["offset"] < 40]
    topics = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl", "--type", "TopicRecord", "--type", "kraft_voters").out)
    assert topics == [row for row in everything if row["record_type"] in ("TOPIC_RECORD", "KRAFT_VOTERS")]
    assert {row["record_type"] for row in topics} == {"TOPIC_RECORD", "KRAFT_VOTERS"}
    of_node_2 = jsonl(kraft_audit("dump", CAPTURE, "-o", "jsonl", "--node", "2", "--file", "*.log").out)
    assert {row["source"] for row in of_node_2} == {"log"}
    assert max(row["leader_epoch"] for row in of_node_2) < max(row["leader_epoch"] for row in log)
    assert kraft_audit("dump", CAPTURE, "--node", "99").code == 2


def test_other_tables(kraft_audit) -> None:
    batches = jsonl(kraft_audit("dump", CAPTURE, "--table", "batches", "-o", "jsonl").out)
    assert {row["node_id"] for row in batches} == {1, 2, 3, 11}
    files = jsonl(kraft_audit("dump", f"{SMALL_CORPUS}/torn-write", "--table", "files", "-o", "jsonl").out)
    for row in files:
        assert row["bytes_seen"] == row["bytes_decoded"] + row["bytes_quarantined"] + row["bytes_unread"]


def test_damage_is_reported_beside_the_rows(kraft_audit) -> None:
    ended = kraft_audit("dump", f"{SMALL_CORPUS}/torn-write", "-o", "jsonl")
    assert (ended.code, len(ended.error_lines)) == (0, 1)
    assert "TORN_TAIL" in ended.err
    assert "node-1/__cluster_metadata-0/00000000000000000000.log at 2526" in ended.err
    rows = jsonl(kraft_audit("dump", f"{SMALL_CORPUS}/torn-write", "--table", "decode_errors", "-o", "jsonl").out)
    assert [(row["reason"], row["position"]) for row in rows] == [("TORN_TAIL", 2526)]


@pytest.mark.parametrize("options", [[], ["-o", "json"], ["-o", "jsonl"], ["-o", "csv"], ["--format", "kafka"]])
def test_secrets_stay_inside_unless_they_are_asked_for(tmp_path: Path, kraft_audit, options: list[str]) -> None:
    secrets = [config("ssl.keystore.password", PLANTED), config("sasl.jaas.config", PLANTED_SHORT)]
    path = node_dir(tmp_path, [*secrets, config("retention.ms", "604800123")])
    ended = kraft_audit("dump", path, *options)
    assert PLANTED not in ended.out + ended.err
    assert PLANTED_SHORT not in ended.out + ended.err
    assert "604800123" in ended.out
    revealed = kraft_audit("dump", path, "--reveal-secrets", *options)
    assert PLANTED in revealed.out
    assert PLANTED_SHORT in revealed.out


@pytest.mark.parametrize("command", ["check", "timeline", "state", "diff", "quorum", "partitions"])
def test_no_other_command_reveals_secrets(tmp_path: Path, kraft_audit, command: str) -> None:
    path = node_dir(tmp_path, [config("ssl.keystore.password", PLANTED)])
    assert kraft_audit(command, path, "--reveal-secrets").code == 2


def test_an_evidence_pack_holds_no_secret(tmp_path: Path, kraft_audit) -> None:
    secrets = [config("ssl.keystore.password", PLANTED), config("sasl.jaas.config", PLANTED_SHORT)]
    path = node_dir(tmp_path, secrets)
    assert kraft_audit("evidence", path, "--out", tmp_path / "pack.zip").code == 0
    with zipfile.ZipFile(tmp_path / "pack.zip") as pack:
        content = b"".join(pack.read(name) for name in pack.namelist())
    assert len(content) > 1000
    assert PLANTED.encode() not in content
    assert PLANTED_SHORT.encode() not in content


def test_secrets_of_the_samples_stay_inside(kraft_audit, small_corpus: Path) -> None:
    """SCRAM keys, delegation tokens and config values, of every record type: none in any output but the asked for."""
    path = small_corpus / "crafted"
    revealed = jsonl(kraft_audit("dump", path, "-o", "jsonl", "--reveal-secrets").out)
    reported = jsonl(kraft_audit("dump", path, "-o", "jsonl").out)
    fields = {
        "USER_SCRAM_CREDENTIAL_RECORD": ("salt", "storedKey", "serverKey"),
        "DELEGATION_TOKEN_RECORD": ("tokenId",),
    }
    count = 0
    for ours, theirs in zip(reported, revealed, strict=True):
        for field in fields.get(str(ours["record_type"]), ()):
            if theirs["record"] is not None and theirs["record"].get(field):
                assert ours["record"][field] != theirs["record"][field]
                count += 1
    assert count >= 4


def test_equal_secrets_are_equal_under_one_key(tmp_path: Path, kraft_audit, monkeypatch) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("ab" * 32 + "\n")
    key_file.chmod(0o600)
    path = node_dir(tmp_path, [config("ssl.keystore.password", PLANTED)])
    without = {kraft_audit("dump", path, "-o", "jsonl").out for _ in range(2)}
    assert len(without) == 2
    monkeypatch.setenv("KRAFT_AUDIT_REDACTION_KEY_FILE", str(key_file))
    assert len({kraft_audit("dump", path, "-o", "jsonl").out for _ in range(2)}) == 1
    key_file.chmod(0o644)
    ended = kraft_audit("dump", path)
    assert (ended.code, len(ended.error_lines)) == (3, 1)
    assert f"{key_file}" in ended.err
    assert "chmod 600" in ended.err


@pytest.mark.parametrize("options", [[], ["-o", "json"], ["-o", "jsonl"], ["-o", "csv"]])
def test_names_do_nothing_to_a_terminal(tmp_path: Path, kraft_audit, options: list[str]) -> None:
    path = node_dir(tmp_path, [("TopicRecord", {"name": HOSTILE_TEXT})])
    out = kraft_audit("dump", path, *options).out
    assert "calc" in out
    assert not set(out) & {"\x1b", "\u202e", "\x9b", "\r"}


def test_json_keeps_what_it_escapes(tmp_path: Path, kraft_audit) -> None:
    path = node_dir(tmp_path, [("TopicRecord", {"name": HOSTILE_TEXT})])
    assert jsonl(kraft_audit("dump", path, "-o", "jsonl").out)[0]["record"]["name"] == HOSTILE_TEXT


def test_a_terminal_gets_no_escapes_from_kafkas_text_either(tmp_path: Path, kraft_audit, monkeypatch) -> None:
    path = node_dir(tmp_path, [("TopicRecord", {"name": HOSTILE_TEXT})])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = kraft_audit("dump", path, "--format", "kafka").out
    assert "calc" in out
    assert not set(out) & {"\x1b", "\u202e", "\x9b"}


def test_nothing_is_written_where_it_reads(tmp_path: Path, kraft_audit) -> None:
    path = node_dir(tmp_path, [("TopicRecord", {"name": "orders"})])
    before = {file: file.stat().st_mtime_ns for file in [path, *path.rglob("*")]}
    for directory in (path, path / "__cluster_metadata-0"):
        directory.chmod(0o500)
    assert kraft_audit("dump", path).code == 0
    assert kraft_audit("quorum", path).code == 0
    assert {file: file.stat().st_mtime_ns for file in [path, *path.rglob("*")]} == before
    assert not any(name.startswith(".") for name in os.listdir(path))  # noqa: PTH208


@pytest.mark.slow
def test_the_first_rows_come_before_the_last_is_read(tmp_path: Path, program) -> None:
    """Printed while it reads: 20 batches of 2,000 records come out in the order of the log, all of them."""
    log_dir = tmp_path / "node-1" / "__cluster_metadata-0"
    log_dir.mkdir(parents=True)
    value = write_metadata_value("PartitionChangeRecord", 0, {"partitionId": 1, "topicId": bytes(16), "leader": 1})
    with (log_dir / "00000000000000000000.log").open("wb") as file:
        for number in range(20):
            records = [(None, value)] * 2000
            file.write(write_batch(base_offset=2000 * number, leader_epoch=1, timestamp_ms=1, records=records))
    ended = program("dump", tmp_path, "-o", "jsonl")
    offsets = [json.loads(line)["offset"] for line in ended.out.splitlines()]
    assert (ended.code, offsets) == (0, list(range(40_000)))
