"""A run's promises: the same tables however often, in whatever steps, killed wherever, beside whatever hostility."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.lake import pipeline as run_module
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.plan_events import PlanStatus
from kraft_audit.lake.redaction_key import load_key
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.errors import InputError
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.lakes import CLUSTERS, CopyAged, MakeFleet, captures_of, replace_live, write_fleet
from tests.builders.readings import as_tables, bronze_rows

Rows = Callable[..., list[str]]
Hashes = Callable[..., dict[str, str]]
Clusters = dict[str, list[Path | str]]

TABLES = ("captures", "node_cards", "batches", "records", "archive", "decode_errors", "files")


@pytest.fixture(scope="module")
def logs(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory, copy_aged: CopyAged) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for name in CLUSTERS:
        copy_aged(small_corpus / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def clusters(logs: Path) -> Clusters:
    return {name: [logs / name] for name in CLUSTERS}


@pytest.fixture
def fleet(clusters: Clusters, make_fleet: MakeFleet) -> FleetSettings:
    return make_fleet(clusters)


@pytest.fixture(scope="module")
def expected(
    clusters: Clusters, tmp_path_factory: pytest.TempPathFactory, without_spark: ModuleType, lake_hash: Hashes
) -> dict[str, str]:
    """The tables of a run that nothing disturbed."""
    fleet = write_fleet(tmp_path_factory.mktemp("undisturbed"), clusters)
    assert without_spark.run(fleet).exit_code == 0
    return lake_hash(fleet.lake)


@pytest.mark.slow
def test_tables_hold_what_analyze_gives(fleet: FleetSettings, without_spark: ModuleType, rows_of: Rows) -> None:
    result = without_spark.run(fleet)
    assert (result.exit_code, result.clusters, result.plans) == (0, len(CLUSTERS), [1])
    expected: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    key = load_key(Path(fleet.redaction_key_file or ""), may_create=False)
    for cluster in fleet.clusters:
        plan = plan_cluster(cluster.paths, open_storage=open_storage, captured_at_ms=0, name=cluster.name)
        rows = list(bronze_rows(plan, open_storage=open_storage, redactor=Redactor(key), clock_ms=lambda: 0))
        for table, found in as_tables(rows).items():
            expected[table] += found.to_pylist()
    left_out = {"plan", "captured_at", "captured_at_ms", "read_from_ms", "read_to_ms"}
    for table in TABLES:
        remaining = [{key: value for key, value in row.items() if key not in left_out} for row in expected[table]]
        assert rows_of(fleet.lake, table) == sorted(json.dumps(row, default=str) for row in remaining), table
        assert result.rows[table] == len(remaining)
    assert sum(result.records.values()) == len(expected["records"])


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, pytest.param(2, marks=pytest.mark.long), 16])
def test_any_number_of_tasks_gives_the_same_tables(
    tasks: int, fleet: FleetSettings, without_spark: ModuleType, lake_hash: Hashes, expected: dict[str, str]
) -> None:
    assert without_spark.run(fleet, stage=without_spark.stager(fleet, tasks)).failed == {}
    assert lake_hash(fleet.lake) == expected


@pytest.mark.slow
def test_an_unchanged_fleet_makes_no_plan(
    fleet: FleetSettings, without_spark: ModuleType, table_versions: Callable[[str], dict[str, int]]
) -> None:
    without_spark.run(fleet)
    before = table_versions(fleet.lake)

    def no_stage(number: int) -> None:
        raise AssertionError(f"plan {number} was staged")

    result = without_spark.run(fleet, stage=no_stage)
    assert (result.plans, result.unchanged, result.exit_code) == ([], len(CLUSTERS), 0)
    assert table_versions(fleet.lake) == before


@pytest.mark.slow
def test_files_that_cannot_be_joined_now_stop_no_run(
    fleet: FleetSettings, without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(lake: DeltaLake, table: str) -> None:
        raise ValueError(f"{table} is not what it seems")

    monkeypatch.setattr(DeltaLake, "join_small_files", lost)
    lines: list[str] = []
    assert without_spark.run(fleet, lines=lines).exit_code == 0
    assert sum("are not joined, and the run goes on" in line for line in lines) > 10
    assert [line.split()[0] for line in lines[-2:]] == ["commit", "close"]


@pytest.mark.slow
def test_steps_by_themselves(
    fleet: FleetSettings, without_spark: ModuleType, lake_hash: Hashes, expected: dict[str, str]
) -> None:
    lines: list[str] = []
    for step in (Step.CLOSE, Step.PLAN, Step.PLAN, Step.COMMIT, Step.STAGE, Step.STAGE, Step.COMMIT):
        without_spark.run(fleet, only=step, lines=lines)
    assert [line.split("  (")[0] for line in lines if "replicas," not in line and "rows in" not in line] == [
        "close    no plan is open",
        "plan     nothing new in 0 clusters, 3 clusters left to open plan 1",
        "commit   plan 1 is not staged yet",
        "stage    plan 1 is staged",
        lines[-1].split("  (")[0],
    ]
    open_hashes = lake_hash(fleet.lake)
    assert len(set(open_hashes.values())) == 1, "rows of an open plan are in no view"
    without_spark.run(fleet, only=Step.CLOSE, lines=lines)
    assert lake_hash(fleet.lake) == expected


@pytest.fixture(params=["small_corpus", pytest.param("corpus", marks=pytest.mark.long)])
def sequence(request: pytest.FixtureRequest) -> Callable[[str], list[Path]]:
    """The captures of a scenario in the order in which they were taken: a few, and all where they are at hand."""
    scenarios: Path = request.getfixturevalue(request.param)

    def captures(name: str) -> list[Path]:
        found = captures_of(scenarios / name)
        assert len(found) >= 3
        return found

    return captures


SEQUENCES = ("divergence", "uncommitted-voter-change")


@pytest.mark.slow
@pytest.mark.parametrize("name", SEQUENCES)
def test_captures_one_by_one_are_as_all_at_once(
    name: str, sequence: Callable[[str], list[Path]], in_steps_and_whole: Callable[[str, list[Path]], tuple[str, str]],
    rows_of: Rows, archived: Callable[[str], list[str]],
) -> None:  # fmt: skip
    """A capture that arrives later adds what is new in it; `capture_number` counts within a plan."""
    steps, whole = in_steps_and_whole(name, sequence(name))
    for table in set(TABLES) - {"archive"}:
        but = frozenset({"capture_number", "damage_count"})
        assert rows_of(steps, table, but) == rows_of(whole, table, but), table
    assert archived(steps) == archived(whole), "the same batches, in other runs"


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_plans", [2, 100])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_live_dir_that_grows_and_is_cut(
    name: str, sequence: Callable[[str], list[Path]], tmp_path: Path, make_fleet: MakeFleet,
    without_spark: ModuleType, rows_of: Rows, archived: Callable[[str], list[str]], checkpoint_plans: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each capture in turn replaces the live dirs, as time did: appended, cut, rewritten. Nothing seen is lost."""
    monkeypatch.setattr(run_module, "Ledger", partial(Ledger, checkpoint_plans=checkpoint_plans))
    captures = sequence(name)
    live = tmp_path / "live"
    fleet = make_fleet({name: [live]}, lake="steps")
    for number, capture in enumerate(captures):
        replace_live(live, capture, number)
        assert without_spark.run(fleet).failed == {}
    without_spark.run(make_fleet({name: captures}, lake="whole"))
    steps, whole = str(tmp_path / "steps"), str(tmp_path / "whole")
    assert rows_of(steps, "records") == rows_of(whole, "records")
    places = frozenset({"capture", "capture_number", "root", "path", "damage_count"})
    for table in ("captures", "batches", "decode_errors"):
        assert rows_of(steps, table, places) == rows_of(whole, table, places), table
    truncated = [row for row in rows_of(steps, "batches") if json.loads(row)["status"] == "truncated"]
    assert truncated, "the suffix that was cut is kept as history"
    assert archived(steps) == archived(whole), "in the archive too"


@pytest.mark.slow
def test_one_hostile_cluster_among_good_ones(
    logs: Path, clusters: Clusters, make_fleet: MakeFleet, without_spark: ModuleType, lake_hash: Hashes,
    tmp_path: Path, expected: dict[str, str],
) -> None:  # fmt: skip
    (tmp_path / "bad.tgz").write_bytes(os.urandom(1000))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")
    hostile: Clusters = {
        "missing": [tmp_path / "nowhere"], "archive": [tmp_path / "bad.tgz"], "loop": [tmp_path / "loop"],
        "empty": [tmp_path / "empty"], "fifo": [tmp_path / "fifo"], "newline": [tmp_path / "a\nb"],
        "pattern": [tmp_path / "no*where"], "again": [logs / CLUSTERS[0]],
    }  # fmt: skip
    fleet = make_fleet({**clusters, **hostile})
    result = without_spark.run(fleet)
    assert result.exit_code == 3
    assert result.failed.keys() == hostile.keys()
    assert all("\n" not in why for why in result.failed.values())
    assert "is that of mini-3.9.2" in result.failed["again"]
    assert lake_hash(fleet.lake) == expected


@pytest.mark.slow
def test_a_cluster_that_changes_while_it_is_read_is_left_out(
    logs: Path, make_fleet: MakeFleet, without_spark: ModuleType, rows_of: Rows, tmp_path: Path
) -> None:
    """Its bytes are cut between plan and stage: nothing of it is committed, the others are, the next run reads it."""
    shutil.copytree(logs, tmp_path / "logs")
    fleet = make_fleet({name: [tmp_path / "logs" / name] for name in CLUSTERS})
    without_spark.run(fleet, only=Step.PLAN)
    (log,) = sorted((tmp_path / "logs" / "divergence").glob("10-*/node-1/__cluster_metadata-0/*0.log"))
    whole = log.read_bytes()
    log.write_bytes(whole[:1000])
    lines: list[str] = []
    for step in (Step.STAGE, Step.COMMIT, Step.CLOSE):
        result = without_spark.run(fleet, only=step, lines=lines)
    assert result.exit_code == 3
    assert "CHANGED_DURING_READ" in result.failed["divergence"]
    assert lines[-2] == f"close    divergence: {result.failed['divergence']}"
    assert len(clusters_in(fleet.lake, rows_of)) == len(CLUSTERS) - 1
    result = without_spark.run(fleet)
    assert (result.failed, result.clusters) == ({}, 1)
    assert len(clusters_in(fleet.lake, rows_of)) == len(CLUSTERS), "it is read as it is now"


def clusters_in(lake: str, rows_of: Rows) -> set[str]:
    return {json.loads(row)["cluster_id"] for table in TABLES for row in rows_of(lake, table)}


FAILPOINTS = (
    "after-plan",
    "before-manifest",
    "after-stage",
    *(f"after-commit:{table}" for table in (*TABLES, "partition_changes", "replays", "findings_staged")),
    "after-close",
)


def program(script: Path, fleet_file: Path, failpoint: str | None = None) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != "KRAFT_AUDIT_FAILPOINT"}
    if failpoint is not None:
        environment["KRAFT_AUDIT_FAILPOINT"] = failpoint
    command = [sys.executable, str(script), str(fleet_file)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.ci
def test_killed_at_every_boundary_and_run_again(
    clusters: Clusters, make_fleet: MakeFleet, without_spark: ModuleType, script: Path, tmp_path: Path,
    lake_hash: Hashes, expected: dict[str, str],
) -> None:  # fmt: skip
    for number, failpoint in enumerate(FAILPOINTS):
        fleet = make_fleet(clusters, lake=f"lake-{number}", file=f"{number}.yaml")
        killed = program(script, tmp_path / f"{number}.yaml", failpoint)
        assert killed.wait(120) == -signal.SIGKILL, (failpoint, killed.communicate())
        result = without_spark.run(fleet)
        assert result.failed == {}
        assert Ledger(DeltaLake(fleet.lake)).status().open == ()
        assert lake_hash(fleet.lake) == expected, failpoint
    assert result.plans == [], "killed after close: nothing was left to do"


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2))])
def test_runs_at_once(
    attempt: int, clusters: Clusters, make_fleet: MakeFleet, script: Path, tmp_path: Path,
    lake_hash: Hashes, expected: dict[str, str],
) -> None:  # fmt: skip
    fleet = make_fleet(clusters, lake="shared", file="shared.yaml")
    programs = [program(script, tmp_path / "shared.yaml") for _ in range(2 + attempt)]
    reported = [program.communicate(timeout=120) for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs), reported
    assert lake_hash(fleet.lake) == expected
    assert all(json.loads(out)["failed"] == {} for out, _ in reported)


@pytest.mark.slow
def test_runs_interleaved_in_one_process(
    fleet: FleetSettings, without_spark: ModuleType, lake_hash: Hashes, expected: dict[str, str]
) -> None:
    """Threads that meet at the same steps: whoever records a step first, all commit the same files."""
    from threading import Barrier

    barrier = Barrier(3, timeout=60)
    without_spark.run(fleet, only=Step.PLAN)

    def staged(number: int) -> Any:
        manifest = without_spark.stager(fleet)(number)
        barrier.wait()
        return manifest

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: without_spark.run(fleet, stage=staged), range(3)))
    assert [result.failed for result in results] == [{}, {}, {}]
    assert lake_hash(fleet.lake) == expected
    manifest = Ledger(DeltaLake(fleet.lake)).manifest(1)
    for table in TABLES:
        added = DeltaLake(fleet.lake).open(table).file_uris()
        assert len(added) == sum(file.table == table for file in manifest.files), table


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before it looks", "after it looked"])
@pytest.mark.parametrize("steps", [(Step.PLAN,), (Step.PLAN, Step.STAGE), tuple(Step)])
def test_another_run_overtakes_while_this_one_plans(
    when: str, steps: tuple[Step, ...], fleet: FleetSettings, without_spark: ModuleType, lake_hash: Hashes,
    expected: dict[str, str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever the other gets done between any two looks at the ledger, each batch is planned once."""
    plan_fleet, overtaken = run_module.plan_fleet, False

    def slow_plan(*arguments: Any) -> Any:
        nonlocal overtaken
        planned = plan_fleet(*arguments) if when == "after it looked" else None
        if not overtaken:
            overtaken = True
            for step in steps:
                without_spark.run(fleet, only=step)
        return planned or plan_fleet(*arguments)

    monkeypatch.setattr(run_module, "plan_fleet", slow_plan)
    result = without_spark.run(fleet)
    assert result.failed == {}
    assert Ledger(DeltaLake(fleet.lake)).status() == PlanStatus(1, 1, (), ClosedPlans(1))
    assert lake_hash(fleet.lake) == expected


@pytest.mark.ci
def test_no_room_at_any_write(
    clusters: Clusters, make_fleet: MakeFleet, without_spark: ModuleType, script: Path, tmp_path: Path,
    lake_hash: Hashes, expected: dict[str, str],
) -> None:  # fmt: skip
    """No file may grow beyond a limit that grows: the run fails at one write after the other, and loses nothing."""
    fleet = make_fleet(clusters, file="full.yaml")
    failed = 0
    for limit_bytes in (0, 400, 1000, 2000, 4000, 5000, 6000, 7000, 8000, 10_000, 12_000, 16_000, 24_000):
        limited = ["-c", f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, -1)); "
                   f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"]  # fmt: skip
        ended = subprocess.run(
            [sys.executable, *limited, str(tmp_path / "full.yaml")],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        failed += ended.returncode != 0
    assert failed >= 5
    assert without_spark.run(fleet).failed == {}
    assert lake_hash(fleet.lake) == expected


@pytest.mark.ci
def test_killed_at_any_moment_and_run_again(
    clusters: Clusters, make_fleet: MakeFleet, without_spark: ModuleType, script: Path, tmp_path: Path,
    lake_hash: Hashes, expected: dict[str, str],
) -> None:  # fmt: skip
    """KRAFT_AUDIT_KILLS says how often; the moments are spread evenly over a run, with a little chance."""
    make_fleet(clusters, lake="undisturbed", file="undisturbed.yaml")
    started = time.monotonic()
    assert program(script, tmp_path / "undisturbed.yaml").wait(120) == 0
    lasts_s = time.monotonic() - started
    kills = int(os.environ.get("KRAFT_AUDIT_KILLS", "6"))
    seed = int(os.environ.get("KRAFT_AUDIT_KILLS_SEED", "20"))
    chance = random.Random(seed)  # noqa: S311  # a schedule, no secret
    for number in range(kills):
        fleet = make_fleet(clusters, lake=f"lake-{number}", file="killed.yaml")
        victim = program(script, tmp_path / "killed.yaml")
        time.sleep((number + chance.random()) / kills * lasts_s * 1.1)
        victim.kill()
        victim.communicate()
        assert without_spark.run(fleet).failed == {}
        assert lake_hash(fleet.lake) == expected, f"kill {number} of {kills}"
        shutil.rmtree(fleet.lake)


@pytest.mark.slow
def test_another_lakes_key_is_refused(fleet: FleetSettings, without_spark: ModuleType) -> None:

    without_spark.run(fleet)
    key_file = Path(fleet.redaction_key_file or "")
    key_file.write_text("ab" * 32)
    with pytest.raises(InputError, match=r"not the key that the lake .* was begun with"):
        without_spark.run(fleet)
    key_file.unlink()
    with pytest.raises(InputError, match="bring it back"):
        without_spark.run(fleet)
