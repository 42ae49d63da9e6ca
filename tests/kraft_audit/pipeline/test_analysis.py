"""Findings in the stream of `analyze`: they leave as they are found, and batches are held in the columns of rules."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.pipeline import analysis as module
from kraft_audit.pipeline.kept_captures import EVIDENCE_NAMES_CAPTURES
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
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


def test_findings_leave_as_they_are_found(build: HistoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of many partitions has millions: those of one batch of rows are there at a time, whatever there was before.

    Only the few that rest on captures are kept until the end, which says which captures to keep.
    """
    build.three_nodes().brokers(11, 12, 13).broker(13, 50, fenced=True)
    for number in range(300):
        build.partition(f"t-{number}", 5, isr=[11, 12, 13]).partition(f"t-{number}", 60, isr=[11], leader=11)
    monkeypatch.setattr(module, "FINDINGS_AT_ONCE", 20)
    history, plan = build.history(), ClusterPlan(0, "", "c", Dialect.KIP853, ())
    gc.freeze()  # what is there already is not looked at again
    try:
        counts, names, kept = [], [], list[Finding]()
        for name, _ in module._judged(history, plan, kept, {}):
            names.append(name)
            counts.append(sum(isinstance(each, Finding) for each in gc.get_objects()))
    finally:
        gc.unfreeze()
    assert names[-1] == "incidents"
    assert len(counts) > 30
    assert 0 < max(counts) <= 2 * module.FINDINGS_AT_ONCE + len(kept)
    assert {each.scope for each in kept} <= EVIDENCE_NAMES_CAPTURES
    assert len(kept) < 20


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
def test_a_task_judges_as_check_does(name: str, small_corpus: Path) -> None:
    plan = plan_cluster([str(small_corpus / name)], open_storage=open_storage, captured_at_ms=0, name=name)
    history = history_of(plan, open_storage=open_storage, redactor=Redactor(bytes(32)))
    reported = finding_rows(check(history))
    assert {(row["finding_id"], row["summary"], facts(row)) for row in findings(small_corpus, name)} == {
        (row["finding_id"], row["summary"], facts(row)) for row in reported
    }


def facts(row: dict[str, Any]) -> str:
    """The evidence but for the times of what a disk holds: those are when it was read."""
    (timeless,) = without_reading_times([{"evidence": [dict(fact) for fact in row["evidence"]]}])
    return str(timeless["evidence"])
