"""Findings in the stream of `analyze`: what a task may hold of a history is bounded, and what is let go is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_audit import analyze as module
from kraft_audit.analyze import analyze
from kraft_audit.replay.planning import plan_cluster
from kraft_audit.rules.registry import rules
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage


def judged(samples: Path) -> set[tuple[str, bool]]:
    """(status, whether the rule needs the partitions' history) of all findings of one sample."""
    plan = plan_cluster([str(samples / "torn-write")], open_storage=open_storage, captured_at_ms=0, name="torn")
    rows = analyze(plan, frozenset({"findings"}), open_storage=open_storage, redactor=Redactor(bytes(32)))
    found = [row for _, batch in rows for row in batch.to_pylist()]
    return {(row["status"], "partition_changes" in rules()[row["rule"]].needs) for row in found}


@pytest.mark.slow
def test_a_history_that_is_too_large_is_undecided_where_it_counts(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest tables are let go; rules that do not need them judge all the same, no other calls it clear."""
    assert ("clear", True) in judged(samples)
    monkeypatch.setattr(module, "HISTORY_BYTES_MAX", 1_000)
    bounded = judged(samples)
    assert ("undecided", True) in bounded
    assert not {("clear", True), ("raised", True)} & bounded
