"""`check --incidents`: findings with one cause, one row a story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_audit.text.output import table_columns
from kraft_audit.text.readable import when

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.commands.results import Results
    from kraft_audit.incidents.folding import FoldedFindings

COLUMNS: Final = table_columns("severity state from to headline effects rules", wide="headline effects rules")


def list_incidents(results: Results, cluster: Cluster, folded: FoldedFindings) -> None:
    """One row for each incident of a cluster, open ones first."""
    from kraft_audit.incidents.incident import incident_row

    rows = [incident_row(cluster.cluster_id, incident) for incident in folded.incidents]
    results.title(cluster)
    if not results.rows(rows, COLUMNS, _shown):
        results.text("no incident")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    from_ms, to_ms = row["from_ms"], row["to_ms"]
    return {
        **row,
        "from": "" if from_ms is None else when(from_ms),
        "to": "" if to_ms is None else when(to_ms, from_ms),
        "effects": "; ".join(row["effects"]),
        "rules": " ".join(row["rules"]),
    }
