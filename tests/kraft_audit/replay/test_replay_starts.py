"""Where the silver tables begin: with the log, the snapshot that it goes on from, or a snapshot alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.logs import Log, write_node
from tests.builders.readings import replayed_rows, topics_in
from tests.builders.snapshot_files import topic_snapshot


def log_from(offset: int) -> dict[int, bytes]:
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, 12):
        log.topic(f"topic-{number}")
    return {offset: b"".join(log.batches[offset:])}


def expected(snapshot_end: int, end: int) -> set[tuple[str, int, str]]:
    from_snapshot = {(f"topic-{number}", snapshot_end - 1, "snapshot") for number in range(1, snapshot_end)}
    return from_snapshot | {(f"topic-{number}", number, "created") for number in range(max(1, snapshot_end), end)}


@pytest.mark.parametrize("observed", [False, True])
def test_a_snapshot_alone_is_committed_state(tmp_path: Path, observed: bool) -> None:
    """Of two the newer one; what it contains was committed when it was written."""
    write_node(tmp_path, 1, {}, files=topic_snapshot(5) | topic_snapshot(9))
    rows = replayed_rows(tmp_path, observed=observed)
    assert topics_in(rows) == expected(9, 9)
    (replay,) = rows["replays"]
    assert (replay["settled_offset"], replay["to_offset"], replay["low"], replay["low_epoch"]) == (9, 9, 9, 1)
    assert (replay["why_nothing"], replay["is_complete"]) == (None, True)


@pytest.mark.parametrize("observed", [False, True])
def test_an_incomplete_snapshot_alone_is_no_state(tmp_path: Path, observed: bool) -> None:
    write_node(tmp_path / "one", 1, {}, files=topic_snapshot(9, is_whole=False))
    rows = replayed_rows(tmp_path / "one", observed=observed)
    assert topics_in(rows) == set()
    assert [(row["to_offset"], row["why_nothing"] is None) for row in rows["replays"]] == [(0, False)]
    write_node(tmp_path / "two", 1, {}, files=topic_snapshot(5) | topic_snapshot(9, is_whole=False))
    rows = replayed_rows(tmp_path / "two", observed=observed)
    assert topics_in(rows) == expected(5, 5)
    assert [(row["settled_offset"], row["low"]) for row in rows["replays"]] == [(5, 5)]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(("whole", "begins_with"), [({5, 9}, 5), ({9}, 9), (set[int](), None)])
def test_a_cleaned_log_goes_on_from_its_first_complete_snapshot(
    tmp_path: Path, whole: set[int], begins_with: int | None, observed: bool
) -> None:
    files = topic_snapshot(5, is_whole=5 in whole) | topic_snapshot(9, is_whole=9 in whole)
    write_node(tmp_path, 1, log_from(4), files=files)
    rows = replayed_rows(tmp_path, observed=observed)
    (replay,) = rows["replays"]
    assert (replay["is_complete"], replay["log_start_offset"]) == (begins_with is not None, 4)
    from_log = {(f"topic-{number}", number, "created") for number in range(4, 12)}
    assert topics_in(rows) == (from_log if begins_with is None else expected(begins_with, 12))


def test_tables_of_the_quorum_alone_need_no_replay(tmp_path: Path) -> None:
    write_node(tmp_path, 1, log_from(0))
    whole = replayed_rows(tmp_path)
    assert topics_in(whole) == expected(0, 12)
    assert replayed_rows(tmp_path, frozenset({"leader_epochs"})) == {"leader_epochs": whole["leader_epochs"]}
    assert whole["leader_epochs"]


def test_a_run_records_which_epochs_hold_what_is_not_proven(tmp_path: Path) -> None:
    """Epochs that end below what is proven committed need not be found again by the next run."""
    log = Log()
    for epoch, topics in ((1, 3), (2, 6), (4, 2)):
        log.lead(1, epoch=epoch)
        for number in range(topics):
            log.topic(f"topic-{epoch}-{number}")
    write_node(tmp_path, 1, {0: log.content})
    (replay,) = replayed_rows(tmp_path)["replays"]
    assert 11 < replay["low"] < log.next_offset
    assert replay["epochs"] == [{"epoch": 4, "to_offset": log.next_offset}]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("is_of_the_epoch", [True, False])
def test_a_log_behind_a_snapshot_goes_on_from_one_that_ends_there(
    tmp_path: Path, observed: bool, is_of_the_epoch: bool
) -> None:
    """A broker loaded the snapshot and fetched on; a voter's log ends with the snapshot's last record, or with another
    one at that offset."""
    ended = Log(epoch=1)
    ended.lead(1, epoch=1)
    for number in range(1, 5):
        ended.topic(f"topic-{number}", epoch=1 if number < 4 or is_of_the_epoch else 2)
    behind = Log(next_offset=5, epoch=3)
    for number in range(5, 12):
        behind.topic(f"topic-{number}")
    write_node(tmp_path, 1, ended.content)
    write_node(tmp_path, 9, {5: behind.content}, files=topic_snapshot(5))
    created = {(f"topic-{number}", number, "created") for number in range(1, 12)}
    rows = replayed_rows(tmp_path, observed=observed)
    assert topics_in(rows) == (created if is_of_the_epoch else expected(5, 12))
