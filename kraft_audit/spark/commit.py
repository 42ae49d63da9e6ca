"""Commit and close: one Delta transaction a table for the files of a manifest, then the end of the plan.

Everything here may be repeated, by this run or another: a table that already has the plan is passed by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.ledger import Ledger, delta_schema
from kraft_audit.spark.ledger_state import Manifest
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.tables import FILES


def commit_tables(ledger: Ledger, number: int, manifest: Manifest, committed: Callable[[str, int, bool], None]) -> None:
    """Add the manifest's files to their tables, the ledger of files last.

    `committed` is told the table, its rows in this plan, and whether this run brought them.
    """
    by_table: dict[str, list[Any]] = {}
    for file in manifest.files:
        by_table.setdefault(file.table, []).append(file)
    order = sorted(by_table, key=lambda table: (table == FILES.name, list(LAKE_TABLES).index(table)))
    for table in order:
        files = by_table[table]
        brought = ledger.lake.commit(table, files, delta_schema(table), ledger.application(table), number)
        committed(table, sum(file.row_count for file in files), brought)
        failpoint(f"after-commit:{table}")


def plan_summary(manifest: Manifest) -> dict[str, Any]:
    """What the plan did: the sums over its clusters, and the failures by cluster name."""
    read = [outcome for outcome in manifest.outcomes if outcome.failure is None]
    return {
        "clusters": len(read),
        "replicas": sum(outcome.summary["replicas"] for outcome in read),
        "captures": sum(outcome.summary["captures"] for outcome in read),
        "rows": _sum(outcome.summary["rows"] for outcome in read),
        "records": _sum(outcome.summary["records"] for outcome in read),
        "damage": _sum(outcome.summary["damage"] for outcome in read),
        "batch_bytes": sum(outcome.summary["batch_bytes"] for outcome in read),
        "failed": {
            outcome.cluster_name: outcome.failure for outcome in manifest.outcomes if outcome.failure is not None
        },
    }


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
