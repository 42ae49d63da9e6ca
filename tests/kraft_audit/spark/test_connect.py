"""Spark Connect: a run by a client that has no JVM, on the server that pyspark brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.settings import FleetSettings
from kraft_audit.spark.session import use_java
from tests.builders.commands import COMMAND

pytestmark = [pytest.mark.ci, pytest.mark.timeout(400)]


def test_a_run_over_spark_connect_writes_the_tables_of_a_local_one(
    small_corpus: Path, tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    pytest.importorskip("grpc")
    roots = {name: [small_corpus / name] for name in ("divergence", "elr")}
    alone = make_fleet(roots, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(roots)
    shutil.copy(f"{alone.lake}.redaction-key", f"{fleet.lake}.redaction-key")
    environment = connect_environment() | {"SPARK_REMOTE": "local[2]"}
    ran = subprocess.run(
        [COMMAND, "run", tmp_path / "fleet.yaml", "--engine", "spark", "--log-format", "json"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=380,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "on local[2]" in ran.stderr
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)


def test_the_committer_spark_is_refused_before_a_plan(make_fleet: Callable[..., FleetSettings], tmp_path: Path) -> None:
    make_fleet({"a": [tmp_path]})
    with (tmp_path / "fleet.yaml").open("a") as file:
        file.write("committer: spark\n")
    ran = subprocess.run(
        [COMMAND, "run", tmp_path / "fleet.yaml"],
        env=connect_environment() | {"SPARK_REMOTE": "sc://127.0.0.1:1/;token=hunter2"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "committing over Spark Connect is not supported" in ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr
    assert not (tmp_path / "lake").exists()


def test_a_server_that_does_not_answer_is_one_line(make_fleet: Callable[..., FleetSettings], tmp_path: Path) -> None:
    make_fleet({"a": [tmp_path]})
    ran = subprocess.run(
        [COMMAND, "run", tmp_path / "fleet.yaml"],
        env=connect_environment() | {"SPARK_REMOTE": "sc://127.0.0.1:1/;token=secret"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 3
    assert ran.stderr.splitlines()[-1].startswith("kraft-audit: SPARK_REMOTE=sc://127.0.0.1:1: no Spark Connect server")
    assert "secret" not in ran.stderr
    assert not (tmp_path / "lake").exists()


def connect_environment() -> dict[str, str]:
    """What a process needs to start a server of its own."""
    return os.environ | {
        "JAVA_HOME": str(use_java()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }  # fmt: skip
