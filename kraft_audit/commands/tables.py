"""`lake tables`: what lies in a lake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import LAKE_PACKAGES, LakePath, OutputFormat, need_packages
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, Json, Output, table_columns

if TYPE_CHECKING:
    from kraft_audit.lake.lake_contents import TableContents

# The columns of a table for people; the other formats have all of them.
GLANCE: Final[Mapping[str, tuple[str, ...]]] = {
    "captures": ("cluster_id", "node_id", "capture", "leader_id", "leader_epoch", "log_end_offset", "damage_count"),
    "node_cards": ("cluster_id", "node_id", "log", "current_voters", "log_end_offset", "reached_offset", "closed"),
    "plans": ("plan", "event", "at", "cluster_name", "table_name", "outcome"),
    "files": ("cluster_id", "node_id", "file_name", "size_bytes", "scanned_to", "damage_count"),
    "batches": ("cluster_id", "node_id", "source", "base_offset", "last_offset", "leader_epoch", "crc", "status"),
    "records": ("cluster_id", "source", "offset", "leader_epoch", "record_type", "record"),
    "archive": ("cluster_id", "source", "leader_epoch", "from_offset", "to_offset", "batch_count", "size_bytes"),
    "leader_epochs": ("cluster_id", "epoch", "from_offset", "to_offset", "leader_id", "canonical", "ended_by"),
    "watermarks": ("cluster_id", "capture", "low", "low_epoch", "high", "canonical_end_offset", "undecided"),
    "voter_sets": ("cluster_id", "from_offset", "from_epoch", "source", "kraft_version", "canonical", "ended_by"),
    "partition_changes": ("from_offset", "topic", "partition", "cause", "leader", "isr", "elr"),
    "exposure_changes": (
        *("from_offset", "topic", "partition"),
        *("keeper_id", "is_last_replica", "is_offline", "is_under_min_isr"),
    ),
    "broker_changes": ("from_offset", "broker_id", "cause", "exists", "broker_epoch", "fenced"),
    "controller_changes": ("from_offset", "controller_id", "cause", "exists", "zk_migration_ready"),
    "topic_changes": ("from_offset", "topic_id", "cause", "exists", "topic"),
    "config_changes": ("from_offset", "resource_type", "resource_name", "name", "cause", "value"),
    "feature_changes": ("from_offset", "name", "cause", "feature_level"),
    "security_changes": ("from_offset", "kind", "subject", "cause", "exists"),
    "losses": ("topic", "partition", "leader_epoch", "leader_id", "label", "grade", "severity_now", "saved_until"),
    "replays": ("cluster_id", "plan", "from_offset", "to_offset", "low", "goes_beyond_low", "contradicted_from"),
    "clusters": ("cluster_id", "cluster_name", "owner", "environment", "tier", "contact"),
    "notifications": ("incident_id", "event", "n", "stage", "target", "headline"),
    "histories": ("history_id", "cluster_id", "name", "aliases", "first_plan", "merged_into"),
    "situations": ("cluster_id", "standing", "severity_now", "what", "since_ms", "command"),
    "incidents_staged": ("kind", "severity", "state", "subject", "headline"),
    "findings_staged": ("rule", "name", "severity", "state", "subject", "from_offset"),
    "decode_errors": ("cluster_id", "node_id", "file_name", "position", "reason", "detail"),
}
COLUMNS_WITHOUT_GLANCE: Final = 6
SUMMARY_KEYS: Final = ("table", "rows", "files", "size_bytes", "plan", "columns", "sample")


@prints_tables
def tables(
    lake: LakePath,
    sample_rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, max=1000, help="Rows to show per table.")
    ] = 3,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Show a lake's tables: rows, files, bytes, and the first rows in the order of the key.

    \b
    Examples:
      kraft-audit lake tables .demo/lake
      kraft-audit lake tables .demo/lake --rows 1 --output json
    """
    need_packages("lake tables", LAKE_PACKAGES, "lake")
    from kraft_audit.lake.lake_contents import lake_contents

    contents = lake_contents(lake, sample_rows)
    out = Output(output)
    if out.format is not Format.TABLE:
        out.rows([_summary(table) for table in contents], [], SUMMARY_KEYS)
        return
    for number, table in enumerate(contents):
        if number:
            out.line("")
        newest = f", newest by plan {table.plan}" if table.plan is not None else ""
        files = "1 file" if table.files == 1 else f"{table.files} files"
        out.title(f"{table.table}: {table.rows:,} rows in {files}, {table.size_bytes:,} bytes{newest}")
        names = GLANCE.get(table.table) or table.columns[:COLUMNS_WITHOUT_GLANCE]
        out.rows(table.sample, table_columns(names, dropped=names[:0:-1]))


def _summary(table: TableContents) -> dict[str, Any]:
    sample = [
        {name: Json(value) if name == "record" and value is not None else value for name, value in row.items()}
        for row in table.sample
    ]
    return {**{key: getattr(table, key) for key in SUMMARY_KEYS}, "columns": list(table.columns), "sample": sample}
