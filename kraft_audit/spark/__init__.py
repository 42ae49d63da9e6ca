"""The pipeline and the data source: `register(spark)` makes format("kraft") known where Spark does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make format("kraft") known to this session."""
    from kraft_audit.spark.source import register as register_source  # pyspark is imported only by those who use it

    register_source(spark)
