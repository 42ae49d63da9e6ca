"""Stage by Spark: one job over the table `staged` of format("kraft"), a task some clusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_audit.settings import FleetSettings
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import Ledger, Manifest, manifest_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Clusters differ in size: a few tasks a core even that out, many would make many small files.
TASKS_A_CORE: Final = 3


class StageError(Exception):
    """The Spark job of a plan failed: the lake cannot be written, or workers were lost. The plan stays open."""

    def __init__(self, number: int, problem: Exception) -> None:
        told = [
            line.strip() for line in str(problem).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)
        ]
        why = told[-1] if told else str(problem).strip().splitlines()[0]
        super().__init__(f"plan {number} could not be staged and stays open for the next run: {why}")


class SparkStager:
    """Stages plans of one lake. `session` is called with the first plan: where there is none, Spark is not started."""

    def __init__(self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self._fleet = fleet
        self._lake = lake
        self._session = session

    def __call__(self, number: int) -> Manifest:
        from pyspark.errors import PySparkException

        from kraft_audit.spark import register

        spark = self._session()
        register(spark)
        reader = spark.read.format("kraft").option("table", "staged").option("lake", self._lake.data_uri)
        reader = reader.option("plan", number).option("redactionKeyFile", self._fleet.redaction_key_file)
        reader = reader.option("tasks", TASKS_A_CORE * spark.sparkContext.defaultParallelism)
        reader = reader.options(**self._lake.share_plan(number, Ledger(self._lake).planned(number)))
        try:
            return manifest_of(reader.load().collect())
        except PySparkException as problem:
            raise StageError(number, problem) from problem
