"""Silver tables of a lake: what the command replays, in however many runs; what was contradicted stays visible."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.redaction_key import load_key
from kraft_audit.lake.views import CHANGE_TABLES, holding, query_of
from kraft_audit.rules import judging
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.silver import SILVER
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.expected_exposures import exposure_rows_of
from tests.builders.lakes import CopyAged, MakeFleet, captures_of, replace_live
from tests.builders.readings import history_of

pytestmark = pytest.mark.slow

HELD = (*CHANGE_TABLES, "voter_sets", "leader_epochs")
# When and by which plan a row came, and what a view adds.
WHEN = {"plan", "read_from_ms", "read_to_ms", "seen_ms"}
ADDED = {"to_offset", "proven"}


def view_rows(lake: str, name: str, but: set[str] | None = None) -> list[str]:
    """The rows of a view as sorted JSON lines."""
    found = DeltaLake(lake).queries(PLANS.name, *SILVER)(query_of(name, str))
    remaining = [column for column in found.column_names if column not in WHEN | (but or set())]
    return sorted(json.dumps(row, default=str) for row in found.select(remaining).to_pylist())


def as_lines(rows: list[dict[str, Any]], but: set[str]) -> list[str]:
    return sorted(json.dumps({k: v for k, v in row.items() if k not in WHEN | but}, default=str) for row in rows)


@pytest.mark.parametrize("name", ["mini-4.4.0", "uncommitted-voter-change", "torn-write", "dynamic-quorum"])
def test_tables_hold_what_the_command_replays(
    name: str, small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    fleet = make_fleet({name: [small_corpus / name]})
    assert without_spark.run(fleet).failed == {}
    key = load_key(Path(fleet.redaction_key_file or ""), may_create=False)
    plan = plan_cluster([str(small_corpus / name)], open_storage=open_storage, captured_at_ms=0, name=name)
    history = history_of(plan, open_storage=open_storage, redactor=Redactor(key))
    (replayed,) = DeltaLake(fleet.lake).query("SELECT * FROM replays", "replays").to_pylist()
    assert replayed["to_offset"] > 0
    for table in CHANGE_TABLES:
        # Rules find exposures in the changes of partitions, so that a history is without this table.
        reported = (
            exposure_rows_of(history.rows("partition_changes")) if table == "exposure_changes" else history.rows(table)
        )
        below = [row for row in reported if row["from_offset"] < replayed["to_offset"]]
        assert view_rows(fleet.lake, table, ADDED) == as_lines(below, ADDED), table
    epochs = as_lines(history.rows("leader_epochs"), {"proven"})
    assert view_rows(fleet.lake, "leader_epochs", {"proven"}) == epochs
    assert view_rows(fleet.lake, "watermarks") == as_lines(history.rows("watermarks"), set())
    # Rules also look at the first sets of other quorums, which are no history of this one.
    assert set(view_rows(fleet.lake, "voter_sets", ADDED)) <= set(as_lines(history.rows("voter_sets"), ADDED))
    staged = DeltaLake(fleet.lake).query("SELECT * FROM findings_staged", "findings_staged").to_pylist()
    judged = finding_rows(judging.check(history))
    assert sorted(row["finding_id"] for row in staged) == sorted(row["finding_id"] for row in judged)


@pytest.mark.parametrize("name", ["divergence", "uncommitted-voter-change"])
def test_captures_one_by_one_are_as_all_at_once(
    name: str, small_corpus: Path, in_steps_and_whole: Callable[[str, list[Path]], tuple[str, str]]
) -> None:
    captures = captures_of(small_corpus / name)
    steps, whole = in_steps_and_whole(name, captures)
    for table in HELD:
        assert view_rows(steps, table) == view_rows(whole, table), table
    lake = DeltaLake(steps)
    for table in CHANGE_TABLES:
        rows = lake.queries(PLANS.name, *SILVER)(holding(table, str, closed=ClosedPlans(len(captures)))).to_pylist()
        assert as_lines(rows, ADDED | {"gone_at"}) == view_rows(lake.uri, table, ADDED), table


@pytest.mark.parametrize("name", ["divergence", "uncommitted-voter-change"])
def test_a_live_dir_in_runs_is_as_its_last_state(
    name: str, small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    """Each capture in turn replaces the live dirs; what the log still holds at the end is what the tables hold."""
    live = tmp_path / "live"
    for number, capture in enumerate(captures_of(small_corpus / name)):
        replace_live(live, capture, number)
        assert without_spark.run(make_fleet({name: [live]}, lake="steps")).failed == {}
    without_spark.run(make_fleet({name: [live]}, lake="whole"))
    for table in CHANGE_TABLES:
        assert view_rows(str(tmp_path / "steps"), table) == view_rows(str(tmp_path / "whole"), table), table
    seen = set(view_rows(str(tmp_path / "steps"), "leader_epochs"))
    assert seen >= set(view_rows(str(tmp_path / "whole"), "leader_epochs"))


def test_a_contradicted_suffix_is_replaced_and_stays_visible(
    small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType, tmp_path: Path
) -> None:
    """One disk of a dead leader first, whose last topic no replica fetched; then the disks that elected another."""
    lone, *later = sorted(path.parent for path in (small_corpus / "divergence").glob("*/node-1"))
    roots: list[Path | str] = [lone / "node-2"]
    lake = str(tmp_path / "steps")
    assert without_spark.run(make_fleet({"divergence": roots}, lake="steps")).failed == {}
    (unproven,) = [json.loads(row) for row in view_rows(lake, "topic_changes") if json.loads(row)["from_offset"] >= 27]
    assert unproven["proven"] is False
    roots += later
    assert without_spark.run(make_fleet({"divergence": roots}, lake="steps")).failed == {}
    assert unproven["topic_id"] not in "".join(view_rows(lake, "topic_changes"))
    (reverted,) = [json.loads(row) for row in view_rows(lake, "topic_changes_reverted")]
    assert reverted == {key: value for key, value in unproven.items() if key not in ADDED}
    assert {json.loads(row)["topic"] for row in view_rows(lake, "partition_changes_reverted")} == {unproven["topic"]}
    (_, replayed) = DeltaLake(lake).query("SELECT * FROM replays ORDER BY plan", "replays").to_pylist()
    assert (replayed["from_offset"], replayed["contradicted_from"]) == (27, 27)
    without_spark.run(make_fleet({"divergence": roots}, lake="whole"))
    for table in HELD:
        assert view_rows(lake, table) == view_rows(str(tmp_path / "whole"), table), table


def test_nothing_is_reported_twice(
    small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType, tmp_path: Path, copy_aged: CopyAged
) -> None:
    """A run with few changes adds the rows past the silver position, whatever lies before it."""
    copy_aged(small_corpus / "mini-4.4.0", tmp_path / "live")
    fleet = make_fleet({"mini": [tmp_path / "live"]})
    whole = without_spark.run(fleet).rows
    (state,) = (next((tmp_path / "live").rglob("node-*/__cluster_metadata-0/quorum-state")),)
    os.utime(state, (1_800_000_000.5,) * 2)
    again = without_spark.run(fleet).rows
    assert whole["partition_changes"] > 0
    assert (again["watermarks"], again["replays"]) == (1, 1)
    assert sum(again[table] for table in CHANGE_TABLES) == 0
