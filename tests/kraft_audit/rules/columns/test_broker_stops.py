"""How a broker left: the same fence in the log, told apart by where the broker's own copy of the log ends."""

from __future__ import annotations

import pytest

from kraft_audit.rules.columns.broker_stops import (
    BURNT_EPOCHS,
    LAST_WORD_MS,
    RAN_ON_MS,
    ROLE_GONE_MS,
    STOP_TAKES_MS,
    LastVoter,
    Stop,
    broker_stops,
    last_voter,
    stopped_brokers,
)
from tests.builders.histories import T0, HistoryBuilder

FENCE = 20
LAST_WORD, RAN_ON, STOP_TAKES = (each // 1000 for each in (LAST_WORD_MS, RAN_ON_MS, STOP_TAKES_MS))
"""In offsets: hand-made logs append one a second."""


def _stops(build: HistoryBuilder) -> list[Stop]:
    return [each.stop for each in broker_stops(build.history())]


def _fenced(build: HistoryBuilder, *, own_end: int | None, end: int) -> HistoryBuilder:
    """Broker 11 of two is fenced at offset 20; its own log ends at `own_end`, the quorum's at `end`."""
    build.three_nodes(end).brokers(11, 12).broker(11, FENCE, fenced=True)
    return build if own_end is None else build.capture(11, own_end)


@pytest.mark.parametrize(
    ("own_end", "end", "stop"),
    [
        (FENCE, 200, Stop.LOST),  # it never read its own fence
        (FENCE + 1, 200, Stop.IDLE),  # it read it and ended
        (FENCE + STOP_TAKES, 200, Stop.IDLE),
        (FENCE + STOP_TAKES + 2, 200, Stop.OPEN),  # it ended, but long after
        (200, 200, Stop.CUT_OFF),  # it reads on
        (200 - LAST_WORD, 200, Stop.CUT_OFF),  # copied a little earlier than the others
        (None, 200, Stop.OPEN),
        (FENCE + LAST_WORD, FENCE + LAST_WORD, Stop.OPEN),  # everything ends there, and broker 12 is there
        (FENCE + 1, FENCE + LAST_WORD, Stop.IDLE),
    ],
)
def test_where_its_own_log_ends_decides(build: HistoryBuilder, own_end: int | None, end: int, stop: Stop) -> None:
    assert _stops(_fenced(build, own_end=own_end, end=end)) == [stop]


def test_a_fence_that_another_incarnation_ends_is_no_freeze(build: HistoryBuilder) -> None:
    build.three_nodes(200).brokers(11, 12)
    build.broker(11, 20, fenced=True).broker(11, 25)
    build.broker(12, 30, fenced=True).broker(12, 40, fenced=True, incarnation_id="y" * 22)
    build.broker(12, 41, incarnation_id="y" * 22)
    build.broker(11, 50, fenced=True, incarnation_id="z" * 22).broker(11, 51, incarnation_id="z" * 22)
    assert _stops(build) == [Stop.FROZEN, Stop.CRASHED, Stop.CRASHED]


@pytest.mark.parametrize(
    ("controller_at", "end", "stop"),
    [
        (30, 30 + LAST_WORD + 2, Stop.ROLE_CHANGED),
        (30, 30 + LAST_WORD + 1, Stop.OPEN),  # its broker may register next
        (10, 200, Stop.OPEN),  # the controller is of the process that had the broker
        (None, 20 + ROLE_GONE_MS // 1000 + 2, Stop.ROLE_CHANGED),
        (None, 20 + ROLE_GONE_MS // 1000 + 1, Stop.OPEN),
    ],
)
def test_a_node_that_runs_on_as_a_controller_gave_up_the_role(
    build: HistoryBuilder, controller_at: int | None, end: int, stop: Stop
) -> None:
    build.three_nodes(end).brokers(3, 11).broker(3, 20, fenced=True)
    if controller_at is not None:
        build.controller(3, controller_at)
    assert _stops(build) == [stop]


def test_a_broker_that_registered_again_gave_up_nothing(build: HistoryBuilder) -> None:
    build.three_nodes(200).brokers(3, 11).broker(3, 20, fenced=True).controller(3, 30)
    build.broker(3, 31, fenced=True, incarnation_id="y" * 22)
    assert _stops(build) == [Stop.CRASHED]


def test_three_that_lead_nothing_stop_in_order(build: HistoryBuilder) -> None:
    build.three_nodes(24).brokers(1, 2, 3)
    for broker in (2, 1, 3):
        build.broker(broker, 20, fenced=True)
    assert stopped_brokers(build.history(), (1, 2, 3)) == (1, 2, 3)


def test_a_log_that_goes_on_was_not_stopped_with_its_brokers(build: HistoryBuilder) -> None:
    build.three_nodes(60).brokers(11, 12)
    for broker in (11, 12):
        build.broker(broker, 20, fenced=True).capture(broker, 20)
    assert _stops(build) == [Stop.LOST, Stop.LOST]
    assert stopped_brokers(build.history(), (1, 2, 3)) is None


def test_a_single_node_writes_its_own_fence_as_it_stops(build: HistoryBuilder) -> None:
    build.voters(1).leader_epoch(1, 1, 0).log(1, to=24).watermark(24, 24, end=24, ids=(1,)).capture(1, 24)
    build.brokers(1).broker(1, 20, fenced=True)
    assert _stops(build) == [Stop.IDLE]
    assert stopped_brokers(build.history(), (1,)) == (1,)


def test_a_single_node_that_starts_again_fences_the_broker_of_its_earlier_process(build: HistoryBuilder) -> None:
    build.voters(1).leader_epoch(1, 1, 0).leader_epoch(2, 1, 20).watermark(24, 24, end=24, ids=(1,), epoch=2)
    build.log(1, to=20).log(1, to=24, start=20, epoch=2).capture(1, 24, epoch=2)
    build.brokers(1).broker(1, 22, fenced=True)
    assert _stops(build) == [Stop.STARTING]


def _combined(build: HistoryBuilder, *, end: int, epoch: int = 1) -> HistoryBuilder:
    """Nodes 3 and 2 stop in order at offsets 18 and 20; the log of node 1 goes on to `end`."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=end).log(2, 3, to=22).watermark(21, end, end=end)
    build.capture(1, end, epoch=epoch, last_epoch=1).capture(2, 22).capture(3, 22)
    build.brokers(1, 2, 3)
    return build.broker(3, 18, in_controlled_shutdown=True).broker(2, 20, in_controlled_shutdown=True)


@pytest.mark.parametrize(
    ("end", "epoch", "ran_on"),
    [
        (22, 1, False),
        (20 + RAN_ON + 1, 1, False),
        (20 + RAN_ON + 2, 1, True),
        (22, 1 + BURNT_EPOCHS, False),
        (22, 2 + BURNT_EPOCHS, True),
    ],
)
def test_the_last_node_of_a_quorum_cannot_write_its_own_stop(
    build: HistoryBuilder, end: int, epoch: int, ran_on: bool
) -> None:
    history = _combined(build, end=end, epoch=epoch).history()
    assert last_voter(history, (1, 2, 3)) == LastVoter(1, (3, 2), T0 + 20_000, ran_on)
    assert stopped_brokers(history, (1, 2, 3)) == (None if ran_on else (3, 2, 1))


def test_what_a_node_without_a_majority_writes_is_no_stop_of_its_broker(build: HistoryBuilder) -> None:
    """Alone it fences its own broker: nobody committed that."""
    _combined(build, end=40).broker(1, 38, fenced=True)
    last = last_voter(build.history(), (1, 2, 3))
    assert last is not None
    assert last.ran_on


def test_with_a_majority_left_nobody_is_last(build: HistoryBuilder) -> None:
    build.three_nodes(60).brokers(1, 2, 3).broker(3, 18, in_controlled_shutdown=True)
    assert last_voter(build.history(), (1, 2, 3)) is None
