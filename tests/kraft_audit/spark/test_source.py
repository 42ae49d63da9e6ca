"""The data source without Spark: options, what filters leave, how clusters are dealt out to tasks."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from kraft_audit.capture.plan import Selection
from kraft_audit.lake.settings import SettingsError
from kraft_audit.lake.staging.staging_tasks import TASK_BYTES
from kraft_audit.spark.pushdown import PushedFilters, PushingReader
from kraft_audit.spark.readers import ClusterTask, spark_schema, tasks
from kraft_audit.spark.source import OPTIONS, STAGED_OPTIONS, KraftDataSource, check_options
from kraft_audit.tables import READABLE_TABLES


def source(**options: str) -> KraftDataSource:
    return KraftDataSource(CaseInsensitiveDict(options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "x", "tabel": "records"}, "tabel: 'records': expected a known option, perhaps table"),
        (
            {"path": "x", "table": "plans"},
            "table: 'plans': expected one of captures, node_cards, files, batches, records",
        ),
        ({"path": "x", "dialect": "kip1"}, "dialect: 'kip1': expected one of kip853, kip856, kip642"),
        ({"path": "x", "table": "batches", "recordType": "X"}, "recordType: 'X': expected the table records with it"),
        ({"path": "x", "tasks": "none"}, "tasks: 'none': expected a number of tasks from 1 on"),
        ({"path": "x", "tasks": "0"}, "tasks: '0': expected a number of tasks from 1 on"),
        ({}, "path: None: expected a value"),
        ({"table": "staged", "plan": "1"}, "lake: None: expected a value"),
    ],
)
def test_a_bad_option_is_one_line(options: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        check_options(CaseInsensitiveDict(options))
    assert str(raised.value).startswith('format("kraft"): ' + text)


def test_the_docs_list_every_option(project_root: Path) -> None:
    page = (project_root / "docs" / "pipeline.md").read_text()
    section = page.partition("## Read log dirs in Spark")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        name for name in OPTIONS if name not in STAGED_OPTIONS
    ]


@pytest.mark.parametrize("table", READABLE_TABLES)
def test_schemas_are_the_contracts(table: str) -> None:
    """Order, names, types and nullability: Spark refuses a batch that differs."""
    found = source(path="x", table=table).schema()
    columns = READABLE_TABLES[table].columns
    assert [(field.name, field.nullable) for field in found] == [(column.name, column.nullable) for column in columns]
    assert found == spark_schema(READABLE_TABLES[table].schema)


def selection(*filters: Filter) -> Selection:
    wanted = PushedFilters()
    for pushed in filters:
        wanted.take(pushed.attribute[0], pushed)
    return wanted.selection()


def test_what_filters_leave() -> None:
    offset = ("offset",)
    assert selection(GreaterThanOrEqual(offset, 5), LessThan(offset, 9)) == Selection(5, 9)
    assert selection(GreaterThan(offset, 5), LessThanOrEqual(offset, 9)) == Selection(6, 10)
    assert selection(GreaterThan(offset, 5), GreaterThan(offset, 2)) == Selection(6)
    assert selection(EqualTo(offset, 7)) == Selection(7, 8)
    assert selection(In(offset, (3, 9, 5))) == Selection(3, 10)
    assert selection(In(("node_id",), (3, None, 1))) == Selection(node_ids=(1, 3))
    assert selection(EqualTo(("node_id",), 3), EqualTo(("node_id",), 4)) == Selection(node_ids=())
    assert selection(EqualTo(("record_type",), "NO_OP_RECORD")) == Selection(record_types=("NO_OP_RECORD",))
    assert selection(StringContains(("record_type",), "X")) == Selection()
    assert selection(EqualTo(("leader_epoch",), 3)) == Selection()


def test_filters_on_what_a_table_lacks_are_left_to_spark() -> None:
    reader = PushingReader({"path": "x", "table": "batches"})
    filters = [
        EqualTo(("offset",), 1),
        EqualTo(("node_id",), 2),
        Not(EqualTo(("node_id",), 3)),
        EqualTo(("cluster_id",), "a"),
    ]
    assert list(reader.pushFilters(filters)) == filters, "Spark checks every row again"
    assert reader.selection == Selection(node_ids=(2,))
    assert reader.cluster_ids == {"a"}


@given(st.lists(st.integers(0, 20 * TASK_BYTES), max_size=30), st.integers(1, 8))
def test_every_cluster_is_in_one_task(costs: list[int], limit: int) -> None:
    clusters = [(number, f"plan {number}", cost) for number, cost in enumerate(costs)]
    dealt = list(tasks(clusters, limit, "key"))
    assert sorted(cluster for task in dealt for cluster in task.clusters) == [(n, text) for n, text, _ in clusters]
    assert len(dealt) <= limit
    assert [task.number for task in dealt] == list(range(len(dealt)))


def test_tiny_clusters_share_a_task_and_large_ones_do_not() -> None:
    tiny = [(number, "", 1000) for number in range(50)]
    assert len(list(tasks(tiny, 8, ""))) == 1
    large = [(number, "", 10 * TASK_BYTES) for number in range(3)]
    assert [len(task.clusters) for task in tasks(large, 8, "")] == [1, 1, 1]


def test_a_task_crosses_as_plain_values() -> None:
    task = ClusterTask(1, ((0, "{}"),), "ab")
    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301  # our own, as Spark does
