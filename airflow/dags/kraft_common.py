"""What the three DAGs share: where things lie, read from the environment when a file is parsed, and how a job is sent.

| variable | names | default |
| --- | --- | --- |
| KRAFT_AUDIT_HOME | the project's folder, with dist/kraft_audit.zip (`make dist`) | two folders up |
| KRAFT_AUDIT_FLEET | the fleet file | conf/fleet.yaml there |
| KRAFT_AUDIT_LAKE | the lake, where it is not the one that the fleet file names | |
| KRAFT_AUDIT_OUT | a folder for pages and notebooks | reports/ there |
| KRAFT_AUDIT_SPARK_CONF | a profile of conf/spark | conf/spark/standalone.conf there |
| KRAFT_AUDIT_SPARK_CONNECTION | Airflow's Spark connection: the master | spark_kraft_audit |
| KRAFT_AUDIT_PYTHON | the project's own Python, for what needs no Spark | .venv/bin/python there |
| KRAFT_AUDIT_GROUP_CLUSTERS | clusters that one ingest task reads | 50 |
| KRAFT_AUDIT_RETRY_SECONDS | between two attempts | 300 |
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset

HOME = Path(os.environ.get("KRAFT_AUDIT_HOME") or Path(__file__).resolve().parents[2])
FLEET = Path(os.environ.get("KRAFT_AUDIT_FLEET") or HOME / "conf" / "fleet.yaml")
OUT = os.environ.get("KRAFT_AUDIT_OUT") or str(HOME / "reports")
PYTHON = os.environ.get("KRAFT_AUDIT_PYTHON") or str(HOME / ".venv" / "bin" / "python")
GROUP_CLUSTERS = int(os.environ.get("KRAFT_AUDIT_GROUP_CLUSTERS") or 50)
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

TABLES = Asset(name="kraft_audit_tables", uri="x-kraft-audit://lake/tables")
FINDINGS = Asset(name="kraft_audit_findings", uri="x-kraft-audit://lake/findings")
PAGES = Asset(name="kraft_audit_pages", uri="x-kraft-audit://lake/pages")

DEFAULTS: dict[str, Any] = {
    "owner": "kraft-audit",
    "retries": 2,
    "retry_delay": timedelta(seconds=int(os.environ.get("KRAFT_AUDIT_RETRY_SECONDS") or 300)),
    "execution_timeout": timedelta(hours=2),
    "depends_on_past": False,
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


def submit(task_id: str, name: str, arguments: list[str], **options: Any) -> SparkSubmitOperator:
    """One job with fixed arguments, which may hold templates."""
    return SparkSubmitOperator(task_id=task_id, application_args=arguments, **job(name), **options)


def cluster_groups() -> list[list[str]]:
    """Arguments of jobs/run.py for each group of clusters of the fleet file, in its order."""
    clusters = [str(cluster["name"]) for cluster in yaml.safe_load(FLEET.read_text())["clusters"]]
    groups = [clusters[start : start + GROUP_CLUSTERS] for start in range(0, len(clusters), GROUP_CLUSTERS)]
    return [
        [str(FLEET), "--lake", lake(), "--tables-only", *(part for name in group for part in ("--cluster", name))]
        for group in groups
    ]
