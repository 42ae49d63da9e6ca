"""`lake register`: a lake's tables and views as a catalog's statements: printed, written as files, or executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    SPARK_PACKAGES,
    LakePath,
    OutputFormat,
    need_packages,
    refuse_filled,
)
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.commands.run import SparkConf
from kraft_audit.lake.catalog_dialects import Catalog
from kraft_audit.text.output import Format, Output, ShownColumn

if TYPE_CHECKING:
    from kraft_audit.lake.catalog import Statement

OF_SPARK: Final = ("unity", "glue", "hive")
KEYS: Final = ("kind", "name", "sql")
TABLES_FILE: Final = "tables.sql"
VIEWS_FOLDER: Final = "views"


def register(
    lake: LakePath,
    catalog: Annotated[
        Catalog,
        typer.Option(help="unity, glue and hive: SQL for Spark. athena, trino and duckdb: SQL in their own dialect."),
    ],
    schema: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Schema of the views, for example kraft or main.kraft. Tables go to NAME_tables."
        ),
    ] = "kraft",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default=False,
            help="Write the SQL into this new or empty folder: a file for the tables, and one for each view.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Let Spark run the SQL in the catalog that its properties name.")
    ] = False,
    spark_conf: SparkConf = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Print the SQL that registers a lake's tables and views in a catalog. The lake itself does not change.

    Query the views and the gold tables, such as findings and incidents. Do not query the bronze and silver tables: they
    also hold rows of plans that still run or were given up. The views leave those rows out. You can run the SQL again;
    it then replaces the views and keeps the tables. Only Trino refuses a table that is already registered.

    \b
    Examples:
      kraft-audit lake register .demo/lake --catalog duckdb
      kraft-audit lake register .demo/lake --catalog hive --schema audit --out catalog
    """
    if execute and catalog not in OF_SPARK:
        raise UsageError(
            f"'--execute': Spark cannot write to {catalog}: leave out --execute, and run the printed SQL there"
        )
    if execute:
        need_packages("lake register --execute", SPARK_PACKAGES, "spark")
    need_packages("lake register", LAKE_PACKAGES if catalog in OF_SPARK else (*LAKE_PACKAGES, "sqlglot"), "lake")
    if out is not None:
        refuse_filled(out)
    from kraft_audit.lake.catalog import CATALOG_TABLES, statements
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lake import require_lake
    from kraft_audit.lake.lake_paths import absolute

    uri = absolute(lake, Path.cwd())
    there = DeltaLake(uri)
    require_lake(there)
    made = list(statements(uri, catalog, schema, [name for name in CATALOG_TABLES if there.exists(name)]))
    if execute:
        from kraft_audit.spark.catalog_statements import execute_statements

        execute_statements(uri, made, spark_conf)
        remark(f"registered: {sum(each.kind == 'view' for each in made)} views in {schema}")
        return
    if out is not None:
        _write(out, made)
    lines = Output(output)
    if lines.format is not Format.TABLE:
        lines.rows([{key: getattr(each, key) for key in KEYS} for each in made], [], KEYS)
    elif out is not None:
        lines.rows([{"file": name} for name in _files(made)], [ShownColumn("file", f"below {out}")])
    else:
        for each in made:
            lines.line(f"{each.sql};\n")


def _files(made: list[Statement]) -> dict[str, str]:
    """By name: one file with schemas and tables, and one for each view."""
    tables = "".join(f"{each.sql};\n" for each in made if each.kind != "view")
    of_views = {f"{VIEWS_FOLDER}/{each.name}.sql": f"{each.sql};\n" for each in made if each.kind == "view"}
    return {TABLES_FILE: tables, **of_views}


def _write(out: Path, made: list[Statement]) -> None:
    for name, text in _files(made).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
