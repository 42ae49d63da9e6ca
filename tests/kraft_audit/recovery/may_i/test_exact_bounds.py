"""The answers about controllers exactly at a bound, and one off it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraft_audit.quorum.quorum_evidence import EpochRun, LeaderStart, LogChain, PersistedState
from kraft_audit.quorum.voter_history import Voter, VoterSet
from kraft_audit.recovery.may_i.controller_permission import NEAR_RECORDS, controller_permission
from kraft_audit.recovery.may_i.electorate import VoterDisk
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.start_safety import Election, SecondLeader, StartSafety
from tests.builders.histories import HistoryBuilder, directory

LOW = 2_000
EPOCH = 5
IDS = (1, 2, 3)
VOTERS = VoterSet(-1, 0, None, "bootstrap", 1, tuple(Voter(node, directory(node)) for node in IDS))


def disk(node: int, end: int = LOW, state: PersistedState | None = None, forgotten_to: int = -1) -> VoterDisk:
    """A voter's disk, which holds the log of one epoch below `end`."""
    state = state or PersistedState(EPOCH, leader_id=1)
    return VoterDisk(node, directory(node), (EPOCH, end), end, (VOTERS,), state, forgotten_to)


def quorum(
    disks: Mapping[int, VoterDisk] | None = None,
    *,
    leader_change: int = 0,
    stood: Mapping[int, frozenset[int]] | None = None,
) -> StartSafety:
    """Three voters at rest, with these disks in the place of equal ones; node 1 leads, and all is committed."""
    chain = LogChain((EpochRun(EPOCH, 0, LOW),), {EPOCH: LeaderStart(EPOCH, leader_change, 1)}, (VOTERS,))
    all_disks = {node: disk(node) for node in IDS} | dict(disks or {})
    return StartSafety(tuple(all_disks.values()), chain, LOW, LOW, stood or {EPOCH: frozenset({1})})


def answer(action: Action, node: int, safety: StartSafety) -> Permission:
    found = controller_permission(
        Question(action, node, "there"), safety, None, HistoryBuilder().voters(*IDS).history()
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("lag", "verdict"), [(0, Verdict.YES), (NEAR_RECORDS, Verdict.YES), (NEAR_RECORDS + 1, Verdict.NO)]
)
def test_a_restart_stalls_the_quorum_while_another_voter_lags(lag: int, verdict: Verdict) -> None:
    found = answer(Action.RESTART, 1, quorum({3: disk(3, LOW - lag)}))
    assert found.verdict is verdict
    assert found.reason.startswith("Stall: voters 3 lag") is (verdict is Verdict.NO)


@pytest.mark.parametrize(
    ("leader_change", "verdict"), [(LOW - 1, Verdict.YES), (LOW, Verdict.UNDECIDED), (LOW + 1, Verdict.UNDECIDED)]
)
def test_a_voter_is_removed_by_a_leader_whose_epoch_is_committed(leader_change: int, verdict: Verdict) -> None:
    found = answer(Action.SCALE_IN, 3, quorum(leader_change=leader_change))
    assert found.verdict is verdict
    assert ("not proven committed" in found.reason) is (verdict is Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("epochs", "verdict"),
    [
        ((EPOCH + 1, EPOCH + 1), Verdict.YES),
        ((EPOCH + 1, EPOCH), Verdict.UNDECIDED),
        ((EPOCH, EPOCH), Verdict.UNDECIDED),
    ],
)
def test_a_wiped_voter_votes_again_unless_a_majority_has_passed_its_epoch(
    epochs: tuple[int, int], verdict: Verdict
) -> None:
    """Nobody is known to have stood in its last epoch, in which it may have voted all the same."""
    others = {node: disk(node, state=PersistedState(epoch)) for node, epoch in zip((1, 2), epochs, strict=True)}
    found = answer(Action.WIPE, 3, quorum(others, stood={EPOCH - 1: frozenset({1})}))
    assert found.verdict is verdict
    beyond = sum(epoch > EPOCH for epoch in epochs)
    assert (f"{beyond} of 2 other voters that are needed" in found.reason) is (verdict is Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("state", "can_stand"),
    [
        (PersistedState(EPOCH - 1, leader_id=1, voted_id=1), True),
        (PersistedState(EPOCH, voted_id=2), True),
        (PersistedState(EPOCH, voted_id=1), False),
        (PersistedState(EPOCH, leader_id=1), False),
        (PersistedState(EPOCH), False),
        (PersistedState(EPOCH + 1), False),
    ],
)
def test_who_stands_in_an_epoch_that_another_led(state: PersistedState, can_stand: bool) -> None:
    """Voter 3 forgot its vote and may vote again: for node 2, as far as that can stand in the same epoch."""
    forgetful = VoterDisk(3, directory(3), (EPOCH, LOW), LOW, (), None, EPOCH)
    safety = quorum({2: disk(2, state=state), 3: forgetful})
    found = safety.second_leader([each for each in safety.disks if each.node_id != 1])
    assert found == (SecondLeader(2, 1, (2, 3), EPOCH) if can_stand else None)


@pytest.mark.parametrize(
    ("state", "grants"),
    [
        (PersistedState(EPOCH - 1, leader_id=1, voted_id=1), True),
        (PersistedState(EPOCH), True),
        (PersistedState(EPOCH, voted_id=3), True),
        (PersistedState(EPOCH, voted_id=1), False),
        (PersistedState(EPOCH, leader_id=1), False),
    ],
)
def test_who_votes_for_a_candidate_that_forgot_its_vote(state: PersistedState, grants: bool) -> None:
    """Node 2 goes by no voter set, so it grants votes and stands for none."""
    voter = VoterDisk(2, directory(2), (EPOCH, LOW), LOW, (), state)
    safety = quorum({2: voter, 3: disk(3, forgotten_to=EPOCH)})
    found = safety.second_leader([each for each in safety.disks if each.node_id != 1])
    assert found == (SecondLeader(3, 1, (2, 3), EPOCH) if grants else None)


@pytest.mark.parametrize(
    ("ends", "lost"),
    [
        ((LOW - 1, LOW - 1), Election(2, (2, 3), LOW - 1)),
        ((LOW - 1, LOW - 2), Election(2, (2, 3), LOW - 1)),
        ((LOW - 2, LOW - 1), Election(3, (2, 3), LOW - 1)),
        ((LOW - 1, LOW), None),
    ],
)
def test_a_candidate_lacks_just_the_last_committed_record(ends: tuple[int, int], lost: Election | None) -> None:
    safety = quorum({node: disk(node, end) for node, end in zip((2, 3), ends, strict=True)})
    running = [each for each in safety.disks if each.node_id != 1]
    assert safety.playable(running) == lost
    assert (safety.losing(running) is None) is (lost is None)
