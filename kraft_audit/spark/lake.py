"""The Delta tables of one lake, read and committed by the Delta project's own `deltalake`: no JVM, milliseconds each.

Data files are written by whoever has the rows and become visible only by `Lake.commit`, which carries an application
transaction: its version is the number of the plan, so that a table takes the files of a plan once, whoever comes first.
Tables stay plain (no deletion vectors, no column mapping): any reader opens them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kraft_audit.settings import is_uri
from kraft_audit.spark.data_files import DataFile, write_rows
from kraft_codec.errors import InputError

# Others append at the same time and each round re-reads the log: a few rounds are plenty, a thousand mean a fault.
COMMIT_ATTEMPTS: Final = 20
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.checkpointInterval": "50",
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
}


class Lake:
    """A folder of Delta tables, local or in an object store.

    Credentials come from the usual places of the store (environment, instance profile), never from settings.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    @property
    def is_local(self) -> bool:
        return not is_uri(self.uri)

    def table_uri(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def open(self, table: str) -> DeltaTable | None:
        """The table as of now, or None where it was not created yet."""
        try:
            return DeltaTable(self.table_uri(table))
        except TableNotFoundError:
            return None
        except DeltaError as problem:
            raise InputError(self.table_uri(table), f"not readable as a Delta table: {problem}") from None

    def create(self, table: str, schema: pa.Schema, description: str) -> None:
        """Create the table where it is absent; two creators at once are no error."""
        if self.open(table) is not None:
            return
        if self.is_local:
            Path(self.table_uri(table)).mkdir(parents=True, exist_ok=True)
        # Another run may create it at this moment: it is there afterwards, or the next call says why not.
        with contextlib.suppress(CommitFailedError):
            DeltaTable.create(
                self.table_uri(table),
                schema,
                mode="ignore",
                name=table,
                description=description,
                configuration=dict(TABLE_PROPERTIES),
            )

    def done(self, table: str, application: str, version: int) -> bool:
        """Whether the table already carries that application transaction, or a later one."""
        found = self.open(table)
        return found is not None and (found.transaction_version(application) or 0) >= version

    def commit(self, files: Sequence[DataFile], table: str, schema: pa.Schema, application: str, version: int) -> bool:
        """Add `files` to the table in one transaction. False where an earlier commit already brought `version`.

        No files still make a transaction, so that a later run sees that this table is done.
        """
        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(file.path, file.size_bytes, {}, now_ms, True, file.statistics) for file in files]
        properties = CommitProperties(app_transactions=[Transaction(application, version, now_ms)])
        for attempt in range(COMMIT_ATTEMPTS):
            found = DeltaTable(self.table_uri(table))
            if (found.transaction_version(application) or 0) >= version:
                return False
            try:
                found.create_write_transaction(actions, "append", schema, commit_properties=properties)
            except CommitFailedError:
                # The same transaction by another run, as the next look at the table tells, or many at once.
                time.sleep(min(0.05 * 2**attempt, 2.0))
            else:
                return True
        raise InputError(self.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        """Write `rows` as one data file and commit it; False, and nothing added, where `version` is already there."""
        if self.done(table, application, version):
            return False
        file = write_rows(self.uri, table, rows, f"ledger-{version:08d}")
        return self.commit([file], table, rows.schema, application, version)

    def query(self, sql: str, **tables: DeltaTable) -> pa.Table:
        """SQL over open tables, by name; text columns come as plain strings."""
        builder = QueryBuilder()
        for name, table in tables.items():
            builder.register(name, table)
        result = pa.table(builder.execute(sql).read_all())
        plain = [field.with_type(_PLAIN[field.type]) if field.type in _PLAIN else field for field in result.schema]
        return result.cast(pa.schema(plain))


_PLAIN: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.large_string(): pa.string()}


def sql_text(value: str) -> str:
    """A SQL literal of a text that others chose."""
    return "'" + value.replace("'", "''") + "'"
