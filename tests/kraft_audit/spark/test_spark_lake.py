"""What Spark commits to a lake: by its public API alone, one driver at a time, each transaction once."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kraft_audit.spark.delta_log import DeltaLogs, commits_and_checkpoint
from kraft_audit.spark.spark_lake import SparkLake
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERNALS = re.compile(r"\b(_jvm|_jsc|_jsparkSession|_jdf|_jconf|_sc|_gateway)\b")


@pytest.mark.unit
def test_nothing_reaches_behind_the_api_of_spark(project_root: Path) -> None:
    """What py4j gives is there on no Connect server, and another in each release."""
    files = [*(project_root / "kraft_audit").rglob("*.py"), *(project_root / "pyspark_kraft").rglob("*.py")]
    assert len(files) > 100
    assert [str(file) for file in files if INTERNALS.search(file.read_text())] == []


@pytest.mark.unit
def test_the_newest_whole_checkpoint_is_chosen() -> None:
    def name(version: int, rest: str) -> str:
        return f"{version:020d}.{rest}"

    uuid = "80a083e8-7026-4e79-81be-64bd76c43a11"
    parts = [name(30, f"checkpoint.{part:010d}.{2:010d}.parquet") for part in (1, 2)]
    files = [name(10, "checkpoint.parquet"), name(20, f"checkpoint.{uuid}.parquet"), name(31, "json"), name(31, "crc")]
    assert commits_and_checkpoint(files) == ({31: files[2]}, [files[1]], 20)
    assert commits_and_checkpoint([*files, parts[0]])[1:] == ([files[1]], 20), "half of a checkpoint is none"
    assert commits_and_checkpoint([*files, *parts])[1:] == (parts, 30)
    assert commits_and_checkpoint([]) == ({}, [], -1)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SparkLake:
    return SparkLake(str(tmp_path / "lake"), str(tmp_path / "staging"), lambda: spark)


@pytest.mark.spark
@pytest.mark.ci
def test_transactions_are_known_after_their_commits_are_deleted(
    lake: SparkLake, spark: SparkSession, tmp_path: Path
) -> None:
    """As Delta itself says, from commits, from a checkpoint beside them, and from a checkpoint alone."""
    uri = lake.table_uri("numbers")
    log = Path(uri, "_delta_log")
    spark.range(1).write.format("delta").option("delta.checkpointInterval", 2).save(uri)
    expected = {"one": 0, "two": 0}

    def says(asked: SparkLake) -> dict[str, int]:
        found = dict(zip(expected, asked.versions("numbers", list(expected)), strict=True))
        assert found == {name: DeltaTable(uri).transaction_version(name) or 0 for name in expected}
        return found

    assert says(lake) == expected
    for application, version in (("one", 3), ("two", 1), ("one", 5)):
        assert lake._append("numbers", spark.range(1), application, version)
        assert not lake._append("numbers", spark.range(1), application, version)
        expected[application] = version
        assert says(lake) == expected
    assert spark.read.format("delta").load(uri).count() == 4
    (checkpoint,) = log.glob("*.checkpoint*.parquet")
    for commit in log.glob("*.json"):
        if commit.name[:20] <= checkpoint.name[:20]:
            commit.unlink()
    again = SparkLake(lake.uri, lake.data_uri, lambda: spark)
    assert says(again) == says(lake) == expected
    assert again.table_id("numbers") == str(DeltaTable(uri).metadata().id)
    assert [each["name"] for each in again._state("numbers").columns] == ["id"]
    newest = max(log.glob("0*.json"))
    newest.rename(log / f"{int(newest.stem) + 1:020d}.json")
    with pytest.raises(InputError, match="lacks a commit between"):
        DeltaLogs(lambda: spark).state(uri)


@pytest.mark.spark
@pytest.mark.ci
@pytest.mark.timeout(300)
def test_of_two_drivers_one_commits(lake: SparkLake, spark: SparkSession, tmp_path: Path) -> None:
    """The second one is another process: it is refused before it starts Spark, and gets in when the first one ends."""
    rows = LAKE_TABLES["plans"].schema.empty_table()
    lake.create("plans", LAKE_TABLES["plans"].schema, "")
    program = f"""
from kraft_audit.spark.spark_lake import SparkLake
def session(): raise SystemExit("it starts Spark")
SparkLake({lake.uri!r}, {lake.data_uri!r}, session).hold()
"""

    def second() -> str:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr

    assert "commits to the lake now" in second()
    here = SparkLake(lake.uri, lake.data_uri, lambda: spark)
    with pytest.raises(InputError, match="commits to the lake now"):
        here.append_rows("plans", rows, "application", 1)
    assert lake.append_rows("plans", rows, "application", 1)
    lake.close()
    assert "it starts Spark" in second()
    assert not here.append_rows("plans", rows, "application", 1)
    assert here.append_rows("plans", rows, "application", 2)
    here.close()
    elsewhere = SparkLake(lake.uri, str(tmp_path / "elsewhere"), lambda: spark)
    before = DeltaTable(lake.table_uri("plans")).version()
    with pytest.raises(InputError, match="take turns by another staging folder") as refused:
        elsewhere.append_rows("plans", rows, "application", 3)
    assert DeltaTable(lake.table_uri("plans")).version() == before
    (named,) = re.findall(r"id ([0-9a-f]{32})", str(refused.value))
    (tmp_path / "elsewhere" / "_lease" / "id").write_text(named)
    assert elsewhere.append_rows("plans", rows, "application", 3), "the way out that the error names"


@pytest.mark.spark
@pytest.mark.ci
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_the_same", [True, False])
def test_a_commit_that_came_first_is_no_error(
    lake: SparkLake, spark: SparkSession, tmp_path: Path, is_the_same: bool
) -> None:
    """Delta refuses an append, as another commit of the same transaction, or a change of columns, came first."""
    from pyspark.sql.functions import udf

    uri, started, gate = lake.table_uri("numbers"), tmp_path / "started", tmp_path / "gate"
    spark.range(1).write.format("delta").save(uri)

    @udf("long")
    def once_it_may(number: int) -> int:
        with started.open("a") as attempts:
            attempts.write("one\n")
        while not gate.exists():
            time.sleep(0.02)
        return number

    late_rows = spark.range(1, 2, 1, 1).select(once_it_may("id").alias("id"))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(lake._append, "numbers", late_rows, "one", 1)
        try:
            while not started.exists() and not late.done():
                time.sleep(0.02)
            if is_the_same:
                assert lake._append("numbers", spark.range(1), "one", 1)
            else:
                spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMNS (more STRING)")
        finally:
            gate.touch()
        assert late.result() != is_the_same
    assert started.read_text().count("one") == (1 if is_the_same else 2), "it met the other commit"
    assert spark.read.format("delta").load(uri).count() == 2
