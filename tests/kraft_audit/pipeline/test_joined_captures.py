"""What earlier captures showed, joined to the disks as they are now: who held which batches, since when, until when.

The witness is a reading of all captures of all hours.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kraft_audit.pipeline import analysis
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.batch_copies import STILL_HELD
from kraft_audit.rules.columns.log_batches import log_batches
from kraft_codec.file_names import snapshot_name
from kraft_codec.text.java_text import uuid_text
from tests.builders.judged_hours import JudgedHours, all_captures
from tests.builders.logs import Log, led, with_topics, write_node

VOTERS: Final = (1, 2, 3, 4, 5)
AGREED: Final = 6
"""All voters hold the log up to here; then epoch 1 goes on at its leader, node 2, and epoch 2 at the others."""
Holding = tuple[int, int, int, int, int | None]
"""(first offset, last offset, epoch, hour since which it is held, hour until which)."""


def logs() -> tuple[Log, Log]:
    """The log of epochs 1 and 2, and one whose suffix of epoch 1 no other voter got."""
    log = with_topics(led(2, VOTERS), AGREED - 1)
    suffix = with_topics(log.copy())
    voters = [{"voterId": voter} for voter in VOTERS]
    fields = {"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": [voters[0], *voters[3:]]}
    log.control("LEADER_CHANGE", fields, epoch=2)
    return with_topics(log, 5), suffix


class WrittenHours:
    """The hours of disks that a test writes; `history` is what the last hour's rules judged."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "disks"
        disks: Any = SimpleNamespace(root=self.root, kind="random")
        self.judged = JudgedHours(None, disks)
        self.hour = 0
        self.directories: dict[int, str] = {}
        self.history: ClusterHistory | None = None
        join = analysis.with_earlier_captures

        def joined(*arguments: Any) -> ClusterHistory:
            self.history = join(*arguments)
            return self.history

        monkeypatch.setattr(analysis, "with_earlier_captures", joined)

    def pass_hour(self, logs: dict[int, Log], *, replaced: Collection[int] = (), **more: Any) -> None:
        """Writes the disks of some nodes anew, each in the directory that it had unless it is replaced; judges all."""
        self.hour += 1
        for node_id, log in logs.items():
            if node_id in replaced:
                self.directories[node_id] = directory_of(node_id, self.hour)
            directory_id = self.directories.setdefault(node_id, directory_of(node_id, 0))
            shutil.rmtree(self.root / f"node-{node_id}", ignore_errors=True)
            segments = {log.next_offset - len(log.batches): log.content}
            write_node(self.root, node_id, segments, directory_id=directory_id, **more)
            for path in (self.root / f"node-{node_id}").rglob("*"):
                os.utime(path, ns=(self.hour * 3_600 * 10**9,) * 2)
        self.judged.pass_hour()

    def held(self, node_id: int, since_hour: int | None = None) -> list[Holding]:
        """What the disk of a node held, by the history that was judged: the disk since an hour, or the newest."""
        assert self.history is not None
        return holdings(self.history, node_id, self._directory(node_id, since_hour))

    def held_by_all_captures(self, node_id: int, since_hour: int | None = None) -> list[Holding]:
        return holdings(all_captures(self.judged.rounds), node_id, self._directory(node_id, since_hour))

    def _directory(self, node_id: int, since_hour: int | None) -> str:
        return self.directories[node_id] if since_hour is None else directory_of(node_id, since_hour)

    @property
    def suffixes(self) -> set[tuple[str, int, bool]]:
        """(subject, first offset, whether it is over) of the suffixes that the last hour says."""
        rows = [row for row in self.judged.rows["staged_findings"] if row["rule"] == "KQ001"]
        return {(row["subject"], row["from_offset"], row["is_over"]) for row in rows if row["status"] == "raised"}


def directory_of(node_id: int, hour: int) -> str:
    return uuid_text(b"d" * 14 + bytes([node_id, hour]))


def others(log: Log) -> dict[int, Log]:
    """The log at all voters but node 2."""
    return {node_id: log for node_id in VOTERS if node_id != 2}


def holdings(history: ClusterHistory, node_id: int, directory_id: str) -> list[Holding]:
    batches = log_batches(history)
    held = batches.as_held(batches.base_offset >= 0)
    number = next(n for n, each in enumerate(batches.identities) if each[:2] == (node_id, directory_id))
    found = set()
    for place in range(len(held.row)):
        if held.replica[place] == number:
            since, until = int(held.since[place]), int(held.until[place])
            span = (int(held.base_offset[place]), int(held.last_offset[place]), int(held.leader_epoch[place]))
            found.add((*span, since >> 20, None if until == STILL_HELD else until >> 20))
    return sorted(found)


@pytest.fixture
def hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenHours:
    return WrittenHours(tmp_path, monkeypatch)


def test_a_batch_that_was_cut_off_is_still_judged(hours: WrittenHours) -> None:
    log, suffix = logs()
    hours.pass_hour({**others(log), 2: suffix})
    assert hours.suffixes == {("node 2", AGREED, False)}
    hours.pass_hour({2: log})
    assert hours.suffixes == {("node 2", AGREED, True)}
    for _ in range(2):
        log.noop()
        hours.pass_hour({1: log})
        assert hours.suffixes == {("node 2", AGREED, True)}
        assert hours.held(2) == hours.held_by_all_captures(2)
        assert hours.judged.differences() == []
    cut_off = [each for each in hours.held(2) if each[4] is not None]
    assert cut_off == [(offset, offset, 1, 1, 2) for offset in range(AGREED, AGREED + 3)]


def test_a_log_that_was_cut_off_and_came_back_is_held_twice(hours: WrittenHours) -> None:
    log, suffix = logs()
    hours.pass_hour({**others(log), 2: suffix})
    hours.pass_hour({2: log})
    log.noop()
    hours.pass_hour({1: log})
    hours.pass_hour({2: suffix})
    assert hours.suffixes == {("node 2", AGREED, False)}
    assert hours.held(2) == hours.held_by_all_captures(2)
    of_epoch_1 = [each for each in hours.held(2) if each[0] == AGREED and each[2] == 1]
    assert of_epoch_1 == [(AGREED, AGREED, 1, 1, 2), (AGREED, AGREED, 1, 4, None)]
    assert (AGREED, AGREED, 2, 2, 4) in hours.held(2)
    assert hours.judged.differences() == []


def test_what_lasts_is_held_since_the_first_capture_of_it(hours: WrittenHours) -> None:
    log, _ = logs()
    hours.pass_hour({**others(log), 2: log})
    log.noop()
    hours.pass_hour({1: log})
    log.noop()
    hours.pass_hour({1: log, 2: log})
    for node_id, seen in ((1, {1: 12, 2: 1, 3: 1}), (2, {1: 12, 3: 2}), (3, {1: 12})):
        found = hours.held(node_id)
        assert found == hours.held_by_all_captures(node_id)
        assert {hour: sum(each[3] == hour for each in found) for hour in {each[3] for each in found}} == seen


def test_the_log_of_a_replaced_disk_still_counts(hours: WrittenHours) -> None:
    """Copies say that it held what other disks hold; what no disk holds is one row, without times."""
    log, suffix = logs()
    hours.pass_hour({**others(log), 2: suffix})
    hours.pass_hour({2: log}, replaced=[2])
    for _ in range(2):
        log.noop()
        hours.pass_hour({1: log})
        assert hours.suffixes == {("node 2", AGREED, True)}
        assert hours.held(2) == hours.held_by_all_captures(2)
        *copied, lost = hours.held(2, since_hour=0)
        assert copied == [each for each in hours.held_by_all_captures(2, since_hour=0) if each[0] < AGREED]
        assert len(copied) == AGREED
        assert lost == (AGREED, AGREED + 2, 1, 1, None)
        assert [row["max_timestamp_ms"] for row in lost_rows(hours)] == [-1]
        assert hours.judged.differences() == []


def lost_rows(hours: WrittenHours) -> list[dict[str, Any]]:
    """The rows of batches that no disk holds any more."""
    assert hours.history is not None
    return [row for row in hours.history.table("batches").to_pylist() if row["status"] == "present" and not row["crc"]]


def test_lost_batches_of_several_disks_are_in_equal_pieces(hours: WrittenHours) -> None:
    """As batches are: logs that held the same records up to different ends do not contradict each other."""
    log, suffix = logs()
    longer = suffix.copy()
    longer.noop()
    hours.pass_hour({**others(log), 2: suffix, 3: longer})
    hours.pass_hour({2: log, 3: log}, replaced=[2, 3])
    rows = [(row["node_id"], row["base_offset"], row["last_offset"]) for row in lost_rows(hours)]
    assert sorted(rows) == [(2, 6, 8), (3, 6, 8), (3, 9, 9)]
    assert hours.suffixes == {("node 2", AGREED, True), ("node 3", AGREED, True)}
    assert hours.judged.differences() == []


def test_a_suffix_on_a_disk_that_began_again_at_a_snapshot_was_cut_off(hours: WrittenHours) -> None:
    log, suffix = logs()
    hours.pass_hour({**others(log), 2: suffix})
    snapshot = Log()
    snapshot.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    snapshot.control("SNAPSHOT_FOOTER", {"version": 0})
    start = AGREED + 2
    cleaned = replace(log, batches=log.batches[start:])
    hours.pass_hour({2: cleaned}, files={snapshot_name(start, 2): snapshot.content})
    log.noop()
    hours.pass_hour({1: log})
    assert hours.suffixes == {("node 2", AGREED, True)}
    assert hours.judged.differences() == []


def test_captures_of_a_plan_are_numbered_after_all_earlier_ones(hours: WrittenHours) -> None:
    log, _ = logs()
    for _ in range(3):
        log.noop()
        hours.pass_hour({1: log, 2: log})
    history = hours.history
    assert history is not None
    assert history.captured_from == 2
    rows = history.rows("captures")
    assert {row["read_to_ms"]: row["capture_number"] for row in rows} == {1: 0, 2: 1, 3: 2}
    assert {row["capture_number"] for row in history.rows("watermarks")} <= {0, 1, 2}
