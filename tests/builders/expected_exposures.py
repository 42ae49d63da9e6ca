"""What `exposure_changes` has to hold, counted row by row from `partition_changes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kraft_audit.tables.silver import EXPOSURE_CHANGES

Row = Mapping[str, Any]


def exposure(row: Row) -> tuple[bool, bool, bool]:
    """Last replica, offline, under min ISR: KIP-966's words on one row."""
    holders = {*row["isr"], *row["elr"]}
    found = (
        len(holders) == 1 and len(row["replicas"]) > 1,
        row["leader"] == -1,
        len(row["isr"]) < row["effective_min_isr"],
    )
    return found if row["exists"] else (False, False, False)


def exposure_rows_of(changes: Iterable[Row], *, is_every_of_offset: int | None = None) -> list[dict[str, Any]]:
    """The rows of `exposure_changes` that the rows of `partition_changes` make."""
    exposed_before: dict[tuple[str, str, int], bool] = {}
    found = []
    for row in changes:
        key, flags = (row["cluster_id"], row["topic_id"], row["partition"]), exposure(row)
        if any(flags) or exposed_before.get(key) or row["from_offset"] == is_every_of_offset:
            remaining = {name: row[name] for name in EXPOSURE_CHANGES.column_names if name in row}
            keepers = [row["leader"]] if row["leader"] >= 0 else [*row["isr"], *row["elr"], None]
            names = ("is_last_replica", "is_offline", "is_under_min_isr")
            found.append({**remaining, "keeper_id": keepers[0], **dict(zip(names, flags, strict=True))})
        exposed_before[key] = any(flags)
    return found
