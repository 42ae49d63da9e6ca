"""A run from a fleet file to its exit code, as `kraft-audit run` and jobs/*.py start it.

Spark stages a plan's clusters (one job over the table `staged` of format("kraft")) and merges the gold tables; its
session is started only where there is something to do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_audit.lake.delta import DeltaLake, Lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import Ledger, without_exposures_text
from kraft_audit.lake.ledger_state import Manifest, manifest_of
from kraft_audit.lake.lineage import traced
from kraft_audit.lake.open_incidents import ClusterState, cluster_states
from kraft_audit.lake.pipeline import Run, Step, lake_alone, with_word, without_lost_key
from kraft_audit.lake.progress import (
    EXIT_UNREADABLE,
    EXIT_USAGE,
    FindingCounts,
    LogFormat,
    Progress,
    ProgressLine,
    RunResult,
    progress_on_stderr,
    summary_text,
)
from kraft_audit.lake.reaudit import Reaudit
from kraft_audit.lake.settings import FleetSettings, SettingsError, load_fleet
from kraft_audit.rules.rule_model import Waiver
from kraft_audit.rules.rule_settings import RuleSettingsError, load_waivers
from kraft_audit.spark.findings_table import FindingsTable
from kraft_audit.spark.gold_merge import GoldLake, spark_errors_as_input_errors
from kraft_audit.spark.risk import RiskTables
from kraft_audit.spark.session import is_jvm_gone, read_conf, spark_error_line
from kraft_audit.tables.gold import FINDINGS, INCIDENTS
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Reading so much takes less than a minute.
BRIEF_BYTES: Final = 64 * 10**6


def run_fleet(
    fleet: FleetSettings,
    *,
    only: Step | None = None,
    spark_conf: Path | None = None,
    progress: Progress,
    finish: bool = False,
    tables_only: bool = False,
    kind: type[Run] = Run,
) -> RunResult:
    """Run all steps, or one, over a fleet; `finish` only ends a plan that was left open.

    With `tables_only` the run ends with its closed plan: findings wait until the quality gate has judged the tables.

    Raises SettingsError (exit 2), InputError (exit 3).
    """
    from kraft_audit.spark.session import spark_session

    if spark_conf is not None:
        read_conf(spark_conf)  # before a plan is opened that waits for it

    def session() -> SparkSession:
        started = time.monotonic()
        is_brief = run.planned_bytes is not None and run.planned_bytes <= BRIEF_BYTES
        spark = spark_session("kraft-audit", conf_file=spark_conf, is_brief=is_brief)
        seconds = time.monotonic() - started
        if "session" not in run.result.seconds:
            run.result.seconds["session"] = round(seconds, 3)
            progress(ProgressLine("session", f"Spark {spark.version} on {spark.sparkContext.master}", seconds=seconds))
        return spark

    lake = open_lake(fleet, session)
    gold = None if tables_only else SparkGoldSteps(fleet, lake, session)
    run = kind(fleet, lake, SparkStager(fleet, lake, session), progress, gold)
    with traced(run, progress):
        if finish:
            return run.finish_open_plan()
        return run.all_steps() if only is None else run.one_step(only)


def main_run(
    fleet_file: Path | None,
    *,
    lake: str | None = None,
    only: Step | None = None,
    spark_conf: Path | None = None,
    committer: str | None = None,
    output: str = "table",
    clusters: Sequence[str] | None = None,
    finish: bool = False,
    log_format: LogFormat = "text",
    from_archive: bool = False,
    tables_only: bool = False,
    running: bool = False,
    gone: Sequence[int] = (),
) -> int:
    """The command `run`: progress on stderr, the summary on stdout; returns the exit code.

    Without a fleet file `lake` names the lake whose archive is read. If `clusters` are given, only those are read. With
    `finish`, clusters that the open plan could not read are reported but do not fail the run: they were failures of the
    run that planned them.
    """
    progress = progress_on_stderr(log_format)
    try:
        if fleet_file is None:
            fleet = lake_alone(lake, clusters)
        else:
            fleet = load_fleet(fleet_file, arguments={"lake": lake, "committer": committer})
            fleet = only_clusters(fleet, fleet_file, clusters)
        fleet = with_word(fleet, running=running, gone=gone)
        fleet = without_lost_key(fleet) if from_archive else fleet
        kind = Reaudit if from_archive else Run
        result = run_fleet(
            fleet,
            only=only,
            spark_conf=spark_conf,
            progress=progress,
            finish=finish,
            tables_only=tables_only,
            kind=kind,
        )
    except SettingsError as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_USAGE
    except (InputError, StageError) as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_UNREADABLE
    except Exception as problem:
        if not is_jvm_gone(problem):
            raise
        progress("kraft-audit: the JVM of Spark has ended or been killed: the next run finishes what this one began")
        return EXIT_UNREADABLE
    sys.stdout.write(json.dumps(result.to_dict()) + "\n" if output == "json" else summary_text(result))
    return 0 if finish else result.exit_code


def only_clusters(fleet: FleetSettings, file: Path, names: Sequence[str] | None) -> FleetSettings:
    """The fleet with only these clusters. Raises SettingsError for a name that the file does not have."""
    if not names:
        return fleet
    known = {cluster.name: cluster for cluster in fleet.clusters}
    for name in names:
        if name not in known:
            raise SettingsError("--cluster", "name", name, f"a cluster of {file}")
    return fleet.model_copy(update={"clusters": [known[name] for name in dict.fromkeys(names)]})


def open_lake(fleet: FleetSettings, session: Callable[[], SparkSession]) -> Lake:
    if fleet.committer == "spark":
        from kraft_audit.spark.jvm_lake import JvmLake

        return JvmLake(fleet.lake, fleet.staging or fleet.lake, session)
    return DeltaLake(fleet.lake)


class SparkGoldSteps:
    """The gold tables of one fleet's lake. Spark is started only if there is something to do.

    Raises SettingsError, InputError if the fleet's waivers cannot be used.
    """

    def __init__(self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession]) -> None:
        gold = GoldLake(lake, session)
        self._lake = lake
        self._findings = FindingsTable(gold, fleet_waivers(fleet))
        self._risk = RiskTables(gold)

    def findings(self) -> list[int]:
        """Merge closed plans and waivers into `findings`; returns the plans merged."""
        with spark_errors_as_input_errors(self._lake, "findings"):
            return self._findings.update()

    def counts(self) -> FindingCounts:
        """The counts of `findings`."""
        return self._findings.counts()

    def states(self) -> list[ClusterState]:
        """What is open in each cluster, the most urgent first."""
        closed = Ledger(self._lake).status().closed
        is_merged = all(self._lake.exists(table.name) for table in (FINDINGS, INCIDENTS))
        return cluster_states(self._lake, closed) if is_merged else []

    def older_ids(self) -> int:
        """How many open findings have an id that no run gives any more."""
        return self._findings.older_ids()

    def risk(self) -> list[str]:
        """Bring `partition_risk` and `cluster_compliance` up to date; returns the tables that were changed."""
        with spark_errors_as_input_errors(self._lake, "risk"):
            return self._risk.update()

    @property
    def left_out(self) -> str | None:
        """What the last `risk` could not compute, and why; None if it computed everything."""
        return without_exposures_text(self._risk.skipped) if self._risk.skipped else None


def fleet_waivers(fleet: FleetSettings) -> tuple[Waiver, ...]:
    """The waivers that a fleet.yaml names. Raises SettingsError, InputError."""
    if fleet.waivers is None:
        return ()
    if is_uri(fleet.waivers):
        raise SettingsError("fleet", "waivers", fleet.waivers, "a local file")
    try:
        return load_waivers(Path(fleet.waivers))
    except RuleSettingsError as problem:
        raise SettingsError(problem.source, problem.key, problem.value, problem.expected) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(fleet.waivers, getattr(problem, "strerror", None) or "no UTF-8 text") from None


# Clusters differ in size. A few tasks a core balance that; more would make many small files.
TASKS_A_CORE: Final = 3


class StageError(Exception):
    """The Spark job of a plan failed: the lake cannot be written, or workers were lost. The plan stays open."""

    def __init__(self, number: int, problem: Exception) -> None:
        super().__init__(
            f"plan {number} could not be staged and stays open for the next run: {spark_error_line(str(problem))}"
        )


class SparkStager:
    """Stages plans of one lake. `session` is called for the first plan: without a plan Spark is not started."""

    def __init__(self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self._fleet = fleet
        self._lake = lake
        self._session = session

    def __call__(self, number: int) -> Manifest:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from kraft_audit.spark import register

        spark = self._session()
        register(spark)
        reader = spark.read.format("kraft").option("table", "staged").option("lake", self._lake.data_uri)
        reader = reader.option("plan", number)
        if self._fleet.redaction_key_file is not None:
            reader = reader.option("redactionKeyFile", self._fleet.redaction_key_file)
        reader = reader.option("tasks", TASKS_A_CORE * spark.sparkContext.defaultParallelism)
        reader = reader.options(**self._lake.share_plan(number, Ledger(self._lake).planned(number)))
        try:
            return manifest_of(reader.load().collect())
        except (PySparkException, Py4JError) as problem:
            raise StageError(number, problem) from problem
