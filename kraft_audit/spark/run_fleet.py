"""A run from a fleet file to its exit code, as `kraft-audit run` and jobs/*.py start it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_audit.settings import FleetSettings, SettingsError, load_fleet
from kraft_audit.spark.gold_steps import GoldSteps
from kraft_audit.spark.lake import DeltaLake, Lake
from kraft_audit.spark.lineage import traced
from kraft_audit.spark.progress import Line, LogFormat, Progress, progress_on_stderr
from kraft_audit.spark.reaudit import Reaudit, lake_alone, without_lost_key
from kraft_audit.spark.run import Run, Step
from kraft_audit.spark.session import read_conf
from kraft_audit.spark.spark_stage import SparkStager, StageError
from kraft_audit.spark.summary import EXIT_UNREADABLE, EXIT_USAGE, RunResult, summary_text
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

    With `tables_only` the run ends with its closed plan: findings wait until somebody has looked at the tables.

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
            progress(Line("session", f"Spark {spark.version} on {spark.sparkContext.master}", seconds=seconds))
        return spark

    lake = open_lake(fleet, session)
    gold = None if tables_only else GoldSteps(fleet, lake, session)
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
) -> int:
    """The command `run`: progress on stderr, the summary on stdout, the exit code.

    Without a fleet file `lake` says which lake's archive is read again.

    `clusters` are the only ones to look at. With `finish`, clusters that the open plan could not read are told, but are
    no failure: they were that of the run which planned them.
    """
    progress = progress_on_stderr(log_format)
    try:
        if fleet_file is None:
            fleet = lake_alone(lake, clusters)
        else:
            fleet = load_fleet(fleet_file, arguments={"lake": lake, "committer": committer})
            fleet = only_clusters(fleet, fleet_file, clusters)
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


def is_jvm_gone(problem: Exception) -> bool:
    """Whether a call into Spark failed because nobody is there, not because of what was called."""
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkRuntimeError

    if isinstance(problem, PySparkRuntimeError):
        return bool(problem.getCondition() == "JAVA_GATEWAY_EXITED")
    return isinstance(problem, Py4JNetworkError | ConnectionError)


def only_clusters(fleet: FleetSettings, file: Path, names: Sequence[str] | None) -> FleetSettings:
    """The fleet with these clusters alone. Raises SettingsError for a name that the file does not have."""
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
