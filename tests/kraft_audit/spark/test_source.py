"""The data source without Spark: options, what filters leave, how clusters are dealt out to tasks."""

from __future__ import annotations

import pickle
import re
from collections import Counter
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

from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart
from kraft_audit.capture.plan import ClusterPlan, FilePlan, ReplicaPlan, Selection, plan_to_json
from kraft_audit.lake.redaction_key import load_key
from kraft_audit.lake.settings import SettingsError
from kraft_audit.lake.staging.staging_tasks import TASK_BYTES
from kraft_audit.spark.pushdown import PushedFilters, PushingReader
from kraft_audit.spark.readers import ClusterTask, TableReader, spark_schema
from kraft_audit.spark.source import OPTIONS, STAGED_OPTIONS, KraftDataSource, check_options
from kraft_audit.spark.table_tasks import table_tasks
from kraft_audit.tables import READABLE_TABLES
from tests.builders.logs import Log, write_node


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


def cluster(number: int, size_bytes: int) -> ClusterPlan:
    """A cluster of one replica in a folder, with one segment that need not exist."""
    segment = FilePlan("__cluster_metadata-0/00000000000000000000.log", "segment", 0, None, size_bytes, 0)
    node = ReplicaPlan("/nowhere", f"n{number}", "", 0, 0, "id", 1, f"d{number}", (segment,))
    return ClusterPlan(0, "", f"cluster-{number}", "kip853", (node,))


@given(st.lists(st.integers(0, 20 * TASK_BYTES), max_size=30), st.integers(1, 8))
def test_every_cluster_is_in_one_task(costs: list[int], limit: int) -> None:
    plans = [cluster(number, cost) for number, cost in enumerate(costs)]
    dealt = table_tasks(plans, "findings", limit)
    assert Counter(text for task in dealt for text, _ in task) == Counter(map(plan_to_json, plans))
    assert {part for task in dealt for _, part in task} <= {WHOLE_LOG}
    assert len(dealt) <= limit


def test_tiny_clusters_share_a_task_and_large_ones_do_not() -> None:
    assert len(table_tasks([cluster(number, 1000) for number in range(50)], "records", 8)) == 1
    large = table_tasks([cluster(number, 10 * TASK_BYTES) for number in range(3)], "findings", 8)
    assert [len(task) for task in large] == [1, 1, 1]


@pytest.fixture
def one_cluster(tmp_path: Path) -> str:
    log = Log()
    log.lead(1, epoch=1)
    for number in range(400):
        log.topic(f"topic-{number}")
    write_node(tmp_path, 1, {0: b"".join(log.batches[:150]), 150: b"".join(log.batches[150:])})
    return str(tmp_path)


@pytest.mark.parametrize("table", ["batches", "records"])
def test_one_cluster_is_read_by_several_tasks(
    table: str, one_cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = tmp_path_factory.mktemp("key") / "key"
    load_key(key, may_create=True)

    def rows_of(tasks: int) -> tuple[int, list[str]]:
        reader = TableReader({"path": one_cluster, "table": table, "tasks": str(tasks), "redactionkeyfile": str(key)})
        parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]  # noqa: S301  # as Spark does
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        for row in rows:
            row.pop("captured_at_ms", None)
            row.pop("captured_at", None)
        return len(parts), sorted(map(repr, rows))

    monkeypatch.setattr("kraft_audit.spark.table_tasks.LEAST_PART_BYTES", 1000)
    monkeypatch.setattr("kraft_audit.lake.staging.staging_tasks.TASK_BYTES", 1000)
    assert rows_of(1)[0] == 1
    tasks, rows = rows_of(3)
    assert tasks == 3
    assert rows == rows_of(1)[1] != []


def test_a_few_offsets_are_read_by_one_task(one_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_audit.spark.table_tasks.LEAST_PART_BYTES", 1000)
    monkeypatch.setattr("kraft_audit.lake.staging.staging_tasks.TASK_BYTES", 1000)
    reader = PushingReader({"path": one_cluster, "table": "records", "tasks": "3"})
    list(reader.pushFilters([GreaterThan(("offset",), 390)]))
    assert len(reader.partitions()) == 1


def test_a_task_crosses_as_plain_values() -> None:
    task = ClusterTask(1, (("{}", LogPart(3, None)),), "ab")
    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301  # our own, as Spark does
