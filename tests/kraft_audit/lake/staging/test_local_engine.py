"""A run without Spark, as it is typed: the lake of one process, however many processes read it, and what ends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.progress import RunResult
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.staging.local_stager import LocalStager
from kraft_audit.lake.staging.stage import StageError
from tests.builders.commands import installed
from tests.builders.lakes import CLUSTERS, MakeFleet

pytestmark = pytest.mark.slow
WITHOUT_JAVA = {"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}


@pytest.fixture
def clusters(small_corpus: Path) -> dict[str, list[Path]]:
    return {name: [small_corpus / name] for name in CLUSTERS}


def test_a_run_without_java_fills_every_table(
    make_fleet: MakeFleet, clusters: dict[str, list[Path]], tmp_path: Path, without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(clusters)
    ended = installed("run", tmp_path / "fleet.yaml", "--output", "json", **WITHOUT_JAVA)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["plans"] == [1]
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)
    lake = DeltaLake(fleet.lake)
    counts = {
        name: lake.query(f"SELECT count(*) AS n FROM {name}", name)["n"][0].as_py()  # noqa: S608
        for name in ("findings", "incidents", "partition_risk", "cluster_compliance")
    }
    assert all(counts.values()), counts
    again = installed("run", tmp_path / "fleet.yaml", "--engine", "local", **WITHOUT_JAVA)
    assert "nothing new in 3 clusters" in again.stderr


def test_several_processes_write_what_one_does(
    make_fleet: MakeFleet, clusters: dict[str, list[Path]], without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """Also where the first run could not go on: what it had read is not read again, and one line says so."""
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(clusters)
    monkeypatch.setattr("kraft_audit.lake.staging.stage_parts.PART_BYTES", 0)
    with monkeypatch.context() as patched:
        patched.setattr("kraft_audit.lake.staging.isolated_staging.CHILD", "kraft_audit.lake.no_such_module")
        with pytest.raises(StageError, match=r"plan 1 could not be staged and stays open .* ended with code 1"):
            run_by_processes(fleet)
    assert Ledger(DeltaLake(fleet.lake)).status().open == (1,)
    assert run_by_processes(fleet).exit_code == 0
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)
    names = {name.rpartition("/")[2][:19] for name in DeltaLake(fleet.lake).open("records").file_uris()}
    assert len(names) == len(CLUSTERS), "each cluster was a part of its own"


def run_by_processes(fleet: FleetSettings) -> RunResult:
    lake = DeltaLake(fleet.lake)
    with lake.reading_once():
        return Run(fleet, lake, LocalStager(fleet, lake, processes=3), lambda _: None).all_steps()


def test_a_lake_that_is_damaged_is_one_line(
    make_fleet: MakeFleet, clusters: dict[str, list[Path]], tmp_path: Path
) -> None:
    make_fleet(clusters)
    assert installed("run", tmp_path / "fleet.yaml", "--only", "plan").returncode == 0
    records, away = tmp_path / "lake" / "records", tmp_path / "away"
    records.rename(away)
    records.write_text("no folder")
    ended = installed("run", tmp_path / "fleet.yaml")
    assert ended.returncode == 3
    assert str(records) in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    records.unlink()
    away.rename(records)
    assert installed("run", tmp_path / "fleet.yaml").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (("--engine", "local", "--committer", "spark"), {}, "--engine local: the committer is spark"),
        (("--engine", "spark"), WITHOUT_JAVA, "no java that runs"),
        ((), {**WITHOUT_JAVA, "SPARK_HOME": "/opt/spark"}, "no java that runs"),
    ],
)
def test_an_engine_that_cannot_be_is_one_line(
    make_fleet: MakeFleet, clusters: dict[str, list[Path]], tmp_path: Path,
    arguments: tuple[str, ...], environment: dict[str, str], text: str,
) -> None:  # fmt: skip
    make_fleet(clusters)
    ended = installed("run", tmp_path / "fleet.yaml", *arguments, **environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert text in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
