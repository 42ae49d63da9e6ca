"""Snapshots of real Kafka equal the replayed state; a changed one is reported with what differs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.decoded_records import RecordColumns
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.survey import SurveyedSnapshot
from kraft_audit.pipeline import history_collector
from kraft_audit.replay.cluster_replay import ClusterReplay, TableBatch
from kraft_audit.rules import state_comparison
from kraft_audit.rules.state_comparison import StateComparison
from kraft_codec.file_names import snapshot_name
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.logs import Log, write_node
from tests.builders.readings import branch_windows, history_of, snapshot_windows, survey_of


def _redactor() -> Redactor:
    return Redactor(b"k" * 32)


def test_every_snapshot_of_a_scenario_equals_the_replay(small_corpus: Path) -> None:
    (plan,) = plan_path(str(small_corpus / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    history = history_of(plan, open_storage=open_storage, redactor=_redactor())
    assert history.snapshot_checks
    assert all(check.differences == () for check in history.snapshot_checks)


@pytest.mark.slow
def test_every_snapshot_is_the_replay_up_to_it(scenarios: list[Path]) -> None:
    compared = 0
    for folder in scenarios:
        if folder.name == "crafted":
            continue  # every record type in every version: no history
        for plan in plan_path(str(folder), open_storage=open_storage, captured_at_ms=1):
            history = history_of(plan, open_storage=open_storage, redactor=_redactor())
            for check in history.snapshot_checks or ():
                assert check.differences == (), (folder.name, check.end_offset)
                compared += 1
    assert compared >= 2


def _snapshot(numbers: Iterable[int], end_offset: int) -> dict[str, bytes]:
    content = Log()
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in numbers:
        content.topic(f"topic-{number}")
    content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(end_offset, 1): content.content}


@pytest.mark.parametrize(
    ("lost", "reported"), [(None, []), (6, ["not in the snapshot"]), (20, ["only in the snapshot"])]
)
def test_a_log_that_begins_with_a_snapshot_is_compared_from_there(
    tmp_path: Path, lost: int | None, reported: list[str]
) -> None:
    """The first snapshot holds what was cleaned away; a topic that the next one lacks, or has alone, is reported."""
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, 12):
        log.topic(f"topic-{number}")
    second = set(range(1, 9)) ^ ({lost} if lost else set())
    snapshots = _snapshot(range(1, 4), 4) | _snapshot(sorted(second), 9)
    write_node(tmp_path, 1, {4: b"".join(log.batches[4:])}, files=snapshots)
    (plan,) = plan_path(str(tmp_path), open_storage=open_storage, captured_at_ms=1)
    (check,) = history_of(plan, open_storage=open_storage, redactor=_redactor()).snapshot_checks or ()
    assert check.end_offset == 9
    topic_id = uuid_text(f"topic-{lost}".encode().ljust(16, b"."))
    assert [text for text in check.differences if "topic" in text] == [f"topic {topic_id}: {text}" for text in reported]


def test_nothing_is_fed_or_held_after_the_last_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state beside is as large as the cluster's own: it goes as soon as no snapshot is to come."""
    fed_to: weakref.WeakKeyDictionary[ClusterReplay, int] = weakref.WeakKeyDictionary()
    windows: list[tuple[int, list[int]]] = []

    class Beside(ClusterReplay):
        def replay(self, records: RecordColumns, to_offset: int) -> Iterator[TableBatch]:
            fed_to[self] = to_offset
            return super().replay(records, to_offset)

    class Watched(StateComparison):
        def feed(self, records: RecordColumns, window_end: int, *more: Any) -> list[SurveyedSnapshot]:
            later = super().feed(records, window_end, *more)
            windows.append((window_end, list(fed_to.values())))
            return later

    monkeypatch.setattr(state_comparison, "ClusterReplay", Beside)
    monkeypatch.setattr(history_collector, "StateComparison", Watched)
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, 16):
        log.topic(f"topic-{number}")
    segments = {start: b"".join(log.batches[start : start + 4]) for start in (0, 4, 8, 12)}
    write_node(tmp_path, 1, segments, files=_snapshot(range(1, 3), 3) | _snapshot(range(1, 6), 6))
    (plan,) = plan_path(str(tmp_path), open_storage=open_storage, captured_at_ms=1)
    history = history_of(plan, open_storage=open_storage, redactor=_redactor())
    assert [(check.end_offset, check.differences) for check in history.snapshot_checks or ()] == [(3, ()), (6, ())]
    assert windows == [(3, [3]), (4, [4]), (6, [])], "windows end at snapshots too"


def _differences(small_corpus: Path, *lost: str) -> tuple[str, ...]:
    """How the newest snapshot differs from the replay, when it lacks the first record of each of these types."""
    (plan,) = plan_path(str(small_corpus / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    shape = survey_of(plan)
    snapshot = max((s for s in shape.snapshots if s.end_offset), key=lambda s: s.end_offset)
    longest = max(shape.ends, key=lambda end: end.end_offset)

    def without(source: str, _: int) -> Iterator[RecordColumns]:
        for window in snapshot_windows(plan, source, open_storage=open_storage, redactor=_redactor()):
            records: dict[str, Any] = dict(window.records)
            for name in records.keys() & set(lost):
                records[name] = records[name].slice(1)
            yield records

    comparison = StateComparison(plan)
    windows = branch_windows(plan, shape.path(longest.branch), open_storage=open_storage, redactor=_redactor())
    for window in windows:
        comparison.feed(window.records, window.to_offset, [snapshot], without)
    (check,) = comparison.checks
    assert check.end_offset == snapshot.end_offset
    return check.differences


@pytest.mark.parametrize("lost", ["TopicRecord", "RegisterBrokerRecord", "FeatureLevelRecord"])
def test_a_snapshot_that_lacks_a_record_is_reported(small_corpus: Path, lost: str) -> None:
    assert any("not in the snapshot" in text for text in _differences(small_corpus, lost))


def test_differences_are_reported_up_to_a_number(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of another cluster differs in everything: the first ones tell that."""
    lost = ("TopicRecord", "RegisterBrokerRecord", "FeatureLevelRecord")
    everything = _differences(small_corpus, *lost)
    assert len(everything) > 2
    monkeypatch.setattr(state_comparison, "STATE_DIFFERENCES_MAX", 2)
    assert _differences(small_corpus, *lost) == everything[:2]


def test_a_window_without_records_moves_on(small_corpus: Path) -> None:
    (plan,) = plan_path(str(small_corpus / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    comparison = StateComparison(plan)
    empty: dict[str, pa.RecordBatch] = {}
    comparison.feed(empty, 10, [], lambda source, version: iter(()))
    assert comparison.checks == []
