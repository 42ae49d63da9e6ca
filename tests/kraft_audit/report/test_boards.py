"""The bundles for Grafana and Superset: written from the queries, and every query runs against the lake's views."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder

from kraft_audit.report.openmetrics import METRIC_FAMILIES, METRIC_PREFIX
from kraft_audit.text.page_names import page_of
from tests.builders.board_tables import TABLES, write_tables

# What Grafana's published schema knows, as grafana-foundation-sdk 10.1 reads and writes it: it drops any other field
# without a word. `__inputs` and `__requires` are of the form in which dashboards are shared.
SHARED = {"__inputs", "__requires"}
DASHBOARD = {
    *("uid", "title", "tags", "editable", "schemaVersion", "time", "timezone", "panels"),
    *("templating", "links"),
}
VARIABLE = {
    *("type", "name", "label", "query", "datasource", "multi", "includeAll", "allValue", "current", "refresh", "sort"),
}
PANEL = {"id", "gridPos", "title", "type", "datasource", "targets"}
PROMETHEUS_TARGET = {"refId", "datasource", "expr", "instant", "range", "legendFormat", "format"}
TRINO_TARGET = {"refId", "datasource", "rawSQL", "format"}


@pytest.fixture(scope="module")
def written(project_root: Path) -> dict[str, Any]:
    return runpy.run_path(str(project_root / "scripts" / "build_boards.py"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> QueryBuilder:
    folder = tmp_path_factory.mktemp("boards")
    builder = QueryBuilder()
    write_tables(folder)
    for name in TABLES:
        builder.register(name, DeltaTable(str(folder / name)))
    return builder


def answer(lake: QueryBuilder, sql: str) -> list[dict[str, Any]]:
    return pa.table(lake.execute(sql).read_all()).to_pylist()


def test_what_is_committed_is_what_the_program_writes(written: dict[str, Any], project_root: Path) -> None:
    made = written["boards"]()
    folder = project_root / "boards"
    remaining = {
        str(file.relative_to(folder)) for part in ("grafana", "superset") for file in (folder / part).rglob("*.*")
    }
    assert remaining == made.keys()
    for path, text in made.items():
        assert (folder / path).read_text() == text, f"{path}: run scripts/build_boards.py"


def test_every_query_runs_and_answers(written: dict[str, Any], lake: QueryBuilder) -> None:
    for name, (title, sql) in written["queries"]().items():
        assert title
        assert title[0].isupper()
        rows = answer(lake, sql)
        assert rows, name
        assert list(rows[0]) == list(written["COLUMNS"][name]), name


def test_answers_are_right(written: dict[str, Any], lake: QueryBuilder) -> None:
    known = {name: answer(lake, sql) for name, (_, sql) in written["queries"]().items()}
    assert known["clusters_by_worst"] == [{"worst": "1 critical", "clusters": 1}, {"worst": "4 low", "clusters": 1}]
    assert [row["cluster"] for row in known["worst_findings"]] == ["orders-eu"]
    assert [(row["cluster"], row["until_day"]) for row in known["waivers"]] == [("orders-eu", "text 2")]
    assert [(row["cluster"], row["grade"]) for row in known["losses"]] == [("b", "proven"), ("orders-eu", "possible")]
    assert [row["exposure_minutes"] for row in known["exposure_by_day"]] == [1.0, 2.0, 3.0]
    assert [(row["cluster"], row["status"]) for row in known["controls_now"]] == [
        ("b", "undecided"),
        ("orders-eu", "met"),
    ]
    assert [(row["not_met"], row["met"], row["undecided"]) for row in known["controls_by_day"]] == [
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]
    assert [(row["cluster"], row["low"]) for row in known["committed_interval"]] == [("b", 3), ("orders-eu", 2)]
    assert [row["number_of_voters"] for row in known["voter_changes"]] == [3, 2, 1]
    assert [(row["cluster"], row["without_a_leader"]) for row in known["leader_epochs"]] == [("orders-eu", 1), ("b", 0)]


def test_the_dashboards_ask_these_queries_and_no_others(written: dict[str, Any], project_root: Path) -> None:
    known = {sql for _, sql in written["queries"]().values()}
    grafana = json.loads((project_root / "boards" / "grafana" / "lake.json").read_text())
    asked = {target["rawSQL"] for panel in grafana["panels"] for target in panel["targets"]}
    assert asked == {written["chosen"](sql) for sql in known}
    folder = project_root / "boards" / "superset"
    assert {yaml.safe_load(file.read_text())["sql"] for file in (folder / "datasets" / "lake").iterdir()} == known


ALL = "'*'"
"""What Grafana puts for a variable of which everything is chosen: its `allValue`, unquoted and unescaped."""


@pytest.mark.parametrize(
    ("cluster", "owner", "severity", "remain"),
    [
        (ALL, ALL, ALL, {"orders-eu", "b"}),
        ("'orders-eu','other'", ALL, ALL, {"orders-eu"}),
        (ALL, "'text 2'", ALL, {"orders-eu"}),
        (ALL, "'nobody'", ALL, set()),
        (ALL, ALL, "'low'", {"b"}),
    ],
)
def test_variables_choose_clusters_owners_and_severities(
    project_root: Path, lake: QueryBuilder, cluster: str, owner: str, severity: str, remain: set[str]
) -> None:
    """A cluster that fleet.yaml never named is shown as long as every cluster and every owner is."""
    board = json.loads((project_root / "boards" / "grafana" / "lake.json").read_text())
    assert {each["name"] for each in board["templating"]["list"]} == {"cluster", "owner", "severity", "report_url"}
    chosen = {"cluster": cluster, "owner": owner, "severity": severity}
    for panel in board["panels"]:
        sql = re.sub(r"\$\{(\w+):sqlstring\}", lambda found: chosen[found[1]], panel["targets"][0]["rawSQL"])
        rows = answer(lake, sql)
        assert {row["cluster"] for row in rows if "cluster" in row} <= {"orders-eu", "b"}
        if panel["title"].startswith("What was first seen"):
            assert {row["cluster"] for row in rows} == remain
        if "severity" not in panel["title"] and cluster == owner == severity == ALL:
            assert rows, panel["title"]


def test_rows_lead_to_pages_that_a_report_has(written: dict[str, Any], lake: QueryBuilder, project_root: Path) -> None:
    for name, (_, sql) in written["queries"]().items():
        pages = {row["page"].partition("#")[0] for row in answer(lake, sql) if "cluster" in row}
        assert pages <= {page_of("a"), page_of("b")}
        assert bool(pages) == ("cluster" in written["COLUMNS"][name]), name
    for name in ("lake", "metrics"):
        board = json.loads((project_root / "boards" / "grafana" / f"{name}.json").read_text())
        linked = [
            panel for panel in board["panels"] if "/clusters/" in json.dumps(panel) or ".page}" in json.dumps(panel)
        ]
        for panel in linked:
            assert "${report_url}/" in json.dumps(panel["fieldConfig"]), panel["title"]


def test_superset_finds_all_that_it_refers_to(project_root: Path) -> None:
    folder = project_root / "boards" / "superset"
    loaded = {path: yaml.safe_load(path.read_text()) for path in folder.rglob("*.yaml")}
    ids = {content["uuid"] for content in loaded.values() if "uuid" in content}
    for path, content in loaded.items():
        assert content["version"] == "1.0.0", path
        for key in ("database_uuid", "dataset_uuid"):
            assert content.get(key) in {*ids, None}
        for part in (content.get("position") or {}).values():
            if isinstance(part, dict) and part["type"] == "CHART":
                assert part["meta"]["uuid"] in ids


def test_panels_lie_side_by_side_and_ask_metrics_that_are_there(project_root: Path) -> None:
    for name in ("lake", "metrics"):
        taken: set[tuple[int, int]] = set()
        for panel in json.loads((project_root / "boards" / "grafana" / f"{name}.json").read_text())["panels"]:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & taken
            assert place["x"] + place["w"] <= 24
            taken |= cells
            for target in panel["targets"]:
                for metric in re.findall(rf"{METRIC_PREFIX}\w+", target.get("expr", "")):
                    assert metric.removeprefix(METRIC_PREFIX) in METRIC_FAMILIES


def test_grafana_knows_every_field(project_root: Path) -> None:
    """And asks a range of time for a graph, one moment as a table for a table."""
    for name, target_fields in (("lake", TRINO_TARGET), ("metrics", PROMETHEUS_TARGET)):
        board = json.loads((project_root / "boards" / "grafana" / f"{name}.json").read_text())
        assert board.keys() == SHARED | DASHBOARD
        inputs = {"${" + entry["name"] + "}" for entry in board["__inputs"]}
        for variable in board["templating"]["list"]:
            assert variable.keys() <= VARIABLE
        for panel in board["panels"]:
            assert panel.keys() - {"transformations", "fieldConfig"} == PANEL
            assert panel["type"] in ("barchart", "stat", "table", "timeseries")
            assert panel["gridPos"].keys() == {"x", "y", "w", "h"}
            for target in panel["targets"]:
                assert target.keys() <= target_fields
                assert target["datasource"]["uid"] in inputs
                if name == "metrics":
                    assert target["instant"] is not target["range"]
                    assert (target.get("format") == "table") is (panel["type"] == "table")


def test_queries_are_plain_sql(written: dict[str, Any]) -> None:
    """No macro and no function of one engine alone: what another parser takes, too."""
    for name, (_, sql) in written["queries"]().items():
        assert not re.search(r"[$`;]|__", sql), name
        assert sqlite3.complete_statement(f"{sql};")


def test_the_alert_rules_fire_as_their_tests_say(project_root: Path) -> None:
    """By Prometheus's own tool; every figure in them is one that a report has."""
    folder = project_root / "boards" / "prometheus"
    used = set(re.findall(rf"\b{METRIC_PREFIX}\w+", (folder / "alerts.yaml").read_text()))
    assert used
    assert {name.removeprefix(METRIC_PREFIX) for name in used} <= METRIC_FAMILIES.keys()
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here")
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        ended = subprocess.run([promtool, *command], cwd=folder, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr
