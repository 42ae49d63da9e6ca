"""Stage by Spark: one job over the table `staged` of format("kraft"), a task some clusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_audit.settings import FleetSettings
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.ledger_state import Manifest, manifest_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Clusters differ in size: a few tasks a core even that out, many would make many small files.
TASKS_A_CORE: Final = 3
ERROR: Final = re.compile(r"(?:Caused by: )?(?P<name>[\w.]*(?:Error|Exception))(?:: (?P<why>.+))")


class StageError(Exception):
    """The Spark job of a plan failed: the lake cannot be written, or workers were lost. The plan stays open."""

    def __init__(self, number: int, problem: Exception) -> None:
        super().__init__(f"plan {number} could not be staged and stays open for the next run: {reason(str(problem))}")


def reason(told: str) -> str:
    """The line that says why, out of all that Spark says: a Python error, else that a worker was lost."""
    errors = [match for line in told.splitlines() if (match := ERROR.fullmatch(line.strip()))]
    python = [match for match in errors if "." not in match["name"]]
    lost = [match for match in errors if "worker" in match["why"].lower()]
    best = (python or lost[:1] or errors)[-1:]
    text = f"{best[0]['name'].rpartition('.')[2]}: {best[0]['why']}" if best else told.strip().partition("\n")[0]
    return " ".join(text.split())[:500]


class SparkStager:
    """Stages plans of one lake. `session` is called with the first plan: where there is none, Spark is not started."""

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
