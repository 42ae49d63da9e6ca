"""Writes boards/grafana and boards/superset from boards/queries and the families of the OpenMetrics text.

The queries are the only source. A test compares the files with what this program writes, and runs every query.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_audit.report.openmetrics import METRIC_PREFIX
from kraft_audit.tables.gold import SEVERITIES

BOARDS: Final = Path(__file__).resolve().parents[1] / "boards"
NAMESPACE: Final = uuid.UUID("6f1f0d1e-5a33-4c7e-9a2e-6b1d6d2a3c55")
VERSION: Final = "1.0.0"
# Panels of each board: query or expression → (kind, width of 24, height)
SQL_PANELS: Final[Mapping[str, tuple[str, int, int]]] = {
    "needs_action": ("table", 24, 8),
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
    (
        "Open findings by severity",
        'sum by (severity) (kraft_audit_findings_open{severity=~"$severity"})',
        "timeseries",
        12,
    ),
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


# The variables of a board. `All` is a condition of its own: a cluster without an owner, or without a row in `clusters`,
# belongs to it.
ALL: Final = "'*'"
NAMED_CLUSTERS: Final = """(
    SELECT cluster_name, coalesce(owner, 'nobody') AS owner, cluster_id,
        row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS labelled"""
CHOSEN_CLUSTERS: Final = f"""('*' IN (${{cluster:sqlstring}}) AND '*' IN (${{owner:sqlstring}}) OR cluster_id IN (
    SELECT cluster_id FROM {NAMED_CLUSTERS}
    WHERE newness = 1 AND ('*' IN (${{cluster:sqlstring}}) OR cluster_name IN (${{cluster:sqlstring}}))
        AND ('*' IN (${{owner:sqlstring}}) OR owner IN (${{owner:sqlstring}}))
))"""  # noqa: S608  # our own texts
CHOSEN_SEVERITIES: Final = " AND ('*' IN (${severity:sqlstring}) OR severity IN (${severity:sqlstring}))"
FILTERED_TABLE: Final = re.compile(
    r"\b(FROM|JOIN) (findings|situations|losses|partition_risk|cluster_compliance|watermarks|voter_sets|leader_epochs)"
    r"\b( AS \w+)?"
)
REPORT_URL: Final = "${report_url}"
REPORT_EXAMPLE: Final = "https://audit.example/kafka"
METRIC: Final = re.compile(rf"({METRIC_PREFIX}\w+)(?:{{([^}}]*)}})?")

_TIME: Final = "TIMESTAMP"
# The columns of each query's result: Superset needs them before it runs the query. One without a type is a text.
_COLUMNS: Final[Mapping[str, str]] = {
    "clusters_by_worst": "worst, clusters BIGINT",
    "committed_interval": "cluster, low BIGINT, high BIGINT, canonical_end_offset BIGINT, canonical_epoch BIGINT, "
    "read_to_ms BIGINT, undecided, page",
    "controls_by_day": "day_start TIMESTAMP, control, not_met BIGINT, weakened BIGINT, undecided BIGINT, met BIGINT",
    "controls_now": "cluster, owner, day DATE, control, status, not_met_days BIGINT, trend, open_findings BIGINT, "
    "worst_severity, page",
    "exposed_topics": "cluster, topic, rack, exposure_minutes DOUBLE, partitions BIGINT, last_day DATE, page",
    "exposure_by_day": "day_start TIMESTAMP, exposure_minutes DOUBLE, offline_minutes DOUBLE, "
    "last_replica_minutes DOUBLE, under_min_isr_minutes DOUBLE",
    "leader_epochs": "cluster, epochs BIGINT, newest_epoch BIGINT, without_a_leader BIGINT, page",
    "losses": "cluster, severity, grade, topic, partition_number BIGINT, timestamp_ms BIGINT, how, leader BIGINT, "
    "from_offset BIGINT, to_offset BIGINT, last_copy_back_at_offset BIGINT, page",
    "needs_action": "cluster, owner, what, since_ms BIGINT, hit BIGINT, command, page",
    "new_findings": "cluster, severity, rule, subject, summary, state, first_seen_ms BIGINT, "
    "reopened_count BIGINT, page",
    "open_findings": "severity, rule, name, findings BIGINT, clusters BIGINT",
    "voter_changes": "cluster, timestamp_ms BIGINT, from_offset BIGINT, from_epoch BIGINT, source, "
    "number_of_voters BIGINT, added BIGINT, removed BIGINT, canonical BOOLEAN, ended_by, page",
    "waivers": "until_day, cluster, rule, subject, who, why_accepted, page",
    "worst_findings": "cluster, owner, severity, rule, subject, summary, from_time TIMESTAMP, what_to_do, page",
}
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {column: type_ or "VARCHAR" for column, _, type_ in (each.partition(" ") for each in columns.split(", "))}
    for name, columns in _COLUMNS.items()
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


def chosen(sql: str) -> str:
    """The same query over the clusters and severities that a board's variables choose."""

    def filtered(found: re.Match[str]) -> str:
        word, table, alias = found.groups()
        severities = CHOSEN_SEVERITIES if table == "findings" else ""
        return f"{word} (SELECT * FROM {table} WHERE {CHOSEN_CLUSTERS}{severities}){alias or f' AS {table}'}"  # noqa: S608

    return FILTERED_TABLE.sub(filtered, sql)


def _dashboard(
    title: str, source: dict[str, str], plugin: str, variables: list[dict[str, Any]], panels: list[dict[str, Any]]
) -> dict[str, Any]:
    name = source["uid"].strip("${}")
    label = name.removeprefix("DS_").lower()
    report = {"type": "textbox", "name": "report_url", "label": "Address of the report", "query": REPORT_EXAMPLE}
    link = {"title": "The report", "type": "link", "icon": "external link", "url": f"{REPORT_URL}/index.html"}
    return {
        "__inputs": [{"name": name, "label": label, "type": "datasource", "pluginId": plugin, "pluginName": plugin}],
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
        "templating": {"list": [*variables, report]},
        "links": [{**link, "targetBlank": True}],
        "panels": panels,
    }


def _variable(name: str, query: Any, source: dict[str, str] | None, all_value: str | None) -> dict[str, Any]:
    """A variable that chooses several values; everything at first."""
    variable: dict[str, Any] = {
        "type": "custom" if source is None else "query",
        "name": name,
        "label": name.capitalize(),
        "query": query,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }
    if all_value is not None:
        variable["allValue"] = all_value
    return variable if source is None else {**variable, "datasource": source, "refresh": 2, "sort": 1}


def _page_links(column: str, url: str, hidden: str) -> dict[str, Any]:
    """Each row's name leads to its page; the column that says where is not shown. Milliseconds are shown as times."""
    link = {"title": "Open its page", "url": url, "targetBlank": True}
    properties = {
        ("byName", column): [{"id": "links", "value": [link]}],
        ("byName", hidden): [{"id": "custom.hidden", "value": True}],
        ("byRegexp", "/_ms$|_gone_at$/"): [{"id": "unit", "value": "dateTimeAsIso"}],
    }
    return {
        "defaults": {},
        "overrides": [
            {"matcher": {"id": matcher, "options": options}, "properties": changed}
            for (matcher, options), changed in properties.items()
        ],
    }


def grafana_lake() -> dict[str, Any]:
    """A dashboard of SQL panels over the lake's views, by the Trino data source."""
    source = {"type": "trino-datasource", "uid": "${DS_LAKE}"}
    panels = []
    known = queries()
    for name, (kind, width, height) in SQL_PANELS.items():
        title, sql = known[name]
        is_graph = kind == "timeseries"
        target = {"refId": "A", "datasource": source, "rawSQL": chosen(sql), "format": 0 if is_graph else 1}
        panel = {"title": title, "type": kind, "datasource": source, "targets": [target]}
        if "page" in COLUMNS[name]:
            panel["fieldConfig"] = _page_links("cluster", f"{REPORT_URL}/${{__data.fields.page}}", "page")
        panels.append((panel, width, height))
    asked = f"FROM {NAMED_CLUSTERS} WHERE newness = 1 ORDER BY 1"
    variables = [
        _variable("cluster", f"SELECT DISTINCT cluster_name {asked}", source, ALL),
        _variable("owner", f"SELECT DISTINCT owner {asked}", source, ALL),
    ]
    variables.append(_variable("severity", ",".join(SEVERITIES), None, ALL))
    return _dashboard("Kafka metadata: findings and exposure", source, source["type"], variables, _laid_out(panels))


def grafana_metrics() -> dict[str, Any]:
    """A dashboard of PromQL panels over metrics.prom, by a Prometheus data source."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = []
    for title, expression, kind, width in METRIC_PANELS:
        assert METRIC_PREFIX in expression  # noqa: S101
        is_range = kind == "timeseries"
        asked = METRIC.sub(r'\1{cluster=~"$cluster",\2}', expression).replace(",}", "}")
        target = {"refId": "A", "datasource": source, "expr": asked, "instant": not is_range, "range": is_range}
        panel = {"title": title, "type": kind, "datasource": source, "targets": [target]}
        page = f"{REPORT_URL}/clusters/${{{'__field.labels' if is_range else '__data.fields'}.cluster_id}}.html"
        if kind == "table":
            target["format"] = "table"
            hidden = dict.fromkeys(("Time", "__name__", "instance", "job"), True)
            panel["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
            panel["fieldConfig"] = _page_links("cluster", page, "cluster_id")
        elif is_range and "sum by" not in expression:
            target["legendFormat"] = "{{cluster}}"
            link = {"title": "Open its page", "url": page, "targetBlank": True}
            panel["fieldConfig"] = {"defaults": {"links": [link]}, "overrides": []}
        panels.append((panel, width, 8))
    # Clusters without labels belong to every owner: an empty label matches All, which is any text.
    families = "kraft_audit_cluster_labels|kraft_audit_read_timestamp_seconds"
    clusters = f'label_values({{__name__=~"{families}", owner=~"$owner"}}, cluster)'
    variables = [
        _variable("owner", "label_values(kraft_audit_cluster_labels, owner)", source, ".*"),
        _variable("cluster", clusters, source, None),
        _variable("severity", ",".join(SEVERITIES), None, ".*"),
    ]
    return _dashboard("Kafka metadata: figures", source, source["type"], variables, _laid_out(panels))


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
