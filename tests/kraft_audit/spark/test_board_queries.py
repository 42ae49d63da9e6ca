"""The boards' queries give in Spark what they give without it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.builders.board_tables import TABLES, write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.ci]


def test_spark_answers_as_datafusion_does(spark: SparkSession, tmp_path: Path, project_root: Path) -> None:
    write_tables(tmp_path)
    without = QueryBuilder()
    for name in TABLES:
        without.register(name, DeltaTable(str(tmp_path / name)))
        spark.read.format("delta").load(str(tmp_path / name)).createOrReplaceTempView(name)
    queries = runpy.run_path(str(project_root / "scripts" / "build_boards.py"))["queries"]()
    for name, (_, sql) in queries.items():
        reported = [tuple(row) for row in spark.sql(sql).collect()]
        expected = pa.table(without.execute(sql).read_all()).to_pylist()
        assert [plain(row) for row in reported] == [plain(tuple(row.values())) for row in expected], name
    for name in TABLES:
        spark.catalog.dropTempView(name)


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Times as texts without a zone: both engines were asked in UTC."""
    return tuple(value.strftime("%F %T") if hasattr(value, "hour") else value for value in row)
