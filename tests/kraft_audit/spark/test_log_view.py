"""The view `log`: each distinct batch once, committed, uncommitted or divergent by what was captured so far."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.views import path_tables, query_of
from kraft_audit.tables.silver import WATERMARKS
from tests.builders.lakes import MakeFleet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LogView = dict[tuple[int, int], tuple[str, tuple[int, ...]]]
"""By (base offset, leader epoch): status, held by."""


def log_of(spark: SparkSession, lake: str) -> LogView:
    rows = spark.sql(query_of("log", path_tables(lake))).collect()
    reported = {(row.base_offset, row.leader_epoch): (row.status, tuple(row.held_by)) for row in rows}
    assert len(reported) == len(rows)
    return reported


def test_a_batch_is_uncommitted_until_proven_and_divergent_once_another_stands_in_its_place(
    small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType, spark: SparkSession
) -> None:
    """A leader is cut off with a suffix that no replica fetched; two elect another; it cuts its log and follows."""
    alone, diverged, resolved = sorted(path.parent for path in (small_corpus / "divergence").glob("*/node-1"))
    roots: list[Path | str] = [alone / "node-2"]
    assert without_spark.run(make_fleet({"divergence": roots})).failed == {}
    lake = make_fleet({"divergence": roots}).lake
    first = log_of(spark, lake)
    suffix = {key for key in first if key[0] >= 27}
    assert suffix
    assert {first[key] for key in suffix} == {("uncommitted", (2,))}

    roots.append(diverged)
    assert without_spark.run(make_fleet({"divergence": roots})).failed == {}
    second = log_of(spark, lake)
    assert {second[key][0] for key in suffix} == {"divergent"}
    assert all(2 in second[key][1] for key in suffix), "its leader holds it still"
    others = {key for key in second if key[0] >= 27} - suffix
    assert others
    assert {second[key][0] for key in others} <= {"committed", "uncommitted"}
    assert {verdict[0] for key, verdict in second.items() if key[0] < 27} == {"committed"}

    roots.append(resolved)
    assert without_spark.run(make_fleet({"divergence": roots})).failed == {}
    third = log_of(spark, lake)
    assert {third[key] for key in suffix} == {("divergent", ())}, "cut from every disk, and still listed"
    assert third.keys() >= second.keys()
    assert {third[key][0] for key in others} == {"committed"}


def test_two_captures_of_one_number_are_distinguished_by_their_names(
    small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType, spark: SparkSession
) -> None:
    """The low of the last name counts, also where its row of `watermarks` is read first."""
    (alone, *_) = sorted(path.parent for path in (small_corpus / "divergence").glob("*/node-1"))
    fleet = make_fleet({"divergence": [alone]})
    assert without_spark.run(fleet).failed == {}
    lake = DeltaLake(fleet.lake)
    (row,) = lake.query("SELECT * FROM watermarks", WATERMARKS.name).to_pylist()
    rows = [{**row, "capture_number": 9, "capture": name, "low": low} for name, low in (("b", 20), ("a", 0))]
    table = pa.Table.from_pylist(rows, schema=WATERMARKS.schema)
    write_deltalake(lake.table_uri(WATERMARKS.name), table, mode="append")
    assert {key[0] < 20 for key, (status, _) in log_of(spark, fleet.lake).items() if status == "committed"} == {True}
