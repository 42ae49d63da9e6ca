"""What `simulate` does with traces: the shortest schedule of a failing seed, its picture, a walk through it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kraft_audit.commands.ending import EXIT_FINDINGS, EXIT_FINE, UsageError
from kraft_audit.text.output import Output

if TYPE_CHECKING:
    from kraft_engine.runs.options import Options
    from kraft_engine.traces.trace import Trace


def shrink_seeds(scenario: str, seeds: range, options: Options, out: Path | None, svg: Path | None) -> int:
    """Shortens the first failing seeds and prints the shortest trace; writes it below `out` too."""
    from kraft_engine.traces.shrinking import shortest

    lines = Output()
    try:
        trace = shortest(scenario, seeds, options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if trace is None:
        lines.text(f"no invariant broke in seeds {seeds.start} to {seeds.stop - 1}")
        return EXIT_FINE
    write_trace(trace, out, svg)
    for line in trace.text().splitlines():
        lines.text(line)
    return EXIT_FINDINGS


def write_trace(trace: Trace, out: Path | None, svg: Path | None) -> None:
    """trace.yaml, trace.svg and the log dirs below `out`; the picture at `svg`."""
    from kraft_engine.traces.diagram import diagram
    from kraft_engine.traces.trace_files import play_trace

    if out is not None:
        play_trace(trace, out)
        (out / "trace.yaml").write_text(trace.text(), encoding="utf-8")
        svg = svg or out / "trace.svg"
    if svg is not None:
        svg.write_text(diagram(trace), encoding="utf-8")


def trace_of(scenario: str, seed: int, options: Options) -> Trace:
    """The trace of a file, or of a random run of a quorum. Raises UsageError where there is none."""
    from kraft_engine.traces.shrinking import record_all
    from kraft_engine.traces.trace_files import is_trace_file, read_trace

    try:
        return read_trace(Path(scenario)) if is_trace_file(scenario) else record_all(scenario, seed, options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def step_through(trace: Trace) -> int:
    """Walks through the trace in this terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--step needs a terminal")
    from kraft_engine.traces.stepper import Stepper
    from kraft_engine.traces.terminal import run

    run(Stepper(trace))
    return EXIT_FINE


def play_file(trace: Trace, out: Path) -> int:
    """Plays a trace file and writes the log dirs that it leaves. EXIT_FINDINGS where an invariant breaks."""
    from kraft_engine.traces.trace_files import play_trace

    lines = Output()
    result = play_trace(trace, out)
    lines.text(f"{result.scenario}: {result.event_count} events, committed to {result.committed_offset}, below {out}")
    if result.violation:
        lines.text(f"INVARIANT BROKEN {result.violation}")
    return EXIT_FINDINGS if result.violation else EXIT_FINE
