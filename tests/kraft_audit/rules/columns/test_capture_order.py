"""Copies whose order is unknown: KQ014 and KQ020 are raised where a disk went back in any order, else undecided."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.rules.columns.captures import captures_in_order, newest_captures
from kraft_audit.rules.rule_model import Finding, Status
from tests.builders.histories import HistoryBuilder

T_LATER_MS = 120_000
SECOND: dict[str, Any] = {"capture": "b", "capture_number": 1}
NO_ID: Any = None


def copies(build: HistoryBuilder, second_end: int, *, others_end: int | None = None, **more: Any) -> None:
    """Two folders: node 2 holds 40 records in the first; `others_end` is where nodes 1 and 3 end later."""
    build.three_nodes(40)
    build.capture(2, second_end, path="b/node-2", **SECOND, **more)
    for node_id in (1, 3) if others_end is not None else ():
        build.capture(node_id, others_end or 0, path=f"b/node-{node_id}", **SECOND)


def finding(build: HistoryBuilder, rule: str, node_id: int = 2) -> Finding:
    (found,) = (each for each in build.findings(rule) if each.subject == f"node {node_id}")
    return found


@pytest.mark.parametrize("others_end", [None, 40])
def test_a_log_that_is_shorter_in_one_of_two_copies_is_undecided(build: HistoryBuilder, others_end: int | None) -> None:
    copies(build, 10, others_end=others_end)
    reason = finding(build, "KQ020").reason or ""
    assert finding(build, "KQ020").status is Status.UNDECIDED
    assert "node-2 or b/node-2" in reason
    assert "times of files" in reason


def test_where_all_other_disks_went_on_it_went_back(build: HistoryBuilder) -> None:
    copies(build, 10, others_end=50)
    assert finding(build, "KQ020").status is Status.RAISED


def test_where_one_other_disk_went_back_too_it_is_undecided(build: HistoryBuilder) -> None:
    copies(build, 10)
    build.capture(1, 50, path="b/node-1", **SECOND).capture(3, 30, path="b/node-3", **SECOND)
    assert finding(build, "KQ020").status is Status.UNDECIDED


def test_a_copy_with_a_later_epoch_lost_records_in_either_order(build: HistoryBuilder) -> None:
    copies(build, 10, epoch=2)
    assert finding(build, "KQ020").status is Status.RAISED


def test_a_copy_that_was_captured_later_is_later(build: HistoryBuilder) -> None:
    build.three_nodes(40)
    build.capture(2, 10, path="b/node-2", when=T_LATER_MS)
    assert finding(build, "KQ020").status is Status.RAISED


@pytest.mark.parametrize(
    ("second_end", "status"), [(40, Status.UNDECIDED), (10, Status.UNDECIDED), (110, Status.RAISED)]
)
def test_an_epoch_that_is_lower_in_one_of_two_copies(build: HistoryBuilder, second_end: int, status: Status) -> None:
    """A copy with an older epoch whose log goes on, by more than clocks differ, went back in any order."""
    build.voters(1).leader_epoch(1, 1, 0).log(1, to=40).watermark(40, 40, end=40, ids=(1,)).capture(1, 40, epoch=3)
    build.capture(1, second_end, epoch=2, last_epoch=1, path="b/node-1", **SECOND)
    assert finding(build, "KQ014", 1).status is status


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_captures_of_one_round_come_in_one_order(order: tuple[int, ...]) -> None:
    """An hourly plan has replicas with changes first; evidence lists disks in the order of a whole plan."""
    builder = HistoryBuilder()
    for node_id in order:
        builder.capture(node_id, 10)
    assert [row["node_id"] for row in captures_in_order(builder.history())] == [1, 2, 3]
    assert [row["node_id"] for row in newest_captures(builder.history())] == [1, 2, 3]


def test_node_dirs_without_a_node_id_are_those_of_their_roots() -> None:
    """Two hosts whose copies lack meta.properties: each holds its log in the same folder."""
    builder = HistoryBuilder()
    for number, root in enumerate(("host-a", "host-b")):
        builder.capture(NO_ID, 10, root=root, path="kraft", capture=root, capture_number=number)
    builder.capture(NO_ID, 20, root="host-a", path="kraft", capture="later", capture_number=2)
    newest = newest_captures(builder.history())
    assert sorted((row["root"], row["log_end_offset"]) for row in newest) == [("host-a", 20), ("host-b", 10)]


def test_a_torn_copy_is_answered_by_a_later_one_of_its_root_alone(build: HistoryBuilder) -> None:
    """A later copy that was read stands for an earlier torn one of the same disk, not for that of another host."""
    torn: dict[str, Any] = {"root": "host-a", "path": "kraft", "directory_id": None}
    build.capture(NO_ID, 0, log_end_offset=None, bytes_unread=100, **torn)
    build.damage(NO_ID, "EPOCH_WENT_BACK", file_name="leader-epoch-checkpoint", **torn)
    build.capture(NO_ID, 10, **torn | {"root": "host-b"}, **SECOND)
    assert [found.status for found in build.findings("KQ013")] == [Status.RAISED]
    build.capture(NO_ID, 10, capture="c", capture_number=2, **torn)
    assert [found.status for found in build.findings("KQ013")] == [Status.CLEAR]
