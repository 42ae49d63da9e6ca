"""The same through Spark: format("kraft") as a notebook uses it, the staging job, views, the JVM's committer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.redaction_key import load_key
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.views import path_tables, query_of
from kraft_audit.pipeline.analysis import TABLES
from kraft_audit.spark import register_views
from kraft_audit.spark.readers import spark_schema
from kraft_audit.spark.run_fleet import SparkStager
from kraft_audit.spark.spark_lake import SparkLake
from kraft_audit.tables import LAKE_TABLES, READABLE_TABLES
from kraft_audit.tables.gold import EVIDENCE
from kraft_codec.errors import InputError
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.delta_log import name_file
from tests.builders.lakes import CLUSTERS, MakeFleet
from tests.builders.reading_times import WHEN
from tests.builders.readings import as_tables, table_rows, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    file = tmp_path_factory.mktemp("key") / "key"
    return file, load_key(file, may_create=True)


@pytest.fixture(scope="module")
def torn(small_corpus: Path, key: tuple[Path, bytes]) -> dict[str, pa.Table]:
    """What `analyze` itself gives of a cluster with damage."""
    plan = plan_cluster([str(small_corpus / "torn-write")], open_storage=open_storage, captured_at_ms=0, name="")
    given = as_tables(list(table_rows(plan, open_storage=open_storage, redactor=Redactor(key[1]))))
    return {name: given.get(name, READABLE_TABLES[name].schema.empty_table()) for name in TABLES}


def kraft(spark: SparkSession, path: Path, key: tuple[Path, bytes], **options: str) -> DataFrame:
    return spark.read.format("kraft").options(redactionKeyFile=str(key[0]), **options).load(str(path))


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, schema=spark_schema(table.schema))


def assert_same_rows(found: DataFrame, expected: DataFrame) -> None:
    """Schema and rows, without the columns that say when something was read."""
    keep = [column for column in expected.columns if column not in WHEN]
    if "evidence:array<struct<" in expected.schema.simpleString():  # those of losses are lines of text
        # The time of what a disk holds is when it was read.
        is_read = "each.path IS NOT NULL AND each.file_name IS NULL"
        times = f"CASE WHEN {is_read} THEN NULL ELSE each.timestamp_ms END"
        facts = ", ".join(f"each.{field.name}" for field in EVIDENCE.value_type if field.name != "timestamp_ms")
        keep[keep.index("evidence")] = f"transform(evidence, each -> struct({facts}, {times} AS times)) AS evidence"
    assert_df_equality(found.selectExpr(keep), expected.selectExpr(keep), ignore_row_order=True)


@pytest.mark.parametrize("table", READABLE_TABLES)
def test_each_table_is_what_analyze_gives(
    table: str, spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes], torn: dict[str, pa.Table]
) -> None:
    """No import registers the format here: Spark finds the installed package by itself."""
    assert_same_rows(kraft(spark, small_corpus / "torn-write", key, table=table), from_arrow(spark, torn[table]))


def test_record_type_gives_typed_columns(spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes]) -> None:
    plan = plan_cluster([str(small_corpus / "torn-write")], open_storage=open_storage, captured_at_ms=0, name="")
    rows = typed_rows(plan, "PARTITION_RECORD", open_storage=open_storage, redactor=Redactor(key[1]))
    expected = pa.Table.from_batches(list(rows))
    found = kraft(spark, small_corpus / "torn-write", key, recordType="PARTITION_RECORD")
    assert expected.num_rows > 0
    assert_same_rows(found, from_arrow(spark, expected))


FILTERS = (
    "node_id = 1",
    "node_id in (1, 3) and base_offset > 10",
    "cluster_id = 'absent'",
    "node_id is null",
)


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_leave_the_same_rows_pushed_or_not(
    condition: str, spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes], torn: dict[str, pa.Table]
) -> None:
    expected = from_arrow(spark, torn["batches"]).where(condition)
    assert_same_rows(kraft(spark, small_corpus / "torn-write", key, table="batches").where(condition), expected)


@pytest.mark.parametrize(
    "condition",
    ["offset >= 5 and offset < 20", "record_type = 'TOPIC_RECORD'", "offset = 3 or offset = 7", "offset in (3, 9)"],
)
def test_filters_on_records(
    condition: str, spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes], torn: dict[str, pa.Table]
) -> None:
    expected = from_arrow(spark, torn["records"]).where(condition)
    assert expected.count() > 0
    assert_same_rows(kraft(spark, small_corpus / "torn-write", key).where(condition), expected)


def test_pushing_can_be_switched_off(spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes]) -> None:
    """Spark refuses a source that can push where pushing is off, which is its default."""
    found = kraft(spark, small_corpus / "torn-write", key, table="captures")
    pushed = found.where("node_id = 1").count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert found.where("node_id = 1").count() == pushed > 0
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_options_choose(spark: SparkSession, small_corpus: Path, key: tuple[Path, bytes]) -> None:
    name = "12-after-truncation"
    chosen = kraft(spark, small_corpus / "divergence", key, table="captures", capture=name)
    assert {row["capture"] for row in chosen.collect()} == {name}
    none = kraft(spark, small_corpus / "divergence", key, table="captures", cluster="absent")
    assert none.count() == 0
    with pytest.raises(Exception, match="dialect: 'kip1': expected one of kip853, kip856, kip642"):
        kraft(spark, small_corpus / "torn-write", key, dialect="kip1")


@pytest.fixture
def fleet(small_corpus: Path, make_fleet: MakeFleet) -> FleetSettings:
    return make_fleet({name: [small_corpus / name] for name in CLUSTERS})


def test_a_run_by_spark_is_a_run(
    fleet: FleetSettings, make_fleet: MakeFleet, small_corpus: Path, spark: SparkSession, without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    alone = make_fleet({name: [small_corpus / name] for name in CLUSTERS}, lake="alone")
    without_spark.run(alone)
    lake = without_spark.DeltaLake(fleet.lake)
    result = without_spark.run(fleet, stage=SparkStager(fleet, lake, lambda: spark))
    assert (result.failed, result.plans) == ({}, [1])
    assert lake_hash(fleet.lake) == lake_hash(alone.lake)


def test_spark_reads_the_tables_and_views_hide_open_plans(
    fleet: FleetSettings, spark: SparkSession, without_spark: ModuleType
) -> None:
    without_spark.run(fleet)
    register_views(spark, fleet.lake)
    for table in LAKE_TABLES:
        raw = spark.read.format("delta").load(f"{fleet.lake}/{table}")
        assert names_and_types(raw.schema) == names_and_types(spark_schema(LAKE_TABLES[table].schema))
        comments = {field.name: field.metadata["comment"] for field in raw.schema}
        assert comments == {column.name: column.comment for column in LAKE_TABLES[table].columns}
    records = spark.read.format("delta").load(f"{fleet.lake}/records")
    assert spark.table("records").count() == records.count() > 0
    assert records.where("record_type = 'TOPIC_RECORD'").count() > 0, "the files' statistics do not hide rows"
    open_plan = spark.table("captures").limit(1).drop("plan").selectExpr("*", "cast(9 as bigint) as plan")
    open_plan.write.format("delta").mode("append").save(f"{fleet.lake}/captures")
    assert spark.table("captures").where("plan = 9").count() == 0
    assert spark.sql(query_of("captures", path_tables(fleet.lake))).where("plan = 9").count() == 0


def test_views_report_what_holds_and_what_is_proven(
    make_fleet: MakeFleet, small_corpus: Path, spark: SparkSession, without_spark: ModuleType
) -> None:
    """Each row of partitions ends where the next of its partition begins; the log's batches are all there, once."""
    fleet = make_fleet({"divergence": [small_corpus / "divergence"]})
    without_spark.run(fleet)
    register_views(spark, fleet.lake)
    ends = spark.sql(
        "SELECT a.cluster_id, a.topic_id, a.partition, a.from_offset, a.proven, min(b.from_offset) AS to_offset "
        "FROM partition_changes a LEFT JOIN partition_changes b ON a.cluster_id = b.cluster_id "
        "AND a.topic_id = b.topic_id AND a.partition = b.partition AND b.from_offset > a.from_offset "
        "GROUP BY ALL"
    )
    assert_df_equality(spark.table("partition_changes").select(ends.columns), ends, ignore_row_order=True)
    low = spark.sql("SELECT cluster_id, max(low) AS low FROM watermarks GROUP BY cluster_id")
    reported = spark.table("partition_changes").join(low, "cluster_id")
    assert reported.where("proven <> (from_offset < low)").count() == 0 < reported.count()
    distinct = spark.table("batches").where("source = 'log' AND valid")
    key = ["cluster_id", "base_offset", "leader_epoch", "crc"]
    assert spark.table("log").count() == distinct.select(key).distinct().count()
    ended = {row.status: row.ends for row in spark.table("log").groupBy("status").agg({"last_offset": "max"})
             .withColumnRenamed("max(last_offset)", "ends").collect()}  # fmt: skip
    assert ended.keys() == {"committed", "divergent"}
    parted = spark.table("log").where("status = 'divergent'")
    assert {tuple(row.held_by) for row in parted.collect()} <= {(2,), (11,), (2, 11), ()}


def names_and_types(schema: Any) -> list[tuple[str, str]]:
    """Delta's reader makes every column nullable, so that nullability is not compared."""
    return [(field.name, field.dataType.simpleString()) for field in schema]


@pytest.fixture
def spark_lake(fleet: FleetSettings, spark: SparkSession, tmp_path: Path) -> SparkLake:
    return SparkLake(str(tmp_path / "by-spark"), str(tmp_path / "staging"), lambda: spark)


@pytest.mark.ci
def test_spark_commits_the_same_tables(
    fleet: FleetSettings, spark_lake: SparkLake, spark: SparkSession, small_corpus: Path, make_fleet: MakeFleet,
    without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """In two plans, so that the second one asks for what the first one knows; then again, with nothing new."""
    captures = sorted(path for path in (small_corpus / "divergence").iterdir() if (path / "node-1").is_dir())
    roots: list[Path | str] = list(captures)
    alone = make_fleet({"divergence": roots[:2]}, lake="alone")
    without_spark.run(alone)
    without_spark.run(make_fleet({"divergence": roots}, lake="alone"))
    lines: list[str] = []
    plans = []
    for count in (2, len(roots), len(roots)):
        settings = make_fleet({"divergence": roots[:count]}, lake="by-spark")
        run = Run(settings, spark_lake, SparkStager(settings, spark_lake, lambda: spark), lines.append)
        result = run.all_steps()
        assert result.failed == {}, lines
        plans.append(result.plans)
    assert plans == [[1], [2], []]
    assert lake_hash(spark_lake.uri) == lake_hash(alone.lake)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{spark_lake.table_uri('records')}`").collect()[0]
    assert list(detail["clusteringColumns"]) == ["cluster_id"], "from its creation"
    manifest = run.ledger.manifest(1)
    files = [file for file in manifest.files if file.table == "records"]
    application = run.ledger.plan_application("records", 1)
    assert not spark_lake.commit("records", files, LAKE_TABLES["records"].schema, application, 1), "committed once"


def test_spark_reads_no_file_of_somebody_else(spark_lake: SparkLake, spark: SparkSession, tmp_path: Path) -> None:
    for place in (spark_lake.table_uri("batches"), str(tmp_path / "elsewhere")):
        spark.range(1).coalesce(1).write.format("delta").save(place)
    assert spark_lake.query("SELECT id FROM batches", "batches").num_rows == 1
    (secret,) = (tmp_path / "elsewhere").glob("*.parquet")
    name_file(Path(spark_lake.table_uri("batches")), str(secret), secret.stat().st_size)
    with pytest.raises(InputError, match="names a file outside of its folder"):
        spark_lake.query("SELECT id FROM batches", "batches")
