"""Writes boards/grafana and boards/superset from boards/queries and the families of the OpenMetrics text.

The queries are the only source. A test compares the files with what this program writes, and runs every query.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_audit.report.openmetrics import METRIC_PREFIX

BOARDS: Final = Path(__file__).resolve().parents[1] / "boards"
NAMESPACE: Final = uuid.UUID("6f1f0d1e-5a33-4c7e-9a2e-6b1d6d2a3c55")
VERSION: Final = "1.0.0"
# Panels of each board: query or expression → (kind, width of 24, height)
SQL_PANELS: Final[Mapping[str, tuple[str, int, int]]] = {
    "clusters_by_worst": ("barchart", 8, 8),
    "open_findings": ("table", 16, 8),
    "losses": ("table", 24, 9),
    "exposure_by_day": ("timeseries", 12, 9),
    "controls_by_day": ("table", 12, 9),
    "worst_findings": ("table", 24, 10),
    "controls_now": ("table", 12, 10),
    "exposed_topics": ("table", 12, 10),
    "new_findings": ("table", 24, 9),
    "committed_interval": ("table", 12, 9),
    "voter_changes": ("table", 12, 9),
    "leader_epochs": ("table", 12, 8),
    "waivers": ("table", 12, 8),
}
METRIC_PANELS: Final = (
    ("Open findings by severity", "sum by (severity) (kraft_audit_findings_open)", "timeseries", 12),
    (
        "Clusters with something critical",
        'count(sum by (cluster_id) (kraft_audit_findings_open{severity="critical"}))',
        "stat",
        6,
    ),
    ("Undecided", "sum(kraft_audit_cases_undecided)", "stat", 6),
    ("Partitions without a leader", "topk(20, kraft_audit_offline_partition_count > 0)", "timeseries", 12),
    ("Partitions with one replica alone", "topk(20, kraft_audit_last_replica_partition_count > 0)", "timeseries", 12),
    ("Partitions under min ISR", "topk(20, kraft_audit_global_under_min_isr_partition_count > 0)", "timeseries", 12),
    (
        "Only a person can choose a leader",
        "kraft_audit_manual_leader_election_required_partition_count > 0",
        "table",
        12,
    ),
    ("Voter changes not proven committed", "kraft_audit_uncommitted_voter_change == 1", "table", 8),
    ("Leader epoch of the metadata quorum", "topk(20, changes(kraft_audit_current_epoch[1d]))", "timeseries", 8),
    (
        "Log not proven committed, in offsets",
        "topk(20, kraft_audit_log_end_offset - kraft_audit_high_watermark_low)",
        "timeseries",
        8,
    ),
    ("Captures older than two hours", "time() - kraft_audit_read_timestamp_seconds > 7200", "table", 24),
)


_TEXT, _NUMBER, _TIME = "VARCHAR", "BIGINT", "TIMESTAMP"
# The columns of each query's result: Superset needs them before it runs the query.
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "clusters_by_worst": {"worst": _TEXT, "clusters": _NUMBER},
    "committed_interval": {
        "cluster": _TEXT,
        **dict.fromkeys(("low", "high", "canonical_end_offset", "canonical_epoch", "read_to_ms"), _NUMBER),
        "undecided": _TEXT,
    },
    "controls_by_day": {
        "day_start": _TIME,
        "control": _TEXT,
        **dict.fromkeys(("not_met", "weakened", "undecided", "met"), _NUMBER),
    },
    "controls_now": {
        "cluster": _TEXT,
        "day": "DATE",
        "control": _TEXT,
        "status": _TEXT,
        "not_met_days": _NUMBER,
        "trend": _TEXT,
        "open_findings": _NUMBER,
        "worst_severity": _TEXT,
    },
    "exposed_topics": {
        **dict.fromkeys(("cluster", "topic", "rack"), _TEXT),
        "exposure_minutes": "DOUBLE",
        "partitions": _NUMBER,
        "last_day": "DATE",
    },
    "exposure_by_day": {
        "day_start": _TIME,
        **dict.fromkeys(
            ("exposure_minutes", "offline_minutes", "last_replica_minutes", "under_min_isr_minutes"), "DOUBLE"
        ),
    },
    "leader_epochs": {
        "cluster": _TEXT,
        **dict.fromkeys(("epochs", "newest_epoch", "without_a_leader"), _NUMBER),
    },
    "losses": {
        **dict.fromkeys(("cluster", "severity", "grade", "topic"), _TEXT),
        **dict.fromkeys(("partition_number", "timestamp_ms"), _NUMBER),
        "how": _TEXT,
        **dict.fromkeys(("leader", "from_offset", "to_offset", "last_copy_gone_at"), _NUMBER),
    },
    "new_findings": {
        **dict.fromkeys(("cluster", "severity", "rule", "subject", "summary", "state"), _TEXT),
        "first_seen_ms": _NUMBER,
        "reopened_count": _NUMBER,
    },
    "open_findings": {
        **dict.fromkeys(("severity", "rule", "name"), _TEXT),
        "findings": _NUMBER,
        "clusters": _NUMBER,
    },
    "voter_changes": {
        "cluster": _TEXT,
        **dict.fromkeys(("timestamp_ms", "from_offset", "from_epoch"), _NUMBER),
        "source": _TEXT,
        **dict.fromkeys(("number_of_voters", "added", "removed"), _NUMBER),
        "canonical": "BOOLEAN",
        "ended_by": _TEXT,
    },
    "waivers": dict.fromkeys(("until_day", "cluster", "rule", "subject", "who", "why_accepted"), _TEXT),
    "worst_findings": {
        **dict.fromkeys(("cluster", "severity", "rule", "subject", "summary"), _TEXT),
        "from_time": _TIME,
        "what_to_do": _TEXT,
    },
}


def queries() -> dict[str, tuple[str, str]]:
    """Name → (title, SQL): the title is the file's first line."""
    query_by_name = {}
    for file in sorted((BOARDS / "queries").glob("*.sql")):
        first, _, sql = file.read_text(encoding="utf-8").partition("\n")
        query_by_name[file.stem] = (first.removeprefix("-- "), sql.strip())
    return query_by_name


def _id(*parts: str) -> str:
    return str(uuid.uuid5(NAMESPACE, "/".join(parts)))


def _laid_out(panels: list[tuple[dict[str, Any], int, int]]) -> list[dict[str, Any]]:
    x = y = row_height = 0
    placed = []
    for number, (panel, width, height) in enumerate(panels, 1):
        if x + width > 24:
            x, y, row_height = 0, y + row_height, 0
        placed.append({"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}, **panel})
        x, row_height = x + width, max(row_height, height)
    return placed


def _dashboard(title: str, source: str, plugin: str, panels: list[dict[str, Any]]) -> dict[str, Any]:
    name = f"DS_{source.upper()}"
    return {
        "__inputs": [{"name": name, "label": source, "type": "datasource", "pluginId": plugin, "pluginName": plugin}],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": plugin, "name": plugin, "version": "1.0.0"},
        ],
        "uid": _id("grafana", title)[:23],
        "title": title,
        "tags": ["kafka", "kraft-audit"],
        "editable": True,
        "schemaVersion": 39,
        "time": {"from": "now-30d", "to": "now"},
        "timezone": "utc",
        "panels": panels,
    }


def grafana_lake() -> dict[str, Any]:
    """A dashboard of SQL panels over the lake's views, by the Trino data source."""
    source = {"type": "trino-datasource", "uid": "${DS_LAKE}"}
    panels = []
    known = queries()
    for name, (kind, width, height) in SQL_PANELS.items():
        title, sql = known[name]
        target = {"refId": "A", "datasource": source, "rawSQL": sql, "format": 0 if kind == "timeseries" else 1}
        panels.append(({"title": title, "type": kind, "datasource": source, "targets": [target]}, width, height))
    return _dashboard("Kafka metadata: findings and exposure", "lake", "trino-datasource", _laid_out(panels))


def grafana_metrics() -> dict[str, Any]:
    """A dashboard of PromQL panels over metrics.prom, by a Prometheus data source."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = []
    for title, expression, kind, width in METRIC_PANELS:
        assert METRIC_PREFIX in expression  # noqa: S101
        is_range = kind == "timeseries"
        target = {"refId": "A", "datasource": source, "expr": expression, "instant": not is_range, "range": is_range}
        panel = {"title": title, "type": kind, "datasource": source, "targets": [target]}
        if kind == "table":
            target["format"] = "table"
            hidden = dict.fromkeys(("Time", "__name__", "cluster_id", "instance", "job"), True)
            panel["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
        elif is_range and "sum by" not in expression:
            target["legendFormat"] = "{{cluster}}"
        panels.append((panel, width, 8))
    return _dashboard("Kafka metadata: figures", "prometheus", "prometheus", _laid_out(panels))


def superset() -> dict[str, Any]:
    """The files of a Superset import bundle, by path."""
    title = "Kafka metadata: findings and exposure"
    files: dict[str, Any] = {
        "metadata.yaml": {"version": VERSION, "type": "Dashboard", "timestamp": "2026-01-01T00:00:00+00:00"},
        "databases/lake.yaml": {
            "database_name": "kraft-audit lake",
            "sqlalchemy_uri": "trino://user@trino.example:8080/delta/kraft_audit",
            "expose_in_sqllab": True,
            "allow_run_async": False,
            "allow_ctas": False,
            "allow_cvas": False,
            "allow_dml": False,
            "extra": {},
            "uuid": _id("superset", "database"),
            "version": VERSION,
        },
    }
    for name, (heading, sql) in queries().items():
        files[f"datasets/lake/{name}.yaml"] = _superset_dataset(name, heading, sql)
        files[f"charts/{name}.yaml"] = _superset_chart(name, heading)
    files["dashboards/kraft_audit.yaml"] = {
        "dashboard_title": title,
        "slug": "kraft-audit",
        "css": "",
        "position": _superset_position(title),
        "metadata": {},
        "uuid": _id("superset", "dashboard"),
        "version": VERSION,
    }
    return files


def _superset_dataset(name: str, heading: str, sql: str) -> dict[str, Any]:
    columns = COLUMNS[name]
    return {
        "table_name": f"kraft_audit_{name}",
        "description": heading,
        "sql": sql,
        "main_dttm_col": next((column for column, type_ in columns.items() if type_ == _TIME), None),
        "schema": None,
        "params": None,
        "metrics": [],
        "columns": [
            {"column_name": column, "type": type_, "is_dttm": type_ == _TIME, "groupby": True, "filterable": True}
            for column, type_ in columns.items()
        ],
        "uuid": _id("superset", "dataset", name),
        "database_uuid": _id("superset", "database"),
        "version": VERSION,
    }


def _superset_chart(name: str, heading: str) -> dict[str, Any]:
    return {
        "slice_name": heading,
        "viz_type": "table",
        "params": {"query_mode": "raw", "all_columns": list(COLUMNS[name]), "row_limit": 1000, "viz_type": "table"},
        "uuid": _id("superset", "chart", name),
        "dataset_uuid": _id("superset", "dataset", name),
        "version": VERSION,
    }


def _superset_position(title: str) -> dict[str, Any]:
    """A dashboard's layout: a row a chart."""
    rows = [f"ROW-{name}" for name in queries()]
    position: dict[str, Any] = {
        "DASHBOARD_VERSION_KEY": "v2",
        "ROOT_ID": {"id": "ROOT_ID", "type": "ROOT", "children": ["GRID_ID"]},
        "GRID_ID": {"id": "GRID_ID", "type": "GRID", "children": rows, "parents": ["ROOT_ID"]},
        "HEADER_ID": {"id": "HEADER_ID", "type": "HEADER", "meta": {"text": title}},
    }
    for number, name in enumerate(queries(), 1):
        row, chart = f"ROW-{name}", f"CHART-{name}"
        background = {"background": "BACKGROUND_TRANSPARENT"}
        position[row] = {"id": row, "type": "ROW", "children": [chart], "meta": background}
        meta = {"chartId": number, "width": 12, "height": 50, "uuid": _id("superset", "chart", name)}
        position[chart] = {"id": chart, "type": "CHART", "children": [], "meta": meta}
    return position


def boards() -> dict[str, str]:
    """Every written file: path below boards → text."""
    texts = {
        "grafana/lake.json": json.dumps(grafana_lake(), indent=2) + "\n",
        "grafana/metrics.json": json.dumps(grafana_metrics(), indent=2) + "\n",
    }
    for path, content in superset().items():
        texts[f"superset/{path}"] = yaml.safe_dump(content, sort_keys=False, width=120)
    return texts


def main() -> int:
    for path, text in boards().items():
        target = BOARDS / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
