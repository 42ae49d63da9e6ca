"""What the table `situations` of a lake says of each history, where it is as new as its findings."""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft_audit.findings.situation import Situation
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import READ_ROWS, Ledger
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import FINDINGS, INCIDENTS, SITUATIONS

_MERGED_PLANS: Final = """
SELECT read.cluster_id, read.plan, coalesce(found.as_of_ms, 0) AS as_of_ms FROM (
    SELECT cluster_id, max(plan) AS plan FROM plans WHERE {of_merged_plans} AND cluster_id IS NOT NULL
    GROUP BY cluster_id
) AS read
LEFT JOIN (SELECT cluster_id, max(changed_ms) AS as_of_ms FROM findings GROUP BY cluster_id) AS found
ON read.cluster_id = found.cluster_id"""


def stored_situations(
    lake: DeltaLake, newest: Mapping[str, tuple[int, int]]
) -> tuple[frozenset[str], dict[str, Situation]]:
    """The histories that have a row, and the situation of each whose row counts all that `newest_judged` says of it."""
    if not lake.exists(SITUATIONS.name):
        return frozenset(), {}
    rows = lake.query(f"SELECT * FROM {SITUATIONS.name}", SITUATIONS.name).to_pylist()
    stored = {
        row["cluster_id"]: Situation.of_row(row)
        for row in rows
        if newest.get(row["cluster_id"]) == (row["plan"], row["as_of_ms"])
    }
    return frozenset(row["cluster_id"] for row in rows), stored


def newest_judged(lake: DeltaLake) -> Mapping[str, tuple[int, int]]:
    """The newest merged plan of each history, and when the newest of its findings changed."""
    if not all(lake.exists(table.name) for table in (FINDINGS, INCIDENTS)):
        return {}
    ledger = Ledger(lake)
    is_merged = ledger.where_merged(INCIDENTS.name, ledger.status().done)
    sql = _MERGED_PLANS.format(of_merged_plans=f"{READ_ROWS} AND {is_merged}")
    rows = lake.query(sql, PLANS.name, FINDINGS.name).to_pylist()
    return {row["cluster_id"]: (row["plan"], row["as_of_ms"]) for row in rows}
