"""Records that no replica holds may have said anything: what is replayed after them, and only that, is incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.plan import SilverPosition
from kraft_audit.replay.cluster_state import missing_text, state_at
from kraft_audit.replay.driver import branch_start, replay_branch
from kraft_audit.replay.silver_rows import SILVER_TABLES
from kraft_codec.file_names import snapshot_name
from tests.builders.logs import Log, write_node
from tests.builders.readings import branch_log, replayed_rows, topics_in
from tests.builders.snapshot_files import topic_snapshot

TOPIC_COUNT = 11
GAP = (5, 7)
"""Of a log whose topics 1 to 11 are at their offsets, these are lost in one of several ways."""


def whole_log() -> list[bytes]:
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, TOPIC_COUNT + 1):
        log.topic(f"topic-{number}")
    return log.batches


def flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def segments_of(way: str, gap: tuple[int, int] = GAP) -> dict[int, bytes]:
    start, end = gap
    batches = whole_log()
    before, lost, after = b"".join(batches[:start]), batches[start:end], b"".join(batches[end:])
    return {
        "batches": {0: before + after},
        "a segment": {0: before, end: after},
        "refused": {0: before + b"".join(map(flipped, lost)) + after},
        "refused, the last of a segment": {0: before + b"".join(map(flipped, lost)), end: after},
    }[way]


WAYS = ("batches", "a segment", "refused", "refused, the last of a segment")


@pytest.mark.parametrize("way", WAYS)
def test_the_state_after_a_gap_is_incomplete(tmp_path: Path, way: str) -> None:
    write_node(tmp_path, 1, segments_of(way))
    sources = branch_log(tmp_path)
    before, within, last, after, end = (state_at(sources, offset=offset) for offset in (4, 5, 6, 7, 10**6))
    assert (before.is_complete, before.gaps) == (True, ())
    assert (within.is_complete, within.gaps) == (False, ((5, 6),))
    assert [(state.is_complete, state.gaps) for state in (last, after, end)] == [(False, (GAP,))] * 3
    start = branch_start(sources).from_offset
    assert sources.gaps(start, TOPIC_COUNT + 1) == [GAP]
    assert sources.gaps(start, GAP[0]) == []
    began_ms = Log().timestamp_ms + 1  # each batch a millisecond later than the one before
    at_times = [state_at(sources, time_ms=began_ms + offset) for offset in (3, 7)]
    assert [(state.offset, state.is_complete) for state in at_times] == [(3, True), (7, False)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("observed", [False, True])
def test_the_replay_says_so(tmp_path: Path, way: str, observed: bool) -> None:
    write_node(tmp_path / "holed", 1, segments_of(way))
    write_node(tmp_path / "whole", 1, {0: b"".join(whole_log())})
    is_complete = [
        row["is_complete"]
        for folder in ("holed", "whole")
        for row in replayed_rows(tmp_path / folder, SILVER_TABLES, observed=observed)["replays"]
    ]
    assert is_complete == [False, True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("filling", ["a whole log", "another gap"])
def test_another_copy_fills_the_gap(tmp_path: Path, way: str, filling: str) -> None:
    write_node(tmp_path, 1, segments_of(way))
    write_node(tmp_path, 2, {0: b"".join(whole_log())} if filling == "a whole log" else segments_of(way, (8, 9)))
    state = state_at(branch_log(tmp_path))
    assert (state.is_complete, state.gaps) == (True, ())
    assert len(state.rows("topic_changes")) == TOPIC_COUNT
    assert [row["is_complete"] for row in replayed_rows(tmp_path)["replays"]] == [True]


@pytest.mark.parametrize("way", WAYS)
def test_a_gap_in_every_copy_is_one(tmp_path: Path, way: str) -> None:
    for number in (1, 2, 3):
        write_node(tmp_path, number, segments_of(way, (5, 4 + 2 * number)))
    assert state_at(branch_log(tmp_path)).gaps == ((5, 6),)


@pytest.mark.parametrize("way", WAYS)
def test_a_snapshot_after_a_gap_makes_the_state_complete(tmp_path: Path, way: str) -> None:
    write_node(tmp_path, 1, segments_of(way), files=topic_snapshot(9))
    sources = branch_log(tmp_path)
    below, after = state_at(sources, offset=7), state_at(sources, offset=10)
    assert (below.is_complete, after.is_complete) == (False, True)
    assert len(after.rows("topic_changes")) == 10


def went_on(end_offset: int, lost: tuple[int, ...] = (5, 6)) -> set[tuple[str, int, str]]:
    """The topics' rows where a snapshot with this end lies after the gap."""
    created = {(f"topic-{n}", n, "created") for n in range(1, TOPIC_COUNT + 1) if n not in (*lost, end_offset - 1)}
    return created | {(f"topic-{n}", end_offset - 1, "snapshot") for n in range(1, end_offset)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("end_offset", [7, 9])
def test_a_replay_goes_on_from_the_snapshot_after_a_gap(
    tmp_path: Path, way: str, observed: bool, end_offset: int
) -> None:
    """Lost records created topics 5 and 6, which exist; records between gap and snapshot have rows too."""
    write_node(tmp_path, 1, segments_of(way), files=topic_snapshot(end_offset))
    rows = replayed_rows(tmp_path, observed=observed)
    assert topics_in(rows) == went_on(end_offset)
    assert len({(row["topic"], row["from_offset"]) for row in rows["topic_changes"]}) == len(rows["topic_changes"])
    (replays,) = rows["replays"]
    assert (replays["gap_from_offset"], replays["gap_to_offset"], replays["is_complete"]) == (5, end_offset, False)
    assert replays["settled_offset"] == replays["to_offset"] == TOPIC_COUNT + 1
    branch: dict[str, list[dict[str, Any]]] = {}
    for name, batch in replay_branch(branch_log(tmp_path)):
        branch.setdefault(name, []).extend(batch.to_pylist())
    assert topics_in(branch) == topics_in(rows)
    below: dict[str, list[dict[str, Any]]] = {}
    for name, batch in replay_branch(branch_log(tmp_path), to_offset=4):
        below.setdefault(name, []).extend(batch.to_pylist())
    assert topics_in(below) == {(f"topic-{n}", n, "created") for n in range(1, 4)}


def test_of_two_gaps_each_has_the_snapshot_after_it(tmp_path: Path) -> None:
    batches = whole_log()
    segments = {0: b"".join(batches[:3]), 4: b"".join(batches[4:8]), 9: b"".join(batches[9:])}
    write_node(tmp_path / "each", 1, segments, files=topic_snapshot(6) | topic_snapshot(10))
    rows = replayed_rows(tmp_path / "each")
    created = {(f"topic-{n}", n, "created") for n in (1, 2, 4, 6, 7, 10, 11)}
    again = {(f"topic-{n}", end - 1, "snapshot") for end in (6, 10) for n in range(1, end)}
    assert topics_in(rows) == created | again
    write_node(tmp_path / "both", 1, segments, files=topic_snapshot(10))
    rows = replayed_rows(tmp_path / "both")
    created = {(f"topic-{n}", n, "created") for n in (1, 2, 4, 5, 6, 7, 10, 11)}
    assert topics_in(rows) == created | {(f"topic-{n}", 9, "snapshot") for n in range(1, 10)}
    assert [(row["gap_from_offset"], row["gap_to_offset"]) for row in rows["replays"]] == [(3, 10)]


@pytest.mark.parametrize("observed", [False, True])
def test_the_snapshot_after_a_gap_has_rows_where_nothing_after_it_is_proven(tmp_path: Path, observed: bool) -> None:
    """The beginning of the last epoch is missing, so that the snapshot alone proves: its rows are the plan's last."""
    log = Log()
    log.lead(1, epoch=1)
    voter: dict[str, Any] = {"voterId": 1, "voterDirectoryId": b"d" * 15 + b"\x01", "endpoints": []}
    voter["kRaftVersionFeature"] = {"minSupportedVersion": 0, "maxSupportedVersion": 1}
    log.control("KRAFT_VOTERS", {"version": 0, "voters": [voter]})
    for number in (1, 2, 3, 4, 5, 6, 7, 8):
        if number == 4:
            log.lead(1, epoch=2)
        log.topic(f"topic-{number}")
    segments = {0: b"".join(log.batches[:5]), 7: b"".join(log.batches[7:])}
    (content,) = topic_snapshot(7, epoch=2).values()
    write_node(tmp_path, 1, segments, files={snapshot_name(9, 2): content})
    rows = replayed_rows(tmp_path, observed=observed)
    (replays,) = rows["replays"]
    assert (replays["low"], replays["to_offset"], replays["gap_to_offset"]) == (9, 9, 9)
    again = {(f"topic-{number}", 8, "snapshot") for number in range(1, 7)}
    assert {topic for topic in topics_in(rows) if topic[2] == "snapshot"} == again


@pytest.mark.parametrize("observed", [False, True])
def test_a_gap_that_was_passed_before_its_snapshot_was_made_is_a_gap(tmp_path: Path, observed: bool) -> None:
    """Else what the missing records removed would be there for ever."""
    batches = whole_log()
    write_node(tmp_path, 1, b"".join(batches[:5] + batches[7:9]))
    (first,) = replayed_rows(tmp_path, observed=observed)["replays"]
    assert (first["to_offset"], first["gap_from_offset"]) == (9, None)
    write_node(tmp_path, 1, b"".join(batches[:5] + batches[7:]), files=topic_snapshot(10))
    names = ("settled_offset", "to_offset", "low", "low_epoch", "began_at")
    silver = SilverPosition(**{name: first[name] for name in names})
    rows = replayed_rows(tmp_path, observed=observed, silver=silver)
    assert topics_in(rows) == {topic for topic in went_on(10) if topic[1] >= 9}
    (second,) = rows["replays"]
    assert (second["from_offset"], second["gap_from_offset"], second["gap_to_offset"]) == (9, 5, 10)


def test_a_log_that_begins_after_its_snapshot(tmp_path: Path) -> None:
    write_node(tmp_path, 1, {5: b"".join(whole_log()[5:])}, files=topic_snapshot(3))
    sources = branch_log(tmp_path)
    assert state_at(sources, offset=2).is_complete
    assert [state_at(sources, offset=offset).gaps for offset in (3, 8)] == [((3, 4),), ((3, 5),)]


def test_what_is_missing_in_words() -> None:
    assert missing_text([(4, 5)]) == "1 record from offset 4 on is missing: what follows may be wrong"
    text = "3 records are missing in 2 places, the first at offset 4: what follows may be wrong"
    assert missing_text([(4, 5), (7, 9)]) == text


def test_what_missing_records_removed_has_rows_where_the_snapshot_stands(tmp_path: Path) -> None:
    """Of the topics of the log the snapshot lacks those that were there before it, but for two."""
    (content,) = topic_snapshot(3).values()
    rows: dict[str, list[dict[str, Any]]] = {}
    write_node(tmp_path, 1, segments_of("batches"), files={snapshot_name(9, 1): content})
    for name, batch in replay_branch(branch_log(tmp_path)):
        rows.setdefault(name, []).extend(batch.to_pylist())
    gone = {(row["topic"], row["from_offset"], row["cause"]) for row in rows["topic_changes"] if not row["exists"]}
    assert gone == {(f"topic-{n}", 8, "snapshot") for n in (3, 4, 7)}
    there = {row["topic"] for row in rows["topic_changes"] if row["exists"] and row["from_offset"] >= 8}
    assert there == {"topic-1", "topic-2", "topic-9", "topic-10", "topic-11"}
