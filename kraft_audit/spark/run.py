"""A run: plan → stage → commit → close, each recorded once in the ledger, so that any run can finish any other's plan.

An open plan (of a run that died, or of one that is at work beside this one) is finished first, with the bytes, the
files and the numbers that it fixed; then what is new since is planned. Where nothing is new, no plan is made and Spark
is not even started.
"""

from __future__ import annotations

import enum
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.settings import FleetSettings, SettingsError, load_fleet
from kraft_audit.spark.commit import commit_tables, plan_summary
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.lake import DeltaLake, Lake
from kraft_audit.spark.ledger import Ledger, Manifest, manifest_of
from kraft_audit.spark.plan import plan_fleet
from kraft_audit.spark.redaction_key import key_id, load_key
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
# Each round finishes a plan that another run opened first; more means that something opens plans without end.
ROUNDS: Final = 20
EXIT_FINE: Final = 0
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3


class Step(enum.StrEnum):
    """A step of a run; `--only` takes one."""

    PLAN = "plan"
    STAGE = "stage"
    COMMIT = "commit"
    CLOSE = "close"


class StageError(Exception):
    """The Spark job of a plan failed: the lake cannot be written, or workers were lost. The plan stays open."""

    def __init__(self, number: int, problem: Exception) -> None:
        told = [
            line.strip() for line in str(problem).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)
        ]
        why = told[-1] if told else str(problem).strip().splitlines()[0]
        super().__init__(f"plan {number} could not be staged and stays open for the next run: {why}")


@dataclass(slots=True)
class RunResult:
    """What a run did, as its summary tells: sums over the plans that it finished."""

    lake: str
    plans: list[int] = field(default_factory=list)
    clusters: int = 0
    unchanged: int = 0
    replicas: int = 0
    captures: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return EXIT_UNREADABLE if self.failed else EXIT_FINE

    def add_plan(self, number: int, summary: Mapping[str, Any]) -> None:
        self.plans.append(number)
        self.clusters += summary["clusters"]
        self.replicas += summary["replicas"]
        self.captures += summary["captures"]
        self.rows.update(summary["rows"])
        self.records.update(summary["records"])
        self.damage.update(summary["damage"])
        self.failed.update(summary["failed"])

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in asdict(self).items()}


class Run:
    """One run over one lake. `session` is called when the first step needs Spark."""

    def __init__(
        self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession], progress: Progress
    ) -> None:
        self.fleet = fleet
        self.lake = lake
        self.ledger = Ledger(lake)
        self.session = session
        self.progress = progress
        self.result = RunResult(lake.uri)

    def all_steps(self) -> RunResult:
        self._prepare()
        for _ in range(ROUNDS):
            self._finish_open_plan()
            number = self._plan()
            if number is None:
                return self.result
            if number > 0:
                self._finish(number)
                return self.result
        raise InputError(self.lake.uri, f"other runs opened {ROUNDS} plans while this one was planning")

    def one_step(self, step: Step) -> RunResult:
        """Only this step, of the plan that is open; `plan` opens one where none is."""
        self._prepare()
        status = self.ledger.status()
        number = status.open_number
        match step:
            case Step.PLAN if number is None:
                self._plan()
            case Step.PLAN:
                self.progress(f"plan     plan {number} is open: nothing to plan before it is closed")
            case _ if number is None:
                self.progress(f"{step:<9}no plan is open")
            case Step.STAGE if status.staged >= number:
                self.progress(f"stage    plan {number} is staged")
            case Step.STAGE:
                self._stage(number)
            case _ if status.staged < number:
                self.progress(f"{step:<9}plan {number} is not staged yet")
            case Step.COMMIT:
                self._commit(number, self.ledger.manifest(number))
            case Step.CLOSE:
                self._close(number, self.ledger.manifest(number))
        return self.result

    def _prepare(self) -> None:
        """The key and the tables; a key that is not the lake's would make every secret look changed."""
        key_file = Path(self.fleet.redaction_key_file or "")
        known = self.ledger.redaction_key_id() if self.lake.exists("plans") else None
        self.key_id = key_id(load_key(key_file, may_create=known is None))
        if known is not None and known != self.key_id:
            raise InputError(str(key_file), f"not the key that the lake {self.lake.uri} was begun with")
        self.ledger.create()

    def _finish_open_plan(self) -> None:
        number = self.ledger.status().open_number
        if number is not None:
            self.progress(f"plan     plan {number} is open: finishing it first")
            self._finish(number)

    def _finish(self, number: int) -> None:
        if self.ledger.status().staged < number:
            self._stage(number)
        manifest = self.ledger.manifest(number)
        self._commit(number, manifest)
        self._close(number, manifest)

    def _plan(self) -> int | None:
        """The number of the plan that this run opened; None where nothing is new, 0 where another run was first."""
        started = time.monotonic()
        number = self.ledger.status().opened + 1
        planned = plan_fleet(self.fleet, self.ledger, number)
        self.result.failed.update(planned.failed)
        self.result.unchanged = planned.unchanged_count
        for name, why in planned.failed.items():
            self.progress(f"plan     {name}: {why}")
        if not planned.clusters:
            self._tell(Step.PLAN, f"nothing new in {planned.unchanged_count} clusters", started)
            return None
        opened = self.ledger.open_plan(planned.clusters, self.key_id)
        if not opened:
            self._tell(Step.PLAN, f"another run opened plan {number}", started)
            return 0
        what = f"plan {number}: {len(planned.clusters)} clusters, {planned.replica_count} replicas"
        self._tell(
            Step.PLAN, f"{what}, {_size(planned.planned_bytes)} to read, {planned.unchanged_count} unchanged", started
        )
        failpoint("after-plan")
        return number

    def _stage(self, number: int) -> None:
        from pyspark.errors import PySparkException

        spark = self.session()
        started = time.monotonic()
        try:
            manifest = self._staged_by(spark, number)
        except PySparkException as problem:
            raise StageError(number, problem) from problem
        failpoint("before-manifest")
        if self.ledger.record_staged(number, manifest):
            rows = sum(file.row_count for file in manifest.files)
            self._tell(Step.STAGE, f"plan {number}: {rows} rows in {len(manifest.files)} files", started)
        else:
            self._tell(Step.STAGE, f"plan {number}: another run had staged it, its files are taken", started)
        failpoint("after-stage")

    def _staged_by(self, spark: SparkSession, number: int) -> Manifest:
        from kraft_audit.spark import register

        register(spark)
        reader = spark.read.format("kraft").option("table", "staged").option("lake", self.lake.data_uri)
        reader = reader.option("plan", number).option("redactionKeyFile", self.fleet.redaction_key_file)
        reader = reader.option("tasks", 3 * spark.sparkContext.defaultParallelism)
        reader = reader.options(**self.lake.share_plan(number, self.ledger.planned(number)))
        return manifest_of(reader.load().collect())

    def _commit(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        tables: list[str] = []

        def committed(table: str, rows: int, brought: bool) -> None:
            tables.append(f"{table} {rows}" if brought else f"{table} was there")

        commit_tables(self.ledger, number, manifest, committed)
        self._tell(Step.COMMIT, f"plan {number}: {', '.join(tables) or 'no rows'}", started)

    def _close(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        summary = plan_summary(manifest)
        brought = self.ledger.close_plan(number, summary)
        self.result.add_plan(number, summary)
        for name, why in summary["failed"].items():
            self.progress(f"close    {name}: {why}")
        self._tell(Step.CLOSE, f"plan {number}" + ("" if brought else " was closed by another run"), started)
        failpoint("after-close")

    def _tell(self, step: Step, what: str, started: float) -> None:
        seconds = time.monotonic() - started
        self.result.seconds[step] = round(self.result.seconds.get(step, 0.0) + seconds, 3)
        self.progress(f"{step:<9}{what}  ({seconds:.1f} s)")


def run_fleet(
    fleet: FleetSettings, *, only: Step | None = None, spark_conf: Path | None = None, progress: Progress
) -> RunResult:
    """Run all steps, or one, over a fleet. Raises SettingsError (exit 2), InputError (exit 3)."""
    from kraft_audit.spark.session import spark_session

    def session() -> SparkSession:
        started = time.monotonic()
        spark = spark_session("kraft-audit", conf_file=spark_conf)
        run.result.seconds["session"] = round(time.monotonic() - started, 3)
        return spark

    run = Run(fleet, open_lake(fleet, session), session, progress)
    return run.all_steps() if only is None else run.one_step(only)


def main_run(
    fleet_file: Path,
    *,
    lake: str | None = None,
    only: Step | None = None,
    spark_conf: Path | None = None,
    committer: str | None = None,
    output: str = "table",
) -> int:
    """The command `run`: progress on stderr, the summary on stdout, the exit code."""

    def progress(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    try:
        fleet = load_fleet(fleet_file, arguments={"lake": lake, "committer": committer})
        result = run_fleet(fleet, only=only, spark_conf=spark_conf, progress=progress)
    except SettingsError as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_USAGE
    except (InputError, StageError) as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_UNREADABLE
    sys.stdout.write(json.dumps(result.to_dict()) + "\n" if output == "json" else summary_text(result))
    return result.exit_code


def open_lake(fleet: FleetSettings, session: Callable[[], SparkSession]) -> Lake:
    if fleet.committer == "spark":
        from kraft_audit.spark.jvm_lake import JvmLake

        return JvmLake(fleet.lake, fleet.staging or fleet.lake, session)
    return DeltaLake(fleet.lake)


def summary_text(result: RunResult) -> str:
    """The end of a run for people: what was read, what was wrong, how long it took."""
    plans = ", ".join(str(number) for number in result.plans) or "none"
    lines = [
        f"lake       {result.lake}   plan {plans}",
        f"clusters   {result.clusters} read, {result.unchanged} unchanged, {len(result.failed)} failed",
        f"replicas   {result.replicas} in {result.captures} captures",
        f"batches    {result.rows['batches']}",
        f"records    {result.rows['records']}",
    ]
    lines += [f"  {count:>9}  {name}" for name, count in result.records.most_common()]
    lines.append(f"damage     {sum(result.damage.values())}")
    lines += [f"  {count:>9}  {name}" for name, count in result.damage.most_common()]
    lines.append("seconds    " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in result.seconds.items()))
    lines += [f"failed     {name}: {why}" for name, why in result.failed.items()]
    return "\n".join(lines) + "\n"


def _size(byte_count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.1f} {unit}"
    return f"{byte_count} B"
