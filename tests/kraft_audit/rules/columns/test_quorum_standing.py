"""Where the quorum stands: each standing by the smallest history that shows it, and its near misses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_audit.rules.cluster_history import OperatorWord
from kraft_audit.rules.columns.broker_stops import stopped_brokers
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing, quorum_standing
from tests.builders.histories import T0, HistoryBuilder


def _standing(build: HistoryBuilder) -> Standing:
    return quorum_standing(build.history()).standing


def _in_epoch_two(build: HistoryBuilder, *captured: int, voted: dict[int, int] | None = None) -> HistoryBuilder:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(*captured, to=40).watermark(40, 40, end=40, ids=(1, 2, 3))
    for node_id in captured:
        build.capture(node_id, 40, epoch=2, last_epoch=1, voted_id=(voted or {}).get(node_id, -1))
    return build


def test_a_quorum_with_a_leader_and_a_committed_end_is_healthy(build: HistoryBuilder) -> None:
    standing = quorum_standing(build.three_nodes().history())
    assert standing.standing is Standing.HEALTHY
    assert (standing.leader_id, standing.epoch, standing.committed_to) == (1, 1, 40)
    assert standing.captured == standing.voters == (1, 2, 3)


def test_an_epoch_that_no_captured_voter_leads_is_without_a_leader(build: HistoryBuilder) -> None:
    assert _standing(_in_epoch_two(build, 1, 2, 3)) is Standing.NO_LEADER


@pytest.mark.parametrize(
    ("votes", "standing"),
    [({1: 3}, Standing.UNDECIDED), ({1: 1, 2: 2}, Standing.NO_LEADER), ({}, Standing.NO_LEADER)],
)
def test_a_voter_that_was_not_captured_may_lead_if_votes_suffice(
    build: HistoryBuilder, votes: dict[int, int], standing: Standing
) -> None:
    """Two of three votes are needed: its own, and one that a captured disk shows."""
    assert _standing(_in_epoch_two(build, 1, 2, voted=votes)) is standing


def test_a_leaderless_epoch_after_all_brokers_stopped_in_order_is_rest(build: HistoryBuilder) -> None:
    _in_epoch_two(build, 1, 2, 3).brokers(11, 12)
    build.broker(11, 30, in_controlled_shutdown=True).broker(12, 31, in_controlled_shutdown=True)
    assert _standing(build) is Standing.AT_REST
    assert stopped_brokers(build.history(), (1, 2, 3)) == (11, 12)


def test_an_observer_in_that_epoch_shows_that_a_voter_ran(build: HistoryBuilder) -> None:
    _in_epoch_two(build, 1, 2, 3).brokers(11).broker(11, 30, in_controlled_shutdown=True)
    build.log(11, to=40).capture(11, 40, epoch=2, last_epoch=1)
    assert _standing(build) is Standing.NO_LEADER


def test_a_broker_that_was_fenced_did_not_stop_in_order(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12).broker(11, 30, in_controlled_shutdown=True).broker(12, 31, fenced=True)
    assert stopped_brokers(build.history(), (1, 2, 3)) is None


def test_the_last_broker_on_a_voters_node_needs_no_record_of_its_own_stop(build: HistoryBuilder) -> None:
    """Combined nodes: when 3 and 2 are down there is no majority left that could record the stop of 1."""
    build.three_nodes().brokers(1, 2, 3)
    build.broker(3, 30, in_controlled_shutdown=True).broker(2, 31, in_controlled_shutdown=True)
    assert stopped_brokers(build.history(), (1, 2, 3)) == (3, 2, 1)


def test_records_that_wait_long_are_undecided_in_one_copy(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0, ended_by="open").log(1, to=60).log(2, 3, to=20)
    build.watermark(20, 20, end=60)
    for node_id, end in ((1, 60), (2, 20), (3, 20)):
        build.capture(node_id, end, leader_id=1)
    standing = quorum_standing(build.history())
    assert standing.standing is Standing.UNDECIDED
    assert "2 and 3" in standing.reason


def test_voters_that_are_gone_are_not_missing(build: HistoryBuilder) -> None:
    build.three_nodes().gone = frozenset({3})
    standing = quorum_standing(build.history())
    assert standing.standing is Standing.HEALTHY
    assert standing.missing == ()
    build.gone = frozenset({2, 3})
    assert _standing(build) is Standing.MAJORITY_LOST


def test_without_a_majority_of_disks_nothing_is_judged(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).capture(1, 40).watermark(10, None, end=40)
    standing = quorum_standing(build.history())
    assert standing.standing is Standing.NOT_JUDGED
    assert "voters 2 and 3" in standing.reason


def test_no_record_anywhere_is_an_empty_quorum(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).watermark(0, 0, end=0)
    for node_id in (1, 2, 3):
        build.capture(node_id, 0, epoch=1, last_epoch=None, log_end_offset=None)
    assert _standing(build) is Standing.EMPTY


RUNNING = OperatorWord(is_running=True)


def _running(
    build: HistoryBuilder, quiet_ms: int, *, level: int = 5, pace: int = 1, **capture: object
) -> QuorumStanding:
    """Three nodes that run, as the operator says; their logs were read so long after the last of a batch a second."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).watermark(40, 40, end=40).feature("metadata.version", level)
    for node_id in (1, 2, 3):
        for first in range(0, 40, pace):
            build.batch(node_id, first, first + pace - 1)
        build.capture(node_id, 40, read_from_ms=T0 + 40_000 + quiet_ms, last_timestamp_ms=T0 + 40_000, **capture)
    return quorum_standing(replace(build.history(), operator=RUNNING))


def test_running_nodes_whose_logs_stand_still_have_no_leader(build: HistoryBuilder) -> None:
    """Their disks go on naming the last one; without the operator's word they could as well be copies."""
    standing = _running(build, 60_000)
    assert standing.standing is Standing.NO_LEADER
    assert (standing.leader_id, standing.since_ms) == (1, T0 + 40_000)
    assert "1 min" in standing.reason
    assert quorum_standing(build.history()).standing is Standing.HEALTHY


@pytest.mark.parametrize(
    ("quiet_ms", "more"),
    [(5_000, {}), (60_000, {"level": 4}), (60_000, {"pace": 10}), (60_000, {"medium": "archive"})],
    ids=["just written", "before NoOps", "NoOps are off", "an archive of some time"],
)
def test_a_log_that_need_not_grow_shows_nothing(build: HistoryBuilder, quiet_ms: int, more: dict[str, object]) -> None:
    assert _running(build, quiet_ms, **more).standing is Standing.HEALTHY  # type: ignore[arg-type]


def test_running_nodes_are_not_at_rest(build: HistoryBuilder) -> None:
    _in_epoch_two(build, 1, 2, 3).brokers(11).broker(11, 30, in_controlled_shutdown=True)
    assert _standing(build) is Standing.AT_REST
    assert quorum_standing(replace(build.history(), operator=RUNNING)).standing is Standing.NO_LEADER


def test_an_observer_knows_no_epoch_that_no_voter_persisted(build: HistoryBuilder) -> None:
    """Voters persist an epoch before they answer in it: where none has it, their copies are older."""
    build.three_nodes().log(11, to=40).capture(11, 40, epoch=2, last_epoch=1)
    standing = quorum_standing(build.history())
    assert standing.standing is Standing.UNDECIDED
    assert "node 11 knew epoch 2, which no voter's disk has: copy voters 1, 2 and 3 again" in standing.reason
