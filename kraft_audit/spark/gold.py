"""What every gold table needs of Spark: its creation, its place, and a MERGE that happens once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kraft_audit.spark.gold_tables import CHANGE_FEED
from kraft_audit.spark.lake import COMMIT_ATTEMPTS, TABLE_PROPERTIES, Lake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.source import spark_schema
from kraft_audit.spark.spark_stage import reason
from kraft_audit.spark.views import path_tables
from kraft_codec.errors import InputError
from kraft_codec.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION_CONF: Final = "spark.databricks.delta.write.txnAppId"
VERSION_CONF: Final = "spark.databricks.delta.write.txnVersion"


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
        if self.lake.exists(table.name):
            return
        from delta import DeltaTable
        from delta.exceptions import DeltaConcurrentModificationException

        builder = DeltaTable.createIfNotExists(self.spark).location(f"{self.spark_uri}/{table.name}")
        builder = builder.comment(f"{table.grain}. {table.comment}")
        for field, column in zip(spark_schema(table.schema).fields, table.columns, strict=True):
            builder = builder.addColumn(field.name, _nullable_inside(field), field.nullable, comment=column.comment)
        properties = dict(TABLE_PROPERTIES)
        if table.name in CHANGE_FEED:
            properties["delta.enableChangeDataFeed"] = "true"
        for name, value in properties.items():
            builder = builder.property(name, value)
        try:
            builder.execute()
        except DeltaConcurrentModificationException:
            if not self.lake.exists(table.name):
                raise

    @property
    def spark_uri(self) -> str:
        """The lake as the JVM's file systems call it: S3 goes by s3a there, whose jar the profile brings."""
        scheme, separator, rest = self.lake.uri.partition("://")
        return f"s3a://{rest}" if separator and scheme.lower() == "s3" else self.lake.uri

    def place(self, table: str) -> str:
        """The table as SQL names it."""
        return path_tables(self.spark_uri)(table)

    def merge(self, table: str, sql: str, version: int | None = None) -> bool:
        """Run one MERGE, under the application transaction `version` where one is given.

        False where the table already had that version. A commit that another run's got before is tried again.
        """
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


def _nullable_inside(field: object) -> object:
    """Delta refuses NOT NULL inside lists."""
    from pyspark.sql.types import ArrayType, DataType, StructField, StructType

    def plain(type_: DataType) -> DataType:
        if isinstance(type_, ArrayType):
            return ArrayType(plain(type_.elementType), True)
        if isinstance(type_, StructType):
            return StructType([StructField(one.name, plain(one.dataType), True) for one in type_.fields])
        return type_

    return plain(field.dataType)  # type: ignore[attr-defined]  # a StructField
