"""The DAGs by Airflow's own parser, and one real run of kraft_fleet, Spark included, with a task killed midway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_audit.spark.lake import DeltaLake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.session import use_java
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.errors import InputError
from kraft_codec.tables import PLANS

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]

CLUSTERS = ("mini-3.9.2", "divergence", "torn-write")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def airflow(project_root: Path) -> Path:
    """The bin folder of Airflow's own environment, which `make airflow-setup` makes. Skips where there is none."""
    declared = os.environ.get("KRAFT_AUDIT_AIRFLOW_VENV")
    folder = Path(declared) if declared else project_root / ".airflow-venv"
    if not (folder / "bin" / "airflow").is_file():
        pytest.skip("Airflow is not here: make airflow-setup")
    return folder / "bin"


@pytest.fixture(scope="module")
def environment(project_root: Path, tmp_path_factory: pytest.TempPathFactory, airflow: Path) -> dict[str, str]:
    """Airflow on SQLite in a folder of its own; its spark-submit is the project's."""
    folder = tmp_path_factory.mktemp("airflow")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    found = inherited | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(project_root / "airflow" / "dags"),
        "AIRFLOW_CONN_SPARK_KRAFT_AUDIT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "KRAFT_AUDIT_HOME": str(project_root),
        "KRAFT_AUDIT_SPARK_CONF": str(project_root / "conf" / "spark" / "local.conf"),
        "KRAFT_AUDIT_PYTHON": sys.executable,
        "KRAFT_AUDIT_RETRY_SECONDS": "1",
        "KRAFT_AUDIT_GROUP_CLUSTERS": "2",
        "JAVA_HOME": str(use_java()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    made = subprocess.run(
        [airflow / "airflow", "db", "migrate"], env=found, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return found


@pytest.fixture(scope="module")
def dags(project_root: Path, airflow: Path, environment: dict[str, str]) -> dict[str, Any]:
    told = subprocess.run(
        [airflow / "python", HERE / "inspect_dags.py", project_root / "airflow" / "dags"],
        env=environment, cwd=environment["AIRFLOW_HOME"], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2000:]
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    assert found["errors"] == {}
    return dict(found["dags"])


def test_policy(dags: dict[str, Any], project_root: Path) -> None:
    """No catch-up, bounded runs and time, retries, scripts that exist, and what to do at the end of every page."""
    assert set(dags) == {"kraft_fleet", "kraft_compliance", "kraft_incident"}
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
    assert {task_id for task_id, task in fleet.items() if task["retries"] == 0} == {"quality", "every_cluster_read"}


def test_edges(dags: dict[str, Any]) -> None:
    """One failing group stops no other, and is seen at the end; a closed gate stops what would be published."""
    fleet = dags["kraft_fleet"]["tasks"]
    assert dags["kraft_fleet"]["schedule"] == "CronTriggerTimetable"
    assert fleet["list_clusters"]["downstream"] == ["ingest"]
    assert fleet["ingest"]["is_mapped"]
    assert fleet["ingest"]["at_once"] == 1
    assert fleet["ingest"]["downstream"] == ["every_cluster_read", "tables"]
    assert fleet["tables"]["trigger_rule"].lower().endswith("all_done")
    assert fleet["tables"]["downstream"] == ["quality"]
    assert all(task["trigger_rule"].lower().endswith("all_success") for name, task in fleet.items() if name != "tables")
    assert fleet["every_cluster_read"]["downstream"] == []
    assert dags["kraft_compliance"]["schedule"] == "AssetTriggeredTimetable"
    assert dags["kraft_incident"]["schedule"] == "NullTimetable"
    assert dags["kraft_incident"]["params"] == ["cluster", "from", "to"]


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
            if status.opened == 1 and status.staged == 0:
                for pid in pids_of("jobs/analyze.py", lake):
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


def test_the_fleet_with_a_task_killed_and_retried(
    project_root: Path, airflow: Path, environment: dict[str, str], samples: Path, tmp_path: Path,
    killer: Callable[[str], list[int]],
) -> None:  # fmt: skip
    """`airflow dags test` is green, and the tables are those of a run that nothing disturbed."""
    built = subprocess.run(
        [sys.executable, project_root / "scripts" / "build_dist.py"], capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    clusters = [{"name": name, "paths": [str(samples / name)]} for name in CLUSTERS]
    (tmp_path / "fleet.yaml").write_text(
        yaml.safe_dump({"lake": "lake", "redaction_key_file": "key", "clusters": clusters})
    )
    lake = str(tmp_path / "lake")
    own = environment | {"KRAFT_AUDIT_FLEET": str(tmp_path / "fleet.yaml"), "KRAFT_AUDIT_OUT": str(tmp_path / "out")}
    killed = killer(lake)
    started = time.monotonic()
    run = subprocess.run(
        [airflow / "airflow", "dags", "test", "kraft_fleet"],
        env=own, cwd=tmp_path, capture_output=True, text=True, timeout=540,
    )  # fmt: skip
    told = run.stdout + run.stderr
    assert run.returncode == 0, told[-6000:]
    assert killed, f"nothing was killed in {time.monotonic() - started:.0f} s"
    assert Ledger(DeltaLake(lake)).status().closed == 2
    assert (tmp_path / "out" / "fleet" / "index.html").is_file()
    assert (tmp_path / "lake" / "_quality" / "plan-00000002" / "index.html").is_file()

    undisturbed = tmp_path / "undisturbed.yaml"
    undisturbed.write_text(yaml.safe_dump({"lake": "undisturbed", "redaction_key_file": "key", "clusters": clusters}))
    for group in (CLUSTERS[:2], CLUSTERS[2:]):
        alone = [sys.executable, HERE.parent / "kraft_audit" / "spark" / "without_spark.py", undisturbed, *group]
        ran = subprocess.run(alone, cwd=project_root, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr[-2000:]
    assert rows(lake) == rows(str(tmp_path / "undisturbed"))
    pages = [page.read_text() for page in (tmp_path / "out").rglob("*.html")]
    assert any("ujhN1DIbH4nL9FFbdry94A" in page for page in pages), "the cluster with two branches has its findings"


def test_an_incident_keeps_its_notebook(
    project_root: Path, airflow: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("nbclient")
    given = {"cluster": "elr", "from": "2026-11-21T01:30:00", "to": ""}
    run = subprocess.run(
        [airflow / "airflow", "dags", "test", "kraft_incident", "--conf", json.dumps(given)],
        env=environment | {"KRAFT_AUDIT_OUT": str(tmp_path / "out")},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]
    pages = sorted((tmp_path / "out" / "incident").rglob("incident_timeline.html"))
    assert len(pages) == 2, "a notebook for each path of the cluster"
    assert "SPA6Lw-19VaaSAxl6jMkhw" in pages[0].read_text()


def rows(lake_uri: str) -> dict[str, list[str]]:
    """Rows of every table as JSON, without when and by which plan they came: a retried group comes after the next."""
    when = {"plan", "captured_at", "captured_at_ms", "read_from_ms", "read_to_ms", "seen_ms"}
    lake = DeltaLake(lake_uri)
    found = {}
    for table in sorted(LAKE_TABLES.keys() - {PLANS.name}):
        every = lake.query(f"SELECT * FROM {table}", table)  # noqa: S608
        kept = every.select([name for name in every.column_names if name not in when])
        found[table] = sorted(json.dumps(row, default=str) for row in kept.to_pylist())
    return found
