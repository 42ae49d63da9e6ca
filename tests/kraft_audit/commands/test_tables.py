"""`lake tables`: what a lake holds, equal to what `dump` shows of the same logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.captures import SMALL_CORPUS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> Path:
    """A lake of one sample, made without Spark by the steps of a run."""
    folder = tmp_path_factory.mktemp("lake")
    fleet = folder / "fleet.yaml"
    fleet.write_text(f"lake: lake\nclusters:\n  - name: torn\n    paths: [{SMALL_CORPUS}/torn-write/*]\n")
    program = project_root / "tests" / "builders" / "without_spark.py"
    subprocess.run([sys.executable, program, fleet], capture_output=True, check=True, cwd=project_root)
    return folder / "lake"


@pytest.mark.slow  # a lake is made first
def test_tables_are_counted_and_shown(kraft_audit, lake: Path) -> None:
    reported = {row["table"]: row for row in json.loads(kraft_audit("lake", "tables", lake, "-o", "json").out)}
    assert reported["records"]["rows"] == len(
        kraft_audit("dump", f"{SMALL_CORPUS}/torn-write", "-o", "jsonl").out.splitlines()
    )
    assert reported["decode_errors"]["rows"] == 1
    assert reported["decode_errors"]["sample"][0]["reason"] == "TORN_TAIL"
    assert all(len(row["sample"]) <= 3 for row in reported.values())
    text = kraft_audit("lake", "tables", lake, "--rows", "1").out
    assert f"records: {reported['records']['rows']:,} rows" in text
    assert "TORN_TAIL" in text


@pytest.mark.slow
def test_rows_are_bounded(kraft_audit, lake: Path) -> None:
    assert kraft_audit("lake", "tables", lake, "--rows", "-1").code == 2
    assert kraft_audit("lake", "tables", lake, "--rows", "0").code == 0


def test_every_table_of_a_plan_is_shown_by_columns_that_report_something() -> None:
    """A table that was left out was shown by its first columns, which are ids."""
    from kraft_audit.commands.tables import GLANCE
    from kraft_audit.tables import LAKE_TABLES

    assert LAKE_TABLES.keys() <= GLANCE.keys()
    for name, table in LAKE_TABLES.items():
        assert set(GLANCE[name]) <= set(table.column_names), name
    flags = {name for name in LAKE_TABLES["exposure_changes"].column_names if name.startswith("is_")}
    assert flags <= set(GLANCE["exposure_changes"])
