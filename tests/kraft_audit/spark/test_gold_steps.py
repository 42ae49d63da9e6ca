"""The steps after a plan is closed: what they tell, what a fleet may say of waivers, that nothing new costs nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kraft_audit.commands.run import Engines
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.cluster_summaries import ClusterSummary
from kraft_audit.lake.gold.gold_merge import LocalGold
from kraft_audit.lake.gold.gold_tables import fleet_waivers
from kraft_audit.lake.pipeline import Run, Step
from kraft_audit.lake.progress import FindingCounts, Progress, RunResult, findings_line, summary_text
from kraft_audit.lake.settings import FleetSettings, SettingsError, load_fleet
from kraft_audit.spark.gold_engine import SparkGold
from kraft_audit.spark.run_fleet import SparkRun
from kraft_audit.tables.gold import GOLD, SITUATIONS
from kraft_codec.errors import InputError
from tests.builders.lakes import MakeFleet, no_session
from tests.builders.spark_gold import spark_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHEN_WRITTEN = frozenset(
    {"first_seen_ms", "last_seen_ms", "changed_ms", "as_of_ms", "captured_at", "captured_at_ms", "seen_ms"}
)

WAIVERS = """
waivers:
  - {rule: KP010, who: a team, why: one copy is enough here, until: 2999-01-01}
  - {rule: KB003, who: a team, why: a network of its own, until: 2000-01-01}
"""


def run(
    fleet: FleetSettings, without_spark: ModuleType, session: Callable[[], SparkSession]
) -> tuple[list[str], RunResult]:
    lines: list[str] = []
    return lines, steps_of(fleet, without_spark, lines.append, session).all_steps()


def steps_of(
    fleet: FleetSettings, without_spark: ModuleType, progress: Progress, session: Callable[[], Any] = no_session
) -> Run:
    lake = DeltaLake(fleet.lake)
    return Run(fleet, lake, without_spark.stager(fleet), progress, spark_gold(fleet, lake, session))


@pytest.mark.ci
@pytest.mark.parametrize("local_bytes", [2 * 10**9, 0])
def test_small_tables_need_no_spark_though_it_reads_the_logs(
    make_fleet: MakeFleet, small_corpus: Path, without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch,
    local_bytes: int,
) -> None:  # fmt: skip
    """Two clusters' gold takes Spark ten seconds, and this process one. `local_bytes` of the fleet draws the line."""
    fleet = make_fleet({name: [small_corpus / name] for name in ("mini-4.4.0", "elr")})
    fleet = fleet.model_copy(update={"local_bytes": local_bytes})
    without_spark.run(fleet)
    monkeypatch.setattr(SparkRun, "session", no_session)
    engine = Engines(fleet, lambda _: None, "spark", None)._gold_engine(DeltaLake(fleet.lake))
    assert type(engine) is (LocalGold if local_bytes else SparkGold)


@pytest.mark.ci
def test_a_run_ends_with_findings_and_risk(
    make_fleet: MakeFleet, small_corpus: Path, tmp_path: Path, without_spark: ModuleType, spark: SparkSession
) -> None:
    """Against `check`'s own rules: what is open in the table is what they raise, less the waived."""
    from kraft_audit.capture.path_plans import plan_cluster
    from kraft_audit.rules import judging
    from kraft_codec.records.redaction import Redactor
    from kraft_codec.storage.opener import open_storage
    from tests.builders.readings import history_of

    (tmp_path / "waivers.yaml").write_text(WAIVERS)
    fleet = make_fleet({"mini-4.4.0": [small_corpus / "mini-4.4.0"]})
    fleet = fleet.model_copy(update={"waivers": str(tmp_path / "waivers.yaml")})
    lines, result = run(fleet, without_spark, lambda: spark)
    assert [line.split()[0] for line in lines] == ["plan", "stage", "commit", "close", "findings", "risk"]
    plan = plan_cluster([str(small_corpus / "mini-4.4.0")], open_storage=open_storage, captured_at_ms=0, name="")
    history = history_of(plan, open_storage=open_storage, redactor=Redactor(bytes(32)))
    raised = [finding for finding in judging.check(history) if finding.status == "raised" and not finding.is_over]
    assert result.findings is not None
    assert sum(result.findings.open.values()) == sum(finding.rule != "KP010" for finding in raised)
    assert result.findings.waived == sum(finding.rule == "KP010" for finding in raised)
    assert result.findings.expired == sum(finding.rule == "KB003" for finding in raised)
    for name, table in GOLD.items():
        assert [field.name for field in DeltaLake(fleet.lake).open(name).schema().fields] == list(table.column_names)
    versions = [DeltaLake(fleet.lake).open(name).version() for name in GOLD]
    again, result = run(fleet, without_spark, no_session)
    assert [line.split()[0] for line in again] == ["plan", "findings", "risk"]
    assert [DeltaLake(fleet.lake).open(name).version() for name in GOLD] == versions


@pytest.mark.slow
def test_killed_after_findings_and_run_again(
    make_fleet: MakeFleet, small_corpus: Path, tmp_path: Path, without_spark: ModuleType, script: Path
) -> None:
    """One lake whose runs are killed when a plan's findings are merged, compared with an undisturbed one."""
    captures = sorted(path for path in (small_corpus / "elr").iterdir() if path.name[:2].isdigit())
    disturbed = make_fleet({"elr": [tmp_path / "live"]}, lake="disturbed", file="disturbed.yaml")
    undisturbed = make_fleet({"elr": [tmp_path / "live"]}, lake="undisturbed")
    for plan, capture in enumerate(captures, start=1):
        shutil.rmtree(tmp_path / "live", ignore_errors=True)
        shutil.copytree(capture, tmp_path / "live")
        without_spark.run(undisturbed)
        findings_step(undisturbed, without_spark)
        run_and_kill(script, tmp_path / "disturbed.yaml", f"after-findings:{plan}")
        findings_step(disturbed, without_spark)
        assert gold_rows(disturbed.lake, "findings") == gold_rows(undisturbed.lake, "findings")
    assert any('"state": "resolved"' in row for row in gold_rows(disturbed.lake, "findings"))


@pytest.mark.ci
@pytest.mark.spark
def test_killed_after_risk_and_run_again(
    make_fleet: MakeFleet,
    small_corpus: Path,
    tmp_path: Path,
    without_spark: ModuleType,
    script: Path,
    spark: SparkSession,
) -> None:
    """Killed between the two tables of the step, with a Spark session at work: the next run makes the rest."""
    clusters: dict[str, list[Path | str]] = {name: [small_corpus / name] for name in ("elr", "mini-4.4.0")}
    undisturbed = make_fleet(clusters, lake="undisturbed")
    without_spark.run(undisturbed)
    # The same reading under both: what ended at an unknown time closes when it was read.
    disturbed = make_fleet(clusters, lake="disturbed", file="disturbed.yaml")
    shutil.copytree(undisturbed.lake, disturbed.lake)
    shutil.copy(str(undisturbed.redaction_key_file), str(disturbed.redaction_key_file))
    run(undisturbed, without_spark, lambda: spark)
    run_and_kill(script, tmp_path / "disturbed.yaml", "after-risk")
    lake = DeltaLake(disturbed.lake)
    assert lake.exists("partition_risk")
    assert not lake.exists("cluster_compliance")
    run(disturbed, without_spark, lambda: spark)
    for table in GOLD:
        assert gold_rows(disturbed.lake, table) == gold_rows(undisturbed.lake, table), table
        assert gold_rows(disturbed.lake, table) or table == SITUATIONS.name, "summed up after all steps"


def run_and_kill(script: Path, fleet_file: Path, failpoint: str) -> None:
    killed = subprocess.run(
        [sys.executable, script, "--gold", fleet_file], env={**os.environ, "KRAFT_AUDIT_FAILPOINT": failpoint},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def findings_step(fleet: FleetSettings, without_spark: ModuleType) -> None:
    steps_of(fleet, without_spark, lambda _: None).one_step(Step.FINDINGS)


def gold_rows(lake: str, table: str) -> list[str]:
    """A gold table's rows as text, without the columns that say when this lake was written."""
    remaining = [column for column in GOLD[table].column_names if column not in WHEN_WRITTEN]
    rows = DeltaLake(lake).query(f"SELECT {', '.join(remaining)} FROM {table}", table).to_pylist()  # noqa: S608
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def test_steps_before_any_plan_do_nothing(make_fleet: MakeFleet, small_corpus: Path, without_spark: ModuleType) -> None:
    fleet = make_fleet({"mini-4.4.0": [small_corpus / "mini-4.4.0"]})
    lines: list[str] = []
    steps = steps_of(fleet, without_spark, lines.append)
    for step in (Step.FINDINGS, Step.RISK):
        steps.one_step(step)
    assert [line.split("  (")[0] for line in lines] == ["findings nothing new: 0 open", "risk     nothing new"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (None, "No such file or directory"),
        ("waivers: 3", "waivers: {'waivers': 3}: expected a list of waivers under the key waivers"),
        ("waivers: [{rule: absent}]", "expected"),
    ],
)
def test_waivers_that_cannot_be_used(tmp_path: Path, text: str | None, reported: str) -> None:
    """Relative to the fleet file, as all its paths."""
    if text is not None:
        (tmp_path / "w.yaml").write_text(text)
    (tmp_path / "fleet.yaml").write_text("lake: lake\nwaivers: w.yaml\nclusters: [{name: a, paths: [x]}]\n")
    fleet = load_fleet(tmp_path / "fleet.yaml", environment={})
    with pytest.raises(InputError if text is None else SettingsError) as caught:
        fleet_waivers(fleet)
    assert str(caught.value).startswith(f"{tmp_path}/w.yaml: ")
    assert reported in str(caught.value)


def test_s3_is_s3a_to_the_jvm() -> None:
    for uri, place in (("s3://bucket/lake", "delta.`s3a://bucket/lake/x`"), ("/data/la`ke", "delta.`/data/la``ke/x`")):
        assert SparkGold(DeltaLake(uri), no_session).place("x") == place


def test_the_summary_says_which_clusters_need_action() -> None:
    """The first cluster's situation is known; the second is one of a lake that no page can be made of."""
    counts = FindingCounts({"critical": 2, "high": 2, "medium": 1, "low": 3}, waived=3, expired=0, undecided=4)
    assert findings_line(counts) == "8 open (2 critical, 2 high, 1 medium, 3 low), 3 waived, 4 undecided"
    asked = {"wrong": "No leader in epoch 9", "since_ms": 1_795_224_970_318, "next_command": "kraft-audit quorum a"}
    states = [
        ClusterSummary("a", "orders", True, {"critical": 2}, **asked),
        ClusterSummary("b", "logs", True, {"critical": 0, "high": 3}),
        ClusterSummary("c", "quiet", False, {"low": 3}),
    ]
    assert [state.urgency for state in states] == sorted(state.urgency for state in states)
    result = RunResult("lake", plans=[7], clusters=3, findings=counts, states=states, unread={"far": "no such folder"})
    assert summary_text(result, str.upper).splitlines() == [
        "2 of 3 clusters need action, 1 could not be read",
        "  orders  No leader in epoch 9, since 2026-11-21 01:36:10 UTC.   KRAFT-AUDIT QUORUM A",
        "  logs    0 critical and 3 high findings are open",
        "  far  could not be read, or only in part: no such folder",
        "found  8 open (2 critical, 2 high, 1 medium, 3 low), 3 waived, 4 undecided",
        "read   3 clusters; 0 replicas in 0 captures; 0 batches, 0 records (plan 7, 0 s)",
        "pages  KRAFT-AUDIT REPORT LAKE --OUT SITE",
    ]
    as_json = json.loads(json.dumps(result.to_dict()))
    assert as_json["findings"]["open"]["critical"] == 2
    assert as_json["states"][0]["next_command"] == "kraft-audit quorum a"


def test_without_findings_the_summary_says_only_what_was_read() -> None:
    result = RunResult("lake", plans=[1], unchanged=2, seconds={"plan": 1.2, "stage": 2.0})
    assert summary_text(result) == "read   nothing new in 2 clusters (plan 1, 3 s)\n"
