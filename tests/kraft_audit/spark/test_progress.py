"""Progress as text and as JSON; some clusters of a fleet; a plan finished by another run."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.settings import FleetSettings, SettingsError
from kraft_audit.spark.progress import Line, progress_to, run_id
from kraft_audit.spark.run import Step
from kraft_audit.spark.run_fleet import only_clusters


def told(run: Callable[[list[str]], object]) -> list[str]:
    lines: list[str] = []
    run(lines)
    return lines


def test_a_line_for_people_and_an_object_for_programs() -> None:
    line = Line("plan", "no such path", cluster="west\x1b[2J", plan=3, level="warning")
    text, objects = io.StringIO(), io.StringIO()
    progress_to(text)(line)
    progress_to(objects, "json", run="scheduled-7")(line)
    assert text.getvalue() == "plan     west\\x1b[2J: no such path\n"
    read = json.loads(objects.getvalue())
    assert (read["run"], read["step"], read["cluster"], read["plan"]) == ("scheduled-7", "plan", "west\x1b[2J", 3)
    assert read["level"] == "warning"


def test_whoever_starts_a_run_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KRAFT_AUDIT_RUN_ID", raising=False)
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "scheduled__2026-11-21")
    assert run_id() == "scheduled__2026-11-21"
    monkeypatch.delenv("AIRFLOW_CTX_DAG_RUN_ID")
    assert run_id() != run_id()


def test_every_line_of_a_run_says_its_step(
    samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    fleet = make_fleet({"divergence": [samples / "divergence"], "gone": ["/nowhere"]})
    lines = told(lambda lines: without_spark.run(fleet, lines=lines))
    assert all(isinstance(line, Line) for line in lines)
    assert {line.step for line in lines if isinstance(line, Line)} == {"plan", "stage", "commit", "close"}
    assert [line.cluster for line in lines if isinstance(line, Line) and line.cluster] == ["gone"]


def test_only_some_clusters(samples: Path, make_fleet: Callable[..., FleetSettings], tmp_path: Path) -> None:
    fleet = make_fleet({"divergence": [samples / "divergence"], "elr": [samples / "elr"]})
    file = tmp_path / "fleet.yaml"
    assert [one.name for one in only_clusters(fleet, file, ["elr"]).clusters] == ["elr"]
    assert only_clusters(fleet, file, None) is fleet
    with pytest.raises(SettingsError, match="'nobody': expected a cluster of"):
        only_clusters(fleet, file, ["nobody"])


def test_a_plan_left_open_is_finished_and_nothing_more(
    samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    fleet = make_fleet({"divergence": [samples / "divergence"]})
    without_spark.run(fleet, only=Step.PLAN)
    more = make_fleet({"divergence": [samples / "divergence"], "elr": [samples / "elr"]})
    run = without_spark.Run(more, without_spark.DeltaLake(more.lake), without_spark.stager(more), lambda line: None)
    assert run.finish_open_plan().plans == [1]
    assert run.result.clusters == 1


def test_the_job_takes_what_the_schedule_gives_it(
    project_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = runpy.run_path(str(project_root / "jobs" / "analyze.py"))["main"]
    missing = str(tmp_path / "fleet.yaml")
    for more in (["--tables-only", "--cluster", "a", "--cluster", "b"], ["--finish"], ["--only", "findings"]):
        assert job([missing, "--lake", "/nowhere", "--log-format", "json", *more]) == 3
        assert "No such file" in json.loads(capsys.readouterr().err)["message"]
