"""Statements of a catalog, executed by Spark in the catalog that its session has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kraft_audit.lake.catalog import Statement
from kraft_audit.spark.session import spark_error_line, spark_errors, spark_session
from kraft_codec.errors import InputError


def execute_statements(lake: str, statements: Iterable[Statement], conf_file: Path | None = None) -> None:
    """Execute them in order. Raises InputError that names the lake and the first statement that failed."""
    spark = spark_session("kraft-audit lake register", conf_file=conf_file)
    for each in statements:
        try:
            spark.sql(each.sql)
        except spark_errors() as problem:
            what = f"{each.kind} {each.name}".strip()
            raise InputError(lake, f"{what} could not be registered: {spark_error_line(str(problem))}") from problem
