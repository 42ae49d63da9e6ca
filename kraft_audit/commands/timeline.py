"""`timeline`: one line an event, one column a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, Defaults, DialectOption, OutputFormat, Path, check_range
from kraft_audit.commands.ending import remark
from kraft_audit.commands.histories import ordered_histories
from kraft_audit.output import Column, Format, Output
from kraft_audit.times import time_text
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.commands.timeline_events import Event

LEGEND: Final = "L leads the metadata log  V voter  o voter no more   + broker in service  F fenced  S shutting down"
NODE_COLUMNS_MAX: Final = 40


def timeline(
    path: Path,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", show_default=False, help="From this offset on.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", show_default=False, help="Below this offset.")
    ] = None,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Tell what happened, an event a line, with the state of every node then: leaders, voters, brokers, partitions.

    Lines stand in the order that the logs prove. What was written and is not on the canonical log stands before the
    records of later epochs, and so does a capture that ends there; a capture's line shows who led and voted in it.

    \b
    Examples:
      kraft-audit timeline samples/divergence
      kraft-audit timeline samples/elr-06-kill-13-last-replica.tgz --from 130
    """
    from kraft_audit.commands.timeline_events import events

    check_range(from_offset, to_offset)
    out = Output(output)
    rows: list[dict[str, Any]] = []
    for number, (history, order) in enumerate(
        ordered_histories(path, dialect=dialect, capture=capture, defaults=default, shows_values=True)
    ):
        everything = list(with_nodes(events(history, order)))
        told = [
            row
            for row in everything
            if (from_offset is None or row["offset"] >= from_offset)
            and (to_offset is None or row["offset"] < to_offset)
        ]
        if everything and not told:
            remark(f"{shown_cluster_id(history.cluster_id)}: no event there; {_what_there_is(everything)}")
        if out.format is Format.TABLE:
            if number:
                out.line("")
            out.title(shown_cluster_id(history.cluster_id))
            _print(out, told)
        rows += [{"cluster_id": history.cluster_id, **row} for row in told]
    if out.format is not Format.TABLE:
        out.rows(rows, [], ("cluster_id", *EVENT_KEYS))


EVENT_KEYS: Final = ("offset", "epoch", "timestamp_ms", "event", "text", "canonical", "nodes")


def with_nodes(found: list[Event]) -> Iterator[dict[str, Any]]:
    """Each told event as a row, with the state of every node after it under `nodes`."""
    controllers: dict[int, str] = {}
    brokers: dict[int, str] = {}
    voters: set[int] = set()
    leader: int | None = None
    for event in found:
        shown = controllers
        if event.kind == "capture":
            if event.controllers:
                shown = {node: event.controllers.get(node, "o") for node in {*controllers, *event.controllers}}
        elif event.canonical:
            if event.kind == "voters":
                voters = {node for node, mark in event.controllers.items() if mark == "V"}
            leaders = [node for node, mark in event.controllers.items() if mark == "L"]
            leader = leaders[0] if leaders else leader
            for node in {*controllers, *event.controllers}:
                controllers[node] = "L" if node == leader else "V" if node in voters else "o"
            brokers.update(event.brokers)
        if event.is_told:
            nodes = sorted(shown.keys() | brokers.keys())
            yield {
                "offset": event.offset,
                "epoch": event.epoch,
                "timestamp_ms": event.timestamp_ms,
                "event": event.kind,
                "text": event.text,
                "canonical": event.canonical,
                "nodes": {str(node): shown.get(node, "") + brokers.get(node, "") for node in nodes},
            }


def _what_there_is(rows: list[dict[str, Any]]) -> str:
    """Which offsets the events are at. A capture stands at an end, which is the offset behind the last record."""
    offsets = [row["offset"] - (row["event"] == "capture") for row in rows]
    last = max(offsets)
    if last < 0:
        return "this log holds no record"
    return f"those of this log are at offsets {max(0, min(offsets))} to {last}"


def _print(out: Output, rows: list[dict[str, Any]]) -> None:
    nodes = sorted({int(node) for row in rows for node in row["nodes"]})
    hidden = len(nodes) - NODE_COLUMNS_MAX
    if hidden > 0:
        out.text(f"{hidden} nodes have no column here: --output json has all")
    columns = [Column("offset", "offset", is_number=True), Column("time", "time (UTC)")]
    columns += [Column(f"node {node}", str(node)) for node in nodes[:NODE_COLUMNS_MAX]]
    columns += [Column("told", "event", is_wide=True)]
    shown = (
        {
            "offset": row["offset"],
            "time": time_text(row["timestamp_ms"]),
            "told": row["text"] if row["canonical"] else f"(not on the canonical log) {row['text']}",
            **{f"node {node}": mark for node, mark in row["nodes"].items()},
        }
        for row in rows
    )
    out.rows(shown, columns)
    out.text(LEGEND)
