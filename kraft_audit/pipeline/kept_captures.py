"""Which captures and watermarks the rules still need once they have been judged.

A round of captures is kept whole or not at all, as rules compare the disks of one round. Kept are the newest two
rounds, what is newest of each disk, what the evidence of open findings names, and where a change of the voters was
first seen committed, or first seen open. Their number grows with disks, epochs, voter sets and open findings, not with
the hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import capture_time, newest_captures, watermark_order
from kraft_audit.rules.columns.voter_sets import changes
from kraft_audit.rules.families.lost_logs import counted_watermark
from kraft_audit.rules.rule_model import Finding, Scope

EVIDENCE_NAMES_CAPTURES: Final = frozenset({Scope.VOTERS, Scope.LOG, Scope.CLUSTER})
"""Findings of these scopes may rest on captures, which their evidence names."""
_Moment = tuple[int, int, str]


def names_captures(finding: Finding) -> bool:
    """Whether the evidence of a finding says which captures are to be kept for it."""
    return finding.scope in EVIDENCE_NAMES_CAPTURES


def kept_watermarks(history: ClusterHistory, open_findings: Iterable[Finding]) -> list[int]:
    """The rows of `watermarks` that are kept."""
    rows = history.rows("watermarks")
    order = sorted(range(len(rows)), key=lambda number: watermark_order(rows[number]))
    kept = set(order[-2:])
    for known in (order, order[:-1]):
        # The first that proves the most, of each epoch and of all: what it proves must not be taken back.
        best: dict[int | None, int] = {}
        for number in known:
            for epoch in (rows[number]["low_epoch"], None):
                if epoch not in best or rows[number]["low"] > rows[best[epoch]]["low"]:
                    best[epoch] = number
        kept.update(best.values())
    times = {fact.timestamp_ms for each in open_findings if names_captures(each) for fact in each.evidence}
    times |= {each.from_ms for each in open_findings if names_captures(each)}
    kept.update(n for n in order if {rows[n]["read_from_ms"], rows[n]["read_to_ms"]} & (times - {None}))
    for capture in newest_captures(history):
        counted = counted_watermark(history, capture)
        kept.update(number for number in order if rows[number] is counted)
    for end in (each.from_offset for each in open_findings if each.rule == "KQ012"):
        kept.update([n for n in order if None not in (rows[n]["high"], end) and rows[n]["high"] < end][:2])
    kept.update(_deciding(history, [rows[number] for number in order], order))
    return sorted(kept)


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


def kept_captures(
    history: ClusterHistory, open_findings: Iterable[Finding], watermarks: Iterable[TableRow]
) -> list[int]:
    """The rows of `captures` that are kept; `watermarks` are those that are."""
    rows = history.rows("captures")
    order = sorted(range(len(rows)), key=lambda number: capture_time(rows[number]))
    moments: dict[_Moment, int] = {}
    for number in order:
        moments.setdefault(capture_time(rows[number]), number)
    kept: set[_Moment] = set(list(moments)[-2:])
    kept |= {capture_time(rows[number]) for number in _newest_of_each(history, rows, order)}
    named = {
        (fact.node_id, fact.timestamp_ms) for each in open_findings if names_captures(each) for fact in each.evidence
    }
    begins = {each.from_ms for each in open_findings if names_captures(each)} - {None}
    of_watermarks = {row["capture_number"] for row in watermarks}
    for row in rows:
        is_named = (row["node_id"], row["read_to_ms"]) in named or row["read_to_ms"] in begins
        if is_named or row["capture_number"] in of_watermarks:
            kept.add(capture_time(row))
    return [number for number, row in enumerate(rows) if capture_time(row) in kept]


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
