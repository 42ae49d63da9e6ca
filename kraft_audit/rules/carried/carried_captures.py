"""What rules need of the captures that were judged: which rounds, watermarks and transaction marks are carried.

A round is carried whole or not at all: rules compare the disks of one round. Those that are carried: the newest two,
what is newest of each disk, what the evidence of open findings names, and where a change of the voters was first seen
committed, or first seen open. Their number grows with disks, epochs, voter sets and open findings, not with the hours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import capture_time, newest_captures, replica_end, watermark_order
from kraft_audit.rules.columns.log_batches import log_batches
from kraft_audit.rules.columns.voter_sets import changes
from kraft_audit.rules.families.lost_logs import counted_watermark
from kraft_audit.rules.rule_model import Finding, Scope

MARKS_KEPT: Final = 16
"""Of the newest records that begin or end a transaction: the last one below what is committed says what is open."""
EVIDENCE_NAMES_CAPTURES: Final = frozenset({Scope.VOTERS, Scope.LOG, Scope.CLUSTER})
"""Findings of these scopes may rest on captures, which their evidence names."""
_Moment = tuple[int, int, str]


def names_captures(finding: Finding) -> bool:
    """Whether the evidence of a finding says which captures are to be carried for it."""
    return finding.scope in EVIDENCE_NAMES_CAPTURES


def carried_watermarks(history: ClusterHistory, open_findings: Iterable[Finding]) -> list[int]:
    """The rows of `watermarks` that are carried."""
    rows = history.rows("watermarks")
    order = sorted(range(len(rows)), key=lambda number: watermark_order(rows[number]))
    carried = set(order[-2:])
    for known in (order, order[:-1]):
        # The first that proves the most, of each epoch and of all: what it proves must not be taken back.
        best: dict[int | None, int] = {}
        for number in known:
            for epoch in (rows[number]["low_epoch"], None):
                if epoch not in best or rows[number]["low"] > rows[best[epoch]]["low"]:
                    best[epoch] = number
        carried.update(best.values())
    times = {fact.timestamp_ms for each in open_findings if names_captures(each) for fact in each.evidence}
    times |= {each.from_ms for each in open_findings if names_captures(each)}
    carried.update(n for n in order if {rows[n]["read_from_ms"], rows[n]["read_to_ms"]} & (times - {None}))
    for capture in newest_captures(history):
        counted = counted_watermark(history, capture)
        carried.update(number for number in order if rows[number] is counted)
    for end in (each.from_offset for each in open_findings if each.rule == "KQ012"):
        carried.update([n for n in order if None not in (rows[n]["high"], end) and rows[n]["high"] < end][:2])
    carried.update(_deciding(history, [rows[number] for number in order], order))
    return sorted(carried)


def _deciding(history: ClusterHistory, rows: Sequence[TableRow], numbers: Sequence[int]) -> Iterator[int]:
    """The first watermarks that show of a change of the voters, and of the record before it, what was committed."""
    voter_changes = changes(history)
    led = {row["epoch"]: row["leader_change_offset"] for row in history.rows("leader_epochs")}
    pairs = {(first.offset, second.offset, second.row["from_epoch"]) for first, second in pairwise(voter_changes)}
    canonical = [change for change in voter_changes if change.row["canonical"]]
    pairs |= {(first.offset, second.offset, second.row["from_epoch"]) for first, second in pairwise(canonical)}
    starts = ((change, led.get(change.row["from_epoch"])) for change in voter_changes)
    pairs |= {(start, change.offset, change.row["from_epoch"]) for change, start in starts if start is not None}
    for offset, when, epoch in sorted(pairs):
        is_held = [_holds(row, when, epoch) for row in rows]
        firsts = (
            is_held,
            [row["low"] > offset and _ends_before(row, when) for row in rows],
            [row["low"] > offset for row in rows],
            [row["low"] > when for row in rows],
        )
        yield from (numbers[shown.index(True)] for shown in firsts if True in shown)
        excluded = [n for n, row in enumerate(rows) if row["high"] is not None and row["high"] <= offset]
        yield from (numbers[n] for n in excluded[:1])
        if True in is_held:
            yield from (numbers[n] for n in [n for n in excluded if n >= is_held.index(True)][:2])


def _holds(row: TableRow, offset: int, epoch: int) -> bool:
    return (
        row["canonical_end_offset"] is not None
        and row["canonical_end_offset"] > offset
        and (row["canonical_epoch"] >= epoch)
    )


def _ends_before(row: TableRow, offset: int) -> bool:
    return row["canonical_end_offset"] is not None and row["canonical_end_offset"] <= offset


def carried_captures(
    history: ClusterHistory, open_findings: Iterable[Finding], watermarks: Iterable[TableRow]
) -> list[int]:
    """The rows of `captures` that are carried; `watermarks` are those that are."""
    rows = history.rows("captures")
    order = sorted(range(len(rows)), key=lambda number: capture_time(rows[number]))
    moments: dict[_Moment, int] = {}
    for number in order:
        moments.setdefault(capture_time(rows[number]), number)
    carried: set[_Moment] = set(list(moments)[-2:])
    carried |= {capture_time(rows[number]) for number in _newest_of_each(history, rows, order)}
    named = {
        (fact.node_id, fact.timestamp_ms) for each in open_findings if names_captures(each) for fact in each.evidence
    }
    begins = {each.from_ms for each in open_findings if names_captures(each)} - {None}
    of_watermarks = {row["capture_number"] for row in watermarks}
    for row in rows:
        is_named = (row["node_id"], row["read_to_ms"]) in named or row["read_to_ms"] in begins
        if is_named or row["capture_number"] in of_watermarks:
            carried.add(capture_time(row))
    return [number for number, row in enumerate(rows) if capture_time(row) in carried]


def _newest_of_each(history: ClusterHistory, rows: Sequence[TableRow], order: Sequence[int]) -> set[int]:
    """The newest row of each disk and node, and those that show what a later one may not."""
    led = {(row["epoch"], row["leader_id"]) for row in history.rows("leader_epochs")}
    begun = {row["from_offset"] for row in history.rows("leader_epochs") if row["leader_change_offset"] is None}
    damaged = {(row["root"], row["path"]) for row in history.rows("decode_errors")}
    newest: dict[tuple[Any, ...], int] = {}
    most: dict[tuple[Any, ...], tuple[int, int]] = {}
    for number in order:
        row = rows[number]
        disk = identity_of(row)
        newest[("disk", *disk)] = newest[("node", row["node_id"])] = number
        if (row["root"], row["path"]) in damaged:
            newest["place", row["root"], row["path"]] = number
        if row["voted_id"] is not None and row["voted_id"] >= 0:
            newest["vote", *disk] = number
        if row.get("rescue") is not None:
            newest["rescue", *disk] = number
        if (row["leader_id"] or -1) >= 0 and (row["leader_epoch"], row["leader_id"]) not in led:
            newest["leader", row["leader_epoch"], row["leader_id"]] = number
        if row["log_start_offset"] in begun:
            newest["start", *disk, row["log_start_offset"]] = number
        if not row["accepted"]:
            newest["refused", row["root"], row["path"]] = number
        for name in ("leader_epoch", "snapshot_end_offset", "last_timestamp_ms"):
            if row[name] is not None and row[name] > most.get((name, *disk), (-1, 0))[0]:
                most[name, *disk] = row[name], number
        if row["snapshot_end_offset"]:
            key = ("snapshot", row["snapshot_epoch"])
            if row["snapshot_end_offset"] > most.get(key, (-1, 0))[0]:
                most[key] = row["snapshot_end_offset"], number
    return {*newest.values(), *(number for _, number in most.values())}


def carried_marks(history: ClusterHistory) -> list[int]:
    """The rows of `records` that are carried: the newest marks of transactions."""
    offsets = history.chunked_table("records")["offset"].to_numpy()
    return sorted(np.argsort(offsets, kind="stable")[-MARKS_KEPT:].tolist())


def taken(table: pa.Table, rows: Collection[int]) -> pa.Table:
    """Some rows of a table, in its order."""
    return table.take(pa.array(sorted(rows), pa.int64()))


def offsets_of_interest(
    history: ClusterHistory,
    open_findings: Iterable[Finding],
    captures: Iterable[Mapping[str, Any]],
    watermarks: Iterable[Mapping[str, Any]],
) -> set[int]:
    """The offsets whose batches stay as they are: what rules ask for by its offset."""
    offsets: set[int | None] = set()
    for row in captures:
        names = ("log_start_offset", "log_end_offset", "reachable_end_offset", "snapshot_end_offset", "held_end_offset")
        offsets |= {row.get(name) for name in names} | {replica_end(dict(row))}
        offsets |= {entry["start_offset"] for entry in row["leader_epoch_checkpoint"] or ()}
    for row in watermarks:
        offsets |= {row["low"], row["high"], row["canonical_end_offset"]}
    for row in history.rows("leader_epochs"):
        offsets |= {row["from_offset"], row["to_offset"], row["leader_change_offset"]}
    offsets |= {row["from_offset"] for row in history.rows("voter_sets")}
    offsets |= {row["base_offset"] for row in history.rows("decode_errors")}
    for each in filter(names_captures, open_findings):
        offsets |= {each.from_offset, each.to_offset, *(fact.offset for fact in each.evidence)}
    offsets |= {offset for gap in history.gaps for offset in gap}
    batches = log_batches(history)
    apart = np.flatnonzero(~batches.is_canonical)
    offsets |= {*batches.base_offset[apart].tolist(), *(batches.last_offset[apart] + 1).tolist()}
    return {offset for offset in offsets if offset is not None and offset >= 0}
