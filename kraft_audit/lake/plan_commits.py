"""What a plan's staging left, as commits of its tables, and in the words of its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kraft_audit.lake.ledger import Ledger, delta_schema
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.progress import failpoint
from kraft_audit.lake.staging.stage import FORGOTTEN
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import FILES
from kraft_audit.text.readable import plural


def claimed_text(claimed: Mapping[str, int]) -> str:
    """How many clusters are left to which open plans."""
    if not claimed:
        return ""
    plans = ", ".join(map(str, sorted(set(claimed.values()))))
    return f", {plural(len(claimed), 'cluster')} left to open plan {plans}"


def size_text(byte_count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.1f} {unit}"
    return f"{byte_count} B"


def commit_tables(ledger: Ledger, number: int, manifest: Manifest) -> Iterator[tuple[str, int, bool]]:
    """Add the manifest's files to their tables, the ledger of files last.

    Yields each table, its rows in this plan, and whether this run added them. May be repeated, by this run or another:
    a table that already has the plan is left as it is.
    """
    by_table: dict[str, list[Any]] = {}
    for file in manifest.files:
        by_table.setdefault(file.table, []).append(file)
    order = sorted(by_table, key=lambda table: (table == FILES.name, list(LAKE_TABLES).index(table)))
    for table in order:
        files, application = by_table[table], ledger.plan_application(table, number)
        is_new = ledger.lake.commit(table, files, delta_schema(table), application, number)
        failpoint(f"after-commit:{table}")
        yield table, sum(file.row_count for file in files), is_new


def plan_summary(manifest: Manifest) -> dict[str, Any]:
    """What the plan did: sums over its clusters; by cluster name why it failed, or forgot earlier captures."""
    read = [outcome for outcome in manifest.outcomes if outcome.failure is None]

    forgotten = {each.cluster_name: each.summary[FORGOTTEN] for each in read if FORGOTTEN in each.summary}

    def total(name: str) -> dict[str, int]:
        counts = Counter[str]()
        for outcome in read:
            counts.update(outcome.summary[name])
        return dict(sorted(counts.items()))

    return {
        "clusters": len(read),
        "replicas": sum(outcome.summary["replicas"] for outcome in read),
        "captures": sum(outcome.summary["captures"] for outcome in read),
        **{name: total(name) for name in ("rows", "records", "damage")},
        "batch_bytes": sum(outcome.summary["batch_bytes"] for outcome in read),
        **({"forgotten": forgotten} if forgotten else {}),
        "failed": {
            outcome.cluster_name: outcome.failure for outcome in manifest.outcomes if outcome.failure is not None
        },
    }
