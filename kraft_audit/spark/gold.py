"""What every gold table needs of Spark: its creation, its place, and a MERGE that happens once."""

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

from kraft_audit.spark.gold_tables import CHANGE_FEED
from kraft_audit.spark.lake import COMMIT_ATTEMPTS, DeltaLake, Lake, one_line
from kraft_audit.spark.ledger import Ledger, contract_schema
from kraft_audit.spark.source import spark_schema
from kraft_audit.spark.spark_stage import reason
from kraft_audit.spark.views import TableReference, path_tables
from kraft_codec.contract import Table
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

APPLICATION_CONF: Final = "spark.databricks.delta.write.txnAppId"
VERSION_CONF: Final = "spark.databricks.delta.write.txnVersion"


SMALL_ROWS: Final = 100_000
"""So many rows of findings fit into the driver with room to spare; more are left to Spark."""


class Action(enum.Enum):
    """What a clause of a merge does with a row."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Clause:
    """UPDATE or DELETE of a matched row, or INSERT of one that is not: column → expression over `known` and `found`."""

    action: Action
    values: Mapping[str, str]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge, for whichever engine does it: rows, or the query over `tables` that gives them.

    `{nobody}` in an expression is NULL of the type `nobody`, which SQL cannot tell a struct's NULL by.
    """

    same_row: str
    clauses: tuple[Clause, ...]
    changes: Callable[[TableReference], str] | None = None
    tables: tuple[str, ...] = ()
    row_count: int = 0
    rows: pa.Table | None = None
    nobody: pa.DataType | None = None


class GoldLake:
    """The gold tables of one lake. The session is asked for only where there is something to do."""

    def __init__(self, lake: Lake, session: Callable[[], SparkSession]) -> None:
        self.lake = lake
        self.ledger = Ledger(lake)
        self._session = session
        self._own: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """A session of our own: its settings and temporary views meet nobody else's."""
        if self._own is None:
            self._own = self._session().newSession()
        return self._own

    def merged_plan(self, table: str) -> int:
        """The newest plan that the table has taken, 0 where there is none."""
        if not self.lake.exists(table):
            return 0
        return self.lake.versions(table, [self.ledger.application(table)])[0]

    def create(self, table: Table) -> None:
        """Create the table where it is absent; two creators at once are no error."""
        properties = {"delta.enableChangeDataFeed": "true"} if table.name in CHANGE_FEED else {}
        described = f"{table.grain}. {table.comment}"
        self.lake.create(table.name, contract_schema(table), described, properties)

    @property
    def spark_uri(self) -> str:
        """The lake as the JVM's file systems call it: S3 goes by s3a there, whose jar the profile brings."""
        scheme, separator, rest = self.lake.uri.partition("://")
        return f"s3a://{rest}" if separator and scheme.lower() == "s3" else self.lake.uri

    def place(self, table: str) -> str:
        """The table as SQL names it."""
        return path_tables(self.spark_uri)(table)

    def merge(self, table: str, merge: Merge, version: int | None = None) -> bool:
        """Merge once, under the application transaction `version` where one is given.

        False where the table already had that version. A commit that another run's got before is tried again. Where
        Python reaches the lake and the rows are few, `deltalake` does it in a tenth of a second; else delta-spark.
        """
        lake = self.lake
        if not isinstance(lake, DeltaLake) or merge.row_count > SMALL_ROWS:
            return self._merge_by_spark(table, self._merge_text(table, merge), version)
        application = self.ledger.application(table)
        transactions = [] if version is None else [Transaction(application, version)]
        for attempt in range(COMMIT_ATTEMPTS):
            # The look and the merge are of one version of the table: whoever commits between them wins.
            known = lake.open(table)
            try:
                if version is not None and (known.transaction_version(application) or 0) >= version:
                    return False
                self._merge_small(known, merge, transactions)
            except CommitFailedError:
                time.sleep(min(0.05 * 2**attempt, 2.0))  # perhaps the same transaction by another run
            except (OSError, DeltaError, pa.ArrowException) as problem:
                # A full or failing disk comes as any of the three.
                raise InputError(lake.table_uri(table), f"cannot be merged into: {one_line(problem)}") from problem
            else:
                return True
        raise InputError(lake.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def _merge_small(self, known: DeltaTable, merge: Merge, transactions: list[Transaction]) -> None:
        rows = merge.rows
        if rows is None:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            rows = self.lake.query(merge.changes(lambda name: name), *merge.tables)
        if merge.nobody is not None:
            rows = rows.append_column("nobody", pa.nulls(rows.num_rows, merge.nobody))
        merger = known.merge(
            rows,
            merge.same_row,
            source_alias="found",
            target_alias="known",
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        for clause in merge.clauses:
            values = {name: text.format(nobody="found.nobody") for name, text in clause.values.items()}
            if clause.action is Action.DELETE:
                merger = merger.when_matched_delete(clause.condition)
            elif clause.action is Action.UPDATE:
                merger = merger.when_matched_update(values, clause.condition)
            else:
                merger = merger.when_not_matched_insert(values, clause.condition)
        before = known.version()
        merger.execute()
        if transactions and known.version() == before:
            # Nothing to change is nothing to commit, but that the plan was merged has to be known.
            properties = CommitProperties(app_transactions=transactions)
            known.create_write_transaction([], "append", known.schema(), commit_properties=properties)

    def _merge_text(self, table: str, merge: Merge) -> str:
        """The merge as Spark's SQL says it."""
        if merge.rows is not None:
            schema = spark_schema(merge.rows.schema)
            self.spark.createDataFrame(merge.rows, schema=schema).createOrReplaceTempView("merged_rows")
            source = "TABLE merged_rows"
        else:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            source = merge.changes(self.place)
        text = [f"MERGE INTO {self.place(table)} AS known", f"USING ({source}) AS found", f"ON {merge.same_row}"]
        for clause in merge.clauses:
            values = {name: value.format(nobody="NULL") for name, value in clause.values.items()}
            condition = f" AND {clause.condition}" if clause.condition else ""
            if clause.action is Action.DELETE:
                text.append(f"WHEN MATCHED{condition} THEN DELETE")
            elif clause.action is Action.UPDATE:
                updates = ", ".join(f"{name} = {value}" for name, value in values.items())
                text.append(f"WHEN MATCHED{condition} THEN UPDATE SET {updates}")
            else:
                columns, inserted = ", ".join(values), ", ".join(values.values())
                text.append(f"WHEN NOT MATCHED{condition} THEN INSERT ({columns}) VALUES ({inserted})")  # noqa: S608
        return "\n".join(text)

    def _merge_by_spark(self, table: str, sql: str, version: int | None = None) -> bool:
        """Merge once by a MERGE of Spark's, as `merge` does."""
        from delta.exceptions import DeltaConcurrentModificationException

        for _ in range(COMMIT_ATTEMPTS):
            if version is not None and self.merged_plan(table) >= version:
                return False
            try:
                with self._transaction(table, version):
                    self.spark.sql(sql)
            except DeltaConcurrentModificationException:
                continue  # perhaps the same transaction by another run, as the next look tells
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


@contextmanager
def told_in_one_line(lake: Lake, step: str) -> Iterator[None]:
    """What Spark raises in a gold step as an InputError that names the lake: the next run does the step again."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise InputError(lake.uri, f"step {step} failed, the next run repeats it: {reason(str(problem))}") from problem
