"""Trace files: `simulate trace.yaml` plays one and writes the log dirs that it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kraft_codec.schemas import Dialect
from kraft_engine.runs.chronicle import InvariantViolationError, timeline_text
from kraft_engine.runs.options import Options
from kraft_engine.runs.simulate import RANDOM_KINDS, Simulation
from kraft_engine.scenario_files import ScenarioFileError
from kraft_engine.traces.shrinking import TRACED_SCENARIOS, quorum_of
from kraft_engine.traces.trace import Trace, parse_event
from kraft_engine.world.capturing import Recorder

OWN_KEYS = ("trace", "seed", "without", "breaks", "events")


def is_trace_file(place: str) -> bool:
    """Whether this is a YAML file with the key `trace`."""
    path = Path(place)
    return path.suffix in (".yaml", ".yml") and path.is_file() and "\ntrace:" in "\n" + path.read_text(encoding="utf-8")


def read_trace(path: Path) -> Trace:
    """Raises ScenarioFileError where the file is no trace."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ScenarioFileError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    scenario = str(document.get("trace"))
    if scenario not in (*TRACED_SCENARIOS, "model"):
        raise ScenarioFileError(
            f"{path}: trace: expected one of {', '.join(TRACED_SCENARIOS)} or model, got {scenario!r}"
        )
    lines: list[Any] = document.get("events") or []
    events = []
    for number, line in enumerate(lines):
        try:
            events.append(parse_event(str(line)))
        except ValueError as error:
            raise ScenarioFileError(f"{path}: events[{number}]: {error}") from error
    quorum = tuple((key, value) for key, value in document.items() if key not in OWN_KEYS)
    without = tuple(document.get("without") or ())
    trace = Trace(
        scenario, int(document.get("seed", 0)), without, tuple(events), str(document.get("breaks", "")), "", quorum
    )
    try:
        Options(without=without).switches  # noqa: B018 - an unknown rule is found here
        quorum_of(trace)
    except (TypeError, ValueError) as error:
        raise ScenarioFileError(f"{path}: {error}") from error
    return trace


def play_trace(trace: Trace, out: Path) -> Simulation:
    """Plays the events and writes a capture `end` (`violation` where an invariant breaks), truth and timeline."""
    out.mkdir(parents=True, exist_ok=True)
    quorum = quorum_of(trace)
    dialect = RANDOM_KINDS[trace.scenario][2] if trace.scenario in RANDOM_KINDS else Dialect.KIP853
    recorder = Recorder(out, quorum.cluster, quorum.invariants, dialect=dialect)
    violation = ""
    try:
        for event in trace.events:
            quorum.play(event)
    except InvariantViolationError as error:
        violation = f"{error.name}: {error.detail}"
    recorder.capture("violation" if violation else "end")
    recorder.finish(f"trace of {trace.scenario}")
    (out / "timeline.txt").write_text(timeline_text(quorum.cluster, quorum.invariants), encoding="utf-8")
    return Simulation(
        f"trace of {trace.scenario}",
        trace.seed,
        out,
        tuple(recorder.captures),
        quorum.event_count,
        quorum.invariants.ledger.committed_offset,
        (),
        tuple(quorum.invariants.beyond_model),
        violation,
    )
