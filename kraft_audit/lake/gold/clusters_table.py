"""The table `clusters`: what fleet.yaml calls each cluster, and whose it is, from one time on.

A run appends a row for each history whose name or labels differ from its newest row. An entry of fleet.yaml without
`labels` says nothing about them: they stay as they were.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.lake import Lake, append_in_turn
from kraft_audit.lake.ledger import READ_ROWS, contract_schema
from kraft_audit.lake.plan_events import PlanEvents
from kraft_audit.lake.settings import ClusterSettings
from kraft_audit.lake.views import labelled_sql
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import CLUSTERS, LABELS

_DESCRIBED: Final = f"{CLUSTERS.grain}. {CLUSTERS.comment}"


def update_clusters(lake: Lake, closed: ClosedPlans, clusters: Sequence[ClusterSettings]) -> int:
    """Append what fleet.yaml newly says of the clusters that closed plans read; returns how many rows.

    Raises InputError where the lake cannot be written.
    """
    if not clusters or not closed.newest:
        return 0
    lake.create(CLUSTERS.name, contract_schema(CLUSTERS), _DESCRIBED)
    application = PlanEvents(lake).application(CLUSTERS.name)
    named = _named(lake, closed, {cluster.name: cluster for cluster in clusters})

    def rows_now() -> list[dict[str, Any]]:
        at_ms = time.time_ns() // 1_000_000
        return changed_rows(known_clusters(lake), named, at_ms, closed.newest)

    return append_in_turn(lake, CLUSTERS.name, application, contract_schema(CLUSTERS), rows_now)


def changed_rows(
    known: Mapping[str, Mapping[str, Any]], named: Mapping[str, ClusterSettings], now_ms: int, plan: int
) -> list[dict[str, Any]]:
    """The rows to append: of each history by its id what is `known` now, and the entry of fleet.yaml that names it."""
    rows = []
    for cluster_id, cluster in sorted(named.items()):
        before = known.get(cluster_id)
        says_labels = "labels" in cluster.model_fields_set or before is None
        now: dict[str, Any] = {"cluster_name": cluster.name}
        for label in LABELS:
            now[label] = getattr(cluster.labels, label) if says_labels or before is None else before[label]
        if before is None or any(before[name] != value for name, value in now.items()):
            # A clock that went back must not hide the new row behind the old one.
            valid_from_ms = max(now_ms, 0 if before is None else before["valid_from_ms"] + 1)
            rows.append({"cluster_id": cluster_id, "valid_from_ms": valid_from_ms, **now, "plan": plan})
    return rows


def known_clusters(lake: Lake) -> dict[str, dict[str, Any]]:
    """The newest row of each history by its id; none where the lake has no such table."""
    if not lake.exists(CLUSTERS.name):
        return {}
    rows = lake.query(labelled_sql(CLUSTERS.name, str), CLUSTERS.name).to_pylist()
    return {row["cluster_id"]: row for row in rows}


def _named(lake: Lake, closed: ClosedPlans, clusters: Mapping[str, ClusterSettings]) -> dict[str, ClusterSettings]:
    """The entry of each history that a closed plan read, of several the one that the newest plan read it by."""
    rows = lake.query(
        f"SELECT cluster_id, cluster_name, max(plan) AS plan FROM plans WHERE {READ_ROWS} AND {closed.where()} "  # noqa: S608
        "AND cluster_id IS NOT NULL GROUP BY cluster_id, cluster_name",
        PLANS.name,
    ).to_pylist()
    rows.sort(key=lambda row: (row["plan"], row["cluster_name"]))
    return {row["cluster_id"]: clusters[row["cluster_name"]] for row in rows if row["cluster_name"] in clusters}
