"""Where the silver tables begin: with the log, the snapshot that it goes on from, or a snapshot alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.replay.plan import SilverPosition
from kraft_audit.replay.planning import plan_path
from kraft_audit.replay.silver import SILVER_TABLES
from kraft_audit.replay.silver import silver as silver_rows
from kraft_audit.rules.collect import HistoryCollector
from kraft_codec.file_names import snapshot_name
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage
from tests.kraft_audit.analyze.conftest import Log, write_node

Rows = dict[str, list[dict[str, Any]]]


def told(
    path: Path,
    tables: frozenset[str] = SILVER_TABLES,
    *,
    observed: bool = False,
    silver: SilverPosition | None = None,
) -> Rows:
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=1)
    plan = replace(plan, silver=silver)
    redactor = Redactor(bytes(32))
    observer = HistoryCollector(plan, open_storage=open_storage, redactor=redactor) if observed else None
    found: Rows = {}
    for name, batch in silver_rows(plan, tables, open_storage=open_storage, redactor=redactor, observer=observer):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def topics_told(rows: Rows) -> set[tuple[str, int, str]]:
    return {(row["topic"], row["from_offset"], row["cause"]) for row in rows.get("topic_changes", [])}


def snapshot(end_offset: int, *, is_whole: bool = True) -> dict[str, bytes]:
    """Topics 1 up to the snapshot's end, as a log of one topic a record had them."""
    content = Log()
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(1, end_offset):
        content.topic(f"topic-{number}")
    if is_whole:
        content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(end_offset, 1): content.content}


def log_from(offset: int) -> dict[int, bytes]:
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, 12):
        log.topic(f"topic-{number}")
    return {offset: b"".join(log.batches[offset:])}


def expected(snapshot_end: int, end: int) -> set[tuple[str, int, str]]:
    kept = {(f"topic-{number}", snapshot_end - 1, "snapshot") for number in range(1, snapshot_end)}
    return kept | {(f"topic-{number}", number, "created") for number in range(max(1, snapshot_end), end)}


@pytest.mark.parametrize("observed", [False, True])
def test_a_snapshot_alone_is_committed_state(tmp_path: Path, observed: bool) -> None:
    """Of two the newer one; what it contains was committed when it was written."""
    write_node(tmp_path, 1, {}, files=snapshot(5) | snapshot(9))
    rows = told(tmp_path, observed=observed)
    assert topics_told(rows) == expected(9, 9)
    (replay,) = rows["replays"]
    assert (replay["settled_offset"], replay["to_offset"], replay["low"], replay["low_epoch"]) == (9, 9, 9, 1)
    assert (replay["why_nothing"], replay["is_complete"]) == (None, True)


@pytest.mark.parametrize("observed", [False, True])
def test_an_incomplete_snapshot_alone_is_no_state(tmp_path: Path, observed: bool) -> None:
    write_node(tmp_path / "one", 1, {}, files=snapshot(9, is_whole=False))
    rows = told(tmp_path / "one", observed=observed)
    assert topics_told(rows) == set()
    assert [(row["to_offset"], row["why_nothing"] is None) for row in rows["replays"]] == [(0, False)]
    write_node(tmp_path / "two", 1, {}, files=snapshot(5) | snapshot(9, is_whole=False))
    rows = told(tmp_path / "two", observed=observed)
    assert topics_told(rows) == expected(5, 5)
    assert [(row["settled_offset"], row["low"]) for row in rows["replays"]] == [(5, 5)]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(("whole", "begins_with"), [({5, 9}, 5), ({9}, 9), (set[int](), None)])
def test_a_cleaned_log_goes_on_from_its_first_complete_snapshot(
    tmp_path: Path, whole: set[int], begins_with: int | None, observed: bool
) -> None:
    files = snapshot(5, is_whole=5 in whole) | snapshot(9, is_whole=9 in whole)
    write_node(tmp_path, 1, log_from(4), files=files)
    rows = told(tmp_path, observed=observed)
    (replay,) = rows["replays"]
    assert (replay["is_complete"], replay["log_start_offset"]) == (begins_with is not None, 4)
    from_log = {(f"topic-{number}", number, "created") for number in range(4, 12)}
    assert topics_told(rows) == (from_log if begins_with is None else expected(begins_with, 12))


def test_tables_of_the_quorum_alone_need_no_replay(tmp_path: Path) -> None:
    write_node(tmp_path, 1, log_from(0))
    whole = told(tmp_path)
    assert topics_told(whole) == expected(0, 12)
    assert told(tmp_path, frozenset({"leader_epochs"})) == {"leader_epochs": whole["leader_epochs"]}
    assert whole["leader_epochs"]


def test_a_run_tells_which_epochs_hold_what_is_not_proven(tmp_path: Path) -> None:
    """Epochs that end below what is proven committed need not be found again by the next run."""
    log = Log()
    for epoch, topics in ((1, 3), (2, 6), (4, 2)):
        log.lead(1, epoch=epoch)
        for number in range(topics):
            log.topic(f"topic-{epoch}-{number}")
    write_node(tmp_path, 1, {0: log.content})
    (replay,) = told(tmp_path)["replays"]
    assert 11 < replay["low"] < log.next_offset
    assert replay["epochs"] == [{"epoch": 4, "to_offset": log.next_offset}]
