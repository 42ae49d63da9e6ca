"""Logs whose timestamps are no times, through a run and all tables that it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.text.java_text import uuid_text
from tests.builders.logs import write_node
from tests.builders.unsafe_times import NO_TIMES, unsafe_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.ci
def test_every_table_lives_with_what_is_no_time(
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, spark: SparkSession, tmp_path: Path
) -> None:
    pairs = [*((time, time) for time in NO_TIMES), (2**63 - 1, -(2**63))]
    clusters, times = {}, {}
    for number, pair in enumerate(pairs):
        cluster_id = uuid_text(b"clock" + number.to_bytes(11, "big"))
        clusters[cluster_id] = [write_node(tmp_path / cluster_id, 1, unsafe_log(pair).content, cluster_id=cluster_id)]
        times[cluster_id] = pair[1]
    fleet = make_fleet(clusters)
    assert without_spark.run_with_gold(fleet, lambda: spark).failed == {}
    lake = DeltaLake(fleet.lake)
    sql = "SELECT cluster_id, from_ms, from_time FROM findings WHERE rule = 'KP001'"
    found = {row["cluster_id"]: (row["from_ms"], row["from_time"]) for row in lake.query(sql, "findings").to_pylist()}
    assert found == {cluster_id: (time_ms, None) for cluster_id, time_ms in times.items()}
    dated = lake.query("SELECT DISTINCT cluster_id FROM cluster_compliance", "cluster_compliance")
    assert set(dated.column("cluster_id").to_pylist()) == set(times)
    assert [verdict for verdict in judge_lake(lake, docs="").verdicts if not verdict.passed] == []
