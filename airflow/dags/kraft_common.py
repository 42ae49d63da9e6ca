"""What the DAGs share: where things lie, read from the environment when a file is parsed, and how a job is sent.

| variable | names | default |
| --- | --- | --- |
| KRAFT_AUDIT_HOME | the project's folder, with dist/kraft_audit.zip (`make dist`) | two folders up |
| KRAFT_AUDIT_FLEET | the fleet file | conf/fleet.yaml there |
| KRAFT_AUDIT_LAKE | the lake, where it is not the one that the fleet file names | |
| KRAFT_AUDIT_OUT | a folder for pages and notebooks | reports/ there |
| KRAFT_AUDIT_SPARK_CONF | a profile of conf/spark | conf/spark/standalone.conf there |
| KRAFT_AUDIT_SPARK_CONNECTION | Airflow's Spark connection: the master | spark_kraft_audit |
| KRAFT_AUDIT_PYTHON | the project's own Python, for what needs no Spark | .venv/bin/python there |
| KRAFT_AUDIT_TOLERATE | percent of the fleet that may fail for one reason while `ingest` stays green | 20 |
| KRAFT_AUDIT_NOTIFY | notify.yaml, whom to send incidents to | |
| KRAFT_AUDIT_ONE_TASK | 1: one task does the whole hour of `kraft_fleet`, for less processor time | |
| KRAFT_AUDIT_MAINTAIN | retention and layout, as conf/maintain.yaml | |
| KRAFT_AUDIT_NOTIFIER | an Airflow notifier, called when a task fails after its retries, as `package.module.Class` | |
| KRAFT_AUDIT_NOTIFIER_PARAMETERS | its parameters, a JSON object | {} |
| KRAFT_AUDIT_RETRY_SECONDS | between two attempts | 300 |
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Asset, Metadata, task

HOME = Path(os.environ.get("KRAFT_AUDIT_HOME") or Path(__file__).resolve().parents[2])
FLEET = Path(os.environ.get("KRAFT_AUDIT_FLEET") or HOME / "conf" / "fleet.yaml")
OUT = os.environ.get("KRAFT_AUDIT_OUT") or str(HOME / "reports")
PYTHON = os.environ.get("KRAFT_AUDIT_PYTHON") or str(HOME / ".venv" / "bin" / "python")
TOLERATE = int(os.environ.get("KRAFT_AUDIT_TOLERATE") or 20)
NOTIFY = os.environ.get("KRAFT_AUDIT_NOTIFY") or ""
IS_ONE_TASK = os.environ.get("KRAFT_AUDIT_ONE_TASK") == "1"
MAINTAIN = os.environ.get("KRAFT_AUDIT_MAINTAIN") or ""
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

TABLES = Asset(name="kraft_audit_tables", uri="x-kraft-audit://lake/tables")
FINDINGS = Asset(name="kraft_audit_findings", uri="x-kraft-audit://lake/findings")
PAGES = Asset(name="kraft_audit_pages", uri="x-kraft-audit://lake/pages")


def failure_notifiers() -> list[Any]:
    """What Airflow calls when a task has failed: the notifier that the environment names, if it names one."""
    path = os.environ.get("KRAFT_AUDIT_NOTIFIER")
    if not path:
        return []
    module, _, name = path.rpartition(".")
    parameters = json.loads(os.environ.get("KRAFT_AUDIT_NOTIFIER_PARAMETERS") or "{}")
    return [getattr(importlib.import_module(module), name)(**parameters)]


DEFAULTS: dict[str, Any] = {
    "owner": "kraft-audit",
    "retries": 2,
    "retry_delay": timedelta(seconds=int(os.environ.get("KRAFT_AUDIT_RETRY_SECONDS") or 300)),
    "execution_timeout": timedelta(hours=2),
    "depends_on_past": False,
    "on_failure_callback": failure_notifiers(),
}


def lake() -> str:
    """The lake: the environment's, else the fleet file's, relative to that file. Asked by tasks, not at parse."""
    declared = os.environ.get("KRAFT_AUDIT_LAKE")
    if declared:
        return declared
    return absolute(str(yaml.safe_load(FLEET.read_text())["lake"]))


def absolute(path: str) -> str:
    """A path of the fleet file, which starts at that file's folder; a URI as it is."""
    return path if "://" in path else os.path.normpath(FLEET.parent / path)


def job(name: str) -> dict[str, Any]:
    """The arguments of a SparkSubmitOperator that sends jobs/NAME.py with the project's zip and profile."""
    jars = sorted(str(jar) for jar in (HOME / ".jars").glob("*.jar"))
    delta: dict[str, Any] = {"jars": ",".join(jars)} if jars else {"packages": DELTA}
    return {
        "application": str(HOME / "jobs" / f"{name}.py"),
        "name": f"kraft-audit {name}",
        "conn_id": os.environ.get("KRAFT_AUDIT_SPARK_CONNECTION") or "spark_kraft_audit",
        "py_files": str(HOME / "dist" / "kraft_audit.zip"),
        "properties_file": os.environ.get("KRAFT_AUDIT_SPARK_CONF") or str(HOME / "conf" / "spark" / "standalone.conf"),
        **delta,
    }


def submit(task_id: str, name: str, arguments: list[str] | str, **options: Any) -> SparkSubmitOperator:
    """One job with fixed arguments, which may hold templates, or be one that gives a list."""
    return SparkSubmitOperator(task_id=task_id, application_args=arguments, **job(name), **options)


def without_spark(task_id: str, arguments: str, *, unless_empty: str = "", **options: Any) -> BashOperator:
    """One command by the project's own Python, whose arguments may name $LAKE, $OUT and $NOTIFY.

    `unless_empty` is one of these: where it is empty, the task is skipped.
    """
    names = {"LAKE": "{{ lake() }}", "OUT": OUT, "NOTIFY": NOTIFY}
    guard = f'test -n "${unless_empty}" || exit 99; ' if unless_empty else ""
    command = guard + lake_command(arguments)
    return BashOperator(
        task_id=task_id, bash_command=command, env=names, append_env=True, skip_on_exit_code=99, **options
    )


def lake_command(arguments: str) -> str:
    """A shell command that asks the lake, by the project's own Python: no Spark is needed for it."""
    program = "from kraft_audit.commands.cli import main; main()"
    return f"PYTHONPATH='{HOME}' '{PYTHON}' -c '{program}' {arguments}"


def lake_figures(uri: str) -> dict[str, Any]:
    """The newest closed plan of a lake, and how many rows three of its tables have."""
    program = "import sys; from kraft_audit.commands.cli import run_command; sys.exit(run_command(sys.argv[1:]))"
    asked = [PYTHON, "-c", program, "lake", "tables", uri, "--rows", "0", "--output", "json"]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    answer = subprocess.run(  # noqa: S603  # a program of ours; the lake's address comes from the environment
        asked, env=environment, check=True, capture_output=True, text=True, timeout=600
    )
    tables = {row["table"]: row for row in json.loads(answer.stdout)}
    rows = {name: tables[name]["rows"] for name in ("captures", "findings", "incidents") if name in tables}
    return {"lake": uri, "plan": max((row["plan"] or 0 for row in tables.values()), default=0), "rows": rows}


def report_asset(asset: Asset) -> Any:
    """A task that updates an asset, with the plan and the row counts of the lake as the event's extra."""

    @task(task_id="report_asset", outlets=[asset])
    def report() -> Any:
        """Whoever is started by the asset reads there what changed."""
        yield Metadata(asset, lake_figures(lake()))

    return report()
