"""What an earlier judgement left and what is new, joined: captures in time, damage once, epochs that Kafka deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.rules.carried.carried_rows import CarriedRows
from kraft_audit.rules.carried.carrying import carry
from kraft_audit.rules.carried.continued_history import history_of, new_survey_rows, until, with_earlier_captures
from kraft_audit.rules.cluster_history import ClusterHistory, SnapshotCheck
from kraft_audit.tables.silver import WITHOUT_LEADER
from tests.builders.carried_judgements import judged, new_rows
from tests.builders.histories import HistoryBuilder


def story() -> ClusterHistory:
    return HistoryBuilder().three_nodes(100).brokers(11, 12, 13).partition("t-0", 10, "created").history()


def carried_of(history: ClusterHistory) -> CarriedRows:
    before = until(history, 50)
    return CarriedRows.from_bytes(carry(before, judged(before), 50).to_bytes())


def with_rows(history: ClusterHistory, name: str, rows: list[dict[str, Any]]) -> ClusterHistory:
    table = pa.Table.from_pylist(rows, history.table(name).schema)
    return replace(history, tables={**history.tables, name: table}, _shared={})


def test_what_comes_before_an_offset_is_no_copy_of_rows_in_order() -> None:
    history = story()
    table = history.table("partition_changes")
    rows = [table.to_pylist()[0] | {"from_offset": offset} for offset in (10, 20, 30, 40)]
    in_order = with_rows(history, "partition_changes", rows)
    cut = until(in_order, 25).tables["partition_changes"]
    texts, given = (each["topic"].chunk(0).buffers()[2] for each in (cut, in_order.tables["partition_changes"]))
    assert texts.address == given.address
    assert cut.to_pylist() == rows[:2]
    for order, expected in (((2, 0, 3, 1), [0, 1]), ((1, 0, 3, 2), [1, 0])):
        shuffled = with_rows(history, "partition_changes", [rows[number] for number in order])
        assert until(shuffled, 25).tables["partition_changes"].to_pylist() == [rows[number] for number in expected]
    assert until(in_order, 5).tables["partition_changes"].num_rows == 0
    assert until(in_order, 99).tables["partition_changes"].num_rows == 4


def test_captures_are_numbered_after_those_before() -> None:
    history = story()
    carried = carried_of(history)
    numbers = set(history.table("captures")["capture_number"].to_pylist())
    joined = history_of(carried, replace(new_rows(history, history, 50), tables=history.tables))
    assert set(joined.table("captures")["capture_number"].to_pylist()) == numbers | {
        number + max(numbers) + 1 for number in numbers
    }


def damaged(history: ClusterHistory, reason: str, position: int) -> ClusterHistory:
    (capture, *_) = history.rows("captures")
    columns = history.table("decode_errors").schema.names
    row = {name: capture.get(name) for name in columns}
    row |= {"file_name": "0.log", "position": position, "length_bytes": 9, "reason": reason, "detail": "damage"}
    row |= {"kafka_verdict": "Kafka cuts the log there", "verdict": "Kafka cuts the log there"}
    return with_rows(history, "decode_errors", [{name: row.get(name) for name in columns}])


def test_a_torn_end_is_over_once_the_file_was_read_on() -> None:
    history = damaged(story(), "TORN_TAIL", 500)
    carried, empty = carried_of(history), new_rows(history, history, 50)
    assert history_of(carried, empty).table("decode_errors").num_rows == 1
    (batch, *_) = history.rows("batches")
    read_on = with_rows(empty, "batches", [{**batch, "file_name": "0.log", "position": 500}])
    assert history_of(carried, read_on).table("decode_errors").num_rows == 0
    other_disk = with_rows(empty, "batches", [{**batch, "path": "other", "file_name": "0.log", "position": 300}])
    copy = {**batch, "file_name": "0.log", "first_row": 0, "batch_count": 1}
    for shift, damage_count in ((199, 1), (200, 0)):
        new = with_rows(other_disk, "batch_copies", [{**copy, "position_shift": shift}])
        assert history_of(carried, new).table("decode_errors").num_rows == damage_count
    corrupt = damaged(story(), "BAD_CRC", 500)
    assert history_of(carried_of(corrupt), read_on).table("decode_errors").num_rows == 1


def test_damage_that_is_read_again_counts_once() -> None:
    history = damaged(story(), "BAD_CRC", 500)
    again = replace(new_rows(history, history, 50), tables=history.tables)
    assert history_of(carried_of(history), again).table("decode_errors").num_rows == 1


def test_epochs_before_the_log_that_is_left_stay() -> None:
    history = story()
    rows = history.rows("leader_epochs")
    first = {**rows[0], "epoch": 1, "from_offset": 0, "to_offset": 40, "canonical": True, "ended_by": "next_epoch"}
    second = {**first, "epoch": 2, "from_offset": 40, "to_offset": 60, "ended_by": "open", "leader_id": 2}
    carried = carried_of(with_rows(history, "leader_epochs", [first, second]))
    # Kafka has deleted what was before offset 50, and epoch 3 has begun at 55: epoch 2 was cut there.
    left = {**second, "from_offset": 50, "to_offset": 55, "ended_by": "next_epoch", "leader_id": None}
    third = {**second, "epoch": 3, "from_offset": 55, "to_offset": 70}
    new = with_rows(new_rows(history, history, 50), "leader_epochs", [left, third])
    found = {row["epoch"]: row for row in history_of(carried, new).rows("leader_epochs")}
    assert [found[epoch]["from_offset"] for epoch in (1, 2, 3)] == [0, 40, 55]
    assert (found[2]["leader_id"], found[2]["to_offset"], found[2]["ended_by"]) == (2, 55, "next_epoch")
    # Another log begins at 20 with epoch 4: what was at 40 is not on it.
    another = {**second, "epoch": 4, "from_offset": 20, "to_offset": 90}
    new = with_rows(new_rows(history, history, 50), "leader_epochs", [another])
    found = {row["epoch"]: row for row in history_of(carried, new).rows("leader_epochs")}
    assert (found[2]["canonical"], found[2]["ended_by"]) == (False, "truncated")
    assert found[1]["canonical"]
    # In the order that a survey of all disks has: of several epochs a rule names the first.
    assert list(found) == [1, 4, 2]


@pytest.mark.parametrize("is_known", [True, False])
def test_an_epoch_of_which_disks_hold_two_pieces_stays_one_where_all_of_it_was_known(is_known: bool) -> None:
    """One disk stopped at 29, and of the others Kafka has deleted what was before 40."""
    history = story()
    whole = {**history.rows("leader_epochs")[0], "to_offset": 42 if is_known else 35}
    begun = {**whole, "to_offset": 29, "ended_by": "next_epoch"}
    left = {**whole, "from_offset": 40, "to_offset": 44, "leader_id": None, "leader_change_offset": None}
    new = with_rows(new_rows(history, history, 50), "leader_epochs", [begun, left])
    joined = history_of(carried_of(with_rows(history, "leader_epochs", [whole])), new)
    found = [(row["from_offset"], row["to_offset"], row["leader_id"]) for row in joined.rows("leader_epochs")]
    assert found == ([(0, 44, 1)] if is_known else [(0, 35, 1), (40, 44, None)])


def test_the_end_of_an_epoch_that_no_disk_holds_any_more_stays() -> None:
    """A disk stopped at 13 within epoch 1, which ended at 23, and the others begin within epoch 6."""
    history = story()
    first = {**history.rows("leader_epochs")[0], "to_offset": 23, "ended_by": "next_epoch"}
    none = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "leader_id", "voters"))
    without = {**first, **none, "epoch": 2, "ended_by": WITHOUT_LEADER}
    sixth = {**first, "epoch": 6, "from_offset": 23, "to_offset": 52, "ended_by": "open"}
    left = {**sixth, "from_offset": 40, "to_offset": 90, "leader_id": None, "leader_change_offset": None}
    new = with_rows(new_rows(history, history, 50), "leader_epochs", [{**first, "to_offset": 13}, without, left])
    joined = history_of(carried_of(with_rows(history, "leader_epochs", [first, without, sixth])), new)
    found = [(row["epoch"], row["from_offset"], row["to_offset"]) for row in joined.rows("leader_epochs")]
    assert found == [(1, 0, 23), (2, None, None), (6, 23, 90)]


@pytest.mark.parametrize(
    ("end", "replacing", "is_led"), [(40, None, True), (41, None, True), (60, 4, False), (41, 4, False)]
)
def test_an_epoch_whose_record_no_disk_holds_any_more_had_a_leader(
    end: int, replacing: int | None, is_led: bool
) -> None:
    """The disk that held its LeaderChange was replaced by an empty one; or another epoch was written in its place."""
    history = story()
    (first, *_) = history.rows("leader_epochs")
    first = {**first, "to_offset": 40}
    second = {**first, "epoch": 2, "from_offset": 40, "to_offset": 41, "leader_change_offset": 40, "ended_by": "open"}
    third = {**second, "epoch": 3, "from_offset": 41, "to_offset": 42}
    none = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "leader_id", "timestamp_ms"))
    left = [first] if replacing is None else [first, {**second, "epoch": replacing, "to_offset": end}]
    left += [second] if replacing is None and end > 40 else []
    held = {row["epoch"] for row in left}
    new = left + [{**first, **none, "epoch": each, "ended_by": WITHOUT_LEADER} for each in {2, 3} - held]
    carried = carried_of(with_rows(history, "leader_epochs", [first, second, third]))
    for _ in range(2):
        joined = history_of(carried, with_rows(new_rows(history, history, 50), "leader_epochs", new))
        without = {row["epoch"] for row in joined.rows("leader_epochs") if row["from_offset"] is None}
        assert without == (set() if is_led else {2, 3})
        carried = carried_of(joined)


def test_without_a_canonical_log_what_was_known_stays() -> None:
    history = story()
    carried = carried_of(history)
    contradicted = [{**row, "canonical": False} for row in history.rows("leader_epochs")]
    unreplayed = new_rows(history, history, 1_000_000)
    whole = replace(with_rows(unreplayed, "leader_epochs", contradicted), is_replayed=False)
    none = {name: history.table(name).slice(0, 0) for name in ("batches", "decode_errors")}
    joined = with_earlier_captures(carried, whole, none)
    assert joined.is_replayed
    assert joined.table("partition_changes").num_rows == carried.tables["partition_changes"].num_rows
    assert {row["canonical"] for row in joined.rows("leader_epochs")} == {
        row["canonical"] for row in history.rows("leader_epochs")
    }


def test_without_a_canonical_log_epochs_that_disks_persist_follow_those_of_the_known_one() -> None:
    """The disk with the log's end was replaced, and the others went on without electing anybody but once."""
    history = story()
    (first,) = history.rows("leader_epochs")
    nothing = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "leader_id"))
    carried = carried_of(
        with_rows(history, "leader_epochs", [first, {**first, **nothing, "epoch": 2, "ended_by": WITHOUT_LEADER}])
    )
    captures = history.rows("captures")
    states = [{**captures[0], "leader_epoch": 2, "leader_id": 3}, {**captures[1], "leader_epoch": 4, "leader_id": -1}]
    unread = with_rows(new_rows(history, history, 1_000_000), "leader_epochs", [{**first, "canonical": False}])
    joined = history_of(carried, replace(with_rows(unread, "captures", states), is_replayed=False))
    said = [(row["epoch"], row["from_offset"], row["leader_id"]) for row in joined.rows("leader_epochs")]
    assert said == [(1, 0, 1), (2, None, 3), (3, None, None), (4, None, None)]
    assert {row["cluster_id"] for row in joined.rows("leader_epochs")} == {first["cluster_id"]}


def test_snapshots_that_were_compared_before_count() -> None:
    history = replace(story(), snapshot_checks=(SnapshotCheck(20, 1, ("a differs",)),))
    carried = carried_of(history)
    none = {name: history.table(name).slice(0, 0) for name in ("batches", "decode_errors")}
    later = replace(history, snapshot_checks=(SnapshotCheck(40, 1),))
    joined = with_earlier_captures(carried, later, none)
    assert [check.end_offset for check in joined.snapshot_checks or ()] == [20, 40]
    again = with_earlier_captures(carried, history, none)
    assert [check.end_offset for check in again.snapshot_checks or ()] == [20]


@pytest.mark.parametrize("has_canonical_log", [True, False])
def test_a_snapshot_of_the_same_voters_is_no_new_set(has_canonical_log: bool) -> None:
    history = story()
    carried = carried_of(history)
    (first,) = history.rows("voter_sets")
    again = {**first, "from_offset": 39, "from_epoch": 1, "source": "snapshot"}
    new = with_rows(new_rows(history, history, 50), "voter_sets", [again])
    if not has_canonical_log:
        new = with_rows(new, "leader_epochs", [{**row, "canonical": False} for row in new.rows("leader_epochs")])
    joined = history_of(carried, new)
    assert new_survey_rows(carried, joined)["voter_sets"] == []


def test_when_a_set_was_made_stays_known_without_its_checkpoint() -> None:
    history = story()
    (first,) = history.rows("voter_sets")
    carried = carried_of(with_rows(history, "voter_sets", [{**first, "timestamp_ms": 7}]))
    later = with_rows(new_rows(history, history, 50), "voter_sets", [{**first, "timestamp_ms": None}])
    assert [row["timestamp_ms"] for row in history_of(carried, later).rows("voter_sets")] == [7]


def test_a_snapshot_of_other_voters_says_what_they_replaced() -> None:
    history = story()
    carried = carried_of(history)
    (first,) = history.rows("voter_sets")
    fourth = {**first["voters"][0], "voter_id": 4, "directory_id": "directory-of-4"}
    later = {
        **first,
        "from_offset": 39,
        "from_epoch": 1,
        "source": "snapshot",
        "voters": [*first["voters"][1:], fourth],
    }
    joined = history_of(carried, with_rows(new_rows(history, history, 50), "voter_sets", [later]))
    known, new = new_survey_rows(carried, joined)["voter_sets"]
    assert [(row["from_offset"], row["ended_by"]) for row in (known, new)] == [
        (first["from_offset"], "superseded"),
        (39, "in_effect"),
    ]
    assert [voter["voter_id"] for voter in new["added"]] == [4]
    assert [voter["voter_id"] for voter in new["removed"]] == [first["voters"][0]["voter_id"]]


def test_an_epoch_that_proves_to_have_records_replaces_the_one_without() -> None:
    history = story()
    (first,) = history.rows("leader_epochs")
    without = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "voters", "granting_voters"))
    second = {**first, **without, "epoch": 2, "leader_id": 2, "ended_by": WITHOUT_LEADER, "timestamp_ms": None}
    carried = carried_of(with_rows(history, "leader_epochs", [first, second]))
    # No quorum-state file of these disks is of epoch 2 any more.
    unnamed = with_rows(new_rows(history, history, 50), "leader_epochs", [first, {**second, "leader_id": None}])
    joined = history_of(carried, unnamed)
    assert [row["leader_id"] for row in joined.rows("leader_epochs") if row["epoch"] == 2] == [2]
    assert new_survey_rows(carried, joined)["leader_epochs"] == []
    begun = {**first, "epoch": 2, "from_offset": 40, "leader_id": 2}
    joined = history_of(carried, with_rows(new_rows(history, history, 50), "leader_epochs", [first, begun]))
    written = new_survey_rows(carried, joined)["leader_epochs"]
    assert [(row["epoch"], row["from_offset"], row["ended_by"]) for row in written] == [
        (2, 40, first["ended_by"]),
        (2, None, "withdrawn"),
    ]


def test_an_epoch_beyond_a_log_that_parted_within_an_epoch_has_no_record_on_it() -> None:
    """Epoch 1 went on to 40 on a log that had epoch 2 after it, and ends at 20 on the log that there is now."""
    history = story()
    (first,) = history.rows("leader_epochs")
    earlier = [{**first, "to_offset": 40}, {**first, "epoch": 2, "from_offset": 40, "to_offset": 41}]
    carried = carried_of(with_rows(history, "leader_epochs", earlier))
    without = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "leader_id"))
    later = [
        {**first, "to_offset": 20},
        {**first, **without, "epoch": 2, "ended_by": WITHOUT_LEADER},
        {**first, "epoch": 3, "from_offset": 20, "to_offset": 30},
    ]
    joined = history_of(carried, with_rows(new_rows(history, history, 50), "leader_epochs", later))
    said = [(row["epoch"], row["from_offset"], row["canonical"]) for row in joined.rows("leader_epochs")]
    assert said == [(1, 0, True), (2, None, True), (3, 20, True), (2, 40, False)]


def test_epochs_without_a_record_on_a_log_that_is_gone_are_none_of_the_log() -> None:
    """All that was read before was cut off: the log that there is now has epoch 9 from its first record on."""
    history = story()
    (first,) = history.rows("leader_epochs")
    nothing = dict.fromkeys(("from_offset", "to_offset", "leader_change_offset", "leader_id"))
    earlier = [first, *({**first, **nothing, "epoch": epoch, "ended_by": WITHOUT_LEADER} for epoch in (2, 3))]
    carried = carried_of(with_rows(history, "leader_epochs", earlier))
    later = [{**first, "epoch": 9}]
    joined = history_of(carried, with_rows(new_rows(history, history, 50), "leader_epochs", later))
    said = [(row["epoch"], row["canonical"]) for row in joined.rows("leader_epochs")]
    assert said == [(9, True), (1, False)]
    withdrawn = [row for row in new_survey_rows(carried, joined)["leader_epochs"] if row["ended_by"] == "withdrawn"]
    assert [row["epoch"] for row in withdrawn] == [2, 3]
