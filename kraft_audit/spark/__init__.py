"""The only room that imports Spark: the data source `format("kraft")`, the views of a lake, and the pipeline's steps.

Importing this package imports no pyspark, so that a command which needs no Spark pays nothing for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_audit.lake.catalog import CATALOG_TABLES, views
from kraft_audit.lake.views import path_tables, view_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make format("kraft") known to this session, where the package is not installed for Spark to find by itself."""
    from pyspark.errors import AnalysisException

    from kraft_audit.spark.source import KraftDataSource

    try:
        spark.dataSource.register(KraftDataSource)
    except AnalysisException as problem:
        # Spark 4.0 refuses what it has found by itself; later ones replace it.
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def register_views(spark: SparkSession, lake: str) -> list[str]:
    """Make each view of the lake a temporary view of this session: every table, `log`, `history_gap`, `…_reverted`.

    Of gold tables that the lake has, those with the names and labels of their clusters, and what is computed from them
    (`cluster_health`, `incidents_by_day`, `finding_trend`). Returns their names.
    A view is evaluated when it is queried, so that it shows the plans that were closed by then.
    """
    from pyspark.errors import AnalysisException

    tables = path_tables(lake)
    names, needed = [], frozenset(view_names())
    for name, query in views(tables, CATALOG_TABLES).items():
        try:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        except AnalysisException:
            if name in needed:
                raise
            continue  # no run has made the table yet
        names.append(name)
    return names
