"""The gate opens on what a run wrote, and closes on each way in which a table can break its contract."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.quality.last_inspection import row_counts
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.text.readable import HOUR_MS
from tests.builders.browser import BrowserTab
from tests.builders.judged_tables import judge_only
from tests.builders.lakes import copied_lake, replace_live, write_fleet

CLUSTERS = ("mini-3.9.2", "divergence", "torn-write", "elr", "uncommitted-voter-change", "jbod")


@pytest.fixture(scope="module")
def written(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory, without_spark: ModuleType) -> Path:
    """A lake of six clusters after one run."""
    folder = tmp_path_factory.mktemp("written")
    without_spark.run(write_fleet(folder, {name: [small_corpus / name] for name in CLUSTERS}))
    return folder / "lake"


@pytest.fixture
def lake(written: Path, tmp_path: Path) -> DeltaLake:
    """A copy of it, to change."""
    return copied_lake(written, tmp_path)


WHOLE_GATE = {
    "test_healthy_new_rows_leave_no_doubt",
    "test_what_a_run_wrote_keeps_every_promise",
    "test_the_command_keeps_a_page_with_the_run_and_closes",
    "test_the_page_shows_what_broke",
}


def broken(lake: DeltaLake, now_ms: int | None = None) -> dict[tuple[str, str], float]:
    """(table, promise) → worst count, of every promise that is broken."""
    verdicts = judge_lake(lake, now_ms=now_ms, docs="").verdicts
    return {(verdict.table, verdict.clause): verdict.worst for verdict in verdicts if not verdict.passed}


def rewrite(lake: DeltaLake, table: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    rows = lake.query(f"SELECT * FROM {table}", table)  # noqa: S608
    # A writer that is not ours may have any schema, also one that allows null.
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    changed = pa.Table.from_pylist(change(rows.to_pylist()), schema=schema)
    write_deltalake(lake.table_uri(table), changed, mode="overwrite", schema_mode="overwrite")


def log_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log of one replica that holds a dozen batches and more, by offset."""
    first = next(row for row in rows if row["source"] == "log" and row["base_offset"] >= 12)
    same = ("cluster_id", "node_id", "directory_id", "root", "path", "source")
    mine = [row for row in rows if all(row[name] == first[name] for name in same)]
    return sorted(mine, key=lambda row: row["base_offset"])


def without_a_batch(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lost = log_rows(rows)[5]
    return [row for row in rows if row is not lost]


def with_an_epoch_raised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with one batch's epoch changed where it stands."""
    log_rows(rows)[5]["leader_epoch"] += 1000
    return rows


@pytest.fixture(autouse=True)
def judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables where a test is about the whole gate, else those of the log and the one that it makes wrong."""
    if request.node.originalname not in WHOLE_GATE:
        own = getattr(request.node, "callspec", None)
        table = own.params.get("table") if own is not None else None
        judge_only(monkeypatch, {"records", "batches", "captures", table})


@pytest.mark.slow
def test_what_a_run_wrote_keeps_every_promise(lake: DeltaLake) -> None:
    assert broken(lake) == {}


@pytest.mark.slow
def test_a_row_twice(lake: DeltaLake) -> None:
    rewrite(lake, "records", lambda rows: [*rows, rows[0]])
    assert broken(lake) == {("records", "repeated_keys"): 2.0, ("records", "rows_off_the_ledger"): 1.0}


@pytest.mark.slow
def test_a_batch_lost(lake: DeltaLake) -> None:
    rewrite(lake, "batches", without_a_batch)
    assert broken(lake) == {("batches", "offset_gaps"): 1.0, ("batches", "rows_off_the_ledger"): 1.0}


@pytest.mark.slow
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
        found = {(verdict.table, verdict.clause): verdict.worst for verdict in verdicts if not verdict.passed}
        return {where: count for where, count in found.items() if where[0] != "fleet"}


@pytest.fixture
def next_plan(small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType) -> Iterator[int]:
    """A further plan each time it is asked for, of a cluster that the lake has not."""
    names = iter(("mini-4.4.0", "dynamic-quorum", "static-to-dynamic-upgrade"))

    def further() -> Iterator[int]:
        for number, name in enumerate(names, 2):
            assert without_spark.run(make_fleet({name: [small_corpus / name]})).failed == {}
            yield number

    return further()


def again(plan: int, as_plan: int) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows, and one of a plan's a second time, as a plan's."""
    return lambda rows: [*rows, {**next(row for row in rows if row["plan"] == plan), "plan": as_plan}]


@pytest.mark.ci
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


@pytest.mark.ci
@pytest.mark.parametrize("table", ["records", pytest.param("captures", marks=pytest.mark.long)])
def test_a_row_more_or_less_in_an_old_plan_is_found_within_the_hour(
    lake: DeltaLake, next_plan: Iterator[int], table: str
) -> None:
    """Only a foreign writer adds to a closed plan, or removes from it."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    assert hours.later(1) == {}
    rewrite(lake, table, again(1, 1))
    assert hours.later(1)[table, "repeated_keys"] == 2.0
    rewrite(lake, table, lambda rows: rows[:-1])
    assert hours.later(1) == {}
    rewrite(lake, table, lambda rows: [row for row in rows if row["plan"] == 2])
    reported = hours.later(1)
    assert ((table, "rows_off_the_ledger") in reported) == (table == "captures"), "of which maintenance takes nothing"
    assert json.loads((Path(lake.uri) / "_quality" / "held.json").read_text())["whole_at_ms"] == (
        0 if reported else hours.now_ms
    )


@pytest.mark.ci
def test_what_the_hourly_look_found_is_found_until_it_is_mended(lake: DeltaLake, next_plan: Iterator[int]) -> None:
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    rewrite(lake, "records", again(2, 2))
    assert hours.later(1) == {("records", "repeated_keys"): 2.0, ("records", "rows_off_the_ledger"): 1.0}
    assert next(next_plan) == 3
    assert hours.later(1) == hours.later(9) == {("records", "repeated_keys"): 2.0}, "plan 2 is not the newest any more"
    assert hours.later(20) == {("records", "repeated_keys"): 2.0}
    rewrite(lake, "records", lambda rows: rows[:-1])
    assert hours.later(1) == {}


@pytest.mark.ci
@pytest.mark.parametrize("table", ["records", pytest.param("captures", marks=pytest.mark.long)])
def test_a_new_row_with_the_key_of_an_old_one(lake: DeltaLake, next_plan: Iterator[int], table: str) -> None:
    """As a plan would write that took the lake's position for an earlier one."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    rewrite(lake, table, again(1, 2))
    assert hours.later(1)[table, "repeated_keys"] == 2.0


def changed(**values: object) -> Callable[[list[dict[str, Any]]], None]:
    """Gives the first of the rows these values."""
    return lambda rows: rows[0].update(values)


def a_batch_less(rows: list[dict[str, Any]]) -> None:
    rows.remove(log_rows(rows)[5])


WRONG_ROWS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], object]]] = {
    "a null": ("records", changed(offset=None)),
    "a value that is not listed": ("batches", changed(status="lost")),
    "a negative count": ("captures", changed(batch_count=-1)),
    "bytes that do not add up": ("captures", lambda rows: rows[0].update(bytes_seen=rows[0]["bytes_seen"] + 1)),
    "a row twice": ("records", lambda rows: rows.append(rows[0])),
    "a row less than the manifest counts": ("records", lambda rows: rows.pop()),
    "a gap": ("batches", a_batch_less),
    "an epoch that falls": ("batches", with_an_epoch_raised),
    "no row at all": ("batches", lambda rows: rows.clear()),
}
IN_CI = ("a null", "a row twice", "a gap", "an epoch that falls")


@pytest.mark.ci
@pytest.mark.parametrize(
    "wrong", [*IN_CI, *(pytest.param(each, marks=pytest.mark.long) for each in WRONG_ROWS if each not in IN_CI)]
)
def test_what_is_wrong_with_new_rows_is_what_the_whole_gate_says(
    lake: DeltaLake, next_plan: Iterator[int], wrong: str
) -> None:
    """The look at new rows may doubt too much, and never too little."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    assert next(next_plan) == 2
    table, change = WRONG_ROWS[wrong]

    def with_wrong_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        new = [row for row in rows if row["plan"] == 2]
        change(new)
        return [*(row for row in rows if row["plan"] == 1), *new]

    rewrite(lake, table, with_wrong_rows)
    found = hours.later(1)
    assert found
    assert found == {where: count for where, count in broken(lake, hours.now_ms).items() if where[0] != "fleet"}


@pytest.mark.ci
def test_healthy_new_rows_leave_no_doubt(
    lake: DeltaLake, next_plan: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an hour does without Great Expectations, which takes seconds to import."""
    hours = Hours(lake)
    assert hours.later(0) == {}
    for _ in next_plan:
        with monkeypatch.context() as without:
            without.delattr("kraft_audit.lake.quality.suites.Suites")
            assert hours.later(1) == {}


@pytest.mark.ci
def test_the_order_of_offsets_goes_on_from_plan_to_plan(
    small_corpus: Path, tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """Of a log that grew: a batch of the new plan is missing, or the one that the new plan went on after."""
    live, fleet = tmp_path / "live", make_fleet({"elr": [tmp_path / "live"]})
    for number, capture in enumerate(("06-kill-13-last-replica", "29-stopped")):
        replace_live(live, small_corpus / "elr" / capture, number)
        assert without_spark.run(fleet).failed == {}
        if number == 0:
            hours = Hours(DeltaLake(fleet.lake))
            assert hours.later(0) == {}
            remaining = Path(fleet.lake) / "_quality" / "held.json"
            of_first_plan = remaining.read_text()
    lake = hours.lake
    new = lake.query("SELECT * FROM batches WHERE plan = 2 AND source = 'log' ORDER BY base_offset", "batches")
    first, later = new.column("base_offset")[0].as_py(), new.column("base_offset")[3].as_py()
    assert first > 100, "the second plan goes on where the first one stood"
    whole = lake.query("SELECT * FROM batches", "batches")

    def gaps_without(offset: int, *, is_new: bool = True) -> float:
        rewrite(lake, "batches", lambda rows: [row for row in rows if row["last_offset"] + 1 != offset])
        remaining.write_text(of_first_plan)
        if is_new:  # as many old rows as there were: a look at what is new alone has to see it
            remaining.write_text(json.dumps({**json.loads(of_first_plan), "row_counts": row_counts(lake, 1)}))
        found = hours.later(0.1).get(("batches", "offset_gaps"), 0.0)
        write_deltalake(lake.table_uri("batches"), whole, mode="overwrite")
        return found

    ends = [last_offset + 1 for last_offset in whole.column("last_offset").to_pylist()]
    assert gaps_without(-1) == 0
    assert gaps_without(later) == ends.count(later) > 1, "each replica that lacks the batch has a gap"
    assert gaps_without(first, is_new=False) == ends.count(first) > 1, "the first plan has fewer rows than it had"


@pytest.mark.ci
@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(text, marks=pytest.mark.long) for text in ("", "{")),
        "[]",
        '{"lake_id": "other", "held_to_plan": 1, "whole_at_ms": 1, "row_counts": {}}',
        None,
    ],
)
def test_a_look_of_which_nothing_is_known_is_at_everything(lake: DeltaLake, text: str | None) -> None:
    hours = Hours(lake)
    assert hours.later(0) == {}
    rewrite(lake, "batches", with_an_epoch_raised)
    assert hours.later(1) == {}
    remaining = Path(lake.uri) / "_quality" / "held.json"
    if text is None:
        remaining.unlink()
    else:
        remaining.write_text(text)
    assert hours.later(1) == {("batches", "epoch_falls"): 1.0}


@pytest.mark.ci
def test_bytes_that_do_not_add_up(lake: DeltaLake) -> None:
    rewrite(lake, "captures", lambda rows: [{**rows[0], "bytes_seen": rows[0]["bytes_seen"] + 1}, *rows[1:]])
    assert broken(lake) == {("captures", "bytes_unaccounted"): 1.0}


@pytest.mark.ci
def test_a_stale_cluster_is_a_warning(lake: DeltaLake) -> None:
    tomorrow = time.time_ns() // 1_000_000 + 30 * HOUR_MS
    assert broken(lake, tomorrow)["fleet", "hours_since_capture"] >= 29
    result = judge_lake(lake, now_ms=tomorrow, docs="")
    assert result.is_open
    assert {verdict.clause: verdict.cluster_count for verdict in result.verdicts if not verdict.passed} == {
        "hours_since_capture": len(CLUSTERS)
    }


@pytest.mark.ci
def test_a_cluster_that_was_not_read_is_a_warning(
    lake: DeltaLake,
    small_corpus: Path,
    make_fleet: Callable[..., FleetSettings],
    without_spark: ModuleType,
    tmp_path: Path,
) -> None:
    assert ("fleet", "unread_clusters") not in broken(lake)
    rows = lake.query("SELECT * FROM plans WHERE event = 'staged' AND outcome IS NOT NULL", "plans").to_pylist()
    failed = [{**row, "outcome": "failed", "failure": "gone"} for row in rows[:1]]
    rewrite(lake, "plans", lambda every: [row for row in every if row != rows[0]] + failed)
    assert broken(lake) == {("fleet", "unread_clusters"): 1.0}


@pytest.mark.ci
def test_the_command_keeps_a_page_with_the_run_and_closes(lake: DeltaLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lake", "quality", lake.uri, "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in document} == {"ok"}
    assert {"batches", "records", "captures", "fleet"} <= {row["table"] for row in document}
    index = Path(lake.uri, "_quality", "plan-00000001", "index.html")
    assert "Quality gate: open" in index.read_text()
    rewrite(lake, "records", lambda rows: [*rows, rows[0]])
    assert run_command(["lake", "quality", lake.uri, "--docs", ""]) == 1
    shown = capsys.readouterr()
    assert "critical" in shown.out
    assert "critical: records.repeated_keys:" in shown.err


@pytest.mark.ci
@pytest.mark.parametrize(
    ("table", "column", "value", "promise"),
    [
        ("batches", "status", "lost", "unknown_values"),
        ("files", "batch_count", -1, "negative_quantities"),
        ("topic_changes", "cause", None, "missing_values"),
    ],
)
def test_a_value_that_the_contract_does_not_allow(
    lake: DeltaLake, table: str, column: str, value: object, promise: str
) -> None:
    rewrite(lake, table, lambda rows: [{**rows[0], column: value}, *rows[1:]])
    (verdict,) = [
        verdict
        for verdict in judge_lake(lake, docs="").verdicts
        if (verdict.table, verdict.clause) == (table, promise) and not verdict.passed
    ]
    assert (verdict.worst, verdict.cluster_count) == (1.0, 1)
    assert verdict.promise.endswith(f": {column}")


@pytest.mark.ci
def test_the_page_shows_what_broke(lake: DeltaLake, tmp_path: Path, tab: BrowserTab) -> None:
    """A duplicate key, a null, a gap and a stale cluster, each planted; a hostile cluster id stays text."""
    hostile = "<script>alert(1)</script>"
    rewrite(lake, "records", lambda rows: [*rows, *2 * [{**rows[0], "cluster_id": hostile}]])
    rewrite(lake, "topic_changes", lambda rows: [{**rows[0], "cause": None}, *rows[1:]])
    rewrite(lake, "batches", without_a_batch)
    tomorrow = time.time_ns() // 1_000_000 + 30 * HOUR_MS
    result = judge_lake(lake, docs=str(tmp_path), now_ms=tomorrow)
    assert not result.is_open
    page = tmp_path / "index.html"
    tab.page.context.set_offline(True)
    tab.goto(page)
    assert not re.search(r"<script|://|\b(src|href)=", page.read_text()), "it asks for nothing"
    assert "closed" in tab.page.locator("h1").inner_text()
    broken, kept = (section.locator("tbody tr") for section in tab.page.locator("table").all())
    shown = {tuple(row.locator("td").nth(place).inner_text() for place in range(3)) for row in broken.all()}
    failed = [each for each in result.verdicts if not each.passed]
    assert shown == {(each.severity, each.table, f"{each.promise} {each.clause}") for each in failed}
    planted = {("records", "repeated_keys"), ("topic_changes", "missing_values"), ("batches", "offset_gaps")}
    assert {*planted, ("fleet", "hours_since_capture")} <= {(each.table, each.clause) for each in failed}
    assert kept.count() == len(result.verdicts) - len(failed)
    assert hostile in broken.filter(has_text="repeated_keys").inner_text()
