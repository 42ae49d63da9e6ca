"""Feature levels as of the end of the log."""

from __future__ import annotations

from typing import Any

from kraft_audit.rules.history import ClusterHistory


def feature_row(history: ClusterHistory, name: str) -> dict[str, Any] | None:
    """The newest row of one feature."""
    rows = [row for row in history.rows("feature_changes") if row["name"] == name]
    return max(rows, key=lambda row: row["from_offset"], default=None)


def feature_level(history: ClusterHistory, name: str) -> int | None:
    """The finalized level; None where the log never told it."""
    row = feature_row(history, name)
    return None if row is None else int(row["feature_level"]) if row["exists"] else 0


def elr_level(history: ClusterHistory) -> int:
    """0 where the ELR is off or never was told."""
    return feature_level(history, "eligible.leader.replicas.version") or 0
