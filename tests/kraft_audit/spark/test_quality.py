"""The gate opens on what a run wrote, and closes on each way in which a table can break its contract."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from kraft_audit.spark.quality_memory import row_counts
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


def with_an_epoch_raised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with one batch's epoch changed where it stands."""
    log_rows(rows)[5]["leader_epoch"] += 1000
    return rows


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
    rewrite(lake, "batches", with_an_epoch_raised)
    assert broken(lake) == {("batches", "epoch_falls"): 1.0}


@dataclass
class Hours:
    """Looks of the hourly kind, an hour after each other."""

    lake: DeltaLake
    now_ms: int = 1_800_000_000_000

    def later(self, hours: float) -> dict[tuple[str, str], float]:
        """(table, clause) → worst count, of each critical promise that a look after so many hours finds broken."""
        self.now_ms += round(hours * HOUR_MS)
        verdicts = judge_lake(self.lake, only_new=True, now_ms=self.now_ms, docs="").verdicts
        found = {(one.table, one.clause): one.worst for one in verdicts if not one.passed}
        return {where: count for where, count in found.items() if where[0] != "fleet"}


@pytest.fixture
def next_plan(samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType) -> Iterator[int]:
    """A further plan each time it is asked for, of a cluster that the lake has not."""
    names = iter(("mini-4.4.0", "dynamic-quorum", "static-to-dynamic-upgrade"))

    def further() -> Iterator[int]:
        for number, name in enumerate(names, 2):
            assert without_spark.run(make_fleet({name: [samples / name]})).failed == {}
            yield number

    return further()


def again(plan: int, as_plan: int) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows, and one of a plan's a second time, as a plan's."""
    return lambda rows: [*rows, {**next(row for row in rows if row["plan"] == plan), "plan": as_plan}]


@pytest.mark.slow
def test_the_hourly_look_is_at_what_is_new(lake: DeltaLake, next_plan: Iterator[int]) -> None:
    """And once a day at everything: what changed in an old row is found then, and again until it is mended."""
    hours = Hours(lake)
    assert hours.later(0) == {}, "the first look is at everything"
    rewrite(lake, "batches", with_an_epoch_raised)
    assert hours.later(1) == {}
    assert next(next_plan) == 2
    assert hours.later(1) == {}
    assert hours.later(23) == {("batches", "epoch_falls"): 1.0}
    assert hours.later(1) == {("batches", "epoch_falls"): 1.0}, "an hour does not mend it"
    rewrite(lake, "batches", lambda rows: [{**row, "leader_epoch": row["leader_epoch"] % 1000} for row in rows])
    assert hours.later(1) == {}


@pytest.mark.slow
@pytest.mark.parametrize("table", ["records", "captures"])
def test_a_row_more_or_less_in_an_old_plan_is_found_within_the_hour(
    lake: DeltaLake, next_plan: Iterator[int], table: str
) -> None:
    """Nobody but a writer that is not ours adds to a closed plan, or takes of it."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    assert hours.later(1) == {}
    rewrite(lake, table, again(1, 1))
    assert hours.later(1)[table, "repeated_keys"] == 1.0
    rewrite(lake, table, lambda rows: rows[:-1])
    assert hours.later(1) == {}
    rewrite(lake, table, lambda rows: [row for row in rows if row["plan"] == 2])
    told = hours.later(1)
    assert ((table, "rows_off_the_ledger") in told) == (table == "captures"), "of which maintenance takes nothing"
    assert json.loads((Path(lake.uri) / "_quality" / "held.json").read_text())["whole_at_ms"] == (
        0 if told else hours.now_ms
    )


@pytest.mark.slow
def test_what_the_hourly_look_found_is_found_until_it_is_mended(lake: DeltaLake, next_plan: Iterator[int]) -> None:
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    rewrite(lake, "records", again(2, 2))
    assert hours.later(1) == {("records", "repeated_keys"): 1.0, ("records", "rows_off_the_ledger"): 1.0}
    assert next(next_plan) == 3
    assert hours.later(1) == hours.later(9) == {("records", "repeated_keys"): 1.0}, "plan 2 is not the newest any more"
    assert hours.later(20) == {("records", "repeated_keys"): 1.0}
    rewrite(lake, "records", lambda rows: rows[:-1])
    assert hours.later(1) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize("table", ["records", "captures"])
def test_a_new_row_with_the_key_of_an_old_one(lake: DeltaLake, next_plan: Iterator[int], table: str) -> None:
    """As a plan would write that took the lake's position for an earlier one."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    rewrite(lake, table, again(1, 2))
    assert hours.later(1)[table, "repeated_keys"] == 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("looked_at")
def test_the_order_of_offsets_goes_on_from_plan_to_plan(
    samples: Path, tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """Of a log that grew: a batch of the new plan is missing, or the one that the new plan went on behind."""
    live, fleet = tmp_path / "live", make_fleet({"elr": [tmp_path / "live"]})
    for number, capture in enumerate(("06-kill-13-last-replica", "29-stopped")):
        shutil.rmtree(live, ignore_errors=True)
        shutil.copytree(samples / "elr" / capture, live)
        for file in live.rglob("*"):
            os.utime(file, (1_700_000_000.5 + number,) * 2)
        assert without_spark.run(fleet).failed == {}
        if number == 0:
            hours = Hours(DeltaLake(fleet.lake))
            assert hours.later(0) == {}
            kept = Path(fleet.lake) / "_quality" / "held.json"
            of_first_plan = kept.read_text()
    lake = hours.lake
    new = lake.query("SELECT * FROM batches WHERE plan = 2 AND source = 'log' ORDER BY base_offset", "batches")
    first, later = new.column("base_offset")[0].as_py(), new.column("base_offset")[3].as_py()
    assert first > 100, "the second plan goes on where the first one stood"
    whole = lake.query("SELECT * FROM batches", "batches")

    def gaps_without(offset: int) -> float:
        rewrite(lake, "batches", lambda rows: [row for row in rows if row["last_offset"] + 1 != offset])
        # As many rows as there were: a look at what is new alone has to see it.
        kept.write_text(json.dumps({**json.loads(of_first_plan), "row_counts": row_counts(lake, 1)}))
        found = hours.later(0.1).get(("batches", "offset_gaps"), 0.0)
        write_deltalake(lake.table_uri("batches"), whole, mode="overwrite")
        return found

    assert gaps_without(-1) == 0
    assert gaps_without(later) == 1.0
    assert gaps_without(first) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"lake_id": "other", "held_to_plan": 1, "whole_at_ms": 1, "row_counts": {}}', None]
)
def test_a_look_of_which_nothing_is_known_is_at_everything(lake: DeltaLake, text: str | None) -> None:
    hours = Hours(lake)
    assert hours.later(0) == {}
    rewrite(lake, "batches", with_an_epoch_raised)
    assert hours.later(1) == {}
    kept = Path(lake.uri) / "_quality" / "held.json"
    if text is None:
        kept.unlink()
    else:
        kept.write_text(text)
    assert hours.later(1) == {("batches", "epoch_falls"): 1.0}


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
