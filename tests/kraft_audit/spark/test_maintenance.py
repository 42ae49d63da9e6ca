"""Maintenance changes files, never what a query gives."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.maintenance import DeltaMaintainer, Maintained, maintain_lake
from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import FleetSettings, MaintainSettings, SettingsError, load_maintain
from kraft_audit.spark.spark_lake import open_maintainer
from kraft_audit.text.readable import DAY_MS
from kraft_codec.errors import InputError
from kraft_engine.runs.fleet_logs import simulate_fleet
from tests.builders.lakes import CLUSTERS, staged_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType) -> str:
    """A lake that three runs wrote, each a cluster more: three small files a table."""
    for count in range(1, len(CLUSTERS) + 1):
        fleet = make_fleet({name: [small_corpus / name] for name in CLUSTERS[:count]})
        without_spark.run(fleet)
    return fleet.lake


def maintained(lake: str, settings: MaintainSettings, **options: object) -> dict[str, Maintained]:
    opened = DeltaLake(lake)
    maintainer = DeltaMaintainer(opened, settings.target_file_bytes)
    return {outcome.table: outcome for outcome in maintain_lake(opened, maintainer, settings, **options)}  # type: ignore[arg-type]


@pytest.mark.slow
def test_small_files_are_joined_and_dropped_and_rows_stay(
    lake: str, lake_hash: Callable[..., dict[str, str]], table_versions: Callable[[str], dict[str, int]],
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
) -> None:  # fmt: skip
    before, versions = lake_hash(lake), table_versions(lake)
    settings = MaintainSettings(cluster_by={"records": ["cluster_id", "offset"]})
    planned = maintained(lake, settings, dry_run=True)
    assert planned["records"].layout == "would join 3 small files"
    assert table_versions(lake) == versions

    done = maintained(lake, settings, vacuum_hours=0)
    assert {table: outcome.failure for table, outcome in done.items() if outcome.failure} == {}
    assert (done["records"].files_before, done["records"].files_after) == (3, 1)
    assert done["records"].layout == "ordered by cluster_id, offset"
    assert done["batches"].layout == "compacted"
    assert done["records"].files_vacuumed == 3
    assert lake_hash(lake) == before
    data_files = [file for file in Path(lake, "records").iterdir() if file.suffix == ".parquet"]
    assert len(data_files) == 1
    # The ledger's transactions are still known: nothing is read again.
    again = without_spark.run(make_fleet({name: [small_corpus / name] for name in CLUSTERS}))
    assert (again.plans, again.unchanged) == ([], len(CLUSTERS))
    assert all(value.layout == "" for value in maintained(lake, settings).values())


@pytest.mark.slow
def test_what_a_younger_reader_may_hold_stays(lake: str) -> None:
    done = maintained(lake, MaintainSettings())
    assert done["records"].files_vacuumed == 0
    orphan = Path(lake, "records", "plan-00000009-00000-left-by-a-kill.zstd.parquet")
    orphan.write_bytes(b"no transaction names this")
    assert maintained(lake, MaintainSettings())["records"].files_vacuumed == 0
    eight_days_ago = time.time() - 8 * 86_400
    os.utime(orphan, (eight_days_ago, eight_days_ago))
    assert maintained(lake, MaintainSettings(), dry_run=True)["records"].files_vacuumed == 1
    assert orphan.exists()
    maintained(lake, MaintainSettings())
    assert not orphan.exists()


@pytest.mark.slow
def test_rows_past_their_days_go_and_the_ledger_keeps_what_runs_read(
    lake: str, monkeypatch: pytest.MonkeyPatch, rows_of: Callable[..., list[str]]
) -> None:
    settings = MaintainSettings(keep_days={"records": 30, "plans": 30, "files": 30})
    assert all(value.rows_forgotten == 0 for value in maintained(lake, settings).values())
    in_two_months = time.time_ns() + 60 * DAY_MS * 1_000_000
    monkeypatch.setattr("kraft_audit.lake.maintenance.time.time_ns", lambda: in_two_months)
    rows, ledger_files = len(rows_of(lake, "records")), Ledger(DeltaLake(lake)).files()
    done = maintained(lake, settings)
    # The gate holds the newest plan to its manifest.
    remaining = DeltaLake(lake).query("SELECT plan, count(*) AS n FROM records GROUP BY plan", "records").to_pylist()
    assert [row["plan"] for row in remaining] == [len(CLUSTERS)]
    assert done["records"].rows_forgotten == rows - remaining[0]["n"] > 0
    assert [
        verdict for verdict in judge_lake(DeltaLake(lake), fresh_hours=1e9, docs="").verdicts if not verdict.passed
    ] == []
    # No checkpoint yet: every plan is still of use.
    assert (done["plans"].rows_forgotten, done["files"].rows_forgotten) == (0, 0)
    assert Ledger(DeltaLake(lake)).files() == ledger_files


def test_an_open_plan_is_finished_first(
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    fleet = make_fleet({"divergence": [small_corpus / "divergence"]})
    without_spark.run(fleet, only=Step.PLAN)
    without_spark.run(fleet, only=Step.STAGE)
    with pytest.raises(InputError, match="plan 1 is open"):
        maintained(fleet.lake, MaintainSettings(), vacuum_hours=0)


@pytest.mark.slow
def test_one_broken_table_is_reported_and_the_others_are_kept_up(lake: str) -> None:
    (Path(lake) / "records" / "_delta_log" / f"{0:020}.json").write_text("{")
    done = maintained(lake, MaintainSettings())
    assert done["records"].failure
    assert done["batches"].files_after == 1


@pytest.mark.slow
def test_the_command(lake: str, capsys: pytest.CaptureFixture[str], project_root: Path, tmp_path: Path) -> None:
    conf = str(project_root / "conf" / "maintain.yaml")
    assert run_command(["lake", "maintain", lake, "--conf", conf, "--dry-run", "--output", "json"]) == 0
    reported = {row["table"]: row for row in json.loads(capsys.readouterr().out)}
    assert reported["records"]["layout"] == "would join 3 small files"
    assert run_command(["lake", "maintain", str(tmp_path)]) == 3
    assert "no lake" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("keep_days: {captures: 3}", "keep_days.captures"),
        ("keep_days: {decode_errors: 3}", "keep_days.decode_errors"),
        ("vacuum_hours: 1", "vacuum_hours"),
        ("cluster_by: {records: [nonsense]}", "cluster_by.records"),
        ("- vacuum_hours", "expected settings by name"),
        ("compact: true", "one of the keys target_file_bytes"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, text: str, reported: str) -> None:
    file = tmp_path / "maintain.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=reported):
        load_maintain(file)


def test_a_file_of_comments_leaves_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "maintain.yaml"
    file.write_text("# vacuum_hours: 168\n")
    assert load_maintain(file) == load_maintain(None)


def test_another_kind_of_committer_maintains_nothing(lake: str, lake_hash: Callable[..., dict[str, str]]) -> None:
    before = lake_hash(lake)
    opened = DeltaLake(lake)
    opened.committer = "spark"
    with pytest.raises(InputError, match="its committer is deltalake, and a second kind could overwrite"):
        list(maintain_lake(opened, DeltaMaintainer(opened, 1 << 20), MaintainSettings()))
    assert lake_hash(lake) == before


@pytest.fixture
def of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made from here on remembers Spark as its committer."""
    monkeypatch.setattr(DeltaLake, "committer", "spark")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_liquid_clustering_by_spark(
    of_spark: None, lake: str, spark: SparkSession, lake_hash: Callable[..., dict[str, str]]
) -> None:
    before = lake_hash(lake)
    settings = MaintainSettings(cluster_by={"records": ["cluster_id", "offset"]})
    opened, maintainer = open_maintainer(lake, settings)
    done = {outcome.table: outcome for outcome in maintain_lake(opened, maintainer, settings, tables=["records"])}
    assert {table: outcome.failure for table, outcome in done.items() if outcome.failure} == {}
    assert done["records"].layout == "liquid clustering by cluster_id, offset"
    assert done["records"].files_after == 1
    path = f"delta.`{lake}/records`"
    assert list(spark.sql(f"DESCRIBE DETAIL {path}").collect()[0]["clusteringColumns"]) == ["cluster_id", "offset"]
    # deltalake still reads the table, though it would not write to it.
    assert lake_hash(lake) == before


LARGE: Final = ("records", "archive", "partition_changes", "findings_staged", "batches")
"""The tables of nearly all bytes; of a few rows a file's footer is the most."""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_by_either_committer_large_tables_take_no_more_than_their_rows_staged_at_once(
    of_spark: None, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, spark: SparkSession,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Delta's own defaults drop the encodings of columns, and take 1.3 to 2.5 times the bytes."""
    simulate_fleet(tmp_path / "logs", clusters=2, partitions=2_000, changes=40_000, replicas=1)
    for count in (1, 2):
        fleet = make_fleet({f"cluster-{n}": [tmp_path / "logs" / f"cluster-{n}"] for n in range(count)})
        without_spark.run(fleet)
    staged, settings = DeltaLake(fleet.lake), MaintainSettings()
    rows = {table: staged.query(f"SELECT * FROM {table}", table).num_rows for table in LARGE}  # noqa: S608
    at_once = sum(staged_at_once(staged, table, tmp_path / "at-once") for table in LARGE)
    assert at_once > 100_000
    joined = DeltaLake(str(shutil.copytree(fleet.lake, tmp_path / "joined")))
    by_deltalake = DeltaMaintainer(joined, settings.target_file_bytes)
    for lake, maintainer in ((joined, by_deltalake), open_maintainer(fleet.lake, settings)):
        done = list(maintain_lake(lake, maintainer, settings, tables=LARGE))
        assert {(outcome.files_after, outcome.layout, outcome.failure) for outcome in done} == {(1, "compacted", "")}
        assert sum(outcome.size_bytes_after for outcome in done) <= at_once
        there = DeltaLake(lake.uri)
        assert rows == {table: there.query(f"SELECT * FROM {table}", table).num_rows for table in LARGE}  # noqa: S608
    assert spark.conf.get("parquet.writer.version", "default") == "default", "the caller's session is left as it was"
