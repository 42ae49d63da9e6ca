"""The gate opens on what a run wrote, and closes on each way in which a table can break its contract."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.cli import run_command
from kraft_audit.settings import FleetSettings
from kraft_audit.spark import quality_shares
from kraft_audit.spark.lake import DeltaLake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.quality import judge_lake, validate
from kraft_audit.spark.quality_clauses import HOUR_MS, Clause, fleet_clauses, table_clauses
from kraft_audit.spark.quality_shares import shares_of
from kraft_audit.spark.tables import LAKE_TABLES

CLUSTERS = ("mini-3.9.2", "divergence", "torn-write", "elr", "uncommitted-voter-change", "jbod")


@pytest.fixture
def lake(samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType) -> DeltaLake:
    fleet = make_fleet({name: [samples / name] for name in CLUSTERS})
    without_spark.run(fleet)
    return DeltaLake(fleet.lake)


@pytest.fixture(params=["whole", "in parts"])
def looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as small ones are looked at, and as large ones: by cluster and by offsets."""
    if request.param == "in parts":
        monkeypatch.setattr(quality_shares, "SHARE_ROWS", 60)
        monkeypatch.setattr(quality_shares, "SLICE_OFFSETS", 16)


def broken(lake: DeltaLake, now_ms: int | None = None) -> dict[tuple[str, str], float]:
    """(table, clause) → worst count, of every clause that is broken."""
    closed = Ledger(lake).status().closed
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = {("fleet", one.name): one for one in fleet_clauses(lake, closed, now, 26.0)}
    for table in LAKE_TABLES.values():
        found |= {(table.name, one.name): one for one in table_clauses(lake, table, closed)}
    worst = {where: max(one.counts.values(), default=0.0) for where, one in found.items()}
    return {where: count for where, count in worst.items() if count > found[where].limit}


def rewrite(lake: DeltaLake, table: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    rows = lake.query(f"SELECT * FROM {table}", table)  # noqa: S608
    changed = pa.Table.from_pylist(change(rows.to_pylist()), schema=rows.schema)
    write_deltalake(lake.table_uri(table), changed, mode="overwrite")


def log_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log of one replica that holds a dozen batches and more, by offset."""
    first = next(row for row in rows if row["source"] == "log" and row["base_offset"] >= 12)
    same = ("cluster_id", "node_id", "directory_id", "root", "path", "source")
    mine = [row for row in rows if all(row[name] == first[name] for name in same)]
    return sorted(mine, key=lambda row: row["base_offset"])


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
def test_what_a_run_wrote_keeps_every_promise(lake: DeltaLake) -> None:
    assert broken(lake) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
def test_a_row_twice(lake: DeltaLake) -> None:
    rewrite(lake, "records", lambda rows: [*rows, rows[0]])
    assert broken(lake) == {("records", "repeated_keys"): 1.0, ("records", "rows_off_the_ledger"): 1.0}


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
def test_a_batch_lost(lake: DeltaLake) -> None:
    rewrite(lake, "batches", lambda rows: [row for row in rows if row is not log_rows(rows)[5]])
    assert broken(lake) == {("batches", "offset_gaps"): 1.0, ("batches", "rows_off_the_ledger"): 1.0}


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
def test_an_epoch_that_falls(lake: DeltaLake) -> None:
    def raise_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        log_rows(rows)[5]["leader_epoch"] += 1000
        return rows

    rewrite(lake, "batches", raise_one)
    assert broken(lake) == {("batches", "epoch_falls"): 1.0}


@pytest.mark.slow
def test_only_what_new_plans_brought_is_looked_at(
    lake: DeltaLake, samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """A row twice in an old plan is found by a look at everything, one in a new plan by either."""
    assert without_spark.run(make_fleet({"new": [samples / "mini-4.4.0"]})).failed == {}
    closed = lake.query("SELECT plan, at_ms FROM plans WHERE event = 'closed' ORDER BY plan", "plans").to_pylist()
    (first_ms, second_ms), now_ms = [row["at_ms"] for row in closed], closed[-1]["at_ms"] + 1
    between = {"hours": (now_ms - (first_ms + second_ms) / 2) / HOUR_MS, "now_ms": now_ms, "docs": ""}

    def repeated(**given: Any) -> dict[str, float]:
        verdicts = judge_lake(lake, **given).verdicts
        return {one.table: one.worst for one in verdicts if one.clause == "repeated_keys" and not one.passed}

    assert repeated(**between) == repeated(docs="") == {}
    for plan, found_lately in ((1, {}), (2, {"records": 1.0})):
        rewrite(lake, "records", lambda rows, plan=plan: [*rows, next(row for row in rows if row["plan"] == plan)])
        assert repeated(**between) == found_lately
        assert repeated(**{**between, "hours": 1e-9}) == found_lately, "the newest plan is looked at in any case"
        assert repeated(docs="") == {"records": 1.0}
    clauses = {one.clause for one in judge_lake(lake, **between).verdicts}
    assert "offset_gaps" not in clauses
    assert "offset_gaps" in {one.clause for one in judge_lake(lake, docs="").verdicts}


@pytest.mark.slow
def test_parts_of_a_table_are_all_of_it(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is in just one part, whatever its offset claims, and rows of one key are in the same."""
    monkeypatch.setattr(quality_shares, "SHARE_ROWS", 60)
    monkeypatch.setattr(quality_shares, "SLICE_OFFSETS", 16)
    absurd = (-(1 << 63), -17, -16, -1, 1 << 40, (1 << 63) - 1)

    def claim(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "offset": absurd[at // 7]} if at < 7 * len(absurd) else row for at, row in enumerate(rows)]

    rewrite(lake, "records", claim)
    part_counts = {}
    for name in ("records", "batches", "partition_changes", "leader_epochs", "captures"):
        table, key = LAKE_TABLES[name], ", ".join(f'"{column}"' for column in LAKE_TABLES[name].key)
        rows = f"(SELECT * FROM {name})"  # noqa: S608
        parts = list(shares_of(lake, table, rows))
        sql = f"SELECT count(*) AS n, count(DISTINCT struct({key})) AS keys FROM {name} WHERE "  # noqa: S608
        found = [lake.query(sql + part, name).to_pylist()[0] for part in parts]
        (whole,) = lake.query(sql + "TRUE", name).to_pylist()
        assert sum(one["n"] for one in found) == whole["n"], name
        assert sum(one["keys"] for one in found) == whole["keys"], name
        part_counts[name] = len(parts)
    assert min(part_counts[name] for name in ("records", "batches", "partition_changes")) > len(CLUSTERS)
    assert part_counts["captures"] == 1


@pytest.mark.slow
def test_bytes_that_do_not_add_up(lake: DeltaLake) -> None:
    rewrite(lake, "captures", lambda rows: [{**rows[0], "bytes_seen": rows[0]["bytes_seen"] + 1}, *rows[1:]])
    assert broken(lake) == {("captures", "bytes_unaccounted"): 1.0}


@pytest.mark.slow
def test_a_cluster_without_news_is_a_warning(lake: DeltaLake) -> None:
    tomorrow = time.time_ns() // 1_000_000 + 30 * HOUR_MS
    assert broken(lake, tomorrow)["fleet", "hours_since_news"] >= 29
    result = judge_lake(lake, now_ms=tomorrow, docs="")
    assert result.is_open
    assert {one.clause: one.cluster_count for one in result.verdicts if not one.passed} == {
        "hours_since_news": len(CLUSTERS)
    }


@pytest.mark.slow
def test_a_cluster_that_was_not_read_is_a_warning(
    lake: DeltaLake, samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path
) -> None:
    assert ("fleet", "unread_clusters") not in broken(lake)
    rows = lake.query("SELECT * FROM plans WHERE event = 'staged' AND outcome IS NOT NULL", "plans").to_pylist()
    failed = [{**row, "outcome": "failed", "failure": "gone"} for row in rows[:1]]
    rewrite(lake, "plans", lambda every: [row for row in every if row != rows[0]] + failed)
    assert broken(lake) == {("fleet", "unread_clusters"): 1.0}


@pytest.mark.slow
def test_the_command_keeps_data_docs_with_the_run_and_closes(
    lake: DeltaLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["quality", lake.uri, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in told} == {"ok"}
    assert {"batches", "records", "captures", "fleet"} <= {row["table"] for row in told}
    index = Path(lake.uri, "_quality", "plan-00000001", "index.html").read_text()
    assert "default-src 'none'" in index
    rewrite(lake, "records", lambda rows: [*rows, rows[0]])
    assert run_command(["quality", lake.uri, "--docs", ""]) == 1
    shown = capsys.readouterr()
    assert "critical" in shown.out
    assert "critical: records.repeated_keys:" in shown.err


@pytest.mark.slow
def test_names_in_the_docs_are_text(tmp_path: Path) -> None:
    """A cluster id is whatever a hostile meta.properties says."""
    hostile = "<script>alert(1)</script>"
    validate({"records": [Clause("repeated_keys", "critical", "unique", {hostile: 3.0})]}, tmp_path)
    assert not any(hostile in page.read_text() for page in tmp_path.rglob("*.html"))
