"""`maintain`: keep a lake small and quick to read."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import OutputFormat
from kraft_audit.commands.ending import EXIT_UNREADABLE, UsageError
from kraft_audit.commands.run import Committer, need_spark
from kraft_audit.output import Column, Format, Output

COLUMNS: Final = (
    Column("table", "table"),
    Column("rows_forgotten", "rows forgotten", is_number=True),
    Column("files_before", "files", is_number=True),
    Column("files_after", "after", is_number=True),
    Column("size_bytes_before", "bytes", is_number=True),
    Column("size_bytes_after", "after", is_number=True),
    Column("files_vacuumed", "vacuumed", is_number=True),
    Column("layout", "layout"),
    Column("failure", "failure", is_wide=True),
)


def maintain(
    lake: Annotated[str, typer.Argument(metavar="LAKE", show_default=False, help="Folder or URI of the Delta tables.")],
    conf: Annotated[
        Path | None,
        typer.Option("--conf", metavar="FILE", show_default=False, help="Retention and layout, as conf/maintain.yaml."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", show_default=False, help="Only this table; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    committer: Annotated[
        Committer, typer.Option(help="spark: liquid clustering, and lakes that only the JVM reaches.")
    ] = Committer.DELTALAKE,
    spark_conf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Spark properties that win over the defaults."),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Join small files, forget what the retention lets go, and delete files that nothing names any more.

    Queries give what they gave. A plan that is open is finished by `run` first. Exit code 3 where a table failed.

    \b
    Examples:
      kraft-audit maintain .demo/lake --dry-run
      kraft-audit maintain .demo/lake --conf conf/maintain.yaml
    """
    need_spark("maintain")
    from kraft_audit.settings import SettingsError, absolute
    from kraft_audit.spark.maintain import Maintained, maintain_lake, open_maintainer
    from kraft_audit.spark.maintain_settings import load_maintain

    try:
        settings = load_maintain(conf)
        opened, maintainer = open_maintainer(absolute(lake, Path.cwd()), committer.value, settings, spark_conf)
        done = maintain_lake(opened, maintainer, settings, dry_run=dry_run, tables=table or ())
        rows: list[dict[str, Any]] = [asdict(one) for one in done]
    except SettingsError as problem:
        raise UsageError(str(problem)) from None
    Output(output).rows(rows, COLUMNS, (field.name for field in fields(Maintained)))
    return EXIT_UNREADABLE if any(row["failure"] for row in rows) else 0
