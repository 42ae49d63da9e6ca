"""`run`: a fleet's log dirs into Delta tables, by Spark or in this process."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    SPARK_PACKAGES,
    Gone,
    Quiet,
    Running,
    need_packages,
    node_ids_of,
    refuse_within,
)
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.following import Following
from kraft_audit.text.exit_codes import EXIT_UNREADABLE, EXIT_USAGE
from kraft_audit.text.output import Output

if TYPE_CHECKING:
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.gold.cluster_summaries import ClusterSummary
    from kraft_audit.lake.gold.gold_merge import GoldEngine
    from kraft_audit.lake.gold.gold_tables import GoldTables
    from kraft_audit.lake.lake import Lake
    from kraft_audit.lake.ledger_state import Manifest
    from kraft_audit.lake.pipeline import Run, Step
    from kraft_audit.lake.progress import Progress, RunResult
    from kraft_audit.lake.settings import FleetSettings
    from kraft_audit.spark.run_fleet import SparkRun

Engine = Literal["local", "spark"]
SPARK_VARIABLES: Final = ("SPARK_HOME", "SPARK_REMOTE", "SPARK_MASTER", "PYSPARK_GATEWAY_PORT")
"""One of these is set where somebody configured Spark, or started this process by it."""
LOCAL_CLUSTERS_MAX: Final = 200
"""Up to so many clusters, with `local_bytes` of news, a machine is as fast as a cluster that first has to start."""
GOLD_SHARE: Final = 10
"""Compressed rows of a table take so much more memory than their files."""


SparkConf = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default=False, help="File of Spark properties, which override the defaults."),
]


def run(
    fleet: Annotated[
        str | None,
        typer.Argument(
            metavar="FLEET.yaml",
            show_default=False,
            help="File or URI that names the clusters, their paths and the lake.",
        ),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(metavar="LAKE", show_default=False, help="Use this lake instead of the one in FLEET.yaml."),
    ] = None,
    source: Annotated[
        Literal["logs", "archive"],
        typer.Option("--from", help="archive: rebuild the silver tables and the findings from the lake alone."),
    ] = "logs",
    only: Annotated[
        Literal["plan", "stage", "commit", "close", "findings", "risk"] | None,
        typer.Option(show_default=False, help="Run only this step. stage, commit and close act on every open plan."),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            show_default=False,
            help="local: processes of this machine, without Java. Default: local if no Spark is configured and little "
            "is new, otherwise spark.",
        ),
    ] = None,
    spark_conf: SparkConf = None,
    committer: Annotated[
        Literal["deltalake", "spark"] | None,
        typer.Option(show_default=False, help="spark: commit through Spark. Use it if only Spark can reach the lake."),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", show_default=False, help="Read only this cluster. Repeatable."),
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Only finish the plans that killed runs left open.")] = False,
    abandon: Annotated[
        int | None,
        typer.Option(
            metavar="PLAN",
            min=1,
            show_default=False,
            help="Only discard this open plan. None of its rows count then.",
        ),
    ] = None,
    tables_only: Annotated[
        bool,
        typer.Option(
            "--tables-only",
            help="Stop after the step close. You can then check the tables with `lake quality` before `run --only "
            "findings`.",
        ),
    ] = False,
    then: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS",
            show_default=False,
            help="Steps to run in this process once the tables are committed: some of quality,findings,report,notify, "
            "in this order. They stop at the first that fails.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default=False, help="Folder for the pages of --then report."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", show_default=False, help="Targets and routes of --then notify."),
    ] = None,
    tolerate: Annotated[
        int | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            max=100,
            show_default=False,
            help="Fail only if all clusters fail, or if more than this share fail for the same reason. One "
            "failure among several clusters never fails the run.",
        ),
    ] = None,
    running: Running = False,
    gone: Gone = None,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="json: one object per line on stderr, with run, step and cluster."),
    ] = "text",
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Format of the summary.")
    ] = "table",
    quiet: Quiet = False,
) -> int:
    """Read what is new in a fleet's log dirs into Delta tables, on Spark or in processes of this machine.

    A run has six steps: plan, stage, commit, close, findings, risk. If a run is killed, the next run finishes it.
    Reading the same logs twice adds nothing. Both engines, local and spark, write the same rows, so you can switch
    between them on one lake.

    --from archive reads no log dir. It replays everything that the lake archived and applies the rules again. --running
    and --gone apply to this run only, and to a single cluster. If the fleet has several clusters, choose it with
    --cluster. To apply them to every run, set `running` and `gone` in FLEET.yaml.

    --then makes a whole hour one process: the tables are judged as by `lake quality --new` before findings are merged,
    then pages are written and messages sent as by `report` and `notify`. Exit code 1 if the tables break a critical
    promise.

    \b
    Examples:
      kraft-audit run conf/fleet.yaml
      kraft-audit run conf/fleet.yaml --then quality,findings,report --out site
      kraft-audit run conf/fleet.yaml --lake /data/lake --output json
      kraft-audit run conf/fleet.yaml --engine spark --cluster elr --log-format json
      kraft-audit run --from archive --lake /data/lake
      kraft-audit run --from archive --lake /data/lake --cluster elr --gone 1,2
    """
    if engine == "spark":
        need_packages("run --engine spark", SPARK_PACKAGES, "spark")
    need_packages("run", LAKE_PACKAGES, "lake")
    if fleet is None and not (source == "archive" and lake):
        raise UsageError("run needs FLEET.yaml, or --from archive with --lake LAKE")
    if abandon is not None and (finish or only is not None):
        raise UsageError("--abandon only discards a plan: leave out --finish and --only")
    following = Following.of(then, out, config)
    if then is not None and (abandon is not None or finish or only is not None or tables_only):
        raise UsageError("--then follows a whole run: leave out --abandon, --finish, --only and --tables-only")
    from kraft_audit.lake.discovered_clusters import with_discovered
    from kraft_audit.lake.pipeline import Step, lake_alone, with_word, without_lost_key
    from kraft_audit.lake.progress import progress_to, summary_text
    from kraft_audit.lake.settings import SettingsError, load_fleet, only_clusters
    from kraft_audit.lake.staging.stage import StageError
    from kraft_codec.errors import InputError

    progress = progress_to(sys.stderr, log_format)
    try:
        if fleet is None:
            settings = lake_alone(lake, cluster)
        else:
            settings = load_fleet(fleet, arguments={"lake": lake, "committer": committer})
            settings = only_clusters(with_discovered(settings), fleet, cluster)
        settings = with_word(settings, running=running, gone=node_ids_of("--gone", gone))
        settings = without_lost_key(settings) if source == "archive" else settings
        if out is not None:
            refuse_within(out, settings.lake)
        result = run_fleet(
            settings,
            progress,
            engine=engine,
            only=None if only is None else Step(only),
            spark_conf=spark_conf,
            finish=finish,
            abandon=abandon,
            tables_only=tables_only,
            from_archive=source == "archive",
            following=following,
        )
    except SettingsError as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_USAGE
    except (InputError, StageError) as problem:
        progress(f"kraft-audit: {problem}")
        return EXIT_UNREADABLE
    except Exception as problem:
        from kraft_audit.spark.session import is_jvm_gone

        if not is_jvm_gone(problem):
            raise
        progress("kraft-audit: the JVM of Spark has ended or been killed: the next run finishes what this one began")
        return EXIT_UNREADABLE
    shown = Output()
    for line in [json.dumps(result.to_dict())] if output == "json" else summary_text(result, from_here).splitlines():
        (shown.line if output == "json" else shown.text)(line)
    # What the open plan could not read was a failure of the run that planned it.
    if finish:
        return 0
    if tolerate is None or result.broken or result.unsent:
        return result.exit_code
    too_many = result.intolerable(len(settings.clusters), tolerate)
    if too_many is not None:
        progress(f"kraft-audit: {too_many}")
    return 0 if too_many is None else EXIT_UNREADABLE


def _with_situations(states: list[ClusterSummary], lake: DeltaLake, progress: Progress) -> list[ClusterSummary]:
    """The same clusters in the order of the fleet's page, each with what its situation says to do first."""
    from kraft_audit.report.lake_situations import update_situations
    from kraft_audit.text.watched_work import doing
    from kraft_codec.errors import InputError

    doing("summing up where each cluster stands")
    try:
        situations = update_situations(lake, [state.cluster_id for state in states])
    except InputError as problem:
        progress(f"kraft-audit: what to do next is not shown: {problem}")
        return states
    known = [
        replace(
            state,
            needs_action=situation.needs_action,
            wrong=situation.what,
            since_ms=situation.since_ms,
            next_command=situation.command,
        )
        for state in states
        if (situation := situations.get(state.cluster_id)) is not None
    ]
    known.sort(key=lambda state: situations[state.cluster_id].urgency)
    return [*known, *(state for state in states if state.cluster_id not in situations)]


def from_here(command: str) -> str:
    """The same command with paths below the working folder relative to it, as a person would type them."""
    here = f"{Path.cwd()}{os.sep}"
    return shlex.join(word.removeprefix(here) or word for word in shlex.split(command))


def run_fleet(
    fleet: FleetSettings,
    progress: Progress,
    *,
    engine: Engine | None,
    only: Step | None,
    spark_conf: Path | None,
    finish: bool,
    abandon: int | None,
    tables_only: bool,
    from_archive: bool,
    following: Following,
) -> RunResult:
    """Run all steps, or one, over a fleet; `finish` only ends plans that were left open, `abandon` only one of them.

    With `tables_only` the run ends with its closed plan: findings wait until the quality gate has judged the tables.
    `following` are steps after the closed plan, which share what this run knows of the lake.

    Raises SettingsError (exit 2), InputError and StageError (exit 3).
    """
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lineage import traced
    from kraft_audit.lake.pipeline import Run
    from kraft_audit.lake.reaudit import Reaudit

    if following.steps and fleet.committer == "spark":
        raise UsageError("--then reads the lake without Spark, and the committer is spark: run the steps apart")
    engines = Engines(fleet, progress, engine, spark_conf)
    lake = engines.lake()
    gold = engines.gold(lake) if following.merges and not tables_only else None
    kind = Reaudit if from_archive else Run
    engines.run = run = kind(fleet, lake, engines.stage, progress, gold, following.gate)
    try:
        with traced(run, progress), lake.reading_once():
            if abandon is not None:
                return run.abandon(abandon)
            if finish:
                return run.finish_open_plans()
            result = run.all_steps() if only is None else run.one_step(only)
            if isinstance(lake, DeltaLake):  # what only Spark reaches makes no pages either
                if result.states:
                    result.states = _with_situations(result.states, lake, progress)
                if not result.broken:
                    following.publish(run, lake)
            return result
    finally:
        engines.close()


class Engines:
    """What stages and merges in a run: as asked for, else by how much there is to do once that is known."""

    def __init__(self, fleet: FleetSettings, progress: Progress, asked: Engine | None, spark_conf: Path | None) -> None:
        self._fleet = fleet
        self._progress = progress
        if fleet.committer == "spark":
            if asked == "local":
                raise UsageError("--engine local: the committer is spark, which needs --engine spark")
            asked = "spark"
        is_configured = spark_conf is not None or any(os.environ.get(name) for name in SPARK_VARIABLES)
        self._asked = asked or ("spark" if is_configured else None)
        self._spark_conf = spark_conf
        self._spark: SparkRun | None = None
        if self._asked == "spark":
            need_packages("run on Spark", SPARK_PACKAGES, "spark")
            self._with_spark()
        self.run: Run | None = None

    @property
    def is_local(self) -> bool:
        """Whether what this run has to do is done in this process."""
        if self._asked is not None or self.run is None:
            return self._asked == "local"
        is_small = len(self._fleet.clusters) <= LOCAL_CLUSTERS_MAX
        is_small = is_small and (self.run.planned_bytes or 0) <= self._fleet.local_bytes
        return is_small or any(find_spec(name) is None for name in SPARK_PACKAGES)

    def lake(self) -> Lake:
        from kraft_audit.lake.delta import DeltaLake

        return DeltaLake(self._fleet.lake) if self._fleet.committer != "spark" else self._with_spark().lake()

    def stage(self, number: int) -> Manifest:
        assert self.run is not None  # noqa: S101  # a run stages
        if not self.is_local:
            return self._with_spark().stager(self.run.lake)(number)
        from kraft_audit.lake.staging.local_stager import LocalStager

        return LocalStager(self._fleet, self.run.lake)(number)

    def gold(self, lake: Lake) -> GoldTables:
        if self._asked == "spark":
            return self._with_spark().gold(lake, lambda: self._gold_engine(lake))
        from kraft_audit.lake.gold.gold_tables import GoldTables

        return GoldTables(self._fleet, lake, lambda: self._gold_engine(lake))

    def _gold_engine(self, lake: Lake) -> GoldEngine:
        """This process where it reads the logs too, or where the tables that gold is made of are small."""
        from kraft_audit.lake.delta import DeltaLake
        from kraft_audit.lake.gold.gold_merge import LocalGold, bytes_read

        if isinstance(lake, DeltaLake) and (self.is_local or bytes_read(lake) * GOLD_SHARE <= self._fleet.local_bytes):
            return LocalGold(lake)
        return self._with_spark().gold_engine(lake)

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()

    def _with_spark(self) -> SparkRun:
        if self._spark is None:
            from kraft_audit.spark.run_fleet import SparkRun

            self._spark = SparkRun(self._fleet, self._spark_conf, self._progress, lambda: self.run)
        return self._spark
