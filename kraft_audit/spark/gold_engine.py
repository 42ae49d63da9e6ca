"""Gold by Spark: its queries over views of the lake's tables, and merges of any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kraft_audit.lake.gold import gold_merge
from kraft_audit.lake.gold.gold_query import GoldQuery
from kraft_audit.lake.lake import COMMIT_ATTEMPTS, Lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.merges import EngineWords, Merge, MergeAction, Once
from kraft_audit.lake.views import path_tables
from kraft_audit.spark.readers import spark_schema
from kraft_audit.spark.session import is_conflict, is_connect, own_session, spark_error_line, spark_errors
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION_CONF: Final = "spark.databricks.delta.write.txnAppId"
VERSION_CONF: Final = "spark.databricks.delta.write.txnVersion"
SPARK_WORDS: Final[EngineWords] = {
    "explode": "explode",
    "sequence": "sequence",
    "array": "array",
    # Thousands of topic ids begin alike, and Spark's sort compares what they begin with first.
    "by_hash": "xxhash64(cluster_id, topic_id, partition), ",
}


class SparkGold:
    """Spark as the engine of one lake's gold.

    If Python reaches the lake, Spark is given the rows of small tables: opening a Delta table of a hundred rows takes
    the JVM longer than computing with them.
    """

    def __init__(self, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self._lake = lake
        self._session = session
        self._own: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """A session of our own, so that settings and temporary views do not mix with those of the caller."""
        if self._own is None:
            self._own = own_session(self._session())
        return self._own

    @property
    def large_merges(self) -> SparkGold | None:
        """Spark's MERGE; none where deltalake commits to an object store, whose commits Spark's could overwrite.

        Nor on Spark Connect, whose server may not have Delta at all.
        """
        has_others = self._lake.small_merges is not None
        return None if has_others and (is_uri(self._lake.uri) or is_connect(self.spark)) else self

    def rows(self, query: GoldQuery, shape: str) -> pa.Table:
        for name, rows in query.values.items():
            self._view_of_rows(name, rows)
        for name, each in query.lake.items():
            if self._are_small(each.tables):
                columns = ", ".join(f'"{column}"' for column in each.columns)
                sql = f"SELECT {columns} FROM ({each.select(str)}) AS every WHERE {query.where}"  # noqa: S608
                self._view_of_rows(name, self._lake.query(sql, *each.tables))
            else:
                self._view(name, each.select(self.place))
        frame = self.spark.sql(self.computed(query, shape))
        return (frame if self.large_merges is None else frame.limit(gold_merge.SMALL_ROWS + 1)).toArrow()

    def computed(self, query: GoldQuery, shape: str) -> str:
        return shape.format(computed=query.text(SPARK_WORDS))

    def merge(self, table: str, merge: Merge, once: Once | None = None) -> bool:
        """Merge once by Spark's MERGE."""
        sql = self._merge_text(table, merge)
        for _ in range(COMMIT_ATTEMPTS):
            if once is not None and once.is_done():
                return False
            self._lake.hold()
            try:
                with self._transaction(once):
                    self.spark.sql(sql)
            except spark_errors() as problem:
                if not is_conflict(problem):
                    raise
                self._lake.read_again()
                continue  # perhaps the same transaction by another run: the next attempt checks
            self._lake.read_again()
            return True
        raise InputError(self._lake.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def place(self, table: str) -> str:
        """The table as SQL names it: by its address for the JVM's file systems, where S3 is s3a."""
        scheme, separator, rest = self._lake.uri.partition("://")
        uri = f"s3a://{rest}" if separator and scheme.lower() == "s3" else self._lake.uri
        return path_tables(uri)(table)

    def _are_small(self, tables: tuple[str, ...]) -> bool:
        lake = self._lake
        if lake.small_merges is None:
            return False
        counts = (lake.query(f"SELECT count(*) AS n FROM {name}", name) for name in tables)  # noqa: S608
        return all(int(count.column("n")[0].as_py()) <= gold_merge.SMALL_ROWS for count in counts)

    def _view_of_rows(self, name: str, rows: pa.Table) -> None:
        # PySpark cannot take an Arrow table without chunks, and a table without rows often has none.
        frame = rows if rows.num_rows else []
        self.spark.createDataFrame(frame, schema=spark_schema(rows.schema)).createOrReplaceTempView(name)

    def _view(self, name: str, sql: str) -> None:
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {sql}")

    def _merge_text(self, table: str, merge: Merge) -> str:
        """The merge as Spark SQL."""
        if merge.rows is not None:
            schema = spark_schema(merge.rows.schema)
            self.spark.createDataFrame(merge.rows, schema=schema).createOrReplaceTempView("merged_rows")
            source = "TABLE merged_rows"
        else:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            source = merge.changes(self.place, SPARK_WORDS)
        text = [f"MERGE INTO {self.place(table)} AS known", f"USING ({source}) AS found", f"ON {merge.same_row}"]
        for clause in merge.clauses:
            values = {name: value.format(no_waiver="NULL") for name, value in clause.values.items()}
            condition = f" AND {clause.condition}" if clause.condition else ""
            if clause.action is MergeAction.DELETE:
                text.append(f"WHEN MATCHED{condition} THEN DELETE")
            elif clause.action is MergeAction.UPDATE:
                updates = ", ".join(f"{name} = {value}" for name, value in values.items())
                text.append(f"WHEN MATCHED{condition} THEN UPDATE SET {updates}")
            else:
                columns, inserted = ", ".join(values), ", ".join(values.values())
                text.append(f"WHEN NOT MATCHED{condition} THEN INSERT ({columns}) VALUES ({inserted})")  # noqa: S608
        return "\n".join(text)

    @contextmanager
    def _transaction(self, once: Once | None) -> Iterator[None]:
        conf = self.spark.conf
        if once is None:
            yield
            return
        conf.set(APPLICATION_CONF, once.application)
        conf.set(VERSION_CONF, str(once.version))
        try:
            yield
        finally:
            conf.unset(APPLICATION_CONF)
            conf.unset(VERSION_CONF)


@contextmanager
def spark_errors_as_input_errors(lake: str, step: str) -> Iterator[None]:
    """Turn Spark's errors in a gold step into an InputError that names the lake: the next run repeats the step."""
    try:
        yield
    except spark_errors() as problem:
        why = spark_error_line(str(problem))
        raise InputError(lake, f"step {step} failed, the next run repeats it: {why}") from problem
