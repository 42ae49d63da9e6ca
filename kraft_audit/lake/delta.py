"""The Delta tables of one lake, read and committed by the Delta project's own `deltalake`: no JVM, milliseconds each.

Data files are written by the tasks that have the rows. They become visible only by `Lake.commit`, which carries an
application transaction. Its version is the number of the plan, so that a table takes the files of a plan once, however
many runs try. Tables stay plain (no deletion vectors, no column mapping), so that any reader opens them.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, get_args

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kraft_audit.lake.data_files import DataFile, write_rows
from kraft_audit.lake.lake_paths import ambiguous_part, first_outside, foreign_file, is_uri
from kraft_audit.lake.settings import Committer
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import PLANS
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import other_host

# Other runs append at the same time, and each attempt re-reads the log: a few attempts are plenty, more mean a fault.
COMMIT_ATTEMPTS: Final = 20
_OF_READING: Final = (OSError, DeltaError, pa.ArrowException)
NO_FILES: Final[list[tuple[str, str, list[str]]]] = [("plan", "in", [])]
"""A filter that no file meets, whatever its statistics say: no plan is one of none."""
NO_PROPERTIES: Final[Mapping[str, str]] = {}
NO_VERSIONS: Final[Mapping[str, int]] = {}
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.checkpointInterval": "50",
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
}


COMMITTED_BY: Final = "kraft-audit/committer/{}"
"""The application whose version in `plans` is 1 where the lake is committed to in this way."""


class Lake(Protocol):
    """What the pipeline needs of a lake. `uri` is its folder, `data_uri` the one that workers write data files into.

    `committer` is what commits to it here: a lake takes one kind alone (`require_committer`).
    """

    uri: str
    data_uri: str
    committer: Committer

    def hold(self) -> None:
        """Before each change: make sure that no other driver changes a lake whose drivers take turns.

        Raises InputError where another one has it.
        """

    def close(self) -> None:
        """Let the next driver in."""

    def exists(self, table: str) -> bool: ...

    def table_uri(self, table: str) -> str:
        """The address of the table's folder."""

    def create(
        self,
        table: str,
        schema: pa.Schema,
        description: str,
        properties: Mapping[str, str] = NO_PROPERTIES,
        initial_versions: Mapping[str, int] = NO_VERSIONS,
    ) -> None:
        """Create the table if it is missing, with these properties and TABLE_PROPERTIES; two creators are no error.

        `initial_versions` are versions of applications, as `versions` returns them.
        """

    def widen(self, table: str, schema: pa.Schema) -> None:
        """Give a table the columns that its schema has got since, and allow null where the schema does.

        Its rows stay as they are.
        """

    def table_id(self, table: str) -> str:
        """The id that the table got when it was created, which stays when the lake is moved."""

    def versions(self, table: str, applications: Sequence[str]) -> list[int]:
        """The newest version of each application that committed to the table, 0 for none. Reads no data."""

    def query(self, sql: str, *tables: str) -> pa.Table:
        """SQL over tables of the lake, each under its own name."""

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        """Add a few rows in one transaction. False, and nothing added, where `version` is already there."""

    def commit(self, table: str, files: Sequence[DataFile], schema: pa.Schema, application: str, version: int) -> bool:
        """Add data files in one transaction. False, and nothing added, where `version` is already there."""

    def share_plan(self, number: int, planned: Sequence[tuple[int, str]]) -> dict[str, str]:
        """Options by which workers that cannot read the lake find the plan, and the batches of earlier plans."""


def append_in_turn(
    lake: Lake, table: str, application: str, schema: pa.Schema, rows_now: Callable[[], Sequence[Mapping[str, Any]]]
) -> int:
    """Append the rows that follow from what the table holds now; returns how many, 0 where there is nothing to add.

    The version is read before the rows are made: where another run appends in between, they are made again. Raises
    InputError where others keep appending.
    """
    for _ in range(COMMIT_ATTEMPTS):
        (version,) = lake.versions(table, [application])
        rows = rows_now()
        if not rows or lake.append_rows(table, pa.Table.from_pylist(list(rows), schema), application, version + 1):
            return len(rows)
    raise InputError(lake.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")


def require_lake(lake: Lake) -> None:
    """Raises InputError if there is no lake; its text says whether there is a folder at all."""
    if lake.exists(PLANS.name):
        return
    if not is_uri(lake.uri) and not Path(lake.uri).is_dir():
        raise InputError(lake.uri, "no such folder")
    raise InputError(lake.uri, "no lake: it has no table `plans`")


def require_committer(lake: Lake) -> None:
    """Raises InputError if another kind of committer made the lake.

    Two kinds do not see each other everywhere: Spark's log store for S3 overwrites a commit that deltalake put there.
    """
    for kind in get_args(Committer):
        if kind != lake.committer and any(lake.versions(PLANS.name, [COMMITTED_BY.format(kind)])):
            why = f"its committer is {kind}, and a second kind could overwrite its commits: `committer: {kind}` in"
            raise InputError(lake.uri, f"{why} fleet.yaml, `--committer {kind}` on the command line")


class DeltaLake:
    """A lake that Python reaches: a local folder or an object store, with credentials from the store's usual places."""

    committer: Committer = "deltalake"

    def __init__(self, uri: str) -> None:
        if uri.lower().startswith("gcs://"):
            raise InputError(uri, "a lake in Google Cloud Storage is addressed as gs://…")
        if (host := other_host(uri)) is not None:
            raise InputError(uri, f"a lake on another host, {host}")
        if not is_uri(uri) and (part := ambiguous_part(uri)) is not None:
            why = f"Delta's reader takes {part} in a path for something else, and would read another folder"
            raise InputError(uri, f"no path for a lake: {why}")
        self.uri = uri.rstrip("/")
        self.data_uri = self.uri
        self._known: dict[str, DeltaTable] = {}
        self._checked: dict[str, int] = {}

    def hold(self) -> None:
        """Nothing to do: each commit is put if absent, so that drivers need no turns."""

    def close(self) -> None:
        """Nothing is held."""

    def table_uri(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def open(self, table: str) -> DeltaTable:
        """The table as of now. Raises InputError if it is missing, or if its log names a file outside its folder."""
        try:
            with self._opening(table):
                opened = DeltaTable(self.table_uri(table))
        except TableNotFoundError:
            raise InputError(self.table_uri(table), "no Delta table") from None
        return self._own(table, opened)

    def exists(self, table: str) -> bool:
        """Whether there is a Delta log. Its contents are not read, which would take fifty times as long."""
        with self._opening(table):
            is_there: bool = DeltaTable.is_deltatable(self.table_uri(table))
        return is_there

    def create(
        self,
        table: str,
        schema: pa.Schema,
        description: str,
        properties: Mapping[str, str] = NO_PROPERTIES,
        initial_versions: Mapping[str, int] = NO_VERSIONS,
    ) -> None:
        if self.exists(table):
            return
        transactions = [Transaction(application, version) for application, version in initial_versions.items()]
        if not is_uri(self.uri):
            with self._writing(table):
                Path(self.table_uri(table)).mkdir(parents=True, exist_ok=True)
        # Another run may create it at this moment. Then it is there afterwards, or the next call says why not.
        with self._writing(table), contextlib.suppress(CommitFailedError):
            DeltaTable.create(
                self.table_uri(table),
                schema,
                mode="ignore",
                name=table,
                description=description,
                configuration={**TABLE_PROPERTIES, **properties},
                commit_properties=CommitProperties(app_transactions=transactions),
            )

    def widen(self, table: str, schema: pa.Schema) -> None:
        for attempt in range(COMMIT_ATTEMPTS):
            delta_table = self.latest(table)
            is_nullable = {field.name: field.nullable for field in delta_table.schema().fields}
            if all(is_nullable.get(field.name, False) >= field.nullable for field in schema):
                return
            try:
                with self._writing(table):
                    # Replaces the schema, and of the files those of the filter: none.
                    delta_table.create_write_transaction([], "overwrite", schema, partition_filters=NO_FILES)
            except CommitFailedError:
                time.sleep(min(0.05 * 2**attempt, 2.0))
        raise InputError(self.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to add columns met other commits")

    def table_id(self, table: str) -> str:
        delta_table = self.latest(table)
        with self.reading(table):
            return str(delta_table.metadata().id)

    def versions(self, table: str, applications: Sequence[str]) -> list[int]:
        delta_table = self.latest(table)
        with self.reading(table):
            return [delta_table.transaction_version(application) or 0 for application in applications]

    def file_sizes(self, table: str) -> list[int]:
        """Bytes of each of the table's files."""
        delta_table = self.latest(table)
        with self.reading(table):
            sizes: list[int] = delta_table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
        return sizes

    def query(self, sql: str, *tables: str) -> pa.Table:
        return self.queries(*tables)(sql)

    def queries(self, *tables: str) -> Callable[[str], pa.Table]:
        """A function that queries the tables as they are now; they are opened once for all queries."""
        return self.queries_of({table: self.latest(table) for table in tables})

    def queries_of(self, opened: Mapping[str, DeltaTable]) -> Callable[[str], pa.Table]:
        """A function that queries these tables, each under its name and at the version at which it was opened.

        Columns that a table lacks are null.
        """
        builder = QueryBuilder()
        for name, table in opened.items():
            with self.reading(name):
                _register(builder, name, table)
        only = next(iter(opened)) if len(opened) == 1 else ""

        def query(sql: str) -> pa.Table:
            with self.reading(only):
                return plain_table(pa.table(builder.execute(sql).read_all()))

        return query

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        if self._is_done(self.latest(table), table, application, version):
            return False
        with self._writing(table):
            file = write_rows(self.data_uri, table, rows, f"ledger-{version:08d}")
        return self.commit(table, [file], rows.schema, application, version)

    def commit(self, table: str, files: Sequence[DataFile], schema: pa.Schema, application: str, version: int) -> bool:
        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(file.path, file.size_bytes, {}, now_ms, True, file.statistics) for file in files]
        properties = CommitProperties(app_transactions=[Transaction(application, version, now_ms)])
        for attempt in range(COMMIT_ATTEMPTS):
            delta_table = self.latest(table)
            if self._is_done(delta_table, table, application, version):
                return False
            try:
                with self._writing(table):
                    delta_table.create_write_transaction(actions, "append", schema, commit_properties=properties)
            except CommitFailedError:
                # Another run's commit: of the same transaction, as the next attempt will see, or of another one.
                time.sleep(min(0.05 * 2**attempt, 2.0))
            else:
                return True
        raise InputError(self.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def share_plan(self, number: int, planned: Sequence[tuple[int, str]]) -> dict[str, str]:
        return {}

    def latest(self, table: str) -> DeltaTable:
        """The table as of now, for one use: of a table that was opened before only newer versions are read."""
        known = self._known.get(table)
        if known is not None:
            # If it cannot be updated, opening it again says why.
            with contextlib.suppress(OSError, DeltaError):
                known.update_incremental()
                return self._own(table, known)
        self._known[table] = opened = self.open(table)
        return opened

    def _own(self, table: str, opened: DeltaTable) -> DeltaTable:
        """The table, after a check that its files lie in its own folder: once per version."""
        version = opened.version()
        if self._checked.get(table) != version:
            with self.reading(table):
                outside = first_outside(opened.get_add_actions().column("path").to_pylist())
            if outside is not None:
                raise foreign_file(self.table_uri(table), outside)
            self._checked[table] = version
        return opened

    @contextlib.contextmanager
    def _opening(self, table: str) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError:
            raise
        except (OSError, DeltaError) as problem:
            if (torn := self._torn_commit(table)) is not None:
                why = (
                    "not the whole of a commit, as a power cut leaves it: move it away, and the next run commits again"
                )
                raise InputError(torn, why) from None
            raise InputError(self.table_uri(table), f"not readable as a Delta table: {error_line(problem)}") from None

    def _torn_commit(self, table: str) -> str | None:
        """The newest commit of a local table, where it is no JSON: the Delta reader does not say which file is not."""
        if is_uri(self.uri):
            return None
        newest: Path | None = None
        try:
            newest = max(Path(self.table_uri(table), "_delta_log").glob("*.json"), default=None)
            for line in newest.read_bytes().splitlines() if newest else ():
                json.loads(line)
        except ValueError:
            return str(newest)
        except OSError:
            pass  # the reader's own error says so
        return None

    @contextlib.contextmanager
    def _writing(self, table: str) -> Iterator[None]:
        """A full disk or a missing permission becomes one line about the lake."""
        try:
            yield
        except CommitFailedError:
            raise  # another commit came first, which is no error
        except (OSError, DeltaError, pa.ArrowException) as problem:
            raise InputError(self.table_uri(table), f"cannot be written: {error_line(problem)}") from problem

    @contextlib.contextmanager
    def reading(self, table: str) -> Iterator[None]:
        """A failing disk or a lost store becomes one line about the table, or about the lake if `table` is empty."""
        try:
            yield
        except Exception as problem:
            # Where a data file cannot be opened while rows stream, a bare `Exception` is raised.
            if not isinstance(problem, _OF_READING) and type(problem) is not Exception:
                raise
            where = self.table_uri(table) if table else self.uri
            raise InputError(where, f"cannot be read: {error_line(problem)}") from problem

    def _is_done(self, delta_table: DeltaTable, table: str, application: str, version: int) -> bool:
        with self.reading(table):
            return (delta_table.transaction_version(application) or 0) >= version


_TERMINAL: Final = re.compile("\x1b\\[[0-9;]*m|[\x00-\x1f\x7f]+")


def error_line(problem: Exception) -> str:
    """A library's error text on one line, without colours and its own stack frames."""
    return " ".join(_TERMINAL.sub(" ", str(problem).partition("   0: ")[0]).split())[:500]


_PLAIN: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.large_string(): pa.string()}


def _register(builder: QueryBuilder, name: str, table: DeltaTable) -> None:
    """Names a table for queries; where it lacks columns of its contract, a view that has them."""
    written = {field.name for field in table.schema().fields}
    contract = LAKE_TABLES[name].column_names if name in LAKE_TABLES else ()
    missing = [f"NULL AS {column}" for column in contract if column not in written]
    builder.register(f"{name}_written" if missing else name, table)
    if missing:
        columns = ", ".join(["*", *missing])
        builder.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {name}_written")  # noqa: S608  # names of our own


def plain_table(table: pa.Table) -> pa.Table:
    """The table without view types: DataFusion returns texts as views, which neither Arrow's sort nor a merge takes."""
    return table.cast(pa.schema([field.with_type(_plain(field.type)) for field in table.schema]))


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_list_view(type_):
        return pa.list_(type_.value_field.with_type(_plain(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_plain(field.type)) for field in type_])
    return _PLAIN.get(type_, type_)


def sql_text(value: str) -> str:
    """A text from outside as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"
