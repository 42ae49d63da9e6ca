"""Readings of planned clusters in tests: the views that a test asks for, each from a reading of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordWindow
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.capture.survey import Survey
from kraft_audit.pipeline.analysis import TABLES, analyze
from kraft_audit.pipeline.history_collector import JUDGED_TABLES, HistoryCollector, read_history
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings, read_survey
from kraft_audit.replay.driver import BranchLog
from kraft_audit.replay.silver_rows import SILVER_TABLES, silver
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage

TableRows = tuple[str, pa.RecordBatch]
Rows = dict[str, list[dict[str, Any]]]


def bronze_rows(plan: ClusterPlan, tables: frozenset[str] = BRONZE_TABLES, **settings: Any) -> Iterator[TableRows]:
    """The bronze rows that a plan adds, its captures as they are numbered; the keywords are those of the settings."""
    with ClusterReading(plan, ReadingSettings(**settings), keeps_records=False) as reading:
        yield from reading.bronze(tables)


def table_rows(plan: ClusterPlan, tables: frozenset[str] = TABLES, **settings: Any) -> Iterator[TableRows]:
    """The rows of any table, as the pipeline reads them."""
    return analyze(plan, ReadingSettings(**settings), tables)


def as_tables(rows: Sequence[TableRows]) -> dict[str, pa.Table]:
    """Collected rows as one Arrow table for each name."""
    names = {name for name, _ in rows}
    return {name: pa.Table.from_batches([batch for own, batch in rows if own == name]) for name in sorted(names)}


def plan_of(path: Path) -> ClusterPlan:
    """The plan of the one cluster below a path."""
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=1)
    return plan


def survey_of(plan: ClusterPlan) -> Survey:
    """The survey of a whole plan."""
    return read_survey(plan, ReadingSettings(open_storage, Redactor(bytes(32))))


def surveyed(path: Path) -> tuple[ClusterPlan, Survey]:
    """The plan of the one cluster below a path, and its survey."""
    plan = plan_of(path)
    return plan, survey_of(plan)


def branch_windows(
    plan: ClusterPlan, path: Sequence[int], from_offset: int = 0, to_offset: int | None = None, **settings: Any
) -> Iterator[RecordWindow]:
    """The records of the branches in `path`."""
    with ClusterReading(plan, ReadingSettings(**settings)) as reading:
        yield from reading.windows(path, from_offset, to_offset)


def snapshot_windows(plan: ClusterPlan, source: str, **settings: Any) -> Iterator[RecordWindow]:
    """The records of one snapshot."""
    with ClusterReading(plan, ReadingSettings(**settings)) as reading:
        yield from reading.snapshot(source)


def silver_rows(
    plan: ClusterPlan, tables: frozenset[str] = SILVER_TABLES, *, is_observed: bool = False, **settings: Any
) -> Iterator[TableRows]:
    """The silver rows that a plan adds; `is_observed`: with the rules listening, so from the earliest record on."""
    with ClusterReading(plan.whole(), ReadingSettings(**settings)) as reading:
        observer = None
        if is_observed:
            observer = HistoryCollector(reading)
            for name, batch in reading.bronze(JUDGED_TABLES, observer.facts):
                observer.take_rows(name, batch)
        yield from silver(plan, reading, tables, fold=observer)


def history_of(plan: ClusterPlan, **settings: Any) -> ClusterHistory:
    """The history of a whole plan, its captures in the order that they prove."""
    with OrderedReading(plan, ReadingSettings(**settings)) as ordered:
        return read_history(ordered)


def typed_rows(plan: ClusterPlan, record_type: str, **settings: Any) -> Iterator[pa.RecordBatch]:
    """The records of one type with typed columns."""
    with ClusterReading(plan, ReadingSettings(**settings), keeps_records=False) as reading:
        yield from reading.typed_records(record_type)


def branch_log(folder: Path, capture: str | None = None) -> BranchLog:
    """What a state is made from: the first cluster below a folder, its newest capture unless named."""
    plan, *_ = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1, capture=capture)
    reading = ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))))
    canonical = proven_rounds(reading.survey, plan)[-1].interval.canonical
    return BranchLog(reading, None if canonical is None else canonical.number)


def replayed_rows(
    path: Path,
    tables: frozenset[str] = SILVER_TABLES,
    *,
    observed: bool = False,
    silver: SilverPosition | None = None,
) -> Rows:
    """The silver rows of the one cluster below a path, by table."""
    plan = replace(plan_of(path), silver=silver)
    redactor = Redactor(bytes(32))
    found: Rows = {}
    for name, batch in silver_rows(plan, tables, open_storage=open_storage, redactor=redactor, is_observed=observed):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def topics_in(rows: Rows) -> set[tuple[str, int, str]]:
    """(topic, offset, cause) of each topic change."""
    return {(row["topic"], row["from_offset"], row["cause"]) for row in rows.get("topic_changes", [])}
