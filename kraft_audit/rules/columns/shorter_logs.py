"""Logs that are shorter than they were, as the files beside them say (`reached_end`), and what that leaves open."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kraft_audit.capture.reached_end import ReachedEnd, shorter_than_it_was
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import is_emptied, newest_captures, newest_round, replica_end
from kraft_audit.rules.columns.unheld_records import WAITS_AFTER_MS
from kraft_audit.text.readable import listed, nouns


@dataclass(frozen=True, slots=True)
class ShorterLog:
    """A captured log that ends at `end_offset`, exclusive, and what says that it had gone further."""

    row: TableRow
    end_offset: int
    reached: ReachedEnd


@once_per_history
def shorter_logs(history: ClusterHistory) -> list[ShorterLog]:
    """The newest captured logs that are shorter than they were, one for each disk."""
    return _shorter(newest_captures(history))


def shorter_reason(history: ClusterHistory) -> str | None:
    """Why nothing can be said of the quorum: a disk once held more than any log; None where none did."""
    end_offset, beyond = _beyond_all_logs(history)
    if not beyond:
        return None
    furthest = max((each.reached for each in beyond), key=lambda reached: reached.offset)
    alike = {each.row["node_id"] for each in beyond if each.reached == furthest} - {None}
    said = furthest.text(nouns("node", sorted(alike)) if alike else None)
    return (
        f"the logs are older than they were: {said}, and no log goes beyond offset {end_offset - 1}. What came after "
        "is not in these copies"
    )


def copy_again(history: ClusterHistory) -> str | None:
    """What to do where every log ends before an offset that a disk once held."""
    end_offset, beyond = _beyond_all_logs(history)
    if not beyond:
        return None
    nodes = listed(sorted({each.row["node_id"] for each in beyond if each.row["node_id"] is not None}))
    return (
        f"Copy __cluster_metadata-0 of {nodes} again, every *.log of it: a segment may be missing from the copy. If it "
        f"is not on the disks either, look for a copy that goes beyond offset {end_offset - 1}. Start no node "
        "from this state."
    )


def _beyond_all_logs(history: ClusterHistory) -> tuple[int, list[ShorterLog]]:
    """Where the longest log of the newest round ends, and the logs that once went on to beyond that."""
    rows = newest_round(history)
    end_offset = max((row["log_end_offset"] or 0 for row in rows), default=0)
    return end_offset, [each for each in _shorter(rows) if each.reached.offset > end_offset]


def _shorter(rows: Iterable[TableRow]) -> list[ShorterLog]:
    found = ((row, shorter_than_it_was(row)) for row in rows if not is_emptied(row))
    return [ShorterLog(row, row["log_end_offset"], reached) for row, reached in found if reached is not None]


def behind_a_snapshot(history: ClusterHistory, rows: Collection[TableRow], voters: Collection[int]) -> str | None:
    """Why the logs show an earlier time than a snapshot that a minority has: it proves records that no log reaches.

    None where a majority of the voters has it, or where it is of the epoch of the logs and hardly newer: copies of
    nodes that run differ so far.
    """
    newest = max(rows, key=lambda row: row["snapshot_end_offset"] or 0, default=None)
    end = 0 if newest is None else newest["snapshot_end_offset"] or 0
    ends = {row["node_id"]: replica_end(row) for row in rows if row["node_id"] in voters}
    lagging = sorted(node for node, own in ends.items() if own < end)
    log_end = max((row["log_end_offset"] or 0 for row in rows), default=0)
    if newest is None or log_end >= end or len(ends) - len(lagging) >= majority(len(voters)) or not lagging:
        return None
    written = [row["last_timestamp_ms"] for row in rows if row["last_timestamp_ms"] is not None]
    time_ms = history.snapshot_times_ms.get(end)
    is_near = time_ms is not None and bool(written) and time_ms - max(written) <= WAITS_AFTER_MS
    last_epoch = max((row["last_epoch"] for row in rows if row["last_epoch"] is not None), default=-1)
    if is_near and newest["snapshot_epoch"] <= last_epoch:
        return None
    return (
        f"a snapshot of node {newest['node_id']} proves offset {end - 1} committed (epoch {newest['snapshot_epoch']}), "
        f"and {nouns('voter', lagging)} end at {log_end} or before: their copies are older, or their disks lost "
        f"records. Copy {nouns('voter', lagging)} again"
    )
