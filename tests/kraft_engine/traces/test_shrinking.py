"""A failing seed shrinks to a short trace that a file holds, and that plays again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.consensus.raft import LEADER
from kraft_engine.runs.options import Options
from kraft_engine.traces.shrinking import quorum_of, record, record_run, replay, shortest
from kraft_engine.traces.trace import Trace, parse_event
from kraft_engine.traces.trace_files import play_trace, read_trace

MUTANTS = (
    ("voter_log_must_be_up_to_date", "random-raft", {"voters": 3}),
    ("restart_remembers_vote", "random-storm", {}),
    ("commit_needs_majority", "random-raft", {"voters": 3}),
    ("one_vote_per_epoch", "random-raft", {"voters": 3}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "scenario", "options"), MUTANTS)
def test_a_failing_seed_shrinks_to_a_few_events(
    rule: str, scenario: str, options: dict[str, int], tmp_path: Path
) -> None:
    trace = shortest(scenario, range(60), Options(without=(rule,), **options))  # type: ignore[arg-type]
    assert trace is not None
    assert len(trace.events) <= 20
    (tmp_path / "trace.yaml").write_text(trace.text())
    again = read_trace(tmp_path / "trace.yaml")
    violation, _ = replay(again)
    assert violation is not None
    assert violation.name == trace.breaks
    for number in range(len(trace.events)):
        without = trace.with_events(trace.events[:number] + trace.events[number + 1 :])
        broken, _ = replay(without)
        assert broken is None or broken.name != trace.breaks, f"event {number} is not needed"
    # With the rule on, the same events do no harm.
    assert replay(Trace(trace.scenario, trace.seed, (), trace.events, quorum=trace.quorum))[0] is None
    assert play_trace(again, tmp_path / "run").captures == ("violation",)


@pytest.mark.parametrize("scenario", ["random-raft", "random-storm", "random-kip856"])
def test_a_recorded_run_plays_again_without_its_clock(scenario: str) -> None:
    recorder, violation = record_run(scenario, 11, Options(events=1_500))
    assert violation is None
    quorum = quorum_of(Trace(scenario, 11, (), tuple(recorder.events)))
    elected: set[int] = set()
    for event in recorder.events:
        quorum.play(event)
        nodes = [process.node for process in quorum.cluster.processes if process.node is not None]
        elected |= {node.epoch for node in nodes if node.role == LEADER}
    assert elected


@pytest.mark.parametrize(
    "text",
    [
        "deliver VoteRequest 1 -> 2 place 2 asking 3",
        "deliver FetchResponse 2 -> 3 again resending 1,4",
        "retry 1 resending 2 answering 3",
        "crash 2 keeping 17",
        "append 1 records 3",
        "add-voter 4 at 1",
        "remove-voter 4 (replaced disk) at 1",
        "ask 3 VoteRequest('c', (3, b'x'), (1, b'y'), 4, 3, 9, False)",
    ],
)
def test_an_event_reads_as_it_was_written(text: str) -> None:
    assert parse_event(text).text() == text


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("trace: random\nevents: []\n", "random-raft"),
        ("trace: random-raft\nevents: [explode 3]\n", "events[0]"),
        ("trace: random-raft\nwithout: [fsync]\nevents: []\n", "fsync"),
        ("trace: model\nwheels: 4\nevents: []\n", "wheels"),
    ],
)
def test_a_file_that_is_no_trace_is_reported(text: str, fact: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.yaml") as raised:
        read_trace(tmp_path / "wrong.yaml")
    assert fact in str(raised.value)


def test_a_run_with_more_than_a_quorum_is_refused() -> None:
    with pytest.raises(ValueError, match="random-storm"):
        record("random", 1, Options())
