"""The ledger: events are recorded once, and what the next plan must know comes back as it was put in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kraft_audit.replay.plan import BatchKey, ClusterPlan, from_json
from kraft_audit.spark.data_files import DataFile
from kraft_audit.spark.lake import DeltaLake
from kraft_audit.spark.ledger import (
    Archive,
    ClusterOutcome,
    ClusterState,
    Ledger,
    Manifest,
    PlannedCluster,
    PlanStatus,
)
from kraft_codec.tables import FILES, build_rows

MakePlan = Callable[..., ClusterPlan]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")))
    ledger.create()
    return ledger


def manifest(name: str, state: ClusterState, failure: str | None = None) -> Manifest:
    outcome = ClusterOutcome(0, name, name, failure, state, {"rows": {"records": 3}})
    return Manifest((outcome,), (DataFile("records", "x.parquet", 10, 3, '{"numRecords":3}'),))


def close(
    ledger: Ledger, make_plan: MakePlan, number: int, name: str, state: ClusterState, failure: str | None = None
) -> None:
    assert ledger.open_plan([PlannedCluster(make_plan(name, number), state.archives, state.damages)], "key")
    assert ledger.record_staged(number, manifest(name, state, failure))
    assert ledger.close_plan(number, {"clusters": 1})


def test_each_event_is_recorded_once(ledger: Ledger, make_plan: MakePlan) -> None:
    assert ledger.status() == PlanStatus(0, 0, 0)
    plan = make_plan("it's", 1)
    assert ledger.open_plan([PlannedCluster(plan)], "key")
    assert not ledger.open_plan([PlannedCluster(make_plan("another run's", 1))], "key")
    assert ledger.status() == PlanStatus(1, 0, 0)
    assert ledger.status().open_number == 1
    assert [(number, from_json(text)) for number, text in ledger.planned(1)] == [(0, plan)]
    first = manifest("it's", ClusterState(5, ("0-0",), "{}"))
    assert ledger.record_staged(1, first)
    assert not ledger.record_staged(1, manifest("it's", ClusterState(6)))
    assert ledger.manifest(1) == first
    assert ledger.close_plan(1, {})
    assert not ledger.close_plan(1, {})
    assert ledger.status().open_number is None


def test_a_failed_cluster_keeps_its_earlier_state(ledger: Ledger, make_plan: MakePlan) -> None:
    state = ClusterState(12, ("10-2", "bootstrap-ab"), '{"a":["b"]}', (Archive("x.tgz", 5, 6),), ("damage",))
    close(ledger, make_plan, 1, "a", state)
    close(ledger, make_plan, 2, "b", ClusterState(3))
    close(ledger, make_plan, 3, "a", ClusterState(), failure="CHANGED_DURING_READ")
    assert ledger.states() == {"a": state, "b": ClusterState(3)}


def test_an_open_plan_tells_the_next_one_nothing(ledger: Ledger, make_plan: MakePlan) -> None:
    close(ledger, make_plan, 1, "a", ClusterState(1))
    ledger.open_plan([PlannedCluster(make_plan("a", 2))], "key")
    ledger.record_staged(2, manifest("a", ClusterState(2)))
    assert ledger.states() == {"a": ClusterState(1)}


def file_row(plan: int, name: str, size_bytes: int, *, present: bool = True) -> dict[str, object]:
    row = dict.fromkeys(FILES.column_names)
    row |= {
        "cluster_id": "a", "captured_at_ms": plan, "captured_at": 0, "capture": "", "capture_number": 0, "root": "/r",
        "path": "node-1",
        "file_name": name, "kind": "log", "present": present, "size_bytes": size_bytes, "mtime_ms": 5,
        "scanned_to": size_bytes, "last_position": 0, "last_base_offset": 0, "last_offset": 9, "last_leader_epoch": 1,
        "last_crc": 2**32 - 1, "batch_count": 1, "record_count": 10, "damage_count": 0, "bytes_seen": size_bytes,
        "bytes_decoded": size_bytes, "bytes_quarantined": 0, "bytes_unread": 0, "plan": plan,
    }  # fmt: skip
    return row


def test_the_newest_row_of_a_file_counts(ledger: Ledger, make_plan: MakePlan) -> None:
    def add(plan: int, *rows: dict[str, object]) -> None:
        table = pa.Table.from_batches([build_rows(FILES, list(rows))])
        ledger.lake.append_rows("files", table, ledger.application("files"), plan)

    close(ledger, make_plan, 1, "a", ClusterState())
    close(ledger, make_plan, 2, "a", ClusterState())
    add(1, file_row(1, "old.log", 10), file_row(1, "gone.log", 10))
    add(2, file_row(2, "old.log", 20), file_row(2, "gone.log", 10, present=False))
    add(3, file_row(3, "old.log", 30))
    found = ledger.files()
    assert list(found) == [("/r", "node-1", "old.log")], "gone files and rows of open plans do not count"
    file = found["/r", "node-1", "old.log"]
    assert (file.scan.size_bytes, file.scan.scanned_to) == (20, 20)
    assert file.scan.last_batch == BatchKey(0, 0, 9, 1, 2**32 - 1)
