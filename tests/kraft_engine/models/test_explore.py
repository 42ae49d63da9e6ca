"""The small models: complete where they say so, blind to no bug, and their counterexamples play again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.models import spin
from kraft_engine.models.explore import Bounds, Explorer, heal
from kraft_engine.models.small_quorum import freeze, key_of, small_quorum, thaw
from kraft_engine.traces.shrinking import replay
from kraft_engine.traces.trace import parse_event
from kraft_engine.traces.trace_files import play_trace, read_trace


def test_one_voter_is_explored_completely() -> None:
    explored = Explorer(Bounds(voters=1, elections=2, records=2, restarts=1)).run(seconds=60)
    assert explored.complete
    assert explored.violation == ""
    assert explored.ends > 0
    assert ": complete: " in explored.text()


def test_a_search_that_is_cut_short_does_not_say_complete() -> None:
    explored = Explorer(Bounds(voters=3)).run(state_limit=30)
    assert not explored.complete
    assert "NOT complete" in explored.text()


@pytest.mark.slow
def test_two_voters_are_explored_completely() -> None:
    explored = Explorer(Bounds(voters=2)).run(seconds=300)
    assert (explored.complete, explored.violation) == (True, "")
    assert explored.states > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "bounds", "invariants"),
    [
        ("commit_needs_majority", Bounds(elections=1, epochs=0, records=0), {"WatermarkIsCommitted"}),
        ("change_waits_for_epoch_commit", Bounds(voters=2, records=0, changes=1), {"ChangeAfterEpochCommit"}),
    ],
)
def test_a_bug_that_is_switched_on_is_found_and_plays_again(
    rule: str, bounds: Bounds, invariants: set[str], tmp_path: Path
) -> None:
    explored = Explorer(bounds, (rule,), breadth_first=True).run(seconds=300)
    assert explored.trace is not None
    assert explored.trace.breaks in invariants
    (tmp_path / "trace.yaml").write_text(explored.trace.text())
    trace = read_trace(tmp_path / "trace.yaml")
    violation, _ = replay(trace)
    assert violation is not None
    assert violation.name == explored.trace.breaks
    assert play_trace(trace, tmp_path / "run").captures == ("violation",)


def test_a_frozen_state_goes_on_as_the_original() -> None:
    quorum = small_quorum({"voters": 3}, ())
    for text in ("start 1", "start 2", "start 3", "timeout 1", "deliver VoteRequest 1 -> 2"):
        quorum.play(parse_event(text))
    again = thaw(freeze(quorum))
    assert key_of(again) == key_of(quorum)
    for each in (quorum, again):
        each.play(parse_event("deliver VoteResponse 2 -> 1"))
    assert key_of(again) == key_of(quorum)
    leader = again.cluster.leader()
    assert leader is not None
    assert leader.id == 1


REFUSED = (
    "start 1", "start 2", "start 3", "timeout 2", "deliver VoteRequest 2 -> 3", "deliver VoteResponse 3 -> 2",
    "deliver BeginQuorumEpochRequest 2 -> 3", "deliver FetchRequest 3 -> 2", "deliver FetchResponse 2 -> 3",
    "timeout 1", "timeout 1", "deliver VoteRequest 1 -> 2", "deliver VoteResponse 2 -> 1",
    "deliver VoteRequest 1 -> 3", "deliver VoteResponse 3 -> 1",
)  # fmt: skip


def test_a_refused_candidate_stands_again_when_its_timer_ends_and_not_before() -> None:
    """It stood at once, in epoch after epoch, and a search of three voters had no end."""
    quorum = small_quorum({"voters": 3}, ())
    for text in REFUSED:
        assert quorum.play(parse_event(text)), text
    candidate = quorum.node(1)
    assert candidate is not None
    assert (candidate.epoch, candidate.log.end_offset) == (2, 0), "refused by two longer logs"
    assert quorum.play(parse_event("timeout 1"))
    assert candidate.epoch == 3


def test_healing_elects_a_leader_and_notices_where_none_can_be() -> None:
    quorum = small_quorum({"voters": 3}, ())
    for node in (1, 2, 3):
        quorum.play(parse_event(f"start {node}"))
    assert heal(quorum) == ""
    quorum = small_quorum({"voters": 3}, ())
    quorum.play(parse_event("start 1"))
    assert "no leader" in heal(quorum)


NEEDS_SPIN = pytest.mark.skipif(bool(spin.missing()), reason=f"not here: {', '.join(spin.missing())}")


@NEEDS_SPIN
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "defines", "is_broken"),
    [
        ("kip853", ("N=3", "EPOCHS=2", "LEN=3", "CHANGES=1"), False),
        ("kip853", ("N=3", "EPOCHS=2", "LEN=3", "CHANGES=1", "BUG_MAJORITY"), True),
        ("kip966", ("BUG_NO_ELR",), True),
    ],
)
def test_spin_agrees(model: str, defines: tuple[str, ...], is_broken: bool, tmp_path: Path) -> None:
    checked = spin.check(model, defines, tmp_path, seconds=240)
    assert bool(checked.broken) == is_broken
    assert checked.complete != is_broken
