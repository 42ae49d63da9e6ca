"""Spark in a run: it stages a plan's clusters (one job over the table `staged` of format("kraft")) and merges gold.

Its session is started only where there is something to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.gold_merge import GoldEngine
from kraft_audit.lake.gold.gold_tables import GoldTables
from kraft_audit.lake.lake import Lake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.progress import Progress, ProgressLine
from kraft_audit.lake.settings import FleetSettings, SettingsError
from kraft_audit.lake.staging.plan_staging import PlanStaging
from kraft_audit.lake.staging.stage import StageError
from kraft_audit.lake.staging.staging_tasks import TASKS_A_CORE
from kraft_audit.spark.gold_engine import SparkGold, spark_errors_as_input_errors
from kraft_audit.spark.session import (
    REMOTE,
    is_connect,
    parallelism,
    read_conf,
    remote_host,
    require_server,
    spark_error_line,
    spark_errors,
    spark_place,
)
from kraft_audit.spark.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Reading so much takes less than a minute.
BRIEF_BYTES: Final = 64 * 10**6


class SparkRun:
    """Spark for one run: its session starts when something is to be staged or merged.

    Raises SettingsError for a `conf_file` that cannot be used, and InputError for a server that does not answer, before
    a plan is opened that waits for them.
    """

    def __init__(
        self, fleet: FleetSettings, conf_file: Path | None, progress: Progress, run: Callable[[], Run | None]
    ) -> None:
        if conf_file is not None:
            read_conf(conf_file)
        if fleet.committer == "spark" and (remote := os.environ.get(REMOTE)):
            what = "committer deltalake: committing over Spark Connect is not supported"
            raise SettingsError(f"{REMOTE}={remote_host(remote)}", "committer", fleet.committer, what)
        require_server()
        self._fleet = fleet
        self._conf_file = conf_file
        self._progress = progress
        self._run = run
        self._started: SparkSession | None = None
        self._lake: Lake | None = None

    def session(self) -> SparkSession:
        from kraft_audit.spark.session import spark_session

        run, started = self._run(), time.monotonic()
        is_brief = run is not None and run.planned_bytes is not None and run.planned_bytes <= BRIEF_BYTES
        spark = spark_session("kraft-audit", conf_file=self._conf_file, is_brief=is_brief)
        self._started = spark
        seconds = time.monotonic() - started
        if run is not None and "session" not in run.result.seconds:
            run.result.seconds["session"] = round(seconds, 3)
            self._progress(ProgressLine("session", spark_place(spark), seconds=seconds))
        return spark

    def close(self) -> None:
        """Let the next driver in; leave a Spark Connect server, whose client would keep this process waiting."""
        if self._lake is not None:
            self._lake.close()
        if self._started is not None and is_connect(self._started):
            self._started.stop()

    def stager(self, lake: Lake) -> SparkStager:
        return SparkStager(self._fleet, lake, self.session)

    def gold(self, lake: Lake, engine: Callable[[], GoldEngine]) -> SparkGoldSteps:
        return SparkGoldSteps(self._fleet, lake, engine)

    def gold_engine(self, lake: Lake) -> SparkGold:
        return SparkGold(lake, self.session)

    def lake(self) -> Lake:
        self._lake = open_lake(self._fleet, self.session)
        return self._lake


def open_lake(fleet: FleetSettings, session: Callable[[], SparkSession]) -> Lake:
    if fleet.committer == "spark":
        return SparkLake(fleet.lake, fleet.staging or fleet.lake, session)
    return DeltaLake(fleet.lake)


class SparkGoldSteps(GoldTables):
    """The gold tables where Spark may make them, whose errors become one line about the lake."""

    def __init__(self, fleet: FleetSettings, lake: Lake, engine: Callable[[], GoldEngine]) -> None:
        super().__init__(fleet, lake, engine)
        self._uri = lake.uri

    def findings(self) -> list[int]:
        with spark_errors_as_input_errors(self._uri, "findings"):
            return super().findings()

    def risk(self) -> list[str]:
        with spark_errors_as_input_errors(self._uri, "risk"):
            return super().risk()


class SparkStager:
    """Stages plans of one lake. `session` is called for the first plan: without a plan Spark is not started."""

    def __init__(self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self._fleet = fleet
        self._lake = lake
        self._session = session

    def __call__(self, number: int) -> Manifest:
        from kraft_audit.spark import register

        spark = self._session()
        register(spark)
        reader = spark.read.format("kraft").option("table", "staged").option("lake", self._lake.data_uri)
        reader = reader.option("plan", number)
        if self._fleet.redaction_key_file is not None:
            reader = reader.option("redactionKeyFile", self._fleet.redaction_key_file)
        reader = reader.option("tasks", TASKS_A_CORE * parallelism(spark))
        reader = reader.option("minutes", self._fleet.deadline_minutes)
        ledger = Ledger(self._lake)
        reader = reader.options(**self._lake.share_plan(number, ledger.planned(number)))

        def job(parts: Sequence[str]) -> list[dict[str, Any]]:
            try:
                return [row.asDict() for row in reader.option("parts", ",".join(parts)).load().collect()]
            except spark_errors() as problem:
                raise StageError(number, spark_error_line(str(problem))) from problem

        return PlanStaging(ledger, self._lake.data_uri, number, self._fleet.deadline_minutes, job).manifest()
