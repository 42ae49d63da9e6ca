"""A Spark standalone cluster of separate processes: a master, two workers, every job sent with zip and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.spark.session import jar_settings
from kraft_audit.tables.gold import CLUSTER_COMPLIANCE, FINDINGS, PARTITION_RISK
from tests.builders.lakes import CLUSTERS
from tests.builders.standalone_spark import SPARK_HOME

pytestmark = [pytest.mark.ci, pytest.mark.long, pytest.mark.timeout(1500)]

PACKAGES = ("kraft_codec", "kraft_audit", "pyspark_kraft")
# All that does not say when a lake was written, or when its captures were read.
COMPARED = {
    FINDINGS.name: ("finding_id", "rule", "severity", "status", "subject", "summary", "state", "first_plan"),
    PARTITION_RISK.name: [name for name in PARTITION_RISK.column_names if name != "as_of_ms"],
    CLUSTER_COMPLIANCE.name: [name for name in CLUSTER_COMPLIANCE.column_names if name != "as_of_ms"],
}
SECONDS_PER_JOB = 600


@pytest.fixture(scope="module")
def project_zip(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zip") / "kraft_audit.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for package in PACKAGES:
            for path in sorted((project_root / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(project_root))
    return file


@pytest.fixture(scope="module")
def packed(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that executors unpack."""
    file = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    command = [sys.executable, str(project_root / "scripts" / "pack_environment.py"), str(file)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert made.returncode == 0, made.stderr
    return file


@pytest.fixture
def submit(
    spark_master: str,
    spark_environment: dict[str, str],
    project_root: Path,
    project_zip: Path,
    packed: Path,
    tmp_path: Path,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Sends jobs/NAME.py to the cluster, as conf/spark/standalone.conf says; workers have the packed Python alone.

    Each executor unpacks it, so one core, and that is one executor, is enough where no cluster is read.
    """
    jars = jar_settings()
    where = ["--jars", jars["spark.jars"]] if "spark.jars" in jars else ["--packages", jars["spark.jars.packages"]]
    # In client mode the driver asks for the same relative place.
    (tmp_path / "environment").symlink_to(sys.prefix)

    def send(job: str, *arguments: str, cores: int = 1) -> subprocess.CompletedProcess[str]:
        command = [
            str(SPARK_HOME / "bin" / "spark-submit"), "--master", spark_master, *where, "--py-files", str(project_zip),
            "--archives", f"{packed}#environment", "--total-executor-cores", str(cores),
            "--properties-file", str(project_root / "conf" / "spark" / "standalone.conf"),
            "--conf", "spark.pyspark.python=./environment/bin/python",
            "--conf", f"spark.pyspark.driver.python={sys.executable}",
            "--conf", "spark.executor.memory=600m", "--conf", "spark.driver.memory=600m",
            "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1",
            str(project_root / "jobs" / f"{job}.py"), *arguments,
        ]  # fmt: skip
        own = {name: value for name, value in spark_environment.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
        # From another folder, so that the package is not found by chance in the working directory.
        return subprocess.run(
            command, env=own, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS_PER_JOB
        )

    return send


def test_a_run_on_a_cluster_of_processes(
    submit: Callable[..., subprocess.CompletedProcess[str]], small_corpus: Path, tmp_path: Path, project_root: Path,
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """Tables before the gate and gold after it, as a DAG does.

    Bronze and silver are those of one process without Spark; gold is that of local mode.
    """
    clusters = {name: [small_corpus / name] for name in CLUSTERS}
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(clusters, lake="cluster", file="cluster.yaml")
    file = str(tmp_path / "cluster.yaml")
    done = submit("run", file, "--tables-only", "--output", "json", cores=2)
    assert done.returncode == 0, done.stderr[-4000:]
    # spark-submit joins a program's two outputs: the summary is the last line of both.
    assert json.loads(done.stdout.splitlines()[-1])["plans"] == [1]
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)

    for step in ("findings", "risk"):
        ended = submit("run", file, "--only", step)
        assert ended.returncode == 0, (step, ended.stderr[-4000:])
    program = [
        sys.executable,
        "-c",
        "from kraft_audit.commands.cli import main; main()",
        "run",
        str(tmp_path / "alone.yaml"),
    ]
    local = subprocess.run(
        program,
        env=os.environ | {"PYTHONPATH": str(project_root)},
        capture_output=True,
        text=True,
        timeout=SECONDS_PER_JOB,
    )
    assert local.returncode == 0, local.stderr[-4000:]
    for table, columns in COMPARED.items():
        assert gold_rows(fleet.lake, table, columns) == gold_rows(alone.lake, table, columns), table
        assert gold_rows(fleet.lake, table, columns)


def test_every_other_job_on_a_cluster_of_processes(
    submit: Callable[..., subprocess.CompletedProcess[str]], small_corpus: Path, tmp_path: Path,
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
) -> None:  # fmt: skip
    fleet = make_fleet({name: [small_corpus / name] for name in CLUSTERS})
    without_spark.run(fleet)
    site = str(tmp_path / "pages")
    for job, *arguments in (
        ("quality", fleet.lake), ("report", fleet.lake, "--out", site), ("maintain", fleet.lake, "--dry-run"),
        ("run", "--from", "archive", "--lake", fleet.lake),
    ):  # fmt: skip
        ended = submit(job, *arguments)
        assert ended.returncode == 0, (job, ended.stderr[-4000:])
    assert (tmp_path / "pages" / "index.html").is_file()
    assert Ledger(DeltaLake(fleet.lake)).status().closed == 2, "the archive was read again"


def gold_rows(lake: str, table: str, columns: Sequence[str]) -> list[str]:
    rows = DeltaLake(lake).query(f"SELECT {', '.join(columns)} FROM {table}", table).to_pylist()  # noqa: S608
    return sorted(json.dumps(row, default=str) for row in rows)
