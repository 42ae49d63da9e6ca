"""`quorum --voters`: every voter set that the captured logs hold, and how it ended."""

from __future__ import annotations

from typing import Any, Final

from kraft_audit.commands.arguments import NodeLogs
from kraft_audit.commands.results import Results
from kraft_audit.text.output import Format, table_columns
from kraft_audit.text.readable import LISTED_MAX, committed_text, pasted_ids, time_text

COLUMNS: Final = table_columns(
    "from_offset from_epoch time source kraft_version ids change ended_by named_by",
    {
        "from_offset": "offset",
        "from_epoch": "epoch",
        "time": "appended (UTC)",
        "kraft_version": "kraft.version",
        "ids": "voters",
        "ended_by": "ended by",
        "named_by": "named by",
    },
    wide="change named_by",
    dropped="kraft_version from_epoch source ended_by",
)


def show_voters(logs: NodeLogs, output: Format) -> int:
    """Show every voter set on every branch, and how it ended."""
    from kraft_audit.described_cluster import VOTER_SET_SCHEMA

    results = Results(output, VOTER_SET_SCHEMA.names)
    for cluster in results.each_cluster(logs):
        results.title(cluster, committed_text(cluster.committed_low, cluster.committed_low))
        rows = cluster.voters().to_pylist()
        is_named = any(row["named_by"] for row in rows)
        results.rows(rows, COLUMNS if is_named else COLUMNS[:-1], _shown)
    return results.end()


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    is_change = row["source"] == "log" or (row["canonical"] and row["from_offset"] >= 0)
    changes = [f"+{_name(voter)}" for voter in row["added"]] if is_change else []
    changes += [f"-{_name(voter)}" for voter in row["removed"]]
    changes += [f"{node}: endpoints" for node in row["endpoints_changed"]]
    return {
        **row,
        "time": time_text(row["timestamp_ms"]),
        "ids": pasted_ids(voter["voter_id"] for voter in row["voters"]).replace(",", " "),
        "change": " ".join(changes if len(changes) <= LISTED_MAX else [*changes[:3], f"and {len(changes) - 3} more"]),
        "named_by": "; ".join(row["named_by"]),
    }


def _name(voter: dict[str, Any]) -> str:
    directory = voter["directory_id"]
    return f"{voter['voter_id']}" if directory is None else f"{voter['voter_id']}-{directory}"
