"""`run`: a fleet's log dirs into Delta tables, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from kraft_audit.commands.arguments import Gone, Running, need_packages, node_ids_of
from kraft_audit.commands.ending import UsageError

NEEDED: Final = ("pyspark", "delta", "deltalake")
"""The packages of the extra that Spark's commands import."""


SparkConf = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default=False, help="Spark properties that win over the defaults."),
]


def run(
    fleet: Annotated[
        Path | None,
        typer.Argument(metavar="FLEET.yaml", show_default=False, help="Clusters, their paths, the lake."),
    ] = None,
    lake: Annotated[
        str | None, typer.Option(metavar="LAKE", show_default=False, help="Another lake than the file names.")
    ] = None,
    source: Annotated[
        Literal["logs", "archive"],
        typer.Option("--from", help="archive: silver tables and findings again, from the lake alone."),
    ] = "logs",
    only: Annotated[
        Literal["plan", "stage", "commit", "close", "findings", "risk"] | None,
        typer.Option(show_default=False, help="One step; the first four are of the open plan."),
    ] = None,
    spark_conf: SparkConf = None,
    committer: Annotated[
        Literal["deltalake", "spark"] | None,
        typer.Option(show_default=False, help="spark: where only the JVM reaches the lake."),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", show_default=False, help="Only this cluster; may be repeated."),
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Only finish the plan that a killed run left open.")] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="End with the tables, for `quality` to judge, before --only findings.")
    ] = False,
    running: Running = False,
    gone: Gone = None,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="json: an object a line with run, step and cluster, on stderr."),
    ] = "text",
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="How the summary is printed.")
    ] = "table",
) -> int:
    """Read what is new in a fleet's log dirs into Delta tables, on Spark.

    Plan, stage, commit, close, findings, risk: the next run finishes one that was killed, and reading the same logs
    twice adds nothing. With --from archive no log dir is read: replay and rules run again over all that was archived.
    --running and --gone are about one --cluster and this run; `running` and `gone` in FLEET.yaml hold for every run.

    \b
    Examples:
      kraft-audit run conf/fleet.yaml
      kraft-audit run conf/fleet.yaml --lake /data/lake --output json
      kraft-audit run conf/fleet.yaml --cluster elr --log-format json
      kraft-audit run --from archive --lake /data/lake
      kraft-audit run --from archive --lake /data/lake --cluster elr --gone 1,2
    """
    need_packages("run", NEEDED)
    if fleet is None and not (source == "archive" and lake):
        raise UsageError("run needs FLEET.yaml; or --lake LAKE with --from archive")
    from kraft_audit.lake.pipeline import Step
    from kraft_audit.spark.run_fleet import main_run

    return main_run(
        fleet,
        lake=lake,
        only=None if only is None else Step(only),
        spark_conf=spark_conf,
        committer=committer,
        output=output,
        clusters=cluster,
        finish=finish,
        log_format=log_format,
        tables_only=tables_only,
        from_archive=source == "archive",
        running=running,
        gone=node_ids_of("--gone", gone),
    )
