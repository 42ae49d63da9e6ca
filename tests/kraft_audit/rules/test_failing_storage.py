"""A storage that fails at its n-th call, for every n: what is missing is reported, or the reading ends with a reason.

What `tests/hostile/test_io_errors.py` does with the system's calls, here with those of a storage, and all of them.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.findings.pack.evidence_pack import gather
from kraft_audit.pipeline.history_collector import read_history
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.reading import ReadingSettings
from kraft_audit.rules import judging
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Storage
from tests.builders.observed_storage import observed
from tests.builders.readings import bronze_rows

pytestmark = pytest.mark.slow
LATER_MS = 1_900_000_000_000
WHEN = ("read_from_ms", "read_to_ms")
ReadResult = dict[str, Counter[str]]


class FailingStorages:
    """Opens storages of which call number `nth` fails, and every one after it where that `lasts`; 0 is none."""

    def __init__(self, nth: int, *, lasts: bool = False) -> None:
        self.nth = nth
        self.lasts = lasts
        self.calls = 0

    def __call__(self, root: str | os.PathLike[str]) -> Storage:
        return observed(open_storage(root), self.meet)

    def meet(self, *_: object) -> None:
        self.calls += 1
        if self.calls == self.nth or (self.lasts and 0 < self.nth < self.calls):
            raise CodecError(Reason.UNREADABLE, 0, "input/output error")


def read_all(path: Path, storages: FailingStorages) -> ReadResult:
    """Rows of the history, and what an evidence pack holds of its findings."""
    plan, *_ = plan_path(str(path), open_storage=storages, captured_at_ms=LATER_MS)
    with OrderedReading(plan, ReadingSettings(storages, Redactor(bytes(32)))) as ordered:
        history = read_history(ordered)
        findings = list(judging.check(history, {}))
        evidence = gather(ordered.reading, history, findings, storages)
    tables = ("captures", "batches", "decode_errors", "partition_changes", "leader_epochs", "voter_sets")
    reported = {name: Counter(str(without(row)) for row in history.rows(name)) for name in tables}
    reported["evidence"] = Counter(str(row) for row in [*evidence.records, *evidence.headers])
    return reported


def test_a_pipeline_reports_every_call_that_fails(small_corpus: Path) -> None:
    """Every byte is read once, so that no second read of a snapshot can fail and stop the pipeline."""
    path = small_corpus / "jbod" / "01-one-dir-failed" / "node-1"
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=LATER_MS)

    def rows(storages: FailingStorages) -> Counter[str]:
        counter: Counter[str] = Counter()
        for name, batch in bronze_rows(plan, open_storage=storages, redactor=Redactor(bytes(32)), stop_on_change=True):
            if name != "captures":
                counter.update(f"{name} {row}" for row in batch.to_pylist())
        return counter

    undisturbed = FailingStorages(0)
    expected = rows(undisturbed)
    reported = 0
    for nth in range(1, undisturbed.calls + 1):
        found = rows(FailingStorages(nth))
        is_reported = any(text.startswith("decode_errors") for text in found - expected)
        assert is_reported or not expected - found, nth
        reported += is_reported
    assert reported > 2, "the log and its snapshot, at least"


def without(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in WHEN}


@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize(
    "path", ["crafted/all-records-all-versions", pytest.param("jbod/01-one-dir-failed", marks=pytest.mark.long)]
)
def test_every_call_may_fail(small_corpus: Path, path: str, lasts: bool) -> None:
    undisturbed = FailingStorages(0)
    expected = read_all(small_corpus / path, undisturbed)
    silent, ended = [], Counter[str]()
    for nth in range(1, undisturbed.calls + 1):
        found: ReadResult = {}
        try:
            found = read_all(small_corpus / path, FailingStorages(nth, lasts=lasts))
        except (CodecError, InputError) as problem:
            ended[type(problem).__name__] += 1
            continue
        lost = {name: rows - found[name] for name, rows in expected.items() if rows - found[name]}
        reported = found["decode_errors"] - expected["decode_errors"]
        unread = [text for text in found["evidence"] if "input/output error" in text]
        ended["reported" if reported or unread else "as if nothing had been"] += 1
        if lost and not reported and not unread:
            missing = {name: sum(rows.values()) for name, rows in lost.items()}
            silent.append(f"call {nth}: {missing}")
    assert silent == []
    assert ended["reported"] > 0
    assert ended.total() == undisturbed.calls
