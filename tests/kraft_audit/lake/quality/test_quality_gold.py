"""The gate over the gold tables: open on what the steps wrote, closed on each way in which a table can be wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import load_fleet
from kraft_audit.report.lake_situations import update_situations
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    FINDING_EPISODES,
    FINDINGS,
    GOLD,
    INCIDENTS,
    PARTITION_RISK,
)
from kraft_audit.text.readable import HOUR_MS
from tests.builders.judged_tables import judge_only
from tests.builders.lakes import no_session

pytestmark = pytest.mark.ci

CLUSTERS = ("mini-3.9.2", "divergence")
OTHERS = sorted(GOLD.keys() - {FINDINGS.name})
DAYS = (date(2026, 11, 20), date(2026, 11, 21), date(2026, 11, 22))


@pytest.fixture(autouse=True)
def judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gold tables; all tables in the test of the whole gate."""
    if request.node.originalname != "test_what_the_steps_wrote_keeps_every_promise":
        judge_only(monkeypatch, GOLD)


def ids(lake: DeltaLake) -> list[str]:
    return sorted(lake.query("SELECT DISTINCT cluster_id FROM captures", "captures").column("cluster_id").to_pylist())


def write(lake: DeltaLake, name: str, rows: list[dict[str, Any]]) -> None:
    table = GOLD[name]
    whole = pa.Table.from_pylist(rows, schema=table.schema)
    write_deltalake(lake.table_uri(name), whole, mode="overwrite")


def change(lake: DeltaLake, name: str, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    write(lake, name, edit(lake.query(f"SELECT * FROM {name}", name).to_pylist()))  # noqa: S608


@pytest.fixture
def lake(built: Path, tmp_path: Path) -> DeltaLake:
    """A copy of one's own."""
    return DeltaLake(str(shutil.copytree(built, tmp_path / "lake")))


@pytest.fixture(scope="module")
def built(small_corpus: Path, without_spark: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Findings as the step merges them; exposure and controls of three days, written by hand."""
    folder = tmp_path_factory.mktemp("gold")
    clusters = [{"name": name, "paths": [str(small_corpus / name)]} for name in CLUSTERS]
    (folder / "fleet.yaml").write_text(yaml.safe_dump({"lake": "lake", "clusters": clusters}))
    without_spark.run(load_fleet(folder / "fleet.yaml", environment={}))
    lake = DeltaLake(str(folder / "lake"))
    gold = GoldLake(lake, no_session)
    FindingsTable(gold).update()
    update_situations(lake, ids(lake))
    parts = {"last_replica_minutes": 10.0, "offline_minutes": 0.0, "under_min_isr_minutes": 25.0}
    where = {"topic": "t", "rack": "", "partitions": 2, **parts, "exposure_minutes": 30.0, "plan": 1}
    write(lake, PARTITION_RISK.name, [{"cluster_id": cluster_id, "day": DAYS[0], **where} for cluster_id in ids(lake)])
    met = {
        "status": "met", "not_met_by": [], "weakened_by": [], "waived_by": [], "undecided_by": [],
        "open_findings": 0, "acknowledged_losses": 0,
        "waived_findings": 0, "low_findings": 0, "trend": "same", "not_met_days": 0, "as_of_ms": 0, "plan": 1,
    }  # fmt: skip
    days = [
        {"cluster_id": cluster_id, "day": day, "control": control, **met}
        for cluster_id in ids(lake)
        for day in DAYS
        for control in CONTROLS
    ]
    write(lake, CLUSTER_COMPLIANCE.name, days)
    return folder / "lake"


def broken(lake: DeltaLake, later_hours: float = 0) -> dict[tuple[str, str], float]:
    """(table, promise) → worst count, of every promise that is broken."""
    now_ms = time.time_ns() // 1_000_000 + int(later_hours * HOUR_MS)
    verdicts = judge_lake(lake, now_ms=now_ms, docs="").verdicts
    return {(verdict.table, verdict.clause): verdict.worst for verdict in verdicts if not verdict.passed}


def test_what_the_steps_wrote_keeps_every_promise(lake: DeltaLake) -> None:
    assert broken(lake) == {}
    judged = judge_lake(lake, docs="")
    assert judged.is_open
    assert set(GOLD) <= {verdict.table for verdict in judged.verdicts}


@pytest.mark.parametrize("name", [FINDINGS.name, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_a_row_twice(lake: DeltaLake, name: str) -> None:
    change(lake, name, lambda rows: [*rows, rows[0]])
    assert broken(lake)[name, "repeated_keys"] == 2.0


@pytest.mark.parametrize("name", [FINDINGS.name, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_a_row_of_a_plan_that_was_not(lake: DeltaLake, name: str) -> None:
    change(lake, name, lambda rows: [{**rows[0], "plan": 9}, *rows[1:]])
    assert broken(lake) == {(name, "rows_off_the_ledger"): 1.0}


def test_an_open_finding_lost(lake: DeltaLake) -> None:
    def lose(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row is not next(row for row in rows if row["state"] == "open")]

    change(lake, FINDINGS.name, lose)
    assert not judge_lake(lake, docs="").is_open
    found = broken(lake)
    assert found.pop((FINDINGS.name, "open_off_the_plan")) == 1.0
    assert found.pop((FINDING_EPISODES.name, "episodes_astray")) == 1.0
    assert not found


def test_a_finding_that_is_open_without_an_open_episode(lake: DeltaLake) -> None:
    change(lake, FINDING_EPISODES.name, lambda rows: [{**row, "state": "resolved"} for row in rows])
    assert set(broken(lake)) == {(FINDING_EPISODES.name, "episodes_astray")}


def test_incidents_lost(lake: DeltaLake) -> None:
    assert lake.query("SELECT 1 FROM finding_episodes WHERE incident_id IS NOT NULL", FINDING_EPISODES.name).num_rows
    change(lake, INCIDENTS.name, lambda rows: [])
    assert set(broken(lake)) == {(FINDING_EPISODES.name, "links_astray")}


def test_a_finding_left_open_that_the_newest_plan_calls_over(lake: DeltaLake) -> None:
    over = "SELECT cluster_id, finding_id FROM findings WHERE is_over"
    assert lake.query(over, FINDINGS.name).num_rows, "the samples have an episode that ended"
    change(lake, FINDINGS.name, lambda rows: [{**row, "state": "open"} for row in rows])
    assert broken(lake)[FINDINGS.name, "open_off_the_plan"] >= 1


def test_a_waived_finding_is_no_lost_one(lake: DeltaLake) -> None:
    change(lake, FINDINGS.name, lambda rows: [{**row, "state": row["state"].replace("open", "waived")} for row in rows])
    assert broken(lake) == {}


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [
        ({"exposure_minutes": 24.0}, "minutes_impossible"),
        ({"exposure_minutes": 2881.0}, "minutes_impossible"),
        ({"offline_minutes": -1.0}, "negative_quantities"),
    ],
)
def test_minutes_that_no_day_has(lake: DeltaLake, wrong: dict[str, float], promise: str) -> None:
    """More than a part of them, more than two partitions can have in a day, fewer than none."""
    change(lake, PARTITION_RISK.name, lambda rows: [{**rows[0], **wrong}, *rows[1:]])
    assert broken(lake) == {(PARTITION_RISK.name, promise): 1.0}


def test_a_day_without_a_control(lake: DeltaLake) -> None:
    change(
        lake,
        CLUSTER_COMPLIANCE.name,
        lambda rows: [row for row in rows if (row["day"], row["control"]) != (DAYS[1], "access")],
    )
    assert broken(lake) == {(CLUSTER_COMPLIANCE.name, "days_missing"): 1.0}


def test_gold_that_is_left_behind_is_a_warning(lake: DeltaLake) -> None:
    """A cluster that was read and has no day yet; a table that has not taken the plan that is closed."""
    change(lake, CLUSTER_COMPLIANCE.name, lambda rows: [row for row in rows if row["cluster_id"] == ids(lake)[0]])
    assert broken(lake) == {}
    late = broken(lake, later_hours=30)
    behind = {("fleet", f"hours_behind_{table}") for table in (PARTITION_RISK.name, CLUSTER_COMPLIANCE.name)}
    assert behind == late.keys() - {("fleet", "hours_since_capture")}
    assert all(29 < late[promise] < 31 for promise in behind)
