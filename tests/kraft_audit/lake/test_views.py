"""Queries that DataFusion and Spark share: the newest row of a key, the newest plan of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.views import (
    last_captures,
    newest_batches,
    newest_plan_rows,
    newest_rows,
    path_tables,
    query_of,
    rows_of_clusters,
    view_names,
)

EVERY_ROW = "SELECT * FROM seen"


def answer(folder: Path, rows: list[dict[str, Any]], sql: str) -> list[dict[str, Any]]:
    """The rows that DataFusion gives for a query over the table `seen`, in any order."""
    write_deltalake(str(folder / "seen"), pa.Table.from_pylist(rows), mode="overwrite")
    found: list[dict[str, Any]] = DeltaLake(str(folder)).query(sql, "seen").to_pylist()
    return found


def test_the_first_row_in_the_given_order_stands_for_its_key(tmp_path: Path) -> None:
    rows = [
        {"cluster_id": "a", "plan": 1, "number": 7, "what": "old"},
        {"cluster_id": "a", "plan": 2, "number": 1, "what": "same plan, first capture"},
        {"cluster_id": "a", "plan": 2, "number": 2, "what": "newest"},
        {"cluster_id": "b", "plan": 1, "number": 1, "what": "its only row"},
    ]
    found = answer(tmp_path, rows, newest_rows(EVERY_ROW, ("cluster_id",), "plan DESC, number DESC"))
    assert {row["cluster_id"]: row["what"] for row in found} == {"a": "newest", "b": "its only row"}
    assert {row["place"] for row in found} == {1}


def test_replicas_without_an_id_differ_by_their_folders(tmp_path: Path) -> None:
    batch = {
        "cluster_id": "a",
        "directory_id": None,
        "root": "host",
        "source": "log",
        "valid": True,
        "plan": 1,
        "status": "present",
        "base_offset": 0,
        "last_offset": 4,
        "leader_epoch": 1,
        "crc": 99,
        "captured_at_ms": 5,
        "capture_number": 0,
    }
    rows = [
        {**batch, "node_id": None, "path": "x"},
        {**batch, "node_id": None, "path": "x", "root": "other-host"},
        {**batch, "node_id": None, "path": "y"},
        {**batch, "node_id": 1, "path": "x"},
        {**batch, "node_id": 1, "path": "moved"},
        {**batch, "node_id": 1, "path": "moved", "plan": 2, "status": "truncated"},
        {**batch, "node_id": 2, "path": "z", "valid": False},
        {**batch, "node_id": 3, "path": "z", "source": "00000-0"},
    ]
    rows = [{**row, "directory_id": "d" if row["node_id"] is not None else ""} for row in rows]
    found = answer(tmp_path, rows, newest_batches(EVERY_ROW))
    assert sorted((str(row["node_id"]), row["plan"], row["status"]) for row in found) == [
        ("1", 2, "truncated"),
        ("None", 1, "present"),
        ("None", 1, "present"),
        ("None", 1, "present"),
    ]
    places = [("host", "x"), ("host", "y"), ("other-host", "x")]
    assert sorted((row["root"], row["path"]) for row in found if row["node_id"] is None) == places


def test_all_rows_of_a_clusters_newest_plan_and_of_these_clusters_alone(tmp_path: Path) -> None:
    rows = [
        {"cluster_id": cluster, "plan": plan, "rule": rule}
        for cluster, plan, rule in (("a", 1, "x"), ("a", 3, "y"), ("a", 3, "z"), ("b", 2, "x"), ("c", 9, "x"))
    ]
    found = answer(tmp_path, rows, newest_plan_rows(EVERY_ROW, "'a', 'b'"))
    assert sorted((row["cluster_id"], row["rule"]) for row in found) == [("a", "y"), ("a", "z"), ("b", "x")]
    narrow = answer(tmp_path, rows, newest_plan_rows(EVERY_ROW, "'a'", "held.rule"))
    assert sorted(row["rule"] for row in narrow) == ["y", "z"]
    assert {row["cluster_id"] for row in answer(tmp_path, rows, rows_of_clusters(EVERY_ROW, "'c'"))} == {"c"}


def test_captures_of_the_plans_that_saw_a_replica_the_logs_end_or_anything_last(tmp_path: Path) -> None:
    def capture(plan: int, node_id: int, last_timestamp_ms: int | None, read_to_ms: int) -> dict[str, Any]:
        return {
            "cluster_id": "a",
            "node_id": node_id,
            "directory_id": "d",
            "root": "r",
            "path": "p",
            "plan": plan,
            "last_timestamp_ms": last_timestamp_ms,
            "read_to_ms": read_to_ms,
        }

    rows = [
        capture(1, 1, 900, 10),  # the log's end: the disk was replaced by an older copy later
        capture(2, 1, 100, 20),
        capture(3, 2, None, 30),  # the last that was seen of node 2
        capture(4, 1, 100, 40),
        capture(5, 1, 100, 99),  # read last
        capture(6, 1, 100, 60),  # the last that was seen of node 1
    ]
    found = answer(tmp_path, rows, last_captures(EVERY_ROW, "'a'"))
    assert sorted(row["plan"] for row in found) == [1, 3, 5, 6]


def test_every_view_has_a_query_and_no_other_name_does() -> None:
    for name in view_names():
        assert "`/lake/plans`" in query_of(name, path_tables("/lake"))
        assert "plan <= 7" in query_of(name, str, ClosedPlans(7))
    with pytest.raises(KeyError):
        query_of("no_such_view", str)
