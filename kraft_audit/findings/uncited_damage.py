"""Damage that no finding cites: what was refused, doubled or not read is named all the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding

PLACES_NAMED: Final = 3


def uncited_text(history: ClusterHistory, findings: Iterable[Finding]) -> str | None:
    """One line about the rows of `decode_errors` that no finding has as evidence; None where each is cited."""
    rows = history.rows("decode_errors")
    if not rows:
        return None
    of_damage = {rule.id for rule in rules().values() if "decode_errors" in rule.needs}
    cited = {
        (fact.path, fact.file_name, fact.position)
        for finding in findings
        if finding.rule in of_damage
        for fact in finding.evidence
    }
    by_reason: dict[str, list[TableRow]] = {}
    for row in rows:
        if (row["path"] or row["root"], row["file_name"], row["position"]) not in cited:
            by_reason.setdefault(row["reason"], []).append(row)
    if not by_reason:
        return None
    count = sum(map(len, by_reason.values()))
    parts = []
    for reason, uncited in by_reason.items():
        named = "; ".join(f"{_place(row)}: {row['detail']}" for row in uncited[:PLACES_NAMED])
        more = f"; {len(uncited) - PLACES_NAMED} more" if len(uncited) > PLACES_NAMED else ""
        parts.append(f"{len(uncited)} {reason} ({named}{more})")
    return f"{count} place{'s' * (count != 1)} not read or not trusted, besides the findings: {', '.join(parts)}."


def _place(row: TableRow) -> str:
    place = "/".join(part for part in (row["path"] or row["root"], row["file_name"]) if part)
    return place if row["node_id"] is None else f"node {row['node_id']}, {place}"
