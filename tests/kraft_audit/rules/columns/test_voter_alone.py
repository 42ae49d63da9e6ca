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
