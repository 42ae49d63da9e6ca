"""A failing seed shrinks to a short trace that a file holds, that plays again, and that a picture shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kraft_engine.runs.options import Options
from kraft_engine.traces.diagram import PAGE_HEIGHT, PAGE_WIDTH, diagram
from kraft_engine.traces.playback import Playback
from kraft_engine.traces.shrinking import record, record_all, replay, shortest
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
    picture = ElementTree.fromstring(diagram(trace))  # noqa: S314 - our own
    assert int(picture.attrib["width"]) <= PAGE_WIDTH
    assert int(picture.attrib["height"]) <= PAGE_HEIGHT
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


@pytest.mark.slow
def test_the_picture_says_what_happens() -> None:
    trace = shortest("random-raft", range(60), Options(without=("voter_log_must_be_up_to_date",), voters=3))
    assert trace is not None
    picture = ElementTree.fromstring(diagram(trace))  # noqa: S314 - our own
    texts = [element.text or "" for element in picture.iter() if element.tag.endswith("text")]
    for number in range(1, len(trace.events) + 1):
        assert any(text.startswith(f"{number}. ") for text in texts)
    assert {f"node {node}" for node in (1, 2, 3)} <= set(texts)
    assert any("leads epoch 2" in text for text in texts)
    arrows = [element for element in picture.iter() if element.attrib.get("marker-end")]
    assert len(arrows) == sum(event.kind == "deliver" for event in trace.events)


@pytest.mark.parametrize("scenario", ["random-raft", "random-storm", "random-kip856"])
def test_a_recorded_run_plays_again_without_its_clock(scenario: str) -> None:
    trace = record_all(scenario, 11, Options(events=1_500))
    assert trace.breaks == ""
    playback = Playback(trace)
    elected: set[int] = set()
    for event in trace.events:
        elected |= {view.epoch for view in playback.play(event).nodes if view.role == "leader"}
    assert elected
    assert playback.violation == ""


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
