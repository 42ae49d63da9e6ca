"""Findings in the stream of `analyze`: what a task may hold of a history is bounded, and what it drops is reported."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.findings import analysis as module
from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.rules.carried.carrying import Carrying
from kraft_audit.rules.columns import partition_parts
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.histories import HistoryBuilder
from tests.builders.reading_times import without_reading_times
from tests.builders.readings import history_of, table_rows


def findings(small_corpus: Path, name: str) -> list[dict[str, Any]]:
    """All findings of one sample, in a fixed order."""
    plan = plan_cluster([str(small_corpus / name)], open_storage=open_storage, captured_at_ms=0, name=name)
    rows = table_rows(plan, frozenset({"findings"}), open_storage=open_storage, redactor=Redactor(bytes(32)))
    found = [row for _, batch in rows for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["rule"], row["subject"], row["finding_id"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elr", "jbod", "torn-write"])
def test_partitions_judged_from_disk_by_parts_are_judged_alike(
    name: str, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verdict is lost or reported twice if the history of partitions is too large to be held."""
    held = findings(small_corpus, name)
    assert any(row["status"] == "raised" and "partition_changes" in rules()[row["rule"]].needs for row in held)
    monkeypatch.setattr(module, "PARTITION_BYTES_MAX", 0)
    monkeypatch.setattr(partition_parts, "PENDING_BYTES_MAX", 10_000)
    by_part = findings(small_corpus, name)
    assert {row["finding_id"]: without_times(row) for row in by_part} == {
        row["finding_id"]: without_times(row) for row in held
    }
    assert len(by_part) == len(held)


def test_findings_leave_as_they_are_found(build: HistoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of many partitions has millions: those of one batch of rows are there at a time, whatever there was before;
    for the next judgement what is open is kept, without its texts."""
    build.three_nodes().brokers(11, 12, 13).broker(13, 50, fenced=True)
    for number in range(300):
        build.partition(f"t-{number}", 5, isr=[11, 12, 13]).partition(f"t-{number}", 60, isr=[11], leader=11)
    monkeypatch.setattr(module, "FINDINGS_AT_ONCE", 20)
    history = build.history()
    carried: list[Finding] = []
    gc.freeze()  # what is there already is not looked at again
    try:
        for carries in ((), (Carrying(), carried)):
            counts, names = [], []
            for name, _ in module._judged(history, 1, {}, *carries):
                names.append(name)
                counts.append(sum(isinstance(each, Finding) and bool(each.summary) for each in gc.get_objects()))
            assert names[-1] == "incidents"
            assert len(counts) > 30
            assert 0 < max(counts) <= 2 * module.FINDINGS_AT_ONCE
    finally:
        gc.unfreeze()
    assert len(carried) > 300
    assert {(each.summary, each.why, each.what_to_do) for each in carried} == {("", "", "")}


def test_no_row_of_a_batch_is_held_as_it_left(small_corpus: Path) -> None:
    """Headers are most rows of a quiet cluster, and twice as wide as what rules read of them."""
    plan = plan_cluster([str(small_corpus / "torn-write")], open_storage=open_storage, captured_at_ms=0, name="torn")
    left: list[weakref.ref[pa.RecordBatch]] = []
    for name, batch in table_rows(plan, open_storage=open_storage, redactor=Redactor(bytes(32))):
        if name == "batches":
            left.append(weakref.ref(batch))
        if name == "findings":
            break
        del batch
    assert len(left) > 1
    assert [reference for reference in left if reference() is not None] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["divergence", "torn-write"])
def test_a_task_that_holds_the_columns_of_batches_that_rules_read_judges_as_check_does(
    name: str, small_corpus: Path
) -> None:
    """No rule reads a column of `batches` that a task lets go, and texts kept once are read alike."""
    plan = plan_cluster([str(small_corpus / name)], open_storage=open_storage, captured_at_ms=0, name=name)
    history = history_of(plan, open_storage=open_storage, redactor=Redactor(bytes(32)))
    reported = finding_rows(check(history))
    assert {(row["finding_id"], row["summary"], facts(row)) for row in findings(small_corpus, name)} == {
        (row["finding_id"], row["summary"], facts(row)) for row in reported
    }


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    """A finding but for when the captures were read."""
    return {name: value for name, value in row.items() if "seen" not in name} | {"evidence": facts(row)}


def facts(row: dict[str, Any]) -> str:
    """The evidence but for the times of what a disk holds: those are when it was read."""
    (timeless,) = without_reading_times([{"evidence": [dict(fact) for fact in row["evidence"]]}])
    return str(timeless["evidence"])


@pytest.mark.slow
def test_a_temporary_folder_that_is_full_leaves_rules_undecided(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be kept is not judged, and no rule calls it clear."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "PARTITION_BYTES_MAX", 0)
    monkeypatch.setattr(partition_parts.PartitionParts, "add", full)
    found = {
        row["status"] for row in findings(small_corpus, "elr") if "partition_changes" in rules()[row["rule"]].needs
    }
    assert found == {"undecided"}


@pytest.mark.slow
@pytest.mark.parametrize("history_bytes", [0, 1_000, 10_000])
@pytest.mark.parametrize("name", ["torn-write", "divergence", "mini-4.4.0"])
def test_a_history_that_is_too_large_to_be_held_is_judged_from_disk(
    name: str, history_bytes: int, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule is undecided for the size of a cluster."""
    held = findings(small_corpus, name)
    monkeypatch.setattr(module, "HISTORY_BYTES_MAX", history_bytes)
    written: list[str] = []
    add = partition_parts.TableOnDisk.add
    monkeypatch.setattr(
        partition_parts.TableOnDisk, "add", lambda self, batch: (written.append(str(batch.schema)), add(self, batch))[1]
    )
    from_disk = findings(small_corpus, name)
    assert len(set(written)) > (2 if history_bytes < 10_000 else 0), "tables went to disk"
    assert [without_times(row) for row in from_disk] == [without_times(row) for row in held]


@pytest.mark.slow
def test_tables_that_no_temporary_folder_holds_are_undecided_where_they_count(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that need them say so, and do not call it clear."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "HISTORY_BYTES_MAX", 1_000)
    monkeypatch.setattr(partition_parts.TableOnDisk, "add", full)
    undecided = [row for row in findings(small_corpus, "torn-write") if row["status"] == "undecided"]
    assert any((row["reason"] or "").startswith("not captured: ") for row in undecided)
