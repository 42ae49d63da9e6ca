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


def run(
    fleet: Annotated[
        Path, typer.Argument(metavar="FLEET.yaml", show_default=False, help="Clusters, their paths, the lake.")
    ],
    lake: Annotated[
        str | None, typer.Option(metavar="LAKE", show_default=False, help="Another lake than the file names.")
    ] = None,
    only: Annotated[StepOption | None, typer.Option(show_default=False, help="One step of the open plan.")] = None,
    spark_conf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Spark properties that win over the defaults."),
    ] = None,
    committer: Annotated[
        Committer | None, typer.Option(show_default=False, help="spark: where only the JVM reaches the lake.")
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", show_default=False, help="Only this cluster; may be repeated."),
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Only finish the plan that a killed run left open.")] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="json: an object a line with run, step and cluster, on stderr.")
    ] = LogFormat.TEXT,
    output: Annotated[SummaryFormat, typer.Option("--output", "-o", help="How the summary is printed.")] = (
        SummaryFormat.TABLE
    ),
) -> int:
    """Read what is new in a fleet's log dirs into Delta tables, on Spark.

    Plan, stage, commit, close: a run that was killed is finished by the next one, and reading again adds nothing.

    \b
    Examples:
      kraft-audit run conf/fleet.yaml
      kraft-audit run conf/fleet.yaml --lake /data/lake --output json
      kraft-audit run conf/fleet.yaml --cluster elr --log-format json
    """
    need_spark("run")
    from kraft_audit.spark.run import Step, main_run

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
    )


def need_spark(command: str) -> None:
    """Raises UsageError with the remedy where the extra is not installed."""
    missing = [name for name in ("pyspark", "delta", "deltalake") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{command} needs {', '.join(missing)}: pip install 'kraft-audit[spark]'")
