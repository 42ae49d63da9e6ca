"""What every gold table needs: its creation, its address in Spark, and a merge that happens once."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from kraft_audit.lake.delta import COMMIT_ATTEMPTS, DeltaLake, Lake, error_line
from kraft_audit.lake.ledger import Ledger, contract_schema
from kraft_audit.lake.views import TableReference, path_tables
from kraft_audit.spark.session import spark_error_line
from kraft_audit.spark.source import spark_schema
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import CHANGE_FEED
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

APPLICATION_CONF: Final = "spark.databricks.delta.write.txnAppId"
VERSION_CONF: Final = "spark.databricks.delta.write.txnVersion"


SMALL_ROWS: Final = 100_000
"""So many rows of findings easily fit into the driver's memory; more are merged by Spark."""


class MergeAction(enum.Enum):
    """What a clause of a merge does with a row."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """UPDATE or DELETE of a matched row, or INSERT of one that is not: column → expression over `known` and `found`."""

    action: MergeAction
    values: Mapping[str, str]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge, for either engine: rows, or the query over `tables` that gives them.

    `{no_waiver}` in an expression stands for NULL of `null_type`: DataFusion cannot infer the type of a struct's NULL.
    """

    same_row: str
    clauses: tuple[MergeClause, ...]
    changes: Callable[[TableReference], str] | None = None
    tables: tuple[str, ...] = ()
    row_count: int = 0
    rows: pa.Table | None = None
    null_type: pa.DataType | None = None


class GoldLake:
    """The gold tables of one lake. The session is requested only if there is something to do."""

    def __init__(self, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self.lake = lake
        self.ledger = Ledger(lake)
        self._session = session
        self._own: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """A session of our own, so that settings and temporary views do not mix with those of the caller."""
        if self._own is None:
            self._own = self._session().newSession()
        return self._own

    def merged_plan(self, table: str) -> int:
        """The newest plan that was merged into the table, 0 for none."""
        if not self.lake.exists(table):
            return 0
        return self.lake.versions(table, [self.ledger.application(table)])[0]

    def create(self, table: Table, merged_plan: int = 0) -> None:
        """Create the table if it is missing, as if plans up to one were merged; two creators at once are no error."""
        properties = {"delta.enableChangeDataFeed": "true"} if table.name in CHANGE_FEED else {}
        described = f"{table.grain}. {table.comment}"
        versions = {self.ledger.application(table.name): merged_plan} if merged_plan else {}
        self.lake.create(table.name, contract_schema(table), described, properties, versions)

    @property
    def spark_uri(self) -> str:
        """The lake's address for the JVM's file systems: S3 is s3a there, whose jar the Spark profile adds."""
        scheme, separator, rest = self.lake.uri.partition("://")
        return f"s3a://{rest}" if separator and scheme.lower() == "s3" else self.lake.uri

    def place(self, table: str) -> str:
        """The table as SQL names it."""
        return path_tables(self.spark_uri)(table)

    def merge(self, table: str, merge: Merge, version: int | None = None) -> bool:
        """Merge once, under the application transaction `version` if one is given.

        False if the table already had that version. A commit that loses against another run's is tried again. If Python
        reaches the lake and the rows are few, `deltalake` merges in a tenth of a second; else delta-spark does.
        """
        lake = self.lake
        if not isinstance(lake, DeltaLake) or merge.row_count > SMALL_ROWS:
            return self._merge_by_spark(table, self._merge_text(table, merge), version)
        application = self.ledger.application(table)
        transactions = [] if version is None else [Transaction(application, version)]
        for attempt in range(COMMIT_ATTEMPTS):
            # The check and the merge use one version of the table: if another run commits between them, it wins.
            known = lake.open(table)
            try:
                if version is not None and (known.transaction_version(application) or 0) >= version:
                    return False
                self._merge_small(known, merge, transactions)
            except CommitFailedError:
                time.sleep(min(0.05 * 2**attempt, 2.0))  # perhaps the same transaction by another run
            except (OSError, DeltaError, pa.ArrowException) as problem:
                # A full or failing disk comes as any of the three.
                raise InputError(lake.table_uri(table), f"cannot be merged into: {error_line(problem)}") from problem
            else:
                return True
        raise InputError(lake.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def _merge_small(self, known: DeltaTable, merge: Merge, transactions: list[Transaction]) -> None:
        rows = merge.rows
        if rows is None:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            rows = self.lake.query(merge.changes(lambda name: name), *merge.tables)
        if not rows.num_rows and transactions:
            _record(known, transactions)
            return
        if merge.null_type is not None:
            rows = rows.append_column("no_waiver", pa.nulls(rows.num_rows, merge.null_type))
        merger = known.merge(
            rows,
            merge.same_row,
            source_alias="found",
            target_alias="known",
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        for clause in merge.clauses:
            values = {name: text.format(no_waiver="found.no_waiver") for name, text in clause.values.items()}
            if clause.action is MergeAction.DELETE:
                merger = merger.when_matched_delete(clause.condition)
            elif clause.action is MergeAction.UPDATE:
                merger = merger.when_matched_update(values, clause.condition)
            else:
                merger = merger.when_not_matched_insert(values, clause.condition)
        before = known.version()
        merger.execute()
        if transactions and known.version() == before:
            # Without a change `deltalake` commits nothing.
            _record(known, transactions)

    def _merge_text(self, table: str, merge: Merge) -> str:
        """The merge as Spark SQL."""
        if merge.rows is not None:
            schema = spark_schema(merge.rows.schema)
            self.spark.createDataFrame(merge.rows, schema=schema).createOrReplaceTempView("merged_rows")
            source = "TABLE merged_rows"
        else:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            source = merge.changes(self.place)
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

    def _merge_by_spark(self, table: str, sql: str, version: int | None = None) -> bool:
        """Merge once by Spark's MERGE."""
        from delta.exceptions import DeltaConcurrentModificationException

        for _ in range(COMMIT_ATTEMPTS):
            if version is not None and self.merged_plan(table) >= version:
                return False
            try:
                with self._transaction(table, version):
                    self.spark.sql(sql)
            except DeltaConcurrentModificationException:
                continue  # perhaps the same transaction by another run: the next attempt checks
            return True
        raise InputError(self.lake.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    @contextmanager
    def _transaction(self, table: str, version: int | None) -> Iterator[None]:
        conf = self.spark.conf
        if version is None:
            yield
            return
        conf.set(APPLICATION_CONF, self.ledger.application(table))
        conf.set(VERSION_CONF, str(version))
        try:
            yield
        finally:
            conf.unset(APPLICATION_CONF)
            conf.unset(VERSION_CONF)


def _record(table: DeltaTable, transactions: list[Transaction]) -> None:
    """Record in a table that a plan was merged which changes nothing in it."""
    properties = CommitProperties(app_transactions=transactions)
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


@contextmanager
def spark_errors_as_input_errors(lake: Lake, step: str) -> Iterator[None]:
    """Turn Spark's errors in a gold step into an InputError that names the lake: the next run repeats the step."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as problem:
        why = spark_error_line(str(problem))
        raise InputError(lake.uri, f"step {step} failed, the next run repeats it: {why}") from problem
