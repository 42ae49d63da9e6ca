"""The ledger: events are recorded once, and what the next plan must know comes back as it was put in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kraft_audit.capture.plan import BatchKey, plan_from_json, plan_to_json
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.data_files import DataFile
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Archive, ClusterOutcome, LedgerState, Manifest, PlannedCluster, StateChange
from kraft_audit.lake.plan_commits import commit_tables
from kraft_audit.lake.plan_events import PlanStatus
from kraft_audit.tables.bronze import FILES
from kraft_audit.tables.contract import build_rows
from tests.builders.lakes import MakePlan, file_row


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")))
    ledger.create()
    return ledger


def manifest(name: str, change: StateChange, failure: str | None = None) -> Manifest:
    outcome = ClusterOutcome(0, name, name, failure, change, {"rows": {"records": 3}})
    return Manifest((outcome,), (DataFile("records", "x.parquet", 10, 3, '{"numRecords":3}'),))


def close(
    ledger: Ledger, make_plan: MakePlan, number: int, name: str, change: StateChange, failure: str | None = None
) -> None:
    assert ledger.open_plan([PlannedCluster(make_plan(name, number), change.archives, change.damages)], "key")
    assert ledger.record_staged(number, manifest(name, change, failure))
    assert ledger.close_plan(number, {"clusters": 1})


def test_each_event_is_recorded_once(ledger: Ledger, make_plan: MakePlan) -> None:
    assert ledger.status() == PlanStatus(0, 0)
    plan = make_plan("it's", 1)
    assert ledger.open_plan([PlannedCluster(plan)], "key")
    assert not ledger.open_plan([PlannedCluster(make_plan("another run's", 1))], "key")
    assert ledger.status() == PlanStatus(1, 0, (1,))
    assert [(number, plan_from_json(text)) for number, text in ledger.planned(1)] == [(0, plan)]
    first = manifest("it's", StateChange(5, ("0-0",), "{}"))
    assert ledger.record_staged(1, first)
    assert not ledger.record_staged(1, manifest("it's", StateChange(6)))
    assert ledger.manifest(1) == first
    assert ledger.close_plan(1, {})
    assert not ledger.close_plan(1, {})
    assert ledger.status() == PlanStatus(1, 1, (), ClosedPlans(1))


def test_the_ledger_of_files_is_committed_last(ledger: Ledger) -> None:
    """A run that ends before it leaves files that count as unread: read again, they add no row twice."""
    names = (FILES.name, "histories", "batches", "captures")
    staged = Manifest((), tuple(DataFile(name, f"{name}.parquet", 10, 3, '{"numRecords":3}') for name in names))
    order = ["captures", "batches", "histories", FILES.name]
    assert list(commit_tables(ledger, 1, staged)) == [(name, 3, True) for name in order]
    assert list(commit_tables(ledger, 1, staged)) == [(name, 3, False) for name in order]


ARCHIVE = Archive("x.tgz", 5, 6)
CHANGES = (
    (1, "a", StateChange(12, ("10-2", "bootstrap-ab"), '{"a":["b"]}', (ARCHIVE,), ("damage",)), None),
    (2, "b", StateChange(3), None),
    (3, "a", StateChange(), "CHANGED_DURING_READ"),
    (4, "a", StateChange(9, ("20-3",)), None),
    (5, "b", StateChange(4, redaction_state="{}"), None),
)
AFTER = {
    "a": LedgerState(12, ("10-2", "20-3", "bootstrap-ab"), '{"a":["b"]}', (ARCHIVE,), ("damage",)),
    "b": LedgerState(4, (), "{}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_plans", [1, 2, 3, 100])
def test_states_add_up(checkpoint_plans: int, make_plan: MakePlan, tmp_path: Path) -> None:
    """A failed cluster keeps its earlier state, and an open plan passes nothing to the next one, checkpoints or not."""
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")), checkpoint_plans)
    ledger.create()
    for number, name, change, failure in CHANGES:
        close(ledger, make_plan, number, name, change, failure)
    assert ledger.states() == AFTER
    ledger.open_plan([PlannedCluster(make_plan("a", 6))], "key")
    ledger.record_staged(6, manifest("a", StateChange(99)))
    assert ledger.states() == AFTER


def add(ledger: Ledger, plan: int, *rows: dict[str, object]) -> None:
    table = pa.Table.from_batches([build_rows(FILES, list(rows))])
    ledger.lake.append_rows("files", table, ledger.application("files"), plan)


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_plans", [1, 2, 100])
def test_the_newest_row_of_a_file_counts(checkpoint_plans: int, make_plan: MakePlan, tmp_path: Path) -> None:
    """Gone files do not count, nor rows of open plans; what a plan did not read stays as it was."""
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")), checkpoint_plans)
    ledger.create()
    plans = {
        1: [file_row(1, "old.log", 10), file_row(1, "gone.log", 10), file_row(1, "still.log", 10)],
        2: [file_row(2, "old.log", 20), file_row(2, "gone.log", 10, present=False)],
        3: [file_row(3, "old.log", 25)],
    }
    for number, rows in plans.items():
        ledger.open_plan([PlannedCluster(make_plan("a", number))], "key")
        ledger.record_staged(number, manifest("a", StateChange()))
        add(ledger, number, *rows)
        ledger.close_plan(number, {})
    add(ledger, 4, file_row(4, "old.log", 30))
    found = ledger.files()
    assert sorted(found) == [("/r", "node-1", "old.log"), ("/r", "node-1", "still.log")]
    assert found["/r", "node-1", "still.log"].scan.size_bytes == 10
    assert found["/r", "node-1", "still.log"].captured_at_ms == 1, "when it was read, not when it was repeated"
    file = found["/r", "node-1", "old.log"]
    assert (file.scan.size_bytes, file.scan.scanned_to) == (25, 25)
    assert file.scan.last_batch == BatchKey(0, 0, 9, 1, 2**32 - 1)


@pytest.mark.slow
def test_a_checkpoint_bounds_what_is_read_back(make_plan: MakePlan, tmp_path: Path) -> None:
    """Rows before the newest checkpoint can be lost, and nothing is missed: they are not looked at."""
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")), 3)
    ledger.create()
    for number in range(1, 5):
        ledger.open_plan([PlannedCluster(make_plan("a", number))], "key")
        ledger.record_staged(number, manifest("a", StateChange(number, (f"{number}-0",))))
        add(ledger, number, file_row(number, f"{number}.log", 10))
        ledger.close_plan(number, {})
    states, files = ledger.states(), ledger.files()
    assert states["a"].known_sources == ("1-0", "2-0", "3-0", "4-0")
    assert len(files) == 4
    for table in ("plans", "files"):
        DeltaLake(ledger.lake.uri).open(table).delete("plan < 3")
    assert (ledger.states(), ledger.files()) == (states, files)


@pytest.mark.slow
def test_a_checkpoint_that_was_cut_short_is_made_again(make_plan: MakePlan, tmp_path: Path) -> None:
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")), 2)
    ledger.create()
    close(ledger, make_plan, 1, "a", StateChange(1))
    ledger.open_plan([PlannedCluster(make_plan("b", 2))], "key")
    ledger.record_staged(2, manifest("b", StateChange(2)))
    ledger._checkpoint(2, 0)
    assert ledger.states() == {"a": LedgerState(1)}, "a checkpoint of an open plan is not used"
    assert ledger.close_plan(2, {})
    assert ledger.states() == {"a": LedgerState(1), "b": LedgerState(2)}


def test_a_plan_that_names_tasks_of_one_cluster_is_read(make_plan: MakePlan) -> None:
    """Lakes of before say how many tasks read a cluster."""
    plan = make_plan("c", 1)
    text = plan_to_json(plan)
    assert plan_from_json(f'{text[:-1]},"shares":3,"share":null}}') == plan
