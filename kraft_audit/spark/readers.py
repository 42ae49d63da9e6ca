"""Reads tables of planned clusters on workers, a few clusters a task; a plan's clusters once for all tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kraft_audit.capture.log_parts import LogPart
from kraft_audit.lake.staging.staging_tasks import processors, shares
from kraft_audit.spark.path_options import given_paths
from kraft_audit.spark.worker_errors import without_traceback
from kraft_audit.tables import READABLE_TABLES
from kraft_audit.tables.contract import slices
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.capture.plan import Selection

STAGED_TABLE: Final = "staged"


@dataclass(frozen=True)
class ClusterTask(InputPartition):
    """One task: (plan as JSON, part of its log) of each cluster. Plain values, as it crosses to the workers pickled."""

    number: int
    clusters: tuple[tuple[str, LogPart], ...]
    redaction_key: str = field(repr=False)


@dataclass(frozen=True)
class StagingTask(InputPartition):
    """One task of a plan: parts, as (name, clusters). `minutes`: how long a cluster may take; None reads it here."""

    parts: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    redaction_key: str = field(repr=False)
    minutes: int | None = None


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark twin of an Arrow schema: same order, types and nullability."""
    twin: StructType = from_arrow_schema(schema)
    return twin


def arrow_schema(options: Any) -> pa.Schema:
    table = table_of(options)
    if table == STAGED_TABLE:
        from kraft_audit.lake.staging.stage import MANIFEST_SCHEMA

        return MANIFEST_SCHEMA
    if options.get("recordtype"):
        from kraft_audit.capture.decoded_records import record_type_schema

        return record_type_schema(options["recordtype"], dialect_of(options) or Dialect.KIP853)
    return READABLE_TABLES[table].schema


def table_of(options: Any) -> str:
    return str(options.get("table", "records"))


def dialect_of(options: Any) -> Dialect | None:
    """The dialect that the options name; with recordType Kafka's own, as its columns are known before any log is."""
    if "dialect" in options:
        return Dialect(options["dialect"])
    return Dialect.KIP853 if options.get("recordtype") else None


class TableReader(DataSourceReader):
    """Reads one table of the clusters below the given paths, a few clusters per task."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.selection: Selection | None = None
        self.cluster_ids: frozenset[str] | None = frozenset({options["cluster"]}) if options.get("cluster") else None

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        from kraft_audit.lake.staging.cluster_reading import redaction_key
        from kraft_audit.spark.planned_paths import plans_below
        from kraft_audit.spark.table_tasks import table_tasks

        plans = plans_below(given_paths(self.options), dialect_of(self.options), self.options.get("capture"))
        wanted = self.cluster_ids
        chosen = [plan for plan in plans if wanted is None or {plan.cluster_id, plan.key} & wanted]
        key = redaction_key(self.options.get("redactionkeyfile"))
        limit = task_limit(self.options)
        dealt = table_tasks(chosen, table_of(self.options), limit, are_parts_read=self._reads_all_offsets())
        return [ClusterTask(number, clusters, key) for number, clusters in enumerate(dealt)]

    def _reads_all_offsets(self) -> bool:
        """Whether no filter on offsets was pushed: of a few offsets each part would frame more than it decodes."""
        selection = self.selection
        return selection is None or (selection.from_offset is None and selection.to_offset is None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ClusterTask):
            yield from self._rows(partition)

    def _rows(self, task: ClusterTask) -> Iterator[pa.RecordBatch]:
        from kraft_audit.lake.staging.cluster_reading import read_table

        record_type = self.options.get("recordtype")
        table = table_of(self.options)
        for text, part in task.clusters:
            for batch in read_table(text, table, record_type, self.selection, task.redaction_key, part):
                yield from slices(batch)


class StagingReader(DataSourceReader):
    """Reads a plan's clusters once for all tables; its rows are the manifests of the parts.

    The option `parts` names those to read, all of them by default. With `minutes` each cluster has that long, in a
    process of its own.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        from kraft_audit.lake.staging.cluster_reading import planned_clusters, redaction_key
        from kraft_audit.lake.staging.stage_parts import named_parts

        planned = planned_clusters(self.options["lake"], int(self.options["plan"]), self.options.get("planfile"))
        parts = named_parts(planned, self.options["parts"].split(",") if "parts" in self.options else None)
        costs = [part.cost_bytes for part in parts]
        key = redaction_key(self.options.get("redactionkeyfile"))
        minutes = int(self.options["minutes"]) if "minutes" in self.options else None
        return [
            StagingTask(tuple((parts[place].name, parts[place].clusters) for place in share), key, minutes)
            for share in shares(costs, task_limit(self.options))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kraft_audit.lake.progress import failpoint
        from kraft_audit.lake.staging.stage import MANIFEST_SCHEMA

        if isinstance(partition, StagingTask):
            for name, clusters in partition.parts:
                rows = self._finished(partition, name, clusters)
                failpoint("in-stage")
                yield pa.RecordBatch.from_pylist(rows, schema=MANIFEST_SCHEMA)

    def _finished(self, task: StagingTask, name: str, clusters: tuple[tuple[int, str], ...]) -> list[Any]:
        from kraft_audit.lake.staging.cluster_reading import pipeline_reading
        from kraft_audit.lake.staging.isolated_staging import ReadingEnv, finished_part
        from kraft_audit.lake.staging.stage import stage_clusters
        from kraft_audit.lake.staging.stage_parts import part_label, write_manifest

        lake, plan, known = self.options["lake"], int(self.options["plan"]), self.options.get("known")
        if task.minutes is not None:
            return finished_part(plan, name, clusters, ReadingEnv(lake, task.redaction_key, known, task.minutes))
        read = pipeline_reading(lake, task.redaction_key, known)
        batches = stage_clusters(lake, clusters, read, part_label(plan, name))
        rows = write_manifest(lake, plan, name, [row for batch in batches for row in batch.to_pylist()])
        return [{**row, "part": name} for row in rows]


def task_limit(options: dict[str, str]) -> int:
    return int(options.get("tasks", 2 * processors()))
