"""A voter in a later epoch than the majority's leader: two situations, told apart by times or not at all.

Both were played on Kafka 3.9.2, with the same bytes left: a voter that was cut off from a working quorum, and one that
was left alone by a dead majority.
"""

from __future__ import annotations

import pytest

from kraft_audit.findings.answer import answer_lines
from kraft_audit.incidents.folding import fold
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.rules.judging import check
from tests.builders.histories import T0, HistoryBuilder
from tests.builders.log_stories import alone, joined

WROTE_MS = T0 + 40_000
"""When the majority wrote its last record."""


def stood_at(build: HistoryBuilder, time_ms: int | None) -> HistoryBuilder:
    alone(build)
    build.rows["captures"][-1]["quorum_state_ms"] = time_ms
    return build


@pytest.mark.parametrize(
    ("time_ms", "standing", "leader", "epoch"),
    [
        (None, Standing.UNDECIDED, None, 7),
        (WROTE_MS, Standing.UNDECIDED, None, 7),
        (WROTE_MS + 10_000, Standing.UNDECIDED, None, 7),
        (WROTE_MS + 10_001, Standing.NO_LEADER, None, 7),
        (WROTE_MS - 1, Standing.HEALTHY, 1, 1),
    ],
)
def test_times_tell_which_of_two_situations_it_is(
    build: HistoryBuilder, time_ms: int | None, standing: Standing, leader: int | None, epoch: int
) -> None:
    found = quorum_standing(stood_at(build, time_ms).history())
    assert (found.standing, found.leader_id, found.epoch) == (standing, leader, epoch)


def test_both_situations_are_named_and_no_start_leaves_out_the_last_leader(build: HistoryBuilder) -> None:
    alone(build)
    history = build.history()
    found = quorum_standing(history)
    assert "voter 3 is cut off and the others work, or 1 and 2 are dead" in found.reason
    assert "--running" in found.reason
    assert "--gone 1,2" in found.reason
    lines = [line.text for line in answer_lines(history, fold(history, list(check(history, only=["KQ023"]))), "there")]
    starts = [line for line in lines if "start" in line]
    assert starts
    assert all("start 1 there" in line for line in starts)


def test_nodes_that_are_said_to_be_gone_are_dead(build: HistoryBuilder) -> None:
    alone(build)
    build.gone = frozenset({1, 2})
    assert quorum_standing(build.history()).standing is Standing.MAJORITY_LOST


def test_a_record_of_the_later_epoch_wins_over_what_the_majority_names(build: HistoryBuilder) -> None:
    joined(build)
    build.rows["captures"][-1]["leader_id"] = 3
    build.rows["watermarks"][-1].update(canonical_end_offset=50, canonical_epoch=7, high=None)
    found = quorum_standing(build.history())
    assert (found.leader_id, found.epoch) == (3, 7)


def test_a_claim_to_lead_needs_a_record_or_a_majority(build: HistoryBuilder) -> None:
    build.three_nodes()
    build.rows["captures"][2].update(leader_epoch=50, leader_id=3)
    found = quorum_standing(build.history())
    assert (found.standing, found.leader_id) == (Standing.UNDECIDED, None)
    assert "Node 3 says that node 3 leads epoch 50, of which no log holds a record" in found.reason
    build.rows["captures"][1].update(leader_epoch=50, leader_id=3)
    found = quorum_standing(build.history())
    assert (found.standing, found.leader_id) == (Standing.HEALTHY, 3)


def two_rounds(build: HistoryBuilder, *, grew_ms: int, first_epoch: int = 7) -> HistoryBuilder:
    """The same disks twice: voter 3 stood in `first_epoch` before, and the others' log grew by so much since."""
    alone(build)
    first = [dict(row, path=f"day-1/{row['path']}", capture="day-1") for row in build.rows["captures"]]
    for row in first:
        row.update(last_timestamp_ms=row["last_timestamp_ms"] - grew_ms, log_end_offset=40 - grew_ms // 1_000)
    first[-1].update(leader_epoch=first_epoch)
    for row in build.rows["captures"]:
        row.update(capture="day-2", capture_number=1)
    build.rows["captures"] = first + build.rows["captures"]
    return build


@pytest.mark.parametrize(
    ("grew_ms", "first_epoch", "standing", "epoch"),
    [
        (10_000, 7, Standing.UNDECIDED, 7),
        (10_001, 7, Standing.HEALTHY, 1),
        (10_001, 5, Standing.HEALTHY, 1),
        (10_001, 1, Standing.UNDECIDED, 7),  # it did not stand alone yet: the others may have died since
    ],
)
def test_two_rounds_show_that_the_others_work(
    build: HistoryBuilder, grew_ms: int, first_epoch: int, standing: Standing, epoch: int
) -> None:
    history = two_rounds(build, grew_ms=grew_ms, first_epoch=first_epoch).history()
    found = quorum_standing(history)
    assert (found.standing, found.epoch) == (standing, epoch)
    (finding,) = build.raised("KQ026")
    assert ("it is cut off, the others wrote records" in finding.summary) is (standing is Standing.HEALTHY)


@pytest.mark.parametrize(
    ("copied_ms", "standing"),
    [(WROTE_MS, Standing.UNDECIDED), (WROTE_MS - 1, Standing.HEALTHY), (WROTE_MS + 60_000, Standing.UNDECIDED)],
)
def test_a_disk_stood_no_later_than_it_was_copied(build: HistoryBuilder, copied_ms: int, standing: Standing) -> None:
    alone(build)
    build.copied_ms = {("/captures", "node-3"): copied_ms}
    assert quorum_standing(build.history()).standing is standing
