"""Airflow in an environment of its own, on SQLite in one folder for all tests, and its runs as they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.spark.session import use_java
from tests.builders.dag_runs import DagRun, instances


@pytest.fixture(scope="session")
def airflow(project_root: Path) -> Path:
    """The bin folder of Airflow's own environment, which `make airflow-setup` makes. Skips where there is none."""
    declared = os.environ.get("KRAFT_AUDIT_AIRFLOW_VENV")
    folder = Path(declared) if declared else project_root / ".airflow-venv"
    if not (folder / "bin" / "airflow").is_file():
        pytest.skip("Airflow is not here: make airflow-setup")
    return folder / "bin"


@pytest.fixture(scope="session")
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
        "JAVA_HOME": str(use_java()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    made = subprocess.run(
        [airflow / "airflow", "db", "migrate"], env=found, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return found


@pytest.fixture(scope="session")
def dags_test(airflow: Path, environment: dict[str, str]) -> Callable[..., DagRun]:
    """Runs a whole DAG as `airflow dags test` does, with variables of the environment and a conf of its own."""

    def run(dag_id: str, folder: Path, *, conf: Mapping[str, Any] | None = None, **variables: str) -> DagRun:
        given = [] if conf is None else ["--conf", json.dumps(conf)]
        ended = subprocess.run(
            [airflow / "airflow", "dags", "test", dag_id, *given],
            env=environment | variables, cwd=folder, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        rows = instances(Path(environment["AIRFLOW_HOME"]) / "airflow.db", dag_id)
        names = [task_id if map_index < 0 else (task_id, shown or "") for task_id, map_index, shown, _, _ in rows]
        states = {name: str(row[3]) for name, row in zip(names, rows, strict=True)}
        tries = {name: int(row[4]) for name, row in zip(names, rows, strict=True)}
        return DagRun(ended.returncode, ended.stdout + ended.stderr, states, tries)

    return run
