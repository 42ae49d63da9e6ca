"""`run`: a fleet's log dirs into Delta tables, by Spark."""

from __future__ import annotations

import enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kraft_audit.commands.ending import UsageError
from kraft_audit.output import Format


class StepOption(enum.StrEnum):
    """The steps of a run, as `kraft_audit.spark.run.Step` has them."""

    PLAN = "plan"
    STAGE = "stage"
    COMMIT = "commit"
    CLOSE = "close"
    FINDINGS = "findings"
    RISK = "risk"


class Source(enum.StrEnum):
    """What a run reads."""

    LOGS = "logs"
    ARCHIVE = "archive"


class SummaryFormat(enum.StrEnum):
    """What a summary can be printed as."""

    TABLE = Format.TABLE.value
    JSON = Format.JSON.value


class LogFormat(enum.StrEnum):
    """How progress is written."""

    TEXT = "text"
    JSON = "json"


class Committer(enum.StrEnum):
    """Who commits to the lake."""

    DELTALAKE = "deltalake"
    SPARK = "spark"


FleetFile = Annotated[
    Path | None,
    typer.Argument(metavar="FLEET.yaml", show_default=False, help="Clusters, their paths, the lake."),
]
LakeOption = Annotated[
    str | None, typer.Option(metavar="LAKE", show_default=False, help="Another lake than the file names.")
]
SourceOption = Annotated[
    Source, typer.Option("--from", help="archive: the silver tables and findings anew, from the lake alone.")
]
OnlyOption = Annotated[
    StepOption | None, typer.Option(show_default=False, help="One step; the first four are of the open plan.")
]
SparkConfOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default=False, help="Spark properties that win over the defaults."),
]
CommitterOption = Annotated[
    Committer | None, typer.Option(show_default=False, help="spark: where only the JVM reaches the lake.")
]
ClusterOption = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="NAME", show_default=False, help="Only this cluster; may be repeated."),
]
FinishOption = Annotated[bool, typer.Option("--finish", help="Only finish the plan that a killed run left open.")]
TablesOnlyOption = Annotated[
    bool, typer.Option("--tables-only", help="End with the tables, for `quality` to judge, before --only findings.")
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="json: an object a line with run, step and cluster, on stderr.")
]
OutputOption = Annotated[SummaryFormat, typer.Option("--output", "-o", help="How the summary is printed.")]


def run(
    fleet: FleetFile = None,
    lake: LakeOption = None,
    source: SourceOption = Source.LOGS,
    only: OnlyOption = None,
    spark_conf: SparkConfOption = None,
    committer: CommitterOption = None,
    cluster: ClusterOption = None,
    finish: FinishOption = False,
    tables_only: TablesOnlyOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    output: OutputOption = SummaryFormat.TABLE,
) -> int:
    """Read what is new in a fleet's log dirs into Delta tables, on Spark.

    Plan, stage, commit, close, findings, risk: a run that was killed is finished by the next one, and reading again
    adds nothing.
    With --from archive no log dir is read: replay and rules go again over all that was ever archived.

    \b
    Examples:
      kraft-audit run conf/fleet.yaml
      kraft-audit run conf/fleet.yaml --lake /data/lake --output json
      kraft-audit run conf/fleet.yaml --cluster elr --log-format json
      kraft-audit run --from archive --lake /data/lake
    """
    need_spark("run")
    if fleet is None and not (source is Source.ARCHIVE and lake):
        raise UsageError("run needs FLEET.yaml; or --lake LAKE with --from archive")
    from kraft_audit.spark.run import Step
    from kraft_audit.spark.run_fleet import main_run

    return main_run(
        fleet,
        lake=lake,
        only=None if only is None else Step(only.value),
        spark_conf=spark_conf,
        committer=None if committer is None else committer.value,
        output=output.value,
        clusters=cluster,
        finish=finish,
        log_format=log_format.value,
        tables_only=tables_only,
        from_archive=source is Source.ARCHIVE,
    )


def need_spark(command: str) -> None:
    """Raises UsageError with the remedy where the extra is not installed."""
    missing = [name for name in ("pyspark", "delta", "deltalake") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{command} needs {', '.join(missing)}: pip install 'kraft-audit[spark]'")
