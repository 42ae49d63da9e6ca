"""Reads clusters for Spark's workers: opens what a plan names and runs `analyze` over it, as the command does."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads

from kraft_audit.analyze import TABLES, analyze
from kraft_audit.replay.analyze import analyze_record_type
from kraft_audit.replay.plan import ClusterPlan, KnownBatches, Selection, from_json
from kraft_audit.replay.planning import plan_path
from kraft_audit.rules.tables import FINDINGS
from kraft_audit.spark.archive_reading import ArchiveReading, is_archived
from kraft_audit.spark.redaction_key import KEY_BYTES, load_key
from kraft_audit.spark.stage import ReadCluster, Reading
from kraft_audit.spark.tables import FINDINGS_STAGED
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage import StoragePool
from kraft_codec.tables import BATCHES


def redaction_key(file: str | None) -> str:
    """The key as hexadecimal text; without a file one of this query's own, so that nothing is readable all the same."""
    key = secrets.token_bytes(KEY_BYTES) if file is None else load_key(Path(file), may_create=False)
    return key.hex()


def redactor_of(plan: ClusterPlan, key: str) -> Redactor:
    state = json.loads(plan.redaction_state) if plan.redaction_state else {}
    return Redactor(bytes.fromhex(key), state)


def plan_of_path(path: str, dialect: Dialect, capture: str | None) -> list[ClusterPlan]:
    """Everything below a path, from the start."""
    now_ms = time.time_ns() // 1_000_000
    with StoragePool() as pool:
        return plan_path(path, open_storage=pool.open, captured_at_ms=now_ms, dialect=dialect, capture=capture)


def read_table(
    text: str, table: str, record_type: str | None, selection: Selection | None, key: str
) -> Iterator[pa.RecordBatch]:
    """The rows of one table, or of one record type, of a planned cluster."""
    plan = from_json(text)
    redactor = redactor_of(plan, key)
    wanted = selection or Selection()
    with StoragePool() as pool:
        if record_type is not None:
            yield from analyze_record_type(
                plan, record_type, open_storage=pool.open, redactor=redactor, selection=wanted
            )
            return
        tables = frozenset({table})
        for _, batch in analyze(plan, tables, open_storage=pool.open, redactor=redactor, selection=wanted):
            yield batch


class PipelineReading:
    """One cluster of a plan, read for all tables."""

    def __init__(self, plan: ClusterPlan, key: str, known: KnownBatches, tables: frozenset[str]) -> None:
        self._plan = plan
        self._tables = tables
        self._redactor = redactor_of(plan, key)
        self._known = known

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        with StoragePool() as pool:
            for name, batch in analyze(
                self._plan,
                self._tables,
                open_storage=pool.open,
                redactor=self._redactor,
                known=self._known,
                stop_on_change=True,
            ):
                yield (FINDINGS_STAGED.name if name == FINDINGS.name else name), batch

    def redaction_state(self) -> str:
        return json.dumps(self._redactor.short_values(), separators=(",", ":"))


def pipeline_reading(lake_uri: str, key: str, known_uri: str | None, tables: frozenset[str] = TABLES) -> ReadCluster:
    """How a task reads its clusters. `known_uri` holds exported batches where workers cannot read the lake."""

    def read(plan: ClusterPlan) -> Reading:
        if is_archived(plan):
            return ArchiveReading(plan, lake_uri)
        known: KnownBatches = LakeBatches(lake_uri, plan.number) if known_uri is None else ExportedBatches(known_uri)
        return PipelineReading(plan, key, known, tables)

    return read


class LakeBatches:
    """What plans before this one hold of a cluster's batches, from the table itself; asked seldom."""

    def __init__(self, lake_uri: str, plan_number: int) -> None:
        self._lake_uri = lake_uri
        self._plan_number = plan_number
        self._query: Callable[[str], pa.Table] | None = None

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        from kraft_audit.spark.lake import DeltaLake, sql_text

        if self._query is None:
            self._query = DeltaLake(self._lake_uri).at_once(BATCHES.name)
        where = f"cluster_id = {sql_text(cluster_id)} AND base_offset >= {from_offset} AND base_offset < {to_offset}"
        found = self._query(known_batches_sql(self._plan_number, where))
        return found.select(list(BATCHES.column_names)).cast(BATCHES.schema)


class ExportedBatches:
    """The same from Parquet that the driver wrote before, all clusters of the plan in one folder."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        column = pads.field
        wanted = (
            (column("cluster_id") == cluster_id)
            & (column("base_offset") >= from_offset)
            & (column("base_offset") < to_offset)
        )
        found = pads.dataset(self._uri, schema=BATCHES.schema, format="parquet").to_table(filter=wanted)
        return found.select(list(BATCHES.column_names)).cast(BATCHES.schema)


def known_batches_sql(plan_number: int, where: str) -> str:
    """The newest row of each (replica, batch) of the log before a plan, in SQL that DataFusion and Spark share.

    A replica is its node and directory id; without them, its folder.
    """
    return f"""
        SELECT * FROM (
            SELECT *, row_number() OVER (
                PARTITION BY cluster_id, node_id, directory_id, CASE WHEN node_id IS NULL THEN path ELSE '' END,
                    base_offset, last_offset, leader_epoch, crc
                ORDER BY plan DESC, captured_at_ms DESC, capture_number DESC, status DESC
            ) AS place
            FROM batches WHERE plan < {plan_number} AND source = 'log' AND valid AND {where}
        ) WHERE place = 1
    """  # noqa: S608  # numbers, and text that sql_text quoted


def planned_clusters(lake_uri: str, number: int, plan_file: str | None) -> list[tuple[int, str]]:
    """(cluster number, plan as JSON) of a plan: from the ledger, or from a file where only the JVM reads that."""
    if plan_file is not None:
        with Path(plan_file).open(encoding="utf-8") as lines:
            return [(row["cluster_number"], row["cluster_plan"]) for row in map(json.loads, lines)]
    from kraft_audit.spark.lake import DeltaLake
    from kraft_audit.spark.ledger import Ledger

    return Ledger(DeltaLake(lake_uri)).planned(number)
