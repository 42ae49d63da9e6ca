"""The DAGs by Airflow's own parser, and real runs of them, Spark included: killed midway, failing, gated."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import READ_ROWS, Ledger
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import BRONZE, PLANS
from kraft_audit.tables.contract import build_rows
from kraft_codec.errors import InputError
from tests.builders.dag_runs import DagRun
from tests.builders.lakes import CLUSTERS
from tests.builders.notified_lakes import listener
from tests.builders.reading_times import WHEN, without_reading_times

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
NOTIFIER = """
from airflow.sdk import BaseNotifier


class Page(BaseNotifier):
    template_fields = ("team",)

    def __init__(self, file, team):
        super().__init__()
        self.file, self.team = file, team

    def notify(self, context):
        with open(self.file, "a") as file:
            file.write(f"{context['ti'].task_id} {self.team}\\n")
"""
"""Writes a line where a real one pages somebody."""


@pytest.fixture(scope="module")
def dags(project_root: Path, airflow: Path, environment: dict[str, str]) -> dict[str, Any]:
    ended = subprocess.run(
        [airflow / "python", HERE / "inspect_dags.py", project_root / "airflow" / "dags"],
        env=environment, cwd=environment["AIRFLOW_HOME"], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert found["errors"] == {}
    return dict(found["dags"])


def test_policy(dags: dict[str, Any], project_root: Path) -> None:
    """No catch-up, bounded runs and time, retries, scripts that exist, and what to do at the end of every page."""
    assert set(dags) == {"kraft_fleet", "kraft_compliance", "kraft_incident", "kraft_maintain", "kraft_reaudit"}
    for name, dag in dags.items():
        assert dag["catchup"] is False, name
        assert 1 <= dag["max_active_runs"] <= 4, name
        assert "#### When it fails" in dag["doc"], name
        advice = dag["doc"].split("#### When it fails")[1]
        for task_id, task in dag["tasks"].items():
            assert task["timeout_s"], (name, task_id)
            if task["operator"] in ("SparkSubmitOperator", "MappedOperator", "BashOperator"):
                assert f"**{task_id}**" in advice, (name, task_id)
            if task["application"]:
                assert Path(task["application"]).is_relative_to(project_root / "jobs")
                assert Path(task["application"]).is_file(), task["application"]
    fleet = dags["kraft_fleet"]["tasks"]
    assert {task_id for task_id, task in fleet.items() if task["retries"] == 0} == {"quality"}


def test_edges(dags: dict[str, Any]) -> None:
    """One job reads the fleet; a closed gate stops what would be published; a message that fails stops no page."""
    fleet = dags["kraft_fleet"]["tasks"]
    assert dags["kraft_fleet"]["schedule"] == "CronTriggerTimetable"
    assert not fleet["ingest"]["is_mapped"]
    assert fleet["ingest"]["downstream"] == ["quality"]
    assert fleet["quality"]["downstream"] == ["findings"]
    assert fleet["findings"]["downstream"] == ["notify", "publish", "report_asset"]
    assert fleet["report_asset"]["outlets"] == ["kraft_audit_findings"]
    assert all(task["trigger_rule"].lower().endswith("all_success") for task in fleet.values())
    assert dags["kraft_maintain"]["schedule"] == "CronTriggerTimetable"
    assert dags["kraft_reaudit"]["schedule"] == "NullTimetable"
    assert dags["kraft_reaudit"]["params"] == ["cluster"]
    assert dags["kraft_compliance"]["schedule"] == "AssetTriggeredTimetable"
    assert dags["kraft_incident"]["schedule"] == "NullTimetable"
    assert dags["kraft_incident"]["params"] == ["cluster", "from", "to"]


def test_one_task_for_the_whole_hour(dags_test: Callable[..., DagRun], small_corpus: Path, tmp_path: Path) -> None:
    """Without Spark: tables, the gate's page, findings and pages from one process."""
    fleet = fleet_of(tmp_path, {name: small_corpus / name for name in CLUSTERS})
    own = {
        "KRAFT_AUDIT_FLEET": str(fleet), "KRAFT_AUDIT_OUT": str(tmp_path / "out"), "KRAFT_AUDIT_ONE_TASK": "1",
        "KRAFT_AUDIT_RETRY_SECONDS": "1",
    }  # fmt: skip
    run = dags_test("kraft_fleet", tmp_path, **own)
    assert run.exit_code == 0, run.output[-6000:]
    assert run.states == {"hour": "success", "report_asset": "success"}
    assert (tmp_path / "out" / "fleet" / "index.html").is_file()
    assert (tmp_path / "lake" / "_quality" / "plan-00000001" / "index.html").is_file()


@pytest.fixture
def killer() -> Iterator[Callable[[str], list[int]]]:
    """Kills, once, the job that has opened the first plan of a lake and not staged it yet."""
    stop, threads, killed = threading.Event(), [], []

    def watch(lake: str) -> None:
        while not stop.wait(0.2):
            try:
                status = Ledger(DeltaLake(lake)).status()
            except InputError:
                continue  # the table is being made
            if status.open == (1,) and not Ledger(DeltaLake(lake)).is_staged(1):
                for pid in pids_of("jobs/run.py", lake):
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)
                return

    def start(lake: str) -> list[int]:
        thread = threading.Thread(target=watch, args=(lake,))
        threads.append(thread)
        thread.start()
        return killed

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def pids_of(*parts: str) -> list[int]:
    """Processes of ours whose command line holds every part."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(part in line for part in parts):
                found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def project_zip(project_root: Path) -> None:
    built = subprocess.run(
        [sys.executable, project_root / "scripts" / "build_dist.py"], capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr


def fleet_of(folder: Path, clusters: Mapping[str, Path], lake: str = "lake") -> Path:
    """A fleet file named after its lake."""
    file = folder / f"{lake}.yaml"
    reported = [{"name": name, "paths": [str(path)]} for name, path in clusters.items()]
    file.write_text(yaml.safe_dump({"lake": lake, "redaction_key_file": "key", "clusters": reported}))
    return file


@pytest.mark.long
@pytest.mark.usefixtures("project_zip")
def test_the_fleet_with_a_task_killed_and_retried(
    project_root: Path, dags_test: Callable[..., DagRun], small_corpus: Path, tmp_path: Path,
    killer: Callable[[str], list[int]], environment: dict[str, str],
) -> None:  # fmt: skip
    """`airflow dags test` is green, and the tables are those of a run that nothing disturbed.

    Then kraft_compliance, which waits for those findings: the controls of each cluster by day, and the day's pages.
    Then kraft_maintain, as in the night: the same answers from fewer files.
    """
    clusters = {name: small_corpus / name for name in CLUSTERS}
    fleet = fleet_of(tmp_path, clusters)
    lake, out = str(tmp_path / "lake"), tmp_path / "out"
    own = {"KRAFT_AUDIT_FLEET": str(fleet), "KRAFT_AUDIT_OUT": str(out)}
    killed = killer(lake)
    started = time.monotonic()
    run = dags_test("kraft_fleet", tmp_path, **own)
    assert run.exit_code == 0, run.output[-6000:]
    assert killed, f"nothing was killed in {time.monotonic() - started:.0f} s"
    assert Ledger(DeltaLake(lake)).status().closed == 1
    assert run.states["notify"] == "skipped", "no notify.yaml is named"
    assert (out / "fleet" / "index.html").is_file()
    assert (tmp_path / "lake" / "_quality" / "plan-00000001" / "index.html").is_file()
    (extra,) = asset_extras(Path(environment["AIRFLOW_HOME"]) / "airflow.db", "kraft_audit_findings")
    count = DeltaLake(lake).query("SELECT count(*) AS n FROM findings", "findings")["n"][0].as_py()
    assert (extra["plan"], extra["rows"]["findings"]) == (1, count)

    undisturbed = fleet_of(tmp_path, clusters, "undisturbed")
    alone = [sys.executable, HERE.parent / "builders" / "without_spark.py", undisturbed, *CLUSTERS]
    ran = subprocess.run(alone, cwd=project_root, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert rows(lake) == rows(str(tmp_path / "undisturbed"))
    pages = [page.read_text() for page in out.rglob("*.html")]
    assert any("ujhN1DIbH4nL9FFbdry94A" in page for page in pages), "the cluster with two branches has its findings"

    run = dags_test("kraft_compliance", tmp_path, **own)
    assert run.exit_code == 0, run.output[-6000:]
    assert run.states == {"risk": "success", "pages": "success"}
    judged = DeltaLake(lake).query("SELECT DISTINCT cluster_id, control, status FROM cluster_compliance WHERE day = "
        "(SELECT max(day) FROM cluster_compliance AS newest WHERE newest.cluster_id = cluster_compliance.cluster_id)",
        "cluster_compliance").to_pylist()  # fmt: skip
    assert {row["control"] for row in judged} == set(CONTROLS)
    integrity = {row["cluster_id"]: row["status"] for row in judged if row["control"] == "log_integrity"}
    assert integrity["ujhN1DIbH4nL9FFbdry94A"] == "not_met", "two leaders of one epoch range"
    (day,) = (out / "compliance").iterdir()
    assert (day / "index.html").is_file()

    before, files = rows(lake), {table: data_files(lake, table) for table in LAKE_TABLES}
    (tmp_path / "maintain.yaml").write_text("vacuum_hours: 168\n")
    run = dags_test("kraft_maintain", tmp_path, **own, KRAFT_AUDIT_MAINTAIN=str(tmp_path / "maintain.yaml"))
    assert run.exit_code == 0, run.output[-6000:]
    assert run.states == {"maintain": "success"}
    assert rows(lake) == before
    fewer = {table for table, count in files.items() if data_files(lake, table) < count}
    assert fewer, files


@pytest.mark.usefixtures("project_zip")
def test_a_cluster_that_fails_and_a_gate_that_closes(
    dags_test: Callable[..., DagRun], small_corpus: Path, tmp_path: Path
) -> None:
    """One cluster's disk is away: it is sent as an open incident, and the run is green; with all away it is red.

    Then they are back, but a table breaks its contract: what the run read is there, and none of it is published.
    The notifier that the environment names is called for the task that failed, once, after its retries.
    """
    away, back = tmp_path / "disk", tmp_path / "other"
    back.symlink_to(small_corpus)
    fleet = fleet_of(tmp_path, {"divergence": away / "divergence", "mini-3.9.2": back / "mini-3.9.2"})
    lake, out = DeltaLake(str(tmp_path / "lake")), tmp_path / "out"
    own = {"KRAFT_AUDIT_FLEET": str(fleet), "KRAFT_AUDIT_OUT": str(out), "NO_PROXY": "127.0.0.1"}
    called = tmp_path / "called.txt"
    (tmp_path / "paging.py").write_text(NOTIFIER)
    own |= {"PYTHONPATH": str(tmp_path), "KRAFT_AUDIT_NOTIFIER": "paging.Page"}
    own["KRAFT_AUDIT_NOTIFIER_PARAMETERS"] = json.dumps({"file": str(called), "team": "{{ dag.dag_id }}-team"})
    with listener() as hook:
        notify = {"targets": {"hook": {"webhook": hook.url}}, "routes": [{"to": ["hook"]}]}
        (tmp_path / "notify.yaml").write_text(yaml.safe_dump(notify))
        own["KRAFT_AUDIT_NOTIFY"] = str(tmp_path / "notify.yaml")
        run = dags_test("kraft_fleet", tmp_path, **own)
        assert run.exit_code == 0, run.output[-6000:]
        assert run.states == dict.fromkeys(
            ("ingest", "quality", "findings", "publish", "notify", "report_asset"), "success"
        ), run.output[-6000:]
        assert str(away / "divergence") in run.output, "the log names what could not be read"
        unread = [body for body in hook.bodies if body["cluster"] == "divergence"]
        assert [(body["event"], body["severity"]) for body in unread] == [("opened", "high")]
        judged = plans_that_read(lake, "mini-3.9.2")
        assert findings_by_plan(lake) == judged
        published = {page: page.read_bytes() for page in out.rglob("*") if page.is_file()}
        assert published
        assert not called.exists()

        back.unlink()
        run = dags_test("kraft_fleet", tmp_path, **own)
        assert run.exit_code != 0
        assert run.states["ingest"] == "failed"
        assert "all 2 clusters failed" in run.output
        assert run.tries["ingest"] == 3, "two retries"
        assert called.read_text().splitlines() == ["ingest kraft_fleet-team"]

    away.symlink_to(small_corpus)
    back.symlink_to(small_corpus)
    capture = lake.query("SELECT * FROM captures LIMIT 1", "captures").to_pylist()
    write_deltalake(lake.table_uri("captures"), pa.table(build_rows(BRONZE["captures"], capture)), mode="append")
    run = dags_test("kraft_fleet", tmp_path, **own)
    assert run.exit_code != 0
    assert run.states == {
        "ingest": "success", "quality": "failed", "findings": "upstream_failed", "publish": "upstream_failed",
        "notify": "upstream_failed", "report_asset": "upstream_failed",
    }, run.output[-6000:]  # fmt: skip
    assert run.tries["quality"] == 1, "the same rows would fail again"
    assert "captures.repeated_keys" in run.output
    assert findings_by_plan(lake) == judged
    assert {page: page.read_bytes() for page in out.rglob("*") if page.is_file()} == published


def asset_extras(database: Path, asset: str) -> list[dict[str, Any]]:
    """The extra of each event of an asset that has one."""
    sql = "SELECT event.extra FROM asset_event AS event JOIN asset ON asset.id = event.asset_id WHERE asset.name = ?"
    with sqlite3.connect(database) as connection:
        found = [json.loads(extra) for (extra,) in connection.execute(sql, (asset,)).fetchall()]
    return [extra for extra in found if "plan" in extra]


def findings_by_plan(lake: DeltaLake) -> set[int]:
    """The plans whose findings were published."""
    return {row["plan"] for row in lake.query("SELECT DISTINCT plan FROM findings", "findings").to_pylist()}


def plans_that_read(lake: DeltaLake, cluster_name: str) -> set[int]:
    """The plans that read the cluster of this name."""
    rows = lake.query(f"SELECT plan, cluster_name FROM plans WHERE {READ_ROWS}", "plans").to_pylist()  # noqa: S608
    return {row["plan"] for row in rows if row["cluster_name"] == cluster_name}


def test_an_incident_keeps_its_notebook(dags_test: Callable[..., DagRun], tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    given = {"cluster": "elr", "from": "2026-11-21T01:30:00", "to": ""}
    run = dags_test("kraft_incident", tmp_path, conf=given, KRAFT_AUDIT_OUT=str(tmp_path / "out"))
    assert run.exit_code == 0, run.output[-6000:]
    pages = sorted((tmp_path / "out" / "incident").rglob("incident_timeline.html"))
    assert len(pages) == 2, "a notebook for each path of the cluster"
    assert "SPA6Lw-19VaaSAxl6jMkhw" in pages[0].read_text()


def data_files(lake_uri: str, table: str) -> int:
    return len(DeltaLake(lake_uri).open(table).file_uris())


def rows(lake_uri: str) -> dict[str, list[str]]:
    """Rows of every table as JSON, without when and by which plan they came: a retried group comes after the next."""
    lake = DeltaLake(lake_uri)
    found = {}
    for table in sorted(LAKE_TABLES.keys() - {PLANS.name}):
        every = lake.query(f"SELECT * FROM {table}", table)  # noqa: S608
        remaining = every.select([name for name in every.column_names if name not in WHEN | {"first_plan"}])
        found[table] = sorted(json.dumps(row, default=str) for row in without_reading_times(remaining.to_pylist()))
    return found
