"""What weakens a cluster that needs no action: the worst of it, since when, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kraft_audit.findings.situation import what_of
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.rule_model import Scope, Severity


@dataclass(frozen=True, slots=True)
class Weakness:
    """In one clause, since when (None where no time is known), and what to do about it."""

    what: str
    since_ms: int | None
    advice: str


def weakness(given: ClusterInput, acknowledged: Sequence[TableRow]) -> Weakness | None:
    """A loss that was acknowledged, else the most frequent open finding of severity medium; None without either."""
    rows = acknowledged or [row for row in given.findings if row["severity_now"] == Severity.MEDIUM]
    if not rows:
        return None
    counts = Counter(row["rule"] for row in rows)
    worst = min(rows, key=lambda row: (-counts[row["rule"]], row["from_ms"] or 0, row["rule"], row["subject"]))
    same = [row for row in rows if row["rule"] == worst["rule"]]
    ids = {row["incident_id"] for row in same}
    cause = next(
        (row["headline"] for row in given.incidents if row["state"] == "open" and row["incident_id"] in ids), ""
    )
    subjects = {row["subject"] for row in same}
    what = what_of(worst["rule"], Scope(worst["scope"]), worst["subject"], worst["summary"], len(subjects), cause)
    since_ms = min((row["from_ms"] for row in same if row["from_ms"] is not None), default=None)
    if acknowledged:
        return Weakness(f"{what}; {worst['waiver']['who']} acknowledged it", since_ms, "")
    return Weakness(what, since_ms, worst["what_to_do"])
