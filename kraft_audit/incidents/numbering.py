"""The numbers of incidents, by which pages and pictures name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraft_audit.rules.rule_model import Severity

RESOLVED_NUMBERED: Final = 60
"""So many resolved incidents have a number; findings.csv has those without."""


def incidents_in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `incidents`: the open ones first, of both the worst first, then the newest."""
    return sorted(
        rows,
        key=lambda row: (not row["is_open"], -Severity(row["severity"]).rank, -(row["from_ms"] or 0), row["headline"]),
    )


def numbered_incidents(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that have a number, in the order of their numbers, which begin at 1."""
    open_count = sum(row["is_open"] for row in rows)
    return incidents_in_order(rows)[: open_count + RESOLVED_NUMBERED]
