"""Rows without the moments at which disks were read: two runs over the same bytes differ in nothing else."""

from __future__ import annotations

from typing import Any, Final

WHEN: Final = frozenset({"plan", "captured_at", "captured_at_ms", "read_from_ms", "read_to_ms", "seen_ms"})
"""Columns that say when and by which plan a row came: the same content read in other steps differs in these alone."""


def without_reading_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows; evidence of what a disk holds loses its time, which is when that was read. Changes them in place."""
    for fact in (fact for row in rows for fact in row.get("evidence") or ()):
        if isinstance(fact, str):  # a loss has lines of text
            continue
        if fact["path"] and fact["file_name"] is None:
            fact["timestamp_ms"] = None
    return rows
