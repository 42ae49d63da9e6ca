"""Parts of a plan: what one finished is kept, a cluster has a deadline, and what fails is tried again, then alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from pyarrow.fs import FileSelector

from kraft_audit.capture.plan import plan_from_json, plan_to_json
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest, PlannedCluster
from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.staging import isolated_staging, plan_staging, stage_parts
from kraft_audit.lake.staging.plan_staging import PlanStaging
from kraft_audit.lake.staging.stage_parts import (
    PART_BYTES,
    ManifestRow,
    named_parts,
    parts_of,
    read_manifests,
    write_manifest,
)
from kraft_codec.errors import InputError
from tests.builders.lakes import MakeFleet, MakePlan

FIRST, SECOND = "torn-write", "mini-3.9.2"


def planned(make_plan: MakePlan, *sizes: int) -> list[tuple[int, str]]:
    return [(number, plan_to_json(make_plan(f"c{number}", 1, size))) for number, size in enumerate(sizes)]


def test_small_clusters_share_a_part_and_a_large_one_has_its_own(make_plan: MakePlan) -> None:
    clusters = planned(make_plan, 3 * PART_BYTES, 1000, PART_BYTES // 2, 2000, PART_BYTES // 2, PART_BYTES)
    parts = parts_of(clusters)
    assert [[number for number, _ in part.clusters] for part in parts] == [[1, 3, 2], [4], [5], [0]]
    assert parts_of(list(reversed(clusters))) == parts, "whichever run asks"
    assert sorted(cluster for part in parts for cluster in part.clusters) == sorted(clusters)
    again = named_parts(clusters, ["00001", "00003-2"])
    assert again == [parts[1], named_parts(clusters, ["00003-2"])[0]]
    assert [number for number, _ in again[1].clusters] == [3]


def test_the_first_manifest_of_a_part_counts(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert read_manifests(lake, 7) == {}
    first: list[ManifestRow] = [{"cluster_number": 1, "failure": None}]
    assert write_manifest(lake, 7, "00000", first) == first
    assert write_manifest(lake, 7, "00000", [{"cluster_number": 1, "failure": "late"}]) == first
    assert read_manifests(lake, 7) == {"00000": first}
    assert read_manifests(lake, 8) == {}
    (file,) = (tmp_path / "_staging" / "plan-00000007").iterdir()
    assert file.name == "00000.jsonl", "nothing unfinished is left"
    stage_parts.forget_manifests(lake, 7)
    assert read_manifests(lake, 7) == {}


def test_a_manifest_is_written_while_another_run_stages_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes what is left of it, whole or not: the ledger says which manifest counts."""
    lake, rows = str(tmp_path), [{"cluster_number": 1, "failure": None}]
    monkeypatch.setattr(stage_parts.os, "fsync", lambda _: stage_parts.forget_manifests(lake, 7))
    assert write_manifest(lake, 7, "00000", rows) == rows
    monkeypatch.undo()
    assert write_manifest(lake, 7, "00000", rows) == rows
    listed = stage_parts.staging_folder(lake, 7)
    gone = Mock(wraps=listed, get_file_info=Mock(return_value=listed.get_file_info(FileSelector(""))))
    monkeypatch.setattr(stage_parts, "staging_folder", lambda *_: gone)
    (tmp_path / "_staging" / "plan-00000007" / "00000.jsonl").unlink()
    assert read_manifests(lake, 7) == {}
    gone.open_input_file.assert_called_once()


class Jobs:
    """Jobs that lose these clusters, as often; `ended` are their attempts in order."""

    def __init__(self, ledger: Ledger, lost: dict[int, int], dies_in: Sequence[str] = ()) -> None:
        self.ledger, self.lost, self.dies_in = ledger, dict(lost), list(dies_in)
        self.ended: list[tuple[str, ...]] = []

    def __call__(self, names: Sequence[str]) -> list[ManifestRow]:
        recorded = {part for _, part, _ in self.ledger.attempts(1)}
        assert set(names) <= recorded, "an attempt is recorded before it starts"
        self.ended.append(tuple(names))
        rows: list[ManifestRow] = []
        for part in named_parts(self.ledger.planned(1), names):
            if part.name in self.dies_in:
                self.dies_in.remove(part.name)
                raise InputError("job", "lost")
            found = [self._row(number, text) for number, text in part.clusters]
            rows += [
                {**row, "part": part.name} for row in write_manifest(self.ledger.lake.data_uri, 1, part.name, found)
            ]
        return rows

    def _row(self, number: int, text: str) -> ManifestRow:
        if self.lost.get(number, 0) > 0:
            self.lost[number] -= 1
            return isolated_staging.lost_row(number, text, f"no memory, {self.lost[number]} more")
        plan = plan_from_json(text)
        return {
            "cluster_number": number, "cluster_name": plan.name, "cluster_id": plan.key, "failure": None,
            "state": "{}", "summary": "{}", "data_file": None,
        }  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path, make_plan: MakePlan) -> Ledger:
    """With an open plan of three clusters in two parts: 0 and 1, and 2."""
    ledger = Ledger(DeltaLake(str(tmp_path / "lake")))
    ledger.create()
    sizes = (1000, 2000, 2 * PART_BYTES)
    assert ledger.open_plan(
        [PlannedCluster(make_plan(f"c{place}", 1, size)) for place, size in enumerate(sizes)], "key"
    )
    return ledger


def staged(ledger: Ledger, jobs: Jobs) -> Manifest:
    return PlanStaging(ledger, ledger.lake.data_uri, 1, 30, jobs).manifest()


@pytest.mark.ci
def test_a_cluster_that_is_lost_is_tried_again_then_alone_then_it_has_failed(ledger: Ledger) -> None:
    jobs = Jobs(ledger, {0: 1, 1: 2, 2: 3})
    manifest = staged(ledger, jobs)
    assert jobs.ended == [("00000", "00001"), ("00000-2", "00001-2", "00002-2"), ("00001-3",), ("00002-3",)]
    assert [(outcome.cluster_number, outcome.failure) for outcome in manifest.outcomes] == [
        (0, None),
        (1, None),
        (2, "3 attempts failed, the last one alone: no memory, 0 more"),
    ]
    assert manifest.outcomes[2].summary == {"attempts": 3}


@pytest.mark.ci
def test_a_lost_job_loses_only_the_parts_that_it_had_not_finished(ledger: Ledger) -> None:
    jobs = Jobs(ledger, {}, dies_in=["00001"])
    with pytest.raises(InputError, match="lost"):
        staged(ledger, jobs)
    manifest = staged(ledger, jobs)
    assert jobs.ended == [("00000", "00001"), ("00001",)], "the first part is not read again"
    assert [outcome.failure for outcome in manifest.outcomes] == [None] * 3


@pytest.mark.ci
def test_a_cluster_whose_jobs_die_is_read_alone_and_fails_in_the_end(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is left to say why: the attempts in the ledger do, once their deadlines have passed."""
    jobs = Jobs(ledger, {}, dies_in=["00001", "00001", "00001", "00002-3"])
    for _ in range(3):
        with pytest.raises(InputError, match="lost"):
            staged(ledger, jobs)
    assert jobs.ended[-1] == ("00001",), "another run may still be at it: its time is not over"
    hours = 10**9 * 3600
    now_ns = plan_staging.time.time_ns()
    monkeypatch.setattr(plan_staging.time, "time_ns", lambda: now_ns + 5 * hours)
    with pytest.raises(InputError, match="lost"):
        staged(ledger, jobs)
    assert jobs.ended[-1] == ("00002-3",)
    jobs.ended.clear()
    monkeypatch.setattr(plan_staging.time, "time_ns", lambda: now_ns + 10 * hours)
    manifest = staged(ledger, jobs)
    assert jobs.ended == []
    assert [outcome.failure for outcome in manifest.outcomes] == [
        None, None, "3 attempts failed, the last one alone: the job that read it was lost",
    ]  # fmt: skip


@pytest.mark.ci
def test_manifests_of_other_parts_of_the_same_plan_are_not_used(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build, by which each cluster was its own part, has left some."""
    jobs = Jobs(ledger, {})
    with monkeypatch.context() as patched:
        patched.setattr(stage_parts, "PART_BYTES_MAX", 0)
        jobs.ledger.record_attempt(
            1, [(0, plan_from_json(ledger.planned(1)[0][1]), {"part": "00000", "deadline_s": 9})]
        )
        jobs(["00000"])
    jobs.ended.clear()
    assert len(staged(ledger, jobs).outcomes) == 3
    assert jobs.ended == [("00000", "00001")]


@pytest.fixture
def fleet(small_corpus: Path, make_fleet: MakeFleet) -> FleetSettings:
    return make_fleet({name: [small_corpus / name] for name in (FIRST, SECOND)})


@pytest.fixture
def child() -> Any:
    """The process that reads is of this worker: it must not outlive what a test sets in the environment."""
    isolated_staging.WORKER_CHILD.close()
    yield isolated_staging.WORKER_CHILD
    isolated_staging.WORKER_CHILD.close()


@pytest.mark.ci
@pytest.mark.usefixtures("child")
def test_a_process_of_its_own_gives_the_same_tables(
    fleet: FleetSettings, without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]]
) -> None:
    without_spark.run(fleet)
    isolated = fleet.model_copy(update={"lake": f"{fleet.lake}-other"})
    assert without_spark.run(isolated, stage=without_spark.stager(isolated, is_isolated=True)).failed == {}
    assert lake_hash(isolated.lake) == lake_hash(fleet.lake)
    assert not list(Path(isolated.lake, "_staging").iterdir()), "what the parts left is gone"
    attempts = DeltaLake(isolated.lake).query("SELECT cluster_name FROM plans WHERE event = 'attempt'", "plans")
    assert sorted(attempts["cluster_name"].to_pylist()) == sorted([FIRST, SECOND])


@pytest.mark.ci
@pytest.mark.usefixtures("child")
@pytest.mark.parametrize(
    ("variable", "why"), [("KRAFT_AUDIT_DIES", "SIGKILL"), ("KRAFT_AUDIT_HANGS", "did not end within")]
)
def test_a_cluster_that_hangs_or_takes_all_memory_stops_no_other(
    variable: str, why: str, fleet: FleetSettings, without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three attempts of its own; the other cluster of its part is read all the same, and the run ends."""
    monkeypatch.setenv(variable, FIRST)
    monkeypatch.setattr(isolated_staging, "deadline_s", lambda minutes, cost: 3)
    result = without_spark.run(fleet, stage=without_spark.stager(fleet, is_isolated=True))
    assert result.clusters == 1
    assert result.failed.keys() == {FIRST}
    assert "3 attempts failed, the last one alone" in result.failed[FIRST]
    assert why in result.failed[FIRST]
    read = DeltaLake(fleet.lake).query("SELECT DISTINCT cluster_id FROM records", "records")
    assert read.num_rows == 1


@pytest.mark.ci
@pytest.mark.usefixtures("child")
def test_what_a_killed_run_finished_is_not_read_again(
    fleet: FleetSettings, without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_parts, "PART_BYTES", 0)
    without_spark.run(fleet, only=Step.PLAN)
    stage = without_spark.stager(fleet, tasks=1)
    written = stage_parts.write_manifest

    def lost_after_the_first(*arguments: Any) -> Any:
        if read_manifests(fleet.lake, 1):
            raise InputError("job", "lost")
        return written(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stage_parts, "write_manifest", lost_after_the_first)
        with pytest.raises(InputError, match="lost"):
            stage(1)
    (manifest,) = read_manifests(fleet.lake, 1).values()
    files = {json.loads(row["data_file"])["path"] for row in manifest if row["data_file"] is not None}
    assert without_spark.run(fleet).failed == {}
    committed = {
        Path(uri).name for table in ("records", "batches") for uri in DeltaLake(fleet.lake).open(table).file_uris()
    }
    assert files & committed, "what was finished counts"
