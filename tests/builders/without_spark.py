"""A run whose clusters are staged by the same reader that Spark's tasks call, in this process: the steps, fast.

As a program: `python without_spark.py fleet.yaml [CLUSTER…]` runs once and prints the summary as JSON, for tests that
kill it; `python without_spark.py --gold fleet.yaml` goes on to the gold tables, by a Spark session of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.pipeline import Run, Step, without_lost_key
from kraft_audit.lake.progress import RunResult
from kraft_audit.lake.reaudit import Reaudit
from kraft_audit.lake.settings import FleetSettings, load_fleet, only_clusters
from kraft_audit.lake.staging.plan_staging import PlanStaging
from kraft_audit.spark.readers import StagingReader
from tests.builders.spark_gold import spark_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stager(
    fleet: FleetSettings, tasks: int = 3, *, has_key: bool = True, is_isolated: bool = False
) -> Callable[[int], Manifest]:
    """Stages in this process; if `is_isolated`, clusters are read in another one, with their deadlines, as by Spark."""

    def stage(number: int) -> Manifest:
        options = {"table": "staged", "lake": fleet.lake, "plan": str(number), "tasks": str(tasks)}
        options |= {"redactionkeyfile": fleet.redaction_key_file or ""} if has_key else {}
        options |= {"minutes": str(fleet.deadline_minutes)} if is_isolated else {}

        def job(parts: Sequence[str]) -> list[dict[str, Any]]:
            reader = StagingReader(options | {"parts": ",".join(parts)})
            return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]

        ledger = Ledger(DeltaLake(fleet.lake))
        return PlanStaging(ledger, fleet.lake, number, fleet.deadline_minutes, job).manifest()

    return stage


def run(
    fleet: FleetSettings,
    *,
    only: Step | None = None,
    lines: list[str] | None = None,
    stage: Callable[[int], Manifest] | None = None,
) -> RunResult:
    reported = lines if lines is not None else []
    run = Run(fleet, DeltaLake(fleet.lake), stage or stager(fleet), reported.append)
    with run.lake.reading_once():
        return run.all_steps() if only is None else run.one_step(only)


def run_from_archive(fleet: FleetSettings) -> int:
    """The number of the plan that a run from the archive closed."""
    fleet = without_lost_key(fleet)
    run = Reaudit(fleet, DeltaLake(fleet.lake), stager(fleet, has_key=False), lambda _: None)
    with run.lake.reading_once():
        result = run.all_steps()
    assert result.exit_code == 0, result.failed
    return result.plans[-1]


def run_with_gold(fleet: FleetSettings, session: Callable[[], SparkSession]) -> RunResult:
    lake = DeltaLake(fleet.lake)
    with lake.reading_once():
        return Run(fleet, lake, stager(fleet), lambda _: None, spark_gold(fleet, lake, session)).all_steps()


def local_spark() -> SparkSession:
    from kraft_audit.spark.session import spark_session

    return spark_session("kraft-audit tests", settings={"spark.master": "local[2]"})


if __name__ == "__main__":
    with_gold = sys.argv[1] == "--gold"
    file, *clusters = sys.argv[2:] if with_gold else sys.argv[1:]
    whole = only_clusters(load_fleet(Path(file), environment={}), Path(file), clusters)
    sys.stdout.write(json.dumps((run_with_gold(whole, local_spark) if with_gold else run(whole)).to_dict()))
