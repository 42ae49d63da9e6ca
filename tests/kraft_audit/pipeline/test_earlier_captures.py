"""What is kept of earlier captures, as bytes: the same when read again, and refused where anything of it is altered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.commands.cli import run_command
from kraft_audit.pipeline import earlier_captures
from kraft_audit.pipeline.analysis import TABLES, CaptureMemory, analyze
from kraft_audit.pipeline.earlier_captures import KEPT_SCHEMAS, EarlierCaptures, EarlierCapturesError, name_of
from kraft_audit.reading import ReadingSettings
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.hourly_seeds import SMALL, judge_chain
from tests.builders.memory_lake import KEY

HOURS: Final = ((1, 0.5, False), (2, 1.0, False), (3, 1.0, False))
WITH_A_CUT_LOG: Final = ("random-kip642", 400_664)
FLIPPED_BYTES: Final = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hours")


@pytest.fixture(scope="module")
def content(folder: Path) -> bytes:
    return kept_by_hours(folder)


def kept_by_hours(folder: Path) -> bytes:
    """What three hours of a cluster kept, in which a log was cut off."""
    kept = judge_chain(folder / "cluster", *WITH_A_CUT_LOG, HOURS, events=SMALL).state
    shutil.rmtree(folder / "cluster")
    assert kept is not None
    return kept


def facts_of(content: bytes) -> dict[str, Any]:
    """What is kept as JSON, beside the tables."""
    found: dict[str, Any] = json.loads(pq.read_table(pa.BufferReader(content))["facts"][0].as_py())
    return found


def with_facts(content: bytes, facts: Any) -> bytes:
    """The bytes with another text as their JSON."""
    table = pq.read_table(pa.BufferReader(content), arrow_extensions_enabled=False)
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(0, "facts", pa.array([json.dumps(facts)])), sink)
    return bytes(sink.getvalue())


def test_what_is_kept_is_read_again(content: bytes) -> None:
    earlier = EarlierCaptures.from_bytes(content)
    assert all(table.num_rows for table in earlier.tables.values())
    again = EarlierCaptures.from_bytes(earlier.to_bytes())
    assert again == earlier
    assert again.to_bytes() == content
    assert {name: table.schema for name, table in again.tables.items()} == dict(KEPT_SCHEMAS)
    assert again.capture_count == max(row["capture_number"] for row in earlier.tables["captures"].to_pylist()) + 1


@pytest.mark.slow
def test_the_same_hours_keep_the_same_bytes(content: bytes, folder: Path) -> None:
    """A run that is killed before its plan is closed is made again."""
    assert name_of(kept_by_hours(folder)) == name_of(content)


def test_what_brokers_disks_held_is_kept(tmp_path: Path) -> None:
    assert run_command(["simulate", "loss-holders-came-back", "--out", str(tmp_path / "story")]) == 0
    (plan,) = plan_path(str(tmp_path / "story" / "held"), open_storage=open_storage, captured_at_ms=1)
    kept = kept_of(plan)
    assert kept.replica_logs
    assert all(logs for logs in kept.replica_logs.values())
    assert EarlierCaptures.from_bytes(kept.to_bytes()).replica_logs == kept.replica_logs


def kept_of(plan: Any) -> EarlierCaptures:
    memory = CaptureMemory()
    for _ in analyze(plan, ReadingSettings(open_storage, Redactor(KEY)), TABLES, memory):
        pass
    assert memory.kept is not None
    return memory.kept


def test_bytes_that_are_cut_off_are_refused(content: bytes) -> None:
    for length in (*range(0, len(content), 97), len(content) - 1):
        with pytest.raises(EarlierCapturesError):
            EarlierCaptures.from_bytes(content[:length])


def test_no_altered_byte_is_anything_but_refused_or_read(content: bytes) -> None:
    """Whether a value is another one only the name tells, which is the hash: `test_state_store.py`."""
    refused = 0
    for place in range(0, len(content), max(1, len(content) // FLIPPED_BYTES)):
        altered = content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
        assert name_of(altered) != name_of(content)
        try:
            EarlierCaptures.from_bytes(altered)
        except EarlierCapturesError:
            refused += 1
    assert refused > FLIPPED_BYTES // 4


def test_another_format_is_refused(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_captures, "CAPTURES_FORMAT", earlier_captures.CAPTURES_FORMAT + 1)
    with pytest.raises(EarlierCapturesError, match="another release kept it"):
        EarlierCaptures.from_bytes(content)


@pytest.mark.parametrize("name", ["format", "survey", "replica_logs"])
def test_a_part_that_is_missing_or_no_part_is_refused(content: bytes, name: str) -> None:
    facts = facts_of(content)
    assert EarlierCaptures.from_bytes(with_facts(content, facts)) == EarlierCaptures.from_bytes(content)
    for altered in ({**facts, name: value} for value in (7, "x", [[]], [{}], {"branches": 1})):
        with pytest.raises(EarlierCapturesError):
            EarlierCaptures.from_bytes(with_facts(content, altered))
    del facts[name]
    for altered in (facts, [], None, "x"):
        with pytest.raises(EarlierCapturesError):
            EarlierCaptures.from_bytes(with_facts(content, altered))


@pytest.mark.parametrize("name", KEPT_SCHEMAS)
def test_a_table_that_is_missing_is_refused(content: bytes, name: str) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(content), arrow_extensions_enabled=False).drop_columns(name), sink)
    with pytest.raises(EarlierCapturesError, match="it cannot be read: KeyError"):
        EarlierCaptures.from_bytes(bytes(sink.getvalue()))


def test_no_secret_is_kept(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    secret = "s3cr3t-of-a-keystore"  # noqa: S105  # what must not be found
    fields = {"resourceType": 4, "resourceName": "1", "name": "ssl.keystore.password", "value": secret}
    usual_log.append(write_metadata_value("ConfigRecord", 0, fields))
    node(tmp_path, 1, usual_log.content)
    kept = kept_of(reading.plan(tmp_path))
    assert kept.tables["captures"].num_rows
    shown = str([kept.survey, {name: table.to_pylist() for name, table in kept.tables.items()}])
    assert secret not in shown
