"""What captures say of replicas, in the order in which they were taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Evidence

Row = dict[str, Any]


def captures_in_order(history: ClusterHistory) -> list[Row]:
    """The captures of this cluster, oldest first; refused ones (of another cluster) left out."""
    rows = [row for row in history.rows("captures") if row["accepted"]]
    return sorted(rows, key=moment_of)


def moment_of(row: Row) -> tuple[int, int, str]:
    """What orders captures: the plan's time, then the number of the capture within the plan."""
    return row["captured_at_ms"], row["capture_number"], row["capture"]


def moments(history: ClusterHistory) -> Iterator[tuple[list[Row], list[Row]]]:
    """(rows taken at this moment, newest row of each node as of then), oldest moment first."""
    newest: dict[tuple[int | None, str], Row] = {}
    rows = captures_in_order(history)
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and moment_of(rows[end]) == moment_of(rows[start]):
            end += 1
        taken = rows[start:end]
        for row in taken:
            key = (row["node_id"], "") if row["node_id"] is not None else (None, row["path"])
            newest[key] = row
        yield taken, list(newest.values())
        start = end


def newest_captures(history: ClusterHistory) -> list[Row]:
    """The newest capture of each node."""
    found: list[Row] = []
    for _, newest in moments(history):
        found = newest
    return found


def replica_end(row: Row) -> int:
    """Up to where a replica knows the log: its log's end, or its snapshot's where that is further."""
    return max(row["log_end_offset"] or 0, row["snapshot_end_offset"] or 0)


def replica_name(row: Row) -> str:
    """A replica as people call it."""
    if row["node_id"] is None:
        return f"replica at {row['path'] or row['root']}"
    return f"node {row['node_id']}"


def capture_evidence(row: Row, text: str, **more: Any) -> Evidence:
    """A fact that a capture shows, with the folder where it was read."""
    return Evidence(
        text, node_id=row["node_id"], path=row["path"] or row["root"], timestamp_ms=row["read_to_ms"], **more
    )
