"""`incidents`: findings with one cause, one row a story."""

from __future__ import annotations

from typing import Any, Final

from kraft_audit.commands.arguments import JudgedLogs, OutputFormat
from kraft_audit.commands.results import Results
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, table_columns
from kraft_audit.text.readable import when

COLUMNS: Final = table_columns("severity state from to headline effects rules", wide="headline effects rules")


@prints_tables
def incidents(logs: JudgedLogs, output: OutputFormat = Format.TABLE) -> int:
    """List incidents, open ones first: broker stops, lost brokers, epochs without a leader, a stopped quorum.

    An incident groups the findings that have one cause in the log. JSON adds the incident's events, its effects on
    partitions, and the ids of its findings. `check` also prints findings that belong to no incident.

    \b
    Examples:
      kraft-audit incidents samples/elr-06-kill-13-last-replica.tgz
      kraft-audit incidents samples/elr-29-stopped.tgz --output json
    """
    from kraft_audit.incidents.incident import INCIDENT_KEYS, incident_row

    judge = logs.judge()
    results = Results(output, INCIDENT_KEYS)
    for cluster in results.each_history(logs):
        findings, _ = judge(cluster)
        rows = [incident_row(cluster.cluster_id, incident) for incident in cluster.incidents(findings).incidents]
        results.title(cluster)
        if not results.rows(rows, COLUMNS, _shown):
            results.text("no incident")
    return results.end()


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    from_ms, to_ms = row["from_ms"], row["to_ms"]
    return {
        **row,
        "from": "" if from_ms is None else when(from_ms),
        "to": "" if to_ms is None else when(to_ms, from_ms),
        "effects": "; ".join(row["effects"]),
        "rules": " ".join(row["rules"]),
    }
