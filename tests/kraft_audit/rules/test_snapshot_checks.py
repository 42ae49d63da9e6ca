"""Snapshots of real Kafka equal the replayed state; one that was changed is told with what differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.replay.planning import plan_path
from kraft_audit.replay.records import RecordColumns
from kraft_audit.replay.survey import canonical_windows, snapshot_windows, survey
from kraft_audit.rules import snapshot_checks
from kraft_audit.rules.collect import read_history
from kraft_audit.rules.snapshot_checks import StateComparison
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage


def _redactor() -> Redactor:
    return Redactor(b"k" * 32)


def test_every_snapshot_of_a_scenario_equals_the_replay(samples: Path) -> None:
    (plan,) = plan_path(str(samples / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    history = read_history(plan, open_storage=open_storage, redactor=_redactor())
    assert history.snapshot_checks
    assert all(check.differences == () for check in history.snapshot_checks)


def _differences(samples: Path, *lost: str) -> tuple[str, ...]:
    """How the newest snapshot differs from the replay, when it lacks the first record of each of these types."""
    (plan,) = plan_path(str(samples / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    shape = survey(plan, open_storage=open_storage, redactor=_redactor())
    snapshot = max((s for s in shape.snapshots if s.end_offset), key=lambda s: s.end_offset)
    longest = max(shape.ends, key=lambda end: end.end_offset)

    def without(source: str) -> Iterator[RecordColumns]:
        for window in snapshot_windows(plan, source, open_storage=open_storage, redactor=_redactor()):
            records: dict[str, Any] = dict(window.records)
            for name in records.keys() & set(lost):
                records[name] = records[name].slice(1)
            yield records

    comparison = StateComparison(plan)
    windows = canonical_windows(plan, shape.path(longest.branch), open_storage=open_storage, redactor=_redactor())
    for window in windows:
        comparison.feed(window.records, window.to_offset, [snapshot], without)
    (check,) = comparison.checks
    assert check.end_offset == snapshot.end_offset
    return check.differences


@pytest.mark.parametrize("lost", ["TopicRecord", "RegisterBrokerRecord", "FeatureLevelRecord"])
def test_a_snapshot_that_lacks_a_record_is_told(samples: Path, lost: str) -> None:
    assert any("not in the snapshot" in text for text in _differences(samples, lost))


def test_differences_are_told_up_to_a_number(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of another cluster differs in everything: the first ones tell that."""
    lost = ("TopicRecord", "RegisterBrokerRecord", "FeatureLevelRecord")
    everything = _differences(samples, *lost)
    assert len(everything) > 2
    monkeypatch.setattr(snapshot_checks, "DIFFERENCES_MAX", 2)
    assert _differences(samples, *lost) == everything[:2]


def test_a_window_without_records_moves_on(samples: Path) -> None:
    (plan,) = plan_path(str(samples / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    comparison = StateComparison(plan)
    empty: dict[str, pa.RecordBatch] = {}
    comparison.feed(empty, 10, [], lambda source: iter(()))
    assert comparison.checks == []
