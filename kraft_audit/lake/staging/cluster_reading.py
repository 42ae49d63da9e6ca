"""Reads clusters for the tasks of a run and the data source: opens what a plan names, and runs `analyze` over it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart
from kraft_audit.capture.plan import ClusterPlan, KnownBatches, Selection, plan_from_json
from kraft_audit.lake.redaction_key import KEY_BYTES, load_key, redactor_of
from kraft_audit.lake.staging.archive_reading import ArchiveReading, history_rows, is_archived, of_history
from kraft_audit.lake.staging.stage import ReadCluster, Reading, ReadingEnd
from kraft_audit.lake.staging.state_store import kept_before
from kraft_audit.lake.views import newest_batches
from kraft_audit.pipeline.analysis import TABLES, CaptureMemory, analyze
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.tables import STAGED_AS
from kraft_audit.tables.bronze import BATCHES, RECORDS
from kraft_audit.tables.gold import HISTORIES
from kraft_codec.storage.opener import StoragePool


def redaction_key(file: str | None) -> str:
    """The key as hexadecimal text; without a file one of this query's own, so that nothing is readable all the same."""
    key = secrets.token_bytes(KEY_BYTES) if file is None else load_key(Path(file), may_create=False)
    return key.hex()


def read_table(
    text: str,
    table: str,
    record_type: str | None,
    selection: Selection | None,
    key: str,
    part: LogPart = WHOLE_LOG,
) -> Iterator[pa.RecordBatch]:
    """The rows of one table, or of one record type, of a planned cluster or of a part of its log."""
    plan = plan_from_json(text)
    with StoragePool() as pool:
        redactor = redactor_of(plan, key)
        settings = ReadingSettings(pool.open, redactor, selection=selection or Selection(), part=part)
        if part.from_offset is not None:
            redactor.before_short_values = partial(_number_short_values, plan, settings)
        if record_type is not None:
            with ClusterReading(plan, settings, keeps_records=False) as reading:
                yield from (of_history(batch, plan) for batch in reading.typed_records(record_type))
            return
        for _, batch in analyze(plan, settings, frozenset({table})):
            yield of_history(batch, plan)


def _number_short_values(plan: ClusterPlan, settings: ReadingSettings) -> None:
    """Number the short secrets before a part as a reading of the whole log does: by decoding what is there."""
    before = replace(settings, part=LogPart(None, settings.part.from_offset))
    with ClusterReading(plan, before, keeps_records=False) as reading:
        for _ in reading.bronze(frozenset({RECORDS.name})):
            pass


class PipelineReading:
    """One cluster of a plan, read for all tables, with what earlier plans kept of it."""

    def __init__(self, plan: ClusterPlan, key: str, known: KnownBatches, tables: frozenset[str], lake_uri: str) -> None:
        self._plan = plan
        self._lake_uri = lake_uri
        self._memory = CaptureMemory()
        self._forgotten: str | None = None
        self._tables = tables
        self._redactor = redactor_of(plan, key)
        self._known = known

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._plan.aliases or self._plan.merged:
            yield HISTORIES.name, history_rows(self._plan)
        self._memory.earlier, self._forgotten = kept_before(self._lake_uri, self._plan)
        with StoragePool() as pool:
            settings = ReadingSettings(pool.open, self._redactor, known=self._known, stop_on_change=True)
            for name, batch in analyze(self._plan, settings, self._tables, self._memory):
                yield STAGED_AS.get(name, name), of_history(batch, self._plan)

    def end(self) -> ReadingEnd:
        redaction_state = json.dumps(self._redactor.short_values(), separators=(",", ":"))
        kept = self._memory.kept
        return ReadingEnd(redaction_state, None if kept is None else kept.to_bytes(), self._forgotten)


def pipeline_reading(lake_uri: str, key: str, known_uri: str | None, tables: frozenset[str] = TABLES) -> ReadCluster:
    """How a task reads its clusters. `known_uri` holds exported batches where workers cannot read the lake."""

    def read(plan: ClusterPlan) -> Reading:
        if is_archived(plan):
            return ArchiveReading(plan, lake_uri)
        known: KnownBatches = LakeBatches(lake_uri, plan) if known_uri is None else ExportedBatches(known_uri, plan)
        return PipelineReading(plan, key, known, tables, lake_uri)

    return read


class LakeBatches:
    """What plans before this one hold of a cluster's batches, from the table itself; asked seldom."""

    def __init__(self, lake_uri: str, plan: ClusterPlan) -> None:
        self._lake_uri = lake_uri
        self._plan = plan
        self._query: Callable[[str], pa.Table] | None = None

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        from kraft_audit.lake.delta import DeltaLake, sql_text

        if self._query is None:
            self._query = DeltaLake(self._lake_uri).queries(BATCHES.name)
        where = (
            f"cluster_id = {sql_text(self._plan.key)} AND base_offset >= {from_offset} AND base_offset < {to_offset}"
        )
        batches = self._query(known_batches_sql(self._plan.number, where))
        return batches.select(list(BATCHES.column_names)).cast(BATCHES.schema)


class ExportedBatches:
    """The same from Parquet that the driver wrote before, all clusters of the plan in one folder."""

    def __init__(self, uri: str, plan: ClusterPlan) -> None:
        self._uri = uri
        self._plan = plan

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        import pyarrow.dataset as pads  # imports pandas, which no other reading needs

        column = pads.field
        wanted = (
            (column("cluster_id") == self._plan.key)
            & (column("base_offset") >= from_offset)
            & (column("base_offset") < to_offset)
        )
        batches = pads.dataset(self._uri, schema=BATCHES.schema, format="parquet").to_table(filter=wanted)
        return batches.select(list(BATCHES.column_names)).cast(BATCHES.schema)


def known_batches_sql(plan_number: int, where: str) -> str:
    """The newest row of each (replica, batch) of the log before a plan, in SQL that DataFusion and Spark share."""
    return newest_batches(f"SELECT * FROM {BATCHES.name} WHERE plan < {plan_number} AND {where}")  # noqa: S608  # quoted


def planned_clusters(lake_uri: str, number: int, plan_file: str | None) -> list[tuple[int, str]]:
    """(cluster number, plan as JSON) of a plan: from the ledger, or from a file where only the JVM reads that."""
    if plan_file is not None:
        with Path(plan_file).open(encoding="utf-8") as lines:
            return [(row["cluster_number"], row["cluster_plan"]) for row in map(json.loads, lines)]
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.ledger import Ledger

    return Ledger(DeltaLake(lake_uri)).planned(number)
