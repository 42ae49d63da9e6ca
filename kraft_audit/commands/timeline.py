"""`timeline`: one line an event, one column a node."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import (
    ConfiguredLogs,
    EveryLine,
    FromOffset,
    OutputFormat,
    ToOffset,
    check_range,
    refuse_within,
)
from kraft_audit.commands.authorizer_option import AuthorizerLogs, AuthorizerZone, authored_changes, read_log
from kraft_audit.commands.branch_option import BranchOption, branch_of
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, ShownColumn
from kraft_audit.text.readable import time_text
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.findings.timeline import TimelineEvent

LEGEND: Final = "L leads the metadata log  V voter  o voter no more   + broker in service  F fenced  S shutting down"
NODE_COLUMNS_MAX: Final = 40
LINES_MAX: Final = 200
EVENT_KEYS: Final = ("cluster_id", "offset", "epoch", "timestamp_ms", "event", "text", "canonical", "nodes")


@prints_tables
def timeline(
    logs: ConfiguredLogs,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE", show_default=False, help="Draw the whole history into this new SVG file."
        ),
    ] = None,
    branch: BranchOption = None,
    log_files: AuthorizerLogs = None,
    zone: AuthorizerZone = "UTC",
    show_all: EveryLine = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show what happened, one event per line, with the state of every node at that time.

    Events are in the order that the logs prove. Records outside the canonical log come before the records of later
    epochs. Each capture has a line at the end of its log, which says who led and who voted. Consecutive events of the
    same kind, such as new topics, share a line. A long history shows only its newest 200 lines; --all, --from and --to
    show every line.

    --authorizer-log adds who changed topics, partitions, configs and features. `changes` also says how certain that is.

    \b
    Examples:
      kraft-audit timeline samples/divergence.tgz
      kraft-audit timeline samples/elr-06-kill-13-last-replica.tgz --from 130
      kraft-audit timeline samples/elr-29-stopped.tgz --svg elr-29-stopped.svg
    """
    check_range(from_offset, to_offset)
    remark_on_key()
    if svg is not None:
        if from_offset is not None or to_offset is not None:
            raise UsageError("--svg draws the whole history: leave out --from and --to")
        return _draw(logs, svg, branch)
    from kraft_audit.findings.timeline import with_authors

    log = read_log(log_files, zone)
    results = Results(output, EVENT_KEYS)
    for cluster in results.each_history(logs, branch=branch_of(branch)):
        events = cluster.timeline()
        if log is not None:
            events = with_authors(events, authored_changes(cluster, log))
        shown = [
            event
            for event in events
            if (from_offset is None or event.offset >= from_offset) and (to_offset is None or event.offset < to_offset)
        ]
        if events and not shown:
            remark(f"{cluster.title}: no event in this range; {_what_there_is(events)}")
        results.title(cluster)
        if cluster.branch is not None:
            results.text(cluster.branch.text)
        if results.is_table:
            has_range = from_offset is not None or to_offset is not None
            _print(results, shown if show_all or has_range else _summary(results, shown))
        results.add({"cluster_id": cluster.cluster_id, **asdict(event)} for event in shown)
    return results.end()


def _draw(logs: ConfiguredLogs, target: Path, branch: str | None) -> int:
    """One file for each cluster below PATH: of several, the later ones with a number in the name."""
    refuse_within(target, logs.path, "--svg")
    results = Results(Format.TABLE, is_spaced=False)
    for number, cluster in enumerate(results.each_history(logs, branch=branch_of(branch)), start=1):
        file = target if number == 1 else target.with_stem(f"{target.stem}-{number}")
        drawn = cluster.picture()
        if drawn is None:
            results.text(f"{cluster.title}: no time of its log is known, so nothing is drawn")
            continue
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(drawn)
        except FileExistsError:
            raise UsageError(f"--svg: {file} exists already: choose a new file") from None
        except OSError as problem:
            raise InputError(str(file), f"cannot be written: {problem.strerror}") from None
        results.text(f"{file}: what happened to {cluster.title}")
    return results.end()


def _what_there_is(events: list[TimelineEvent]) -> str:
    """Which offsets the events are at. A capture stands at an end, which is the offset after the last record."""
    offsets = [event.offset - (event.event == "capture") for event in events]
    last = max(offsets)
    if last < 0:
        return "the log holds no record"
    return f"the log has events at offsets {max(0, min(offsets))} to {last}"


def _summary(results: Results, events: list[TimelineEvent]) -> list[TimelineEvent]:
    """Runs of events of one kind as one, and of those the newest."""
    from kraft_audit.findings.timeline import folded_events

    folded = folded_events(events)
    if len(folded) > LINES_MAX:
        results.text(f"{len(folded) - LINES_MAX} earlier lines: --all")
    return folded[-LINES_MAX:]


def _print(results: Results, events: list[TimelineEvent]) -> None:
    nodes = sorted({int(node) for event in events for node in event.nodes})
    hidden = len(nodes) - NODE_COLUMNS_MAX
    if hidden > 0:
        results.text(f"{hidden} nodes have no column here: --output json has all")
    columns = [ShownColumn("offset", "offset"), ShownColumn("time", "time (UTC)")]
    columns += [ShownColumn(f"node {node}", str(node), drop_rank=-node) for node in nodes[:NODE_COLUMNS_MAX]]
    columns += [ShownColumn("text", "event", is_wide=True)]
    rows = (
        {
            "offset": event.offset,
            "time": time_text(event.timestamp_ms),
            "text": event.text if event.canonical else f"(not on the canonical log) {event.text}",
            **{f"node {node}": mark for node, mark in event.nodes.items()},
        }
        for event in events
    )
    results.out.rows(rows, columns)
    results.text(LEGEND)
