"""Nodes whose controller.quorum.voters differ: up to Kafka 3.7 only voters vote, and only for voters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_engine.consensus.election import handle_vote
from kraft_engine.consensus.epoch_messages import handle_begin_epoch, handle_end_epoch
from kraft_engine.consensus.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INCONSISTENT_VOTER_SET,
    INVALID_REQUEST,
    NONE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraft_engine.consensus.raft import CANDIDATE, FOLLOWER, RaftNode
from kraft_engine.runs.healing import could_elect
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.world.network import Network

Handler = Callable[[RaftNode, int, int, Any], None]
HANDLERS: dict[type, Handler] = {
    VoteRequest: handle_vote,
    BeginQuorumEpochRequest: handle_begin_epoch,
    EndQuorumEpochRequest: handle_end_epoch,
}
REFUSES = [("3.3.2", True), ("3.7.2", True), ("3.8.0", False), ("3.9.2", False)]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Response]]:
    """Every response that is sent, with the slot of who gets it."""
    sent: list[tuple[int, Response]] = []
    send = Network.send

    def watched(network: Network, source: int, destination: int, correlation: int, body: object) -> None:
        if isinstance(body, Response):
            sent.append((destination, body))
        send(network, source, destination, correlation, body)

    monkeypatch.setattr(Network, "send", watched)
    return sent


def with_outsider(release: str, out: Path) -> Stage:
    """A static quorum of 1, 2 and 3, and controller 4, which is configured as the fourth voter and follows them."""
    stage = Stage(3, out, release=release, metadata_version=7)
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.invariants.damage("another controller.quorum.voters", node=4)
    stage.configure_voters((4,), (1, 2, 3, 4))
    stage.start(4)
    stage.until(lambda: stage.node(4).role == FOLLOWER and stage.caught_up(4), "controller 4 catching up")
    return stage


@pytest.mark.parametrize(("release", "is_refused"), REFUSES)
def test_a_candidate_that_the_voters_do_not_know(
    release: str, is_refused: bool, answers: list[tuple[int, Response]], tmp_path: Path
) -> None:
    stage = with_outsider(release, tmp_path)
    leader = stage.leader()
    epoch = leader.epoch
    stage.isolate(4)
    stage.until(lambda: stage.node(4).role == CANDIDATE and stage.node(4).epoch > epoch, "controller 4 standing")
    answers.clear()
    stage.heal()
    stage.run_ms(6_000)
    votes = {
        (answer.error, answer.granted)
        for slot, answer in answers
        if slot == stage.slot(4) and isinstance(answer, VoteResponse)
    }
    others = [stage.node(node_id) for node_id in (1, 2, 3)]
    if is_refused:
        assert votes == {(INCONSISTENT_VOTER_SET, False)}
        assert {(node.epoch, node.leader_id) for node in others} == {(epoch, leader.id)}
        assert stage.node(4).epoch > epoch + 1
    else:
        assert (NONE, True) in votes
        assert {node.leader_id for node in others} == {4}
        assert stage.leader().id == 4


@pytest.mark.parametrize(("release", "is_refused"), REFUSES)
def test_a_voter_that_does_not_know_that_it_is_one(release: str, is_refused: bool, tmp_path: Path) -> None:
    """Of the voters 1, 2 and 3 the last is configured without itself: with one of the others down its vote decides."""
    stage = Stage(3, tmp_path, release=release, metadata_version=7)
    stage.configure_voters((1, 2), (1, 2, 3))
    stage.configure_voters((3,), (1, 2))
    stage.invariants.damage("another controller.quorum.voters", node=3)
    for node_id in (1, 2, 3):
        stage.start(node_id)
    stage.settle()
    first = stage.leader()
    stage.stop(first.id)
    stage.run_ms(20_000)
    assert could_elect(stage.cluster) == (not is_refused)
    assert [node.id for node in stage.leaders()] == ([] if is_refused else [3 - first.id])


def answered(stage: Stage, node_id: int, request: object, answers: list[tuple[int, Response]]) -> tuple[str, int]:
    """The error that the node answers a request with, and its epoch afterwards."""
    answers.clear()
    HANDLERS[type(request)](stage.node(node_id), stage.slot(4), 1, request)
    ((_, answer),) = answers
    return answer.error, stage.node(node_id).epoch


@pytest.mark.parametrize(("release", "error"), [("3.7.2", INCONSISTENT_VOTER_SET), ("3.8.0", NONE)])
def test_each_request_of_an_election_is_refused_alike(
    release: str, error: str, answers: list[tuple[int, Response]], tmp_path: Path
) -> None:
    """Refused, it leaves the receiver's epoch alone; granted, answered or resigned, it is the epoch of all."""
    stage = with_outsider(release, tmp_path)
    leader = stage.leader()
    follower = next(node.id for node in stage.cluster.nodes() if node.id not in (leader.id, 4))
    cluster_id, key, outsider = stage.settings.cluster_id, stage.node(follower).key, stage.node(4)
    for step, request in enumerate(
        (
            VoteRequest(cluster_id, key, outsider.key, leader.epoch + 1, leader.epoch, 99, pre_vote=False),
            BeginQuorumEpochRequest(cluster_id, key, 4, leader.epoch + 2, outsider.endpoint),
            EndQuorumEpochRequest(cluster_id, 4, leader.epoch + 3, (), outsider.endpoint),
        ),
        start=1,
    ):
        epoch = leader.epoch if error else leader.epoch + step
        assert answered(stage, follower, request, answers) == (error, epoch)


def test_what_is_wrong_with_the_request_itself_is_said_first(
    answers: list[tuple[int, Response]], tmp_path: Path
) -> None:
    stage = with_outsider("3.7.2", tmp_path)
    leader = stage.leader()
    receiver, outsider, epoch = leader.key, stage.node(4).key, leader.epoch
    cluster_id = stage.settings.cluster_id
    for request, error in (
        (VoteRequest("another", receiver, outsider, epoch + 1, 0, 0, pre_vote=False), INCONSISTENT_CLUSTER_ID),
        (VoteRequest(cluster_id, receiver, outsider, epoch + 1, epoch + 1, 0, pre_vote=False), INVALID_REQUEST),
        (BeginQuorumEpochRequest(cluster_id, receiver, 4, epoch - 1, stage.node(4).endpoint), FENCED_LEADER_EPOCH),
        (VoteRequest(cluster_id, receiver, outsider, epoch, 0, 0, pre_vote=False), INCONSISTENT_VOTER_SET),
    ):
        assert answered(stage, leader.id, request, answers) == (error, epoch)


def test_a_broker_has_no_vote_before_3_8(answers: list[tuple[int, Response]], tmp_path: Path) -> None:
    for release, error in (("3.7.2", INCONSISTENT_VOTER_SET), ("3.8.0", NONE)):
        stage = Stage(3, tmp_path / release, release=release, metadata_version=7)
        stage.controllers(1, 2, 3, static=True)
        stage.brokers(11)
        broker, candidate = stage.node(11), stage.node(1)
        request = VoteRequest(
            stage.settings.cluster_id, broker.key, candidate.key, broker.epoch + 1, broker.epoch, 10_000, pre_vote=False
        )
        answers.clear()
        handle_vote(broker, stage.slot(1), 1, request)
        ((_, answer),) = answers
        assert isinstance(answer, VoteResponse)
        assert (answer.error, answer.granted) == (error, error == NONE)
