"""The log of a picture: how it grew, the branches that parted from it, and when nothing of it was committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.picture.happened import DrawnBranch, LogGrowth, Mark, MarkKind, Stall
from kraft_audit.picture.log_branches import LogBranch, PartedLogs, epoch_rows, led_until, parted_logs
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import committed_end, newest_watermark, watermarks_in_order
from kraft_audit.rules.columns.log_batches import OFF_AFTER_MS, canonical_log
from kraft_audit.rules.columns.quorum_standing import writes_when_idle
from kraft_audit.text.readable import duration, is_time, listed, nouns, offset_span, when

POINTS_MAX: Final = 400
BRANCHES_DRAWN: Final = 8
STALL_MS: Final = 10_000
"""A leader writes a NoOp every 500 ms; an election, or the restart of a node, takes some seconds."""
DATED_TABLES: Final = ("leader_epochs", "voter_sets", "broker_changes", "controller_changes", "feature_changes")
TOLD_TABLES: Final = ("broker_changes", "partition_changes")
DatedEnd = tuple[int, int]
"""(offset after a record, its append time)."""


def committed_part(history: ClusterHistory) -> ClusterHistory:
    """The history with what its committed records say of brokers and partitions, as a lake has it.

    Brokers and clients learn of nothing else. Where most voters were not captured, all of the log is taken.
    """
    end = _told_to(history)
    tables = {
        name: table.filter(pc.less(table["from_offset"], end))
        for name, table in history.tables.items()
        if end is not None and name in TOLD_TABLES and (pc.max(table["from_offset"]).as_py() or 0) >= end
    }
    if not tables:
        return history
    return history.known("committed part", lambda: replace(history, tables={**history.tables, **tables}, _shared={}))


def told_until(history: ClusterHistory, to_ms: int) -> int:
    """The time of the last record that tells of brokers and partitions."""
    end, log = _told_to(history), canonical_log(history) if history.has("batches") else None
    if log is not None and len(log.row):
        last = None if end is None else log.time_at(end - 1)
        return min(int(log.timestamp_ms[-1]) if last is None else last, to_ms)
    rows = [row for row in history.rows("leader_epochs") if row["from_offset"] is not None and row["canonical"]]
    ends = (led_until(history, row) for row in rows if row["leader_id"] is not None)
    return min(max((time for time in ends if time is not None), default=to_ms), to_ms)


def _told_to(history: ClusterHistory) -> int | None:
    """The committed end, where a majority of the voters was captured and a log is canonical; else None."""
    mark = newest_watermark(history)
    if mark is None or mark["canonical_end_offset"] is None:
        return None
    return mark["low"] if len(mark["captured_voters"]) >= majority(len(mark["voters"])) else None


def dated_ends(history: ClusterHistory, log_ends: Sequence[DatedEnd]) -> list[DatedEnd]:
    """What the log itself holds, nothing of what a disk was formatted with or of snapshots.

    Without batches it is `log_ends`, and the records that tables tell of.
    """
    log, parted = (canonical_log(history) if history.has("batches") else None), parted_logs(history)
    if log is not None and len(log.row):
        return list(zip((log.last_offset + 1).tolist(), log.timestamp_ms.tolist(), strict=True))
    if parted is not None and len(parted.held.row):
        ends, times = parted.held.last_offset[parted.stem] + 1, parted.held.timestamp_ms[parted.stem]
        return list(zip(ends.tolist(), times.tolist(), strict=True))
    return [*((end, time) for end, time in log_ends if time > 0 and is_time(time)), *_dated_changes(history)]


def _dated_changes(history: ClusterHistory) -> Iterator[DatedEnd]:
    for name in DATED_TABLES:
        for row in history.rows(name):
            offset, time = row["from_offset"], row["timestamp_ms"]
            is_of_log = row.get("cause") != "snapshot" and row.get("source") in (None, "log")
            if offset is not None and offset >= 0 and is_of_log and time is not None and time > 0 and is_time(time):
                yield offset + 1, time


def log_growth(history: ClusterHistory, dated: Sequence[DatedEnd], to_ms: int) -> LogGrowth:
    """The log's end over time: of very many batches so many that a picture shows them all alike."""
    points = sorted({(offset, time) for offset, time in dated if 0 < time <= to_ms and is_time(time)})
    offsets = np.asarray([offset for offset, _ in points], np.int64)
    times = np.maximum.accumulate(np.asarray([time for _, time in points], np.int64)) if points else offsets
    if len(points) > POINTS_MAX:
        chosen = np.unique(np.linspace(0, len(points) - 1, POINTS_MAX).astype(np.int64))
        offsets, times = offsets[chosen], times[chosen]
    mark = newest_watermark(history)
    is_canonical = mark is None or mark["canonical_end_offset"] is not None
    return LogGrowth(times, offsets, committed_end(history), is_canonical=is_canonical)


def drawn_branches(history: ClusterHistory) -> tuple[DrawnBranch, ...]:
    """The branches by offset."""
    logs = parted_logs(history)
    if logs is None:
        return ()
    committed = _committed_on(history, logs)
    return tuple(_drawn_branch(history, logs, branch, committed.get(n)) for n, branch in enumerate(logs.branches))


def newest_branches(branches: Sequence[DrawnBranch]) -> tuple[DrawnBranch, ...]:
    """As many as a picture has room for, in their order: those with what the log lacks first, then the newest."""
    ordered = sorted(branches, key=lambda branch: (not branch.alarms, -branch.to_ms))[:BRANCHES_DRAWN]
    return tuple(branch for branch in branches if branch in ordered)


def _committed_on(history: ClusterHistory, logs: PartedLogs) -> dict[int, int]:
    """By place of a branch up to where an earlier round proved it committed: if one alone has that round's record."""
    log, committed = canonical_log(history), dict[int, int]()
    for row in watermarks_in_order(history):
        low, epoch = row["low"], row["low_epoch"]
        if not low or log.epoch_at(low - 1) == epoch:
            continue
        having = [n for n, branch in enumerate(logs.branches) if _has_record(logs, branch, low - 1, epoch)]
        if len(having) == 1:
            committed[having[0]] = max(low, committed.get(having[0], 0))
    return committed


def _has_record(logs: PartedLogs, branch: LogBranch, offset: int, epoch: int) -> bool:
    held, rows = logs.held, branch.rows
    there = (held.base_offset[rows] <= offset) & (offset <= held.last_offset[rows])
    return bool((there & (held.leader_epoch[rows] == epoch)).any())


def _drawn_branch(history: ClusterHistory, logs: PartedLogs, branch: LogBranch, committed: int | None) -> DrawnBranch:
    marks = list(_voter_changes(history, branch))
    parts = [offset_span(branch.from_offset, branch.to_offset), nouns("epoch", branch.epochs)]
    leaders = sorted({leader for epoch in branch.epochs for leader in _leaders_on(history, logs, branch, epoch)})
    parts += [f"{nouns('node', leaders)} led"] if leaders else []
    parts += [f"committed through {committed - 1}"] if committed is not None else []
    parts += [mark.text for mark in marks]
    if branch.cut_from is not None:
        text = f"cut off: {offset_span(branch.cut_from, branch.to_offset)} are on no disk any more that was captured"
        marks.append(Mark(MarkKind.CUT, branch.to_ms, text))
    return DrawnBranch(
        branch.from_offset,
        branch.to_offset,
        branch.from_ms,
        branch.to_ms,
        branch.parted_ms,
        committed,
        ", ".join(parts),
        _where_now(branch),
        tuple(marks),
    )


def _where_now(branch: LogBranch) -> str:
    nodes = sorted({identity[0] for identity in branch.holders if identity[0] >= 0})
    if branch.cut_from == branch.from_offset:
        return "cut off"
    if branch.cut_from is not None:
        return f"cut at {branch.cut_from}"
    return f"on {nouns('node', nodes)}" if 0 < len(nodes) <= 3 else f"on {len(branch.holders)} disks"


def _leaders_on(history: ClusterHistory, logs: PartedLogs, branch: LogBranch, epoch: int) -> set[int]:
    """Who led an epoch of a branch, where that is told."""
    rows = epoch_rows(history, epoch)
    number = logs.branches.index(branch)
    return {row["leader_id"] for row in rows if row["leader_id"] is not None and number in logs.led_on(row, rows)}


def _voter_changes(history: ClusterHistory, branch: LogBranch) -> Iterator[Mark]:
    """Voters that records of a branch alone added or removed."""
    for row in history.rows("voter_sets"):
        is_on = branch.from_offset <= row["from_offset"] < branch.to_offset and row["from_epoch"] in branch.epochs
        if row["canonical"] or not is_on or row["source"] != "log" or row["timestamp_ms"] is None:
            continue
        for kind, verb in ((MarkKind.ADDED, "added"), (MarkKind.REMOVED, "removed")):
            if ids := sorted({voter["voter_id"] for voter in row[verb]}):
                yield Mark(kind, row["timestamp_ms"], f"voter {listed(ids)} {verb}")


def stalls(
    history: ClusterHistory, incidents: Sequence[TableRow], branches: Sequence[DrawnBranch], to_ms: int
) -> tuple[Stall, ...]:
    """When nothing was committed: the log has no record of that time, or those that it has were not committed."""
    leaderless = [
        (row["from_ms"], row["to_ms"])
        for row in incidents
        if row["kind"] == IncidentKind.NO_LEADER and row["from_ms"] is not None and row["to_ms"] is not None
    ]
    spans = sorted({*leaderless, *_gaps(history, branches)})
    found = [
        Stall(begin, end, f"nothing committed for {duration(end - begin)}")
        for place, (begin, end) in enumerate(spans)
        if not any(other[0] <= begin and end <= other[1] for other in (*spans[:place], *spans[place + 1 :]))
    ]
    since = _last_stall(history, incidents)
    if since is not None and since < to_ms:
        found.append(Stall(since, None, f"nothing committed since {when(since, since)}"))
    return tuple(found)


def _gaps(history: ClusterHistory, branches: Sequence[DrawnBranch]) -> Iterator[tuple[int, int]]:
    """Steps of the canonical log over which a branch was written, or that end with another epoch: leaders write on
    when they are idle.

    Within an epoch nothing tells a stall from an idle leader that writes no NoOp, and nodes that wrote nothing for very
    long were off.
    """
    log = canonical_log(history) if history.has("batches") else None
    if log is None or len(log.row) < 2:
        return
    times = np.maximum.accumulate(log.timestamp_ms)
    is_idle_written = writes_when_idle(history)
    for place in np.flatnonzero(np.diff(times) >= STALL_MS).tolist():
        begin, end = int(times[place]), int(times[place + 1])
        has_branch = any(begin < branch.to_ms and branch.from_ms < end for branch in branches)
        is_elected = log.leader_epoch[place] != log.leader_epoch[place + 1]
        if has_branch or (is_elected and is_idle_written and end - begin < OFF_AFTER_MS):
            yield begin, end


def _last_stall(history: ClusterHistory, incidents: Sequence[TableRow]) -> int | None:
    """Since when nothing is committed: as an open incident of the quorum says, or the bounds of what is committed."""
    for row in incidents:
        if row["kind"] == IncidentKind.QUORUM and row["is_open"] and row["from_ms"] is not None:
            return int(row["from_ms"])
    mark, log = newest_watermark(history), canonical_log(history) if history.has("batches") else None
    if mark is None or log is None or mark["high"] is None or mark["high"] > mark["low"] or not len(log.row):
        return None
    since = log.time_at(mark["low"] - 1)
    is_long = since is not None and int(log.timestamp_ms[-1]) - since >= STALL_MS
    return since if is_long else None
