"""The view of OCSF events: SQL gives the events that Python gives, in DataFusion and in Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.findings.ocsf import OCSF_SCHEMA, ocsf_events
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.ocsf_view import OCSF_FINDINGS, ocsf_sql
from kraft_audit.lake.ledger import Ledger
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Status
from kraft_audit.spark import register_views
from kraft_audit.tables.gold import FINDINGS
from tests.builders.histories import T0, HistoryBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIVER = {"who": "o'ps", "why": "a laptop", "until": "2099-01-01"}


@pytest.fixture
def rows(build: HistoryBuilder, tmp_path: Path) -> list[dict[str, Any]]:
    """Rows of the table `findings` of a lake below `tmp_path`, in every state."""
    build.three_nodes().damage(2, "BAD_CRC")
    findings = [finding for finding in check(build.history()) if finding.status is not Status.CLEAR]
    found = []
    for row in finding_rows(findings, seen_ms=T0, plan=3):
        lives = {"first_seen_ms": T0 - 9, "last_seen_ms": T0, "changed_ms": T0 - 5, "reopened_count": 0}
        known = {**row, **lives, "closed_ms": None, "closed_by": None, "expired_waiver": None, "first_plan": 1}
        known |= {"is_over": False, "state": "open"}
        states: Iterable[dict[str, Any]] = (
            {},
            {"first_plan": 3, "from_offset": None},
            {"state": "waived", "waiver": WAIVER},
            {"status": "undecided", "reason": "a voter's disk is missing", "summary": "", "subject": ""},
            {"state": "closed", "is_over": True, "closed_by": "ended", "closed_ms": T0, "what_to_do": ""},
            {"state": "closed", "status": "undecided", "closed_by": "not_found", "closed_ms": T0},
            {"rule": "KX999"},
        )
        found += [{**known, **state} for state in states]
    assert any(row["evidence"] for row in found)
    for number, row in enumerate(found):
        row["finding_id"] = f"{number:032x}"
    write_deltalake(str(tmp_path / "lake" / FINDINGS.name), pa.Table.from_pylist(found, FINDINGS.schema))
    return found


def test_the_view_has_the_events_that_python_gives(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    from importlib.metadata import version

    found = DeltaLake(str(tmp_path / "lake")).query(ocsf_sql(str, is_spark=False), FINDINGS.name)
    assert found.column_names == OCSF_SCHEMA.names
    found = found.cast(OCSF_SCHEMA).to_pylist()
    assert sorted(found, key=lambda event: event["metadata"]["uid"]) == sorted(
        ocsf_events(rows, version("kraft-audit")), key=lambda event: event["metadata"]["uid"]
    )
    checks = {(row["status"], row["compliance"]["status"]) for row in found}
    assert len(found) == len(rows)
    assert len(checks) > 3


def test_no_rule_has_a_text_that_sql_reads_otherwise() -> None:
    sql = ocsf_sql(str, is_spark=True)
    assert "\\" not in sql
    assert "{" not in sql
    assert all(f"'{rule}'" in sql for rule in rules())


@pytest.mark.spark
def test_spark_gives_the_same_events(rows: list[dict[str, Any]], tmp_path: Path, spark: SparkSession) -> None:
    lake = DeltaLake(str(tmp_path / "lake"))
    Ledger(lake).create()
    assert OCSF_FINDINGS in register_views(spark, lake.uri)
    found = [row.asDict(recursive=True) for row in spark.table(OCSF_FINDINGS).collect()]
    expected = lake.query(ocsf_sql(str, is_spark=False), FINDINGS.name).cast(OCSF_SCHEMA).to_pylist()
    by_uid = {event["metadata"]["uid"]: event for event in expected}
    assert len(by_uid) == len(found) == len(rows)
    for event in found:
        assert event == by_uid[event["metadata"]["uid"]]
