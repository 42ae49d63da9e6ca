"""A failing seed, and the shortest trace that still breaks the same invariant (delta debugging, Zeller 2002)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.options import Options
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.simulate import DEFAULT_EVENTS, random_run
from kraft_engine.traces.recording import TraceRecorder
from kraft_engine.traces.trace import Trace, TraceEvent
from kraft_engine.traces.untimed import UntimedQuorum

TRACED_SCENARIOS = ("random-raft", "random-storm", "random-upgrade", "random-kip856", "random-kip642")
PATIENCE_S = 120.0
SHORTEST_OF = 3


def record(scenario: str, seed: int, options: Options) -> Trace | None:
    """Plays a random run of a quorum and records it; None where no invariant breaks.

    Raises ValueError for a scenario whose events are more than those of a quorum.
    """
    recorder, violation = record_run(scenario, seed, options)
    if violation is None:
        return None
    return _trace(scenario, seed, options, recorder, violation.name, violation.detail)


def record_run(scenario: str, seed: int, options: Options) -> tuple[TraceRecorder, InvariantViolationError | None]:
    """Raises ValueError for a scenario whose events are more than those of a quorum."""
    if scenario not in TRACED_SCENARIOS:
        raise ValueError(f"{scenario} has no trace; {', '.join(TRACED_SCENARIOS)} have")
    run = random_run(scenario, seed, options)
    if not isinstance(run, RandomRun):
        raise TypeError(f"{scenario} is no run of a quorum alone")
    recorder = TraceRecorder(run)
    try:
        recorder.run_events(options.events or DEFAULT_EVENTS)
    except InvariantViolationError as violation:
        return recorder, violation
    return recorder, None


def _trace(scenario: str, seed: int, options: Options, recorder: TraceRecorder, name: str, detail: str) -> Trace:
    quorum = tuple((key, getattr(options, key)) for key in ("voters", "static") if getattr(options, key) is not None)
    return Trace(scenario, seed, options.without, tuple(recorder.events), name, detail, quorum)


def quorum_of(trace: Trace) -> UntimedQuorum:
    """The quorum that the trace begins with: formatted, nothing started."""
    if trace.scenario == "model":
        from kraft_engine.models.small_quorum import small_quorum

        return small_quorum(dict(trace.quorum), trace.without)
    run = random_run(trace.scenario, trace.seed, Options(without=trace.without, **dict(trace.quorum)))
    if not isinstance(run, RandomRun):
        raise TypeError(f"{trace.scenario} is no run of a quorum alone")
    return UntimedQuorum(run.cluster, run.invariants)


def replay(trace: Trace) -> tuple[InvariantViolationError | None, tuple[TraceEvent, ...]]:
    """Plays a trace; returns the violation that ends it, and the events that could happen up to there."""
    quorum = quorum_of(trace)
    happened: list[TraceEvent] = []
    for event in trace.events:
        try:
            if quorum.play(event):
                happened.append(event)
        except InvariantViolationError as violation:
            return violation, (*happened, event)
    return None, tuple(happened)


def shrink(trace: Trace, *, patience_s: float = PATIENCE_S, say: Callable[[str], None] = lambda text: None) -> Trace:
    """The trace with every event left out that the violation does not need.

    Raises ValueError where the trace does not break its invariant when it is played without clocks.
    """
    violation, events = replay(trace)
    if violation is None or violation.name != trace.breaks:
        raise ValueError(f"{trace.scenario}, seed {trace.seed}: {trace.breaks} needs the clock: no trace shows it")
    until = time.monotonic() + patience_s
    events = _plain(trace, _minimal(trace, events, until, say))
    violation, events = replay(trace.with_events(events))
    detail = violation.detail if violation is not None else trace.detail
    return Trace(trace.scenario, trace.seed, trace.without, events, trace.breaks, detail, trace.quorum)


def shortest(scenario: str, seeds: range, options: Options) -> Trace | None:
    """The shortest trace of the first failing seeds; None where no invariant breaks.

    Raises ValueError where one breaks and no trace shows it.
    """
    traces: list[Trace] = []
    refusal: ValueError | None = None
    for seed in seeds:
        trace = record(scenario, seed, options)
        if trace is None:
            continue
        try:
            traces.append(shrink(trace))
        except ValueError as error:
            refusal = error
        if len(traces) == SHORTEST_OF:
            break
    if not traces and refusal is not None:
        raise refusal
    return min(traces, key=lambda trace: len(trace.events), default=None)


def _breaks(trace: Trace, events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...] | None:
    """The events that were needed to break the trace's invariant; None where these do not."""
    violation, happened = replay(trace.with_events(events))
    return happened if violation is not None and violation.name == trace.breaks else None


def _minimal(
    trace: Trace, events: tuple[TraceEvent, ...], until: float, say: Callable[[str], None]
) -> tuple[TraceEvent, ...]:
    """Leaves out runs of events, long ones first, until no single one can be left out, nor any pair near the end."""
    length = max(len(events) // 2, 1)
    while time.monotonic() < until:
        removed = False
        start = 0
        while start < len(events) and time.monotonic() < until:
            shorter = _breaks(trace, events[:start] + events[start + length :])
            if shorter is not None and len(shorter) < len(events):
                events, removed = shorter, True
            else:
                start += length
        say(f"{len(events)} events")
        if length == 1 and not removed:
            break
        if not removed or length > len(events):
            length = max(min(length, len(events)) // 2, 1)
    return events


def _plain(trace: Trace, events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    """The events without what they need not say, and with places in place of the recorded run's correlations."""
    events = _placed(trace, events)
    for fields in ({"asks": -1}, {"resends": ()}, {"answers": ()}, {"place": -1}):
        for number in range(-1, len(events)):
            changed = tuple(
                replace(event, **fields) if number in (-1, place) else event for place, event in enumerate(events)
            )
            if changed != events and (shorter := _breaks(trace, changed)) is not None:
                events = shorter
                if number < 0:
                    break
    return events


def _placed(trace: Trace, events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    quorum = quorum_of(trace)
    placed = []
    for event in events:
        place = quorum.place_of(event) if event.kind == "deliver" else -1
        placed.append(replace(event, place=place, correlation=0))
        try:
            quorum.play(event)
        except InvariantViolationError:
            break
    return tuple(placed)
