"""The lake's tables as Spark shows them to people: closed plans only, under their own names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.tables import PLANS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOSED = "SELECT coalesce(max(plan), 0) FROM {plans} WHERE event = 'closed'"


def register_views(spark: SparkSession, lake: str) -> list[str]:
    """Make every table of the lake a temporary view; their names.

    A view is evaluated when it is asked, so that it shows what was closed by then.
    """
    names = []
    for table in LAKE_TABLES:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {table} AS {view_sql(lake, table)}")
        names.append(table)
    return names


def read_closed(spark: SparkSession, lake: str, table: str) -> DataFrame:
    """One table of the lake, rows of closed plans only."""
    return spark.sql(view_sql(lake, table))


def view_sql(lake: str, table: str) -> str:
    """The view's query; the same text makes a permanent view in a catalog."""
    closed = CLOSED.format(plans=_path_table(lake, PLANS.name))
    return f"SELECT * FROM {_path_table(lake, table)} WHERE plan <= ({closed})"  # noqa: S608  # quoted by _path_table


def _path_table(lake: str, table: str) -> str:
    return "delta.`" + f"{lake}/{table}".replace("`", "``") + "`"
