"""A lake that only Spark reaches, such as a catalog's external location: the same tables, committed by Delta for Spark.

Workers still write data files from Python, into a staging folder that they and Spark both reach; a commit appends their
rows with `txnAppId` and `txnVersion`. It costs seconds a table where `deltalake` needs milliseconds. Everything goes
through the DataFrame API and SQL. One driver at a time writes, by a lease in the staging folder: on S3, Delta for Spark
overwrites what another driver commits at the same moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake.data_files import ASCENDING, DataFile, table_folder
from kraft_audit.lake.lake import COMMIT_ATTEMPTS, NO_PROPERTIES, NO_VERSIONS, TABLE_PROPERTIES
from kraft_audit.lake.lake_paths import first_not_below, foreign_file, is_uri
from kraft_audit.lake.lease import ID_FILE, LEASE_FOLDER, Lease
from kraft_audit.lake.settings import Committer, MaintainSettings
from kraft_audit.spark.delta_log import DeltaLogs, DeltaLogState
from kraft_audit.spark.readers import spark_schema
from kraft_audit.spark.session import is_conflict, spark_errors
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import BATCHES, PLANS
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PLAN_FOLDER: Final = "_plans"
KNOWN_FOLDER: Final = "_known"
CLUSTERED_BY: Final = "cluster_id"
"""What tables that have it are clustered by from the start; `cluster_by` of the maintain settings may name others."""
WRITER: Final = {
    "spark.sql.parquet.compression.codec": "zstd",
    "parquet.compression.codec.zstd.level": "6",
    "parquet.writer.version": "v2",
    "parquet.page.size": str(4 << 20),
    "parquet.page.row.count.limit": "1000000",
    # A dictionary of them is as large as they are, and small files get one unless it is forbidden.
    **{f"parquet.enable.dictionary#{column}": "false" for column in sorted(ASCENDING)},
}
"""How Spark writes data files: with its defaults a table takes 1.8 times the bytes of the rows as they were staged.

Only pages of version 2 store ascending numbers as differences, as staged files do. They leave the levels of lists
uncompressed, which zstd's level 6 makes up for.
"""
LEASE_IN: Final = "kraft-audit/lease/"
"""Of `plans` the application that begins so names the folder by whose lease the drivers of a lake take turns."""


class SparkLake:
    """Implements `kraft_audit.lake.lake.Lake` through a Spark session."""

    committer: Committer = "spark"
    small_merges = None

    def __init__(self, uri: str, staging_uri: str, session: Callable[[], SparkSession]) -> None:
        self.uri = uri.rstrip("/")
        self.data_uri = staging_uri.rstrip("/")
        self._session = session
        self._own_session: SparkSession | None = None
        self._logs = DeltaLogs(lambda: self.spark)
        self._lease: Lease | None = None

    @property
    def spark(self) -> SparkSession:
        """A session of our own, so that temporary views and settings do not mix with the caller's."""
        if self._own_session is None:
            self._own_session = self._session().newSession()
            for name, value in WRITER.items():
                self._own_session.conf.set(name, value)
        return self._own_session

    def table_uri(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def hold(self) -> None:
        """Take the lake's lease, or make sure that it is still ours: before each change.

        Raises InputError where another driver has it, or where the lake's drivers take turns by another folder.
        """
        if self._lease is None:
            if is_uri(self.data_uri):
                raise InputError(self.data_uri, "expected a staging folder that Python reaches: it holds the lease")
            lease = Lease(Path(self.data_uri))
            lease.hold()
            self._lease = lease
            try:
                self._require_folder(lease.id())
            except BaseException:
                self.close()
                raise
        self._lease.hold()

    def close(self) -> None:
        """Let the next driver in."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _require_folder(self, lease_id: str) -> None:
        if not self.exists(PLANS.name):
            return
        transactions = self._state(PLANS.name).transactions
        bound = [name.removeprefix(LEASE_IN) for name in transactions if name.startswith(LEASE_IN)]
        if not bound:  # its creator was stopped before it could say so
            self._append(PLANS.name, self._rows(PLANS.name).limit(0), LEASE_IN + lease_id, 1)
        elif lease_id not in bound:
            file = Path(self.data_uri, LEASE_FOLDER, ID_FILE)
            why = f"drivers of {self.uri} take turns by another staging folder, with the id {bound[0]}: use that one;"
            raise InputError(str(file), f"{why} where it is lost and no driver runs, write that id into this file")

    def reading_once(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read_again(self) -> None:
        """Nothing to do: each log is listed every time."""

    def exists(self, table: str) -> bool:
        return self._logs.state(self.table_uri(table)) is not None

    def create(
        self,
        table: str,
        schema: pa.Schema,
        description: str,
        properties: Mapping[str, str] = NO_PROPERTIES,
        initial_versions: Mapping[str, int] = NO_VERSIONS,
    ) -> None:
        from delta import DeltaTable

        self.hold()
        if self.exists(table):
            return
        builder = DeltaTable.createIfNotExists(self.spark).location(self.table_uri(table)).comment(description)
        comments = {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in schema}
        for field in spark_schema(schema.remove_metadata()).fields:
            builder = builder.addColumn(field.name, field.dataType, field.nullable, comment=comments[field.name])
        for name, value in {**TABLE_PROPERTIES, **properties}.items():
            builder = builder.property(name, value)
        if CLUSTERED_BY in schema.names:
            builder = builder.clusterBy(CLUSTERED_BY)
        builder.execute()
        assert self._lease is not None  # noqa: S101  # held
        bound = {LEASE_IN + self._lease.id(): 1} if table == PLANS.name else {}
        for application, version in {**bound, **initial_versions}.items():
            self._append(table, self._rows(table).limit(0), application, version)

    def table_id(self, table: str) -> str:
        return self._state(table).table_id

    def versions(self, table: str, applications: Sequence[str]) -> list[int]:
        transactions = self._state(table).transactions
        return [transactions.get(application, 0) for application in applications]

    def query(self, sql: str, *tables: str) -> pa.Table:
        return self.query_as(sql, {table: table for table in tables})

    def query_as(self, sql: str, tables: Mapping[str, str]) -> pa.Table:
        for name, table in tables.items():
            self._rows(table).createOrReplaceTempView(name)
        return self.spark.sql(sql).toArrow()

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        # Gold tables too, whose contracts are not among LAKE_TABLES.
        frame = self.spark.createDataFrame(rows, schema=spark_schema(rows.schema.remove_metadata()))
        return self._append(table, frame, application, version)

    def commit(self, table: str, files: Sequence[DataFile], schema: pa.Schema, application: str, version: int) -> bool:
        paths = [f"{self.data_uri}/{table}/{file.path}" for file in files]
        frame = self.spark.read.schema(spark_schema(LAKE_TABLES[table].schema)).parquet(*paths)
        return self._append(table, frame, application, version)

    def join_small_files(self, table: str) -> None:
        """Nothing to do: Spark reads many files at once, and `lake maintain` joins them."""

    def share_plan(self, number: int, planned: Sequence[tuple[int, str]]) -> dict[str, str]:
        from kraft_audit.lake.staging.cluster_reading import known_batches_sql

        if is_uri(self.data_uri):
            raise InputError(self.data_uri, "staging in an object store needs a lake that Python reaches too")
        with table_folder(self.data_uri, PLAN_FOLDER).open_output_stream(f"{number:08d}.jsonl") as sink:
            for cluster_number, text in planned:
                sink.write(json.dumps({"cluster_number": cluster_number, "cluster_plan": text}).encode() + b"\n")
        options = {"planFile": f"{self.data_uri}/{PLAN_FOLDER}/{number:08d}.jsonl"}
        known_uri = f"{self.data_uri}/{KNOWN_FOLDER}/{number:08d}"
        self._rows(BATCHES.name).createOrReplaceTempView(BATCHES.name)
        plans = [plan_from_json(text) for _, text in planned]
        wanted = [plan.key for plan in plans if plan.decoded_to]
        known = self.spark.sql(known_batches_sql(number, "true")).drop("place")
        known.where(known.cluster_id.isin(wanted)).write.mode("overwrite").parquet(known_uri)
        return {**options, "known": known_uri}

    def _state(self, table: str) -> DeltaLogState:
        """What the table's log says now. Raises InputError where there is no table."""
        state = self._logs.state(self.table_uri(table))
        if state is None:
            raise InputError(self.table_uri(table), "no Delta table")
        return state

    def _rows(self, table: str) -> DataFrame:
        """The table as of now. Raises InputError if its log names a file outside its folder."""
        frame = self.spark.read.format("delta").load(self.table_uri(table))
        outside = first_not_below(self._state(table).root, frame.inputFiles())
        if outside is not None:
            raise foreign_file(self.table_uri(table), outside)
        return frame

    def _append(self, table: str, frame: DataFrame, application: str, version: int) -> bool:
        for _ in range(COMMIT_ATTEMPTS):
            if self.versions(table, [application])[0] >= version:
                return False
            self.hold()
            writer = frame.write.format("delta").mode("append")
            try:
                writer.option("txnAppId", application).option("txnVersion", version).save(self.table_uri(table))
            except spark_errors() as problem:
                if not is_conflict(problem):
                    raise
                continue  # perhaps the same transaction by another run: the next attempt checks
            return True
        raise InputError(self.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")


class SparkMaintainer:
    """By delta-spark: OPTIMIZE, liquid clustering, VACUUM."""

    def __init__(self, lake: SparkLake, target_file_bytes: int) -> None:
        self.lake = lake
        self.target_file_bytes = target_file_bytes
        spark = lake.spark
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(target_file_bytes))
        spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(target_file_bytes // 2))
        # The retention is checked by the settings, which allow no less than a day.
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")

    def _path(self, table: str) -> str:
        return "delta.`" + self.lake.table_uri(table).replace("`", "``") + "`"

    def size(self, table: str) -> tuple[int, int, int]:
        detail = self.lake.spark.sql(f"DESCRIBE DETAIL {self._path(table)}").collect()[0]
        files, size_bytes = int(detail["numFiles"]), int(detail["sizeInBytes"])
        # Each file's own size would cost a scan of the log: OPTIMIZE picks the small ones itself.
        return files, size_bytes, files if 2 * size_bytes < files * self.target_file_bytes else 0

    def rows(self, table: str, condition: str) -> int:
        return int(self.lake.spark.sql(f"SELECT count(*) FROM {self._path(table)} WHERE {condition}").collect()[0][0])  # noqa: S608

    def forget(self, table: str, condition: str) -> None:
        self.lake.hold()
        self.lake.spark.sql(f"DELETE FROM {self._path(table)} WHERE {condition}")  # noqa: S608

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        self.lake.hold()
        spark, path = self.lake.spark, self._path(table)
        how = "compacted"
        if columns:
            detail = spark.sql(f"DESCRIBE DETAIL {path}").collect()[0]
            if list(detail["clusteringColumns"]) != list(columns):
                spark.sql(f"ALTER TABLE {path} CLUSTER BY ({', '.join(f'`{column}`' for column in columns)})")
            how = f"liquid clustering by {', '.join(columns)}"
        spark.sql(f"OPTIMIZE {path}")
        return how

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        sql = f"VACUUM {self._path(table)} RETAIN {hours} HOURS"
        count = int(self.lake.spark.sql(f"{sql} DRY RUN").count())
        if count and not dry_run:
            self.lake.hold()
            self.lake.spark.sql(sql)
        return count


def open_maintainer(
    uri: str, settings: MaintainSettings, spark_conf: Path | None = None, staging: str | None = None
) -> tuple[SparkLake, SparkMaintainer]:
    """A lake that Spark commits to, and its maintainer: starts a Spark session. `staging` holds the lake's lease."""
    from kraft_audit.spark.session import spark_session

    lake = SparkLake(uri, staging or uri, lambda: spark_session("kraft-audit lake maintain", conf_file=spark_conf))
    return lake, SparkMaintainer(lake, settings.target_file_bytes)
