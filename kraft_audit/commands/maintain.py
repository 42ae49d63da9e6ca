"""`lake maintain`: keep a lake small and quick to read."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from kraft_audit.commands.arguments import LAKE_PACKAGES, SPARK_PACKAGES, LakePath, OutputFormat, need_packages
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.run import SparkConf
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.exit_codes import EXIT_UNREADABLE
from kraft_audit.text.output import Format, Output, table_columns

if TYPE_CHECKING:
    from kraft_audit.lake.lake import Lake
    from kraft_audit.lake.maintenance import Maintainer

COLUMNS: Final = table_columns(
    "table rows_forgotten files_before files_after size_bytes_before size_bytes_after files_vacuumed layout failure",
    {
        "rows_forgotten": "rows forgotten",
        "files_before": "files",
        "files_after": "after",
        "size_bytes_before": "bytes",
        "size_bytes_after": "after",
        "files_vacuumed": "vacuumed",
    },
    wide="failure",
    dropped="layout files_vacuumed rows_forgotten size_bytes_before files_before",
)


@prints_tables
def maintain(
    lake: LakePath,
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf",
            metavar="FILE",
            show_default=False,
            help="Retention and layout, in the format of conf/maintain.yaml.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", show_default=False, help="Maintain only this table. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, but change nothing.")] = False,
    committer: Annotated[
        Literal["deltalake", "spark"],
        typer.Option(
            help="spark: commit through Spark. Use it for liquid clustering, or if your runs commit through Spark."
        ),
    ] = "deltalake",
    staging: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            show_default=False,
            help="With --committer spark: the fleet's staging folder. A lease in it lets one process commit at a time.",
        ),
    ] = None,
    spark_conf: SparkConf = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Join small files, delete rows past their retention, and delete files that no table version uses.

    Queries return what they returned before, except for the rows past their retention. If a plan is open, finish it
    with `run` first. Exit code 3 if a table failed.

    \b
    Examples:
      kraft-audit lake maintain .demo/lake --dry-run
      kraft-audit lake maintain .demo/lake --conf conf/maintain.yaml
    """
    if committer == "spark":
        need_packages("lake maintain --committer spark", SPARK_PACKAGES, "spark")
    need_packages("lake maintain", LAKE_PACKAGES, "lake")
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lake_paths import absolute
    from kraft_audit.lake.maintenance import DeltaMaintainer, Maintained, maintain_lake
    from kraft_audit.lake.settings import SettingsError, load_maintain

    try:
        settings = load_maintain(conf)
        uri = absolute(lake, Path.cwd())
        opened: Lake
        maintainer: Maintainer
        with ExitStack() as ending:
            if committer == "spark":
                from kraft_audit.spark.spark_lake import open_maintainer

                place = None if staging is None else str(staging.absolute())
                spark_lake, maintainer = open_maintainer(uri, settings, spark_conf, place)
                ending.callback(spark_lake.close)
                opened = spark_lake
            else:
                opened = DeltaLake(uri)
                maintainer = DeltaMaintainer(opened, settings.target_file_bytes)
            maintained = maintain_lake(opened, maintainer, settings, dry_run=dry_run, tables=table or ())
            rows: list[dict[str, Any]] = [asdict(result) for result in maintained]
    except SettingsError as problem:
        raise UsageError(str(problem)) from None
    Output(output).rows(rows, COLUMNS, (field.name for field in fields(Maintained)))
    return EXIT_UNREADABLE if any(row["failure"] for row in rows) else 0
