"""The command as it is typed, a process of its own: exit codes, one line for what cannot be, no line of Spark's."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.plan_events import PlanStatus
from kraft_audit.lake.settings import FleetSettings
from tests.builders.commands import COMMAND, installed
from tests.builders.lakes import CLUSTERS


@pytest.mark.slow
def test_a_bad_file_ends_with_2_and_nothing_written(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("lake: lake\nclusters: [{name: a, paths: [x], dialekt: kip853}]\n")
    ended = installed("run", file)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.endswith(f"{file}: clusters[0].dialekt: 'kip853': expected a known key, perhaps dialect")
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.yaml"]


@pytest.mark.slow
def test_a_missing_java_is_one_line_and_the_plan_stays_open(
    make_fleet: Callable[..., FleetSettings], small_corpus: Path, tmp_path: Path
) -> None:
    make_fleet({"a": [small_corpus / "torn-write"]})
    ended = installed(
        "run", tmp_path / "fleet.yaml", "--engine", "spark", JAVA_HOME=str(tmp_path / "none"), PATH="/nonexistent"
    )
    if "Java" not in ended.stderr:
        pytest.skip("a Java that make setup fetched serves where no other is")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no java that runs" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_what_is_in_a_lake_is_shown_without_java(
    make_fleet: Callable[..., FleetSettings], small_corpus: Path, without_spark: ModuleType
) -> None:
    fleet = make_fleet({"a": [small_corpus / "torn-write"]})
    without_spark.run(fleet)
    ended = installed("lake", "tables", fleet.lake, JAVA_HOME="/nonexistent", PATH="/nonexistent")
    assert ended.returncode == 0, ended.stderr
    assert "TORN_TAIL" in ended.stdout
    missing = installed("lake", "tables", fleet.lake + "-none")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert len(missing.stderr.splitlines()) == 1


@pytest.mark.ci
@pytest.mark.timeout(600)
def test_workers_and_driver_killed_under_spark(
    make_fleet: Callable[..., FleetSettings], small_corpus: Path, tmp_path: Path, without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """The Python workers die in the middle of the job, then the driver after it; the third run finishes the plan.

    What the workers finished before they died is not read again.
    """
    clusters = {name: [small_corpus / name] for name in CLUSTERS}
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(clusters)
    file = tmp_path / "fleet.yaml"

    ended = installed("run", file, "--engine", "spark", KRAFT_AUDIT_FAILPOINT="in-stage")
    assert ended.returncode == 3, ended.stderr
    assert "plan 1 could not be staged and stays open for the next run" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert "WARN" not in ended.stderr

    ended = installed("run", file, "--engine", "spark", KRAFT_AUDIT_FAILPOINT="before-manifest")
    assert ended.returncode == -signal.SIGKILL
    assert Ledger(DeltaLake(fleet.lake)).status().open == (1,)
    left = {path.name for path in (tmp_path / "lake" / "records").glob("*.parquet")}
    assert left, "data files that no transaction names"

    ended = installed("run", file, "--engine", "spark", "--output", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["plans"] == [1]
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)
    visible = {Path(uri).name for uri in DeltaLake(fleet.lake).open("records").file_uris()}
    assert visible <= left

    (tmp_path / "lake" / "records").rename(tmp_path / "lake" / "records-away")
    (tmp_path / "lake" / "records").write_text("no folder")
    again = installed("run", file, "--lake", tmp_path / "lake")
    assert again.returncode == 3
    assert "Traceback" not in again.stderr


@pytest.mark.ci
@pytest.mark.timeout(600)
def test_two_commands_at_once(
    make_fleet: Callable[..., FleetSettings], small_corpus: Path, tmp_path: Path, without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """Two schedulers that start the same run: both end well, and the lake is that of one."""
    clusters = {name: [small_corpus / name] for name in CLUSTERS}
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    fleet = make_fleet(clusters)
    command = [str(COMMAND), "run", str(tmp_path / "fleet.yaml"), "--output", "json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    reported = [run.communicate(timeout=280) for run in both]
    assert [run.returncode for run in both] == [0, 0], reported
    assert Ledger(DeltaLake(fleet.lake)).status() == PlanStatus(1, 1, (), ClosedPlans(1))
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)
