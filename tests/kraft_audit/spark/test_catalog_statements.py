"""What `lake register` prints, executed in Spark's catalog: the permanent views give what DataFusion gives."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

from kraft_audit.lake.catalog import CATALOG_TABLES, statements, views
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.spark.catalog_statements import execute_statements
from kraft_audit.tables.gold import GOLD_VIEWS
from kraft_codec.errors import InputError
from tests.builders.commands import COMMAND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMPARED = (*("captures", "partition_changes", "leader_epochs", "log", "findings", *GOLD_VIEWS),)
"""A view of each kind; of the others the catalog has checked the names and types."""


def test_registered_views_give_what_datafusion_gives(
    spark: SparkSession, small_corpus: Path, make_fleet: Callable[..., FleetSettings], tmp_path: Path
) -> None:
    fleet = make_fleet({"divergence": [small_corpus / "divergence"], "elr": [small_corpus / "elr"]})
    subprocess.run([COMMAND, "run", tmp_path / "fleet.yaml", "--engine", "local"], check=True, timeout=280)
    lake = DeltaLake(fleet.lake)
    present = [name for name in CATALOG_TABLES if lake.exists(name)]
    try:
        made = list(statements(fleet.lake, "hive", "registered", present))
        execute_statements(fleet.lake, made)
        execute_statements(fleet.lake, made[:4] + made[-1:])  # each can be run again
        query = lake.queries(*present)
        texts = views(str, present)
        for name in texts:
            assert spark.catalog.tableExists(f"registered.{name}")
        for name in COMPARED:
            found = spark.table(f"registered.{name}")
            rows = query(texts[name])
            assert found.columns == rows.column_names
            # Spark's own types: an engine counts in 64 bits where the other has 32, or lets a list hold nulls.
            assert_df_equality(
                found, spark.createDataFrame(rows.to_pylist(), schema=found.schema), ignore_row_order=True
            )
        assert all(spark.table(f"registered.{name}").count() for name in GOLD_VIEWS)
    finally:
        spark.sql("DROP SCHEMA IF EXISTS registered CASCADE")
        spark.sql("DROP SCHEMA IF EXISTS registered_tables CASCADE")
    assert lake.exists("findings"), "what is registered lies outside of the catalog, and stays"


def test_a_statement_that_fails_is_named(spark: SparkSession, tmp_path: Path) -> None:
    missing = statements(str(tmp_path / "no-lake"), "hive", "registered", [])
    try:
        with pytest.raises(InputError, match="view captures could not be registered"):
            execute_statements(str(tmp_path), missing)
    finally:
        spark.sql("DROP SCHEMA IF EXISTS registered CASCADE")
        spark.sql("DROP SCHEMA IF EXISTS registered_tables CASCADE")
