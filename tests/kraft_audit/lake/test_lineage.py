"""OpenLineage events: sent where the usual variables ask, never a reason for a run to fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.lineage import Lineage, traced
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.tables import LAKE_TABLES
from tests.builders.http_store import http_server


@pytest.mark.slow
def test_a_run_reports_what_it_read_and_wrote(
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENLINEAGE_URL", f"file://{tmp_path}/events.jsonl")
    fleet = make_fleet({"divergence": [small_corpus / "divergence"]})
    run = without_spark.Run(fleet, without_spark.DeltaLake(fleet.lake), without_spark.stager(fleet), lambda line: None)
    with traced(run, lambda line: None):
        run.all_steps()
    start, complete = (json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [
        ("kraft", "divergence/__cluster_metadata")
    ]
    outputs = {each["name"]: each for each in complete["outputs"]}
    records = outputs[f"{fleet.lake}/records"]
    assert records["namespace"] == "file"
    rows = DeltaLake(fleet.lake).query("SELECT count(*) AS n FROM records", "records")["n"][0].as_py()
    assert records["outputFacets"]["outputStatistics"]["rowCount"] == rows > 0
    columns = [column["name"] for column in records["facets"]["schema"]["fields"]]
    assert columns == list(LAKE_TABLES["records"].column_names)
    assert complete["run"]["facets"]["processing_engine"]["name"] == "kraft-audit"


def test_a_run_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", f"file://{tmp_path}/events.jsonl")
    Lineage(pytest.fail).send("FAIL", "/lake", ["a"], why="a disk is gone")
    (event,) = (json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines())
    assert event["run"]["facets"]["errorMessage"]["message"] == "a disk is gone"


def test_a_missing_client_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    lines: list[str] = []
    Lineage(lines.append, {"OPENLINEAGE_URL": "http://127.0.0.1:9"}).send("START", "/lake")
    assert len(lines) == 1
    assert "kraft-audit[lineage]" in lines[0]


def test_a_login_in_the_address_is_not_shown() -> None:
    lines: list[str] = []
    Lineage(lines.append, {"OPENLINEAGE_URL": "ftp://audit:hunter2@host/events"}).send("START", "/lake")
    assert "hunter2" not in str(lines[0])
    assert "ftp://host/events" in lines[0]


def test_a_server_is_sent_one_event_with_its_key() -> None:
    with http_server() as server:
        server.answers = [(201, {}, b"")]
        settings = {"OPENLINEAGE_URL": server.url, "OPENLINEAGE_API_KEY": "k"}
        Lineage(pytest.fail, settings).send("START", "s3://bucket/lake", ["a"])
    assert [(each.target, each.headers["authorization"]) for each in server.requests] == [
        ("/api/v1/lineage", "Bearer k")
    ]
    json.loads(server.requests[0].body)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://nowhere", "file:///no/such/folder/events"])
def test_a_server_that_does_not_answer_is_one_line(url: str) -> None:
    lines: list[str] = []
    Lineage(lines.append, {"OPENLINEAGE_URL": url}).send("FAIL", "/lake")
    assert len(lines) == 1
    assert url in lines[0]


def test_nothing_is_sent_unless_asked() -> None:
    Lineage(pytest.fail, {}).send("START", "/lake")
