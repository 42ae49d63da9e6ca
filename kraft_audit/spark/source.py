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
| tasks | how many tasks at most; of `batches` and `records` several may read one cluster | 2 x cores of this machine |

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
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kraft_audit.lake.settings import SettingsError
from kraft_audit.spark.path_options import given_paths
from kraft_audit.spark.readers import STAGED_TABLE, StagingReader, TableReader, arrow_schema, spark_schema, table_of
from kraft_audit.spark.worker_errors import without_traceback
from kraft_audit.tables import READABLE_TABLES
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    pass

STAGED_OPTIONS: Final = ("lake", "plan", "planFile", "known", "parts", "minutes")
"""What the pipeline alone gives, with the table `staged`."""
OPTIONS: Final = (
    "path", "paths", "table", "recordType", "dialect", "cluster", "capture", "redactionKeyFile", "tasks",
    "maxRecordsPerTrigger", "failOnDataLoss", *STAGED_OPTIONS,
)  # fmt: skip
PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


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


def _is_called_for_pushdown(frame: FrameType | None) -> bool:
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if spec is not None and spec.name == PUSHDOWN_WORKER:
            return True
        frame = frame.f_back
    return False
