"""`spark.read.format("kraft")`: the tables of kraft-audit straight from log dirs, by `analyze` as `kraft-audit run`.

```python
spark.read.format("kraft").load("captures/2026-11-24")                   # records of every cluster below a folder
spark.read.format("kraft").option("table", "batches").load("captures/*.tgz")
spark.read.format("kraft").option("table", "findings").load(["n1", "n2", "s3://captures/n3"])  # three nodes
```

Options (names in any case):

| option | meaning | default |
| --- | --- | --- |
| path | what `load` is given: log dir, node dir, folder of node dirs or captures, archive, URI, pattern | |
| paths | several paths and patterns as a JSON list; `load([…])` sets it, a stream takes it by `option` | |
| table | any bronze or silver table, or findings | records |
| recordType | columns of that record type instead of JSON, as kafka-dump-log names it: PARTITION_CHANGE_RECORD | |
| dialect | the membership protocol that wrote the log: kip853, kip856, kip642 | what its records show |
| cluster | only the cluster of this id | all |
| capture | only the capture of this name | all |
| redactionKeyFile | key of the fingerprints; without it they are comparable within one query only | |
| tasks | how many tasks at most; each reads one or more whole clusters | 2 x cores of this machine |

Give `path`, `paths` or both. A pattern holds `*`, `**`, `[…]`, or `?` where it is no URI; it matches folders and
archives. Several paths are read as commands read several PATHs: node dirs of one cluster are judged together, and a
path below another one is read once. The column `root` names the path that holds a replica, `capture` its folder below
the one that all paths have in common. A path that is missing or no log, and paths without any log, fail the query when
it runs, with the line that `kraft-audit check PATH` prints.

Filters on cluster_id, node_id, offset and record_type are pushed if the table has the column and
`spark.sql.python.filterPushdown.enabled` is true, from Spark 4.1 on; Spark checks every row again. A stream needs Spark
4.2. The table `staged` is for the pipeline: with the options lake and plan it reads a plan's clusters once for all
tables and returns the manifest of the files that it wrote.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kraft_audit.lake.settings import SettingsError
from kraft_audit.lake.staging.staging_tasks import planned_bytes, processors, shares, staging_tasks
from kraft_audit.spark.path_options import given_paths
from kraft_audit.spark.worker_errors import without_traceback
from kraft_audit.tables import READABLE_TABLES
from kraft_audit.tables.contract import slices
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.capture.plan import Selection

STAGED_TABLE: Final = "staged"
OPTIONS: Final = (
    "path", "paths", "table", "recordType", "dialect", "cluster", "capture", "redactionKeyFile", "tasks",
    "lake", "plan", "planFile", "known", "parts", "minutes", "maxRecordsPerTrigger", "failOnDataLoss",
)  # fmt: skip
PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class ClusterTask(InputPartition):
    """One task: whole clusters, as (number, plan as JSON). Plain values, as it crosses to the workers pickled."""

    number: int
    clusters: tuple[tuple[int, str], ...]
    redaction_key: str = field(repr=False)


@dataclass(frozen=True)
class StagingTask(InputPartition):
    """One task of a plan: parts, as (name, clusters). `minutes`: how long a cluster may take; None reads it here."""

    parts: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    redaction_key: str = field(repr=False)
    minutes: int | None = None


class KraftDataSource(DataSource):
    __doc__ = __doc__

    @classmethod
    def name(cls) -> str:
        return "kraft"

    @without_traceback
    def schema(self) -> StructType:
        check_options(self.options)
        return spark_schema(arrow_schema(self.options))

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        check_options(self.options)
        if table_of(self.options) == STAGED_TABLE:
            return StagingReader(dict(self.options))
        # Spark refuses a reader with pushdown while that is off, and only the calling module shows whether it is on.
        if not _is_called_for_pushdown(sys._getframe()):
            return TableReader(dict(self.options))
        from kraft_audit.spark.pushdown import PushingReader

        return PushingReader(dict(self.options))

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        try:
            from kraft_audit.spark.stream import CommittedStreamReader
        except ImportError:
            raise SettingsError(
                'readStream.format("kraft")', "Spark", pyspark.__version__, "Spark 4.2, which says where a stream stood"
            ) from None

        check_options(self.options)
        return CommittedStreamReader(dict(self.options))


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


def check_options(options: Any) -> None:
    """Refuse options that would be ignored or cannot be used. Raises SettingsError, one line."""
    known = {option.lower(): option for option in OPTIONS}
    for key, value in options.items():
        if key.lower() not in known:
            nearest = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
            expected = f"a known option, perhaps {known[nearest[0]]}" if nearest else "one of " + ", ".join(OPTIONS)
            raise SettingsError('format("kraft")', key, value, expected)
    table = table_of(options)
    if table not in (*READABLE_TABLES, STAGED_TABLE):
        raise SettingsError('format("kraft")', "table", table, "one of " + ", ".join(READABLE_TABLES))
    if options.get("dialect", Dialect.KIP853) not in list(Dialect):
        raise SettingsError('format("kraft")', "dialect", options["dialect"], "one of " + ", ".join(Dialect))
    if options.get("recordtype") and table != "records":
        raise SettingsError('format("kraft")', "recordType", options["recordtype"], "the table records with it")
    if not str(options.get("tasks", "1")).isdecimal() or int(options.get("tasks", "1")) < 1:
        raise SettingsError('format("kraft")', "tasks", options["tasks"], "a number of tasks from 1 on")
    if table != STAGED_TABLE:
        given_paths(options)
        return
    for needed in ("lake", "plan"):
        if not options.get(needed):
            raise SettingsError('format("kraft")', needed, options.get(needed), "a value")


class TableReader(DataSourceReader):
    """Reads one table of the clusters below the given paths, a few clusters per task."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.selection: Selection | None = None
        self.cluster_ids: frozenset[str] | None = frozenset({options["cluster"]}) if options.get("cluster") else None

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        from kraft_audit.capture.plan import plan_to_json
        from kraft_audit.lake.staging.cluster_reading import redaction_key
        from kraft_audit.spark.planned_paths import plans_below

        plans = plans_below(given_paths(self.options), dialect_of(self.options), self.options.get("capture"))
        wanted = self.cluster_ids
        chosen = [plan for plan in plans if wanted is None or {plan.cluster_id, plan.key} & wanted]
        key = redaction_key(self.options.get("redactionkeyfile"))
        clusters = [(number, plan_to_json(plan), planned_bytes(plan)) for number, plan in enumerate(chosen)]
        return list(tasks(clusters, task_limit(self.options), key))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ClusterTask):
            yield from self._rows(partition)

    def _rows(self, task: ClusterTask) -> Iterator[pa.RecordBatch]:
        from kraft_audit.lake.staging.cluster_reading import read_table

        record_type = self.options.get("recordtype")
        for _, text in task.clusters:
            for batch in read_table(text, table_of(self.options), record_type, self.selection, task.redaction_key):
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


def tasks(clusters: list[tuple[int, str, int]], limit: int, key: str) -> Iterator[ClusterTask]:
    """The tasks of (number, plan, cost), numbered."""
    for number, share in enumerate(staging_tasks(clusters, limit)):
        yield ClusterTask(number, share, key)


def _is_called_for_pushdown(frame: FrameType | None) -> bool:
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if spec is not None and spec.name == PUSHDOWN_WORKER:
            return True
        frame = frame.f_back
    return False
