"""Copies that lack their log, or its end: what is left of them, and from when it is."""

from __future__ import annotations

from collections.abc import Sequence

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_captures, newest_watermark
from kraft_audit.text.readable import when


def state_of_snapshot(history: ClusterHistory) -> str | None:
    """Which snapshot the state is, and from when, where there is no canonical log; None where the log was replayed."""
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is not None or not history.states_from:
        return None
    return f"no log reaches it: the state is that of {_snapshot_text(history, history.states_from)}"


def without_log(history: ClusterHistory, rows: Sequence[TableRow]) -> str:
    """What a copy without any segment still says: how many snapshots, and how far the log went by its other files."""
    snapshots = sum(row["snapshot_count"] for row in rows)
    starts = [(entry["start_offset"], entry["epoch"]) for row in rows for entry in row["leader_epoch_checkpoint"] or ()]
    reached = ""
    if starts:
        offset, epoch = max(starts)
        reached = f" It reached at least offset {offset}, epoch {epoch} (leader-epoch-checkpoint)."
    end, epoch = max((row["snapshot_end_offset"] or 0, row["snapshot_epoch"] or 0) for row in rows)
    return (
        f"the log is missing from this copy (is `*.log` left out?): no segment was captured, {snapshots} "
        f"snapshot{'s' * (snapshots != 1)}.{reached} The newest state in it is that of {_snapshot_text(history, end)}, "
        f"epoch {epoch}. Nothing here says that the cluster lost anything"
    )


def ends_before_its_snapshot(history: ClusterHistory, low: int) -> str | None:
    """Why nothing is lost where no log reaches what a snapshot of the same copy proves; None where logs contradict.

    Kafka would start from the snapshot: the copy is of two moments, or lacks a segment.
    """
    rows = newest_captures(history)
    end = max((row["log_end_offset"] or 0 for row in rows), default=0)
    if end >= low or not any(row["snapshot_end_offset"] == low for row in rows):
        return None
    text = missing_before(history, end, low)
    return f"{text}: the copy is of two moments, or lacks a segment; copy the log again to decide"


def missing_before(history: ClusterHistory, end: int, snapshot_end: int) -> str:
    """Which offsets a copy lacks before its own snapshot, and from when log and snapshot are."""
    if end == 0:
        return f"no segment was captured below the snapshot that ends at {snapshot_end}"
    times = [row["last_timestamp_ms"] for row in newest_captures(history) if row["log_end_offset"] == end]
    written = f" ({when(max(times))} UTC)" if times and None not in times else ""
    missing = f"offsets {end}–{snapshot_end - 1} are missing"
    return f"the log ends at {end}{written}, before its own {_snapshot_text(history, snapshot_end)}; {missing}"


def _snapshot_text(history: ClusterHistory, end: int) -> str:
    time_ms = history.snapshot_times_ms.get(end)
    return f"snapshot {end}" + ("" if time_ms is None else f" ({when(time_ms)} UTC)")
