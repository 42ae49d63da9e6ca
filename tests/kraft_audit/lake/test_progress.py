"""Progress as text and as JSON; some clusters of a fleet; a plan finished by another run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.progress import ProgressLine, RunResult, progress_to, run_id
from kraft_audit.lake.settings import FleetSettings, SettingsError, only_clusters


def progress_lines(run: Callable[[list[str]], object]) -> list[str]:
    lines: list[str] = []
    run(lines)
    return lines


def test_a_line_for_people_and_an_object_for_programs() -> None:
    line = ProgressLine("plan", "no such path", cluster="west\x1b[2J", plan=3, level="warning")
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
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    fleet = make_fleet({"divergence": [small_corpus / "divergence"], "gone": ["/nowhere"]})
    lines = progress_lines(lambda lines: without_spark.run(fleet, lines=lines))
    assert all(isinstance(line, ProgressLine) for line in lines)
    assert {line.step for line in lines if isinstance(line, ProgressLine)} == {"plan", "stage", "commit", "close"}
    assert [line.cluster for line in lines if isinstance(line, ProgressLine) and line.cluster] == ["gone"]


def test_only_some_clusters(small_corpus: Path, make_fleet: Callable[..., FleetSettings], tmp_path: Path) -> None:
    fleet = make_fleet({"divergence": [small_corpus / "divergence"], "elr": [small_corpus / "elr"]})
    file = tmp_path / "fleet.yaml"
    assert [cluster.name for cluster in only_clusters(fleet, file, ["elr"]).clusters] == ["elr"]
    assert only_clusters(fleet, file, None) is fleet
    with pytest.raises(SettingsError, match="'absent': expected a cluster of"):
        only_clusters(fleet, file, ["absent"])


def test_a_plan_left_open_is_finished_and_nothing_more(
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    fleet = make_fleet({"divergence": [small_corpus / "divergence"]})
    without_spark.run(fleet, only=Step.PLAN)
    more = make_fleet({"divergence": [small_corpus / "divergence"], "elr": [small_corpus / "elr"]})
    run = without_spark.Run(more, without_spark.DeltaLake(more.lake), without_spark.stager(more), lambda line: None)
    assert run.finish_open_plans().plans == [1]
    assert run.result.clusters == 1


def test_the_job_takes_the_options_that_the_schedule_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "fleet.yaml")
    for more in (["--tables-only", "--cluster", "a", "--cluster", "b"], ["--finish"], ["--only", "findings"]):
        assert run_command(["run", missing, "--lake", "/nowhere", "--log-format", "json", *more]) == 3
        assert "No such file" in json.loads(capsys.readouterr().err)["message"]


@pytest.mark.parametrize(
    ("failed", "size", "expected"),
    [
        ({}, 5, None),
        ({"a": "s3://captures/a: no such object or prefix"}, 2, None),
        ({"a": "/x/a: no metadata log"}, 1, "all 1 clusters failed"),
        ({"a": "s3://c/a: Access Denied (403)", "b": "s3://c/b: Access Denied (403)"}, 10, None),
        (
            {name: f"s3://c/{name}: Access Denied (request {name})" for name in ("7", "81", "9")},
            10,
            "3 of 10 clusters failed for one reason: Access Denied (request N)",
        ),
        ({"a": "/a: permission denied", "b": "/b: cut short", "c": "/c: no metadata log"}, 10, None),
    ],
)
def test_single_clusters_that_fail_are_tolerated(failed: dict[str, str], size: int, expected: str | None) -> None:
    assert RunResult("lake", unreachable=failed).intolerable(size, 20) == expected
