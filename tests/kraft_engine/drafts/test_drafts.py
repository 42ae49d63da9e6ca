"""The two drafts keep every invariant within the model; KIP-642 without the epoch-commit fix does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft_codec.schemas import Dialect
from kraft_engine.drafts import Kip642CancelRun, Kip642Run, Kip856, Kip856Run
from kraft_engine.invariants.switches import ALL_ON
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.occurrences import occurrences
from kraft_engine.runs.scenario_stage import Stage

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "20"))
EVENT_COUNT = 5_000


@pytest.mark.slow
def test_kip856_replaces_disks_and_loses_nothing() -> None:
    added = removed = 0
    for seed in range(SEED_COUNT):
        run = Kip856Run(seed)
        run.run(EVENT_COUNT)
        for batch in run.invariants.ledger.batches:
            names = [name for name, _, _ in batch.records]
            added += names == ["ADD_VOTER"]
            removed += names == ["REMOVE_VOTER"]
    assert added
    assert removed or SEED_COUNT < 100


@pytest.mark.slow
def test_kip642_moves_to_any_target_one_voter_at_a_time() -> None:
    finished = 0
    for seed in range(SEED_COUNT):
        run = Kip642Run(seed)
        run.run(EVENT_COUNT)
        for batch in run.invariants.ledger.batches:
            for name, _, fields in batch.records:
                finished += name == "VOTER_ASSIGNMENT" and fields["targetVoters"] is None and batch.base_offset > 0
    assert finished


def test_kip642_without_the_epoch_commit_fix_is_unsafe() -> None:
    for seed in range(100):
        try:
            Kip642Run(seed, switches=ALL_ON.without("change_waits_for_epoch_commit")).run(EVENT_COUNT)
        except InvariantViolationError as violation:
            assert violation.name in ("ChangeAfterEpochCommit", "NoUncommittedSetUsedTwice", "LeaderCompleteness")  # noqa: PT017
            return
    raise AssertionError("the bug of single-server changes was not found")


@pytest.mark.slow
def test_kip642_takes_any_target_at_any_time_and_cancels() -> None:
    cancelled = 0
    for seed in range(8):
        run = Kip642CancelRun(seed)
        run.run(EVENT_COUNT)
        cancelled += occurrences(run)["assignment: cancelled"]
    assert cancelled


def test_kip856_says_which_voters_are_gone_and_which_never_were(tmp_path: Path) -> None:
    """VOTER_ALREADY_REMOVED for one that was a voter once, INVALID_REQUEST for one that never was."""
    stage = Stage(4, tmp_path, rules=Kip856(), dialect=Dialect.KIP856)
    stage.settings.pre_vote = False
    stage.invariants.one_voter_per_id = False
    stage.controllers(1, 2, 3, static=True)
    stage.until(lambda: stage.leader().history.last_offset is not None, "the voters' records")
    stage.settle()
    victim = next(node.id for node in stage.cluster.nodes() if node.id != stage.leader().id)
    old = stage.node(victim).directory
    stage.replace_disk(victim)
    stage.until(lambda: stage.caught_up(victim), "the new disk catching up")
    assert stage.add_voter(victim) == ""
    assert stage.remove_voter(victim, old) == ""
    assert stage.remove_voter(victim, old) == "VOTER_ALREADY_REMOVED"
    assert stage.remove_voter(victim, b"never a voter..!") == "INVALID_REQUEST"
    assert stage.add_voter(victim) == "VOTER_ALREADY_ADDED"
