"""Single clauses of the drafts, each by the story that it speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_codec.files.state_files import parse_quorum_state
from kraft_codec.schemas import Dialect
from kraft_engine.consensus.messages import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchResponse,
    KeyedEndQuorumEpochRequest,
)
from kraft_engine.consensus.voter_sets import Voter, VoterSet
from kraft_engine.drafts import Kip642, Kip856
from kraft_engine.drafts.kip642 import ReassignRequest
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.world.network import Network
from kraft_engine.world.world import MS


def kip856_stage(out: Path, seed: int = 4) -> Stage:
    stage = Stage(seed, out, rules=Kip856(), dialect=Dialect.KIP856)
    stage.settings.pre_vote = False
    stage.invariants.one_voter_per_id = False
    stage.controllers(1, 2, 3, static=True)
    stage.until(lambda: stage.leader().history.last_offset is not None, "the voters' records")
    stage.settle()
    return stage


def kip642_stage(out: Path) -> tuple[Stage, int, int, int]:
    """A settled quorum of three: the leader, one that stays, one that a reassignment will remove."""
    stage = Stage(4, out, rules=Kip642(), dialect=Dialect.KIP642)
    stage.settings.pre_vote = False
    # Whoever was cut off asks again before it stands.
    stage.settings.request_timeout_us = 200 * MS
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    leader = stage.leader().id
    stays, removed = (node.id for node in stage.cluster.nodes() if node.id != leader)
    return stage, leader, stays, removed


def remove(stage: Stage, leader: int, stays: int) -> None:
    """Asks for it, and runs until the leader has appended the removal."""
    target = frozenset((leader, stays))
    stage.cluster.ask(stage.slot(leader), ReassignRequest(stage.settings.cluster_id, target))
    stage.until(lambda: set(stage.node(leader).known_voter_ids()) == target, "the removal")


def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, Any]]:
    """What is sent from now on: (source slot, destination slot, body)."""
    seen: list[tuple[int, int, Any]] = []
    send = Network.send

    def watched(network: Network, source: int, destination: int, correlation: int, body: Any) -> None:
        seen.append((source, destination, body))
        send(network, source, destination, correlation, body)

    monkeypatch.setattr(Network, "send", watched)
    return seen


def test_kip856_does_not_start_on_voters_that_are_not_configured(tmp_path: Path) -> None:
    stage = kip856_stage(tmp_path)
    follower = next(node.id for node in stage.cluster.nodes() if node.id != stage.leader().id)
    process = stage.cluster.processes[stage.slot(follower)]
    configured = process.static_voters
    stage.stop(follower)
    process.static_voters = VoterSet(Voter(number) for number in (1, 2, 3, 4) if number != 3)
    stage.start(follower)
    assert process.node is None
    stage.run_ms(500)
    assert process.node is None
    process.static_voters = configured
    stage.start(follower)
    stage.until(lambda: stage.caught_up(follower), "the configured one catching up")


def test_kip856_ends_an_epoch_by_name(tmp_path: Path) -> None:
    """INVALID_REQUEST for another (id, uuid), which then does not stand at once."""
    stage = kip856_stage(tmp_path)
    leader = stage.leader()
    node = next(node for node in stage.cluster.nodes() if node.id != leader.id)
    deadline_us = node.deadline_us
    reported = (stage.settings.cluster_id, leader.id, leader.epoch, (node.key,), leader.endpoint)
    for voter, error in (
        ((node.id, bytes(15) + b"x"), "INVALID_REQUEST"),
        ((leader.id, node.directory), "INVALID_REQUEST"),
    ):
        answer = stage.cluster.ask(node.slot, KeyedEndQuorumEpochRequest(*reported, voter))
        assert stage.cluster.replies[answer].error == error
        assert node.deadline_us == deadline_us
    answer = stage.cluster.ask(node.slot, KeyedEndQuorumEpochRequest(*reported, node.key))
    assert stage.cluster.replies[answer].error == ""
    assert node.deadline_us < deadline_us


@pytest.mark.parametrize("seed", range(6))
def test_kip856_reports_both_voters_of_an_id(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead one is asked in vain, by turns; the living one answers before a new epoch."""
    stage = kip856_stage(tmp_path, seed)
    victim = next(node.id for node in stage.cluster.nodes() if node.id != stage.leader().id)
    stage.replace_disk(victim)
    stage.until(lambda: stage.caught_up(victim), "the new disk catching up")
    assert stage.add_voter(victim) == ""
    stage.settle()
    seen = sent(monkeypatch)
    leader = stage.leader()
    leader.resign()
    leader.poll()
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    requests = [body for _, _, body in seen if isinstance(body, EndQuorumEpochRequest)]
    assert all(isinstance(body, KeyedEndQuorumEpochRequest) for body in requests)
    answers = [body.error for source, _, body in seen
               if isinstance(body, EndQuorumEpochResponse) and source == stage.slot(victim)]  # fmt: skip
    assert answers
    assert answers[-1] == ""


def test_kip642_says_not_follower_when_the_removal_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, leader, stays, removed = kip642_stage(tmp_path)
    stage.isolate(stays)
    remove(stage, leader, stays)
    seen = sent(monkeypatch)

    def refused() -> list[int]:
        return [target for _, target, body in seen if isinstance(body, FetchResponse) and body.error == "NOT_FOLLOWER"]

    stage.until(lambda: stage.caught_up(removed), "the removed one reading of it")
    stage.run_ms(300)
    offset = stage.node(leader).history.last_offset
    assert offset is not None
    assert stage.node(leader).high_watermark <= offset
    assert refused() == []
    stage.heal()
    stage.until(lambda: stage.node(leader).high_watermark > offset, "the removal committed")
    stage.run_ms(600)
    assert refused() == [stage.slot(removed)]
    stage.settle()


def test_kip642_downgrades_a_voter_that_has_not_read_of_its_removal(tmp_path: Path) -> None:
    stage, leader, stays, removed = kip642_stage(tmp_path)
    stage.isolate(removed)
    stage.run_ms(600)
    remove(stage, leader, stays)
    stage.until(lambda: stage.node(leader).history.last_offset < stage.node(leader).high_watermark, "the commit")  # type: ignore[operator]
    assert stage.node(removed).is_voter
    stage.heal()
    stage.until(lambda: not stage.node(removed).is_voter, "the downgrade")
    assert removed in stage.node(removed).known_voter_ids()
    stage.settle()
    assert removed not in stage.node(removed).known_voter_ids()


def test_kip642_stores_voters_when_they_are_committed(tmp_path: Path) -> None:
    stage, leader, stays, removed = kip642_stage(tmp_path)

    def stored(name: str) -> tuple[set[int], int]:
        """CurrentVoters and AppliedOffset in the leader's file."""
        [path] = stage.capture(name, leader).rglob("quorum-state")
        state = parse_quorum_state(path.read_bytes())
        return set(state.current_voters or ()), state.applied_offset

    stage.isolate(stays)
    remove(stage, leader, stays)
    stage.run_ms(300)
    offset = stage.node(leader).history.last_offset
    assert offset is not None
    stage.node(leader).persist()
    voters, applied_offset = stored("uncommitted")
    assert voters == {leader, stays, removed}
    assert applied_offset <= offset
    stage.heal()
    stage.until(lambda: stage.node(leader).high_watermark > offset, "the removal committed")
    assert stored("committed") == ({leader, stays}, offset + 1)


def test_kip642_finds_uncommitted_voters_in_its_log_again(tmp_path: Path) -> None:
    stage, leader, stays, removed = kip642_stage(tmp_path)
    stage.isolate(stays)
    remove(stage, leader, stays)
    stage.cluster.crash(stage.slot(leader), power_cut=False)
    stage.start(leader)
    node = stage.node(leader)
    assert set(node.known_voter_ids()) == {leader, stays}
    state = node.disk.visible_state
    assert state is not None
    assert set(state.voter_ids) == {leader, stays, removed}
