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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kraft_audit.lake.data_files import DataFile, write_rows
from kraft_audit.lake.delta_merges import DeltaMerges
from kraft_audit.lake.joined_files import FilesChangedError, files_of_like_size, is_plain, join_files
from kraft_audit.lake.lake import COMMIT_ATTEMPTS, NO_PROPERTIES, NO_VERSIONS, TABLE_PROPERTIES
from kraft_audit.lake.lake_paths import ambiguous_part, first_outside, foreign_file, is_uri
from kraft_audit.lake.local_copy import LocalCopy
from kraft_audit.lake.settings import Committer
from kraft_audit.tables.bronze import PLANS
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import other_host

_OF_READING: Final = (OSError, DeltaError, pa.ArrowException)


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
        self._transactions: dict[str, _Transactions] = {}
        self._checked: dict[str, int] = {}
        self._plans_version = -1
        self._up_to_date: set[str] | None = None
        self._copies: dict[str, LocalCopy] | None = None

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

    @contextlib.contextmanager
    def reading_once(self) -> Iterator[None]:
        """Within it a table's log is read when the table is first asked for, and again after each commit to it.

        From an object store it fetches each data file of a small table once. Another run may commit meanwhile. A commit
        that rests on what has changed is refused, and then every table is read again. Every table is also read again
        once `plans` has a commit of another run: the rows of its plan are in tables that may have been read before.
        """
        if self._up_to_date is not None:
            yield
            return
        self._up_to_date = set()
        self._copies = {} if is_uri(self.uri) else None
        try:
            yield
        finally:
            self._up_to_date = self._copies = None

    def read_again(self) -> None:
        """Read every table again when it is next asked for: another run, or Spark, committed."""
        if self._up_to_date is not None:
            self._up_to_date.clear()

    def exists(self, table: str) -> bool:
        """Whether there is a Delta log. Its contents are not read, which would take fifty times as long."""
        if self._up_to_date is not None and table in self._known:
            return True
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
            with self.writing(table):
                Path(self.table_uri(table)).mkdir(parents=True, exist_ok=True)
        # Another run may create it at this moment. Then it is there afterwards, or the next call says why not.
        with self.writing(table), contextlib.suppress(CommitFailedError):
            DeltaTable.create(
                self.table_uri(table),
                schema,
                mode="ignore",
                name=table,
                description=description,
                configuration={**TABLE_PROPERTIES, **properties},
                commit_properties=CommitProperties(app_transactions=transactions),
            )

    def table_id(self, table: str) -> str:
        delta_table = self.latest(table)
        with self.reading(table):
            return str(delta_table.metadata().id)

    def versions(self, table: str, applications: Sequence[str]) -> list[int]:
        delta_table = self.latest(table)
        return [self._newest_version(delta_table, table, application) for application in applications]

    def file_sizes(self, table: str) -> list[int]:
        """Bytes of each of the table's files."""
        delta_table = self.latest(table)
        with self.reading(table):
            sizes: list[int] = delta_table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
        return sizes

    def query(self, sql: str, *tables: str) -> pa.Table:
        return self.queries(*tables)(sql)

    def query_as(self, sql: str, tables: Mapping[str, str]) -> pa.Table:
        return self.queries_of({name: self.latest(table) for name, table in tables.items()})(sql)

    def queries(self, *tables: str) -> Callable[[str], pa.Table]:
        """A function that queries the tables as they are now; they are opened once for all queries."""
        return self.queries_of({table: self.latest(table) for table in tables})

    def queries_of(self, opened: Mapping[str, DeltaTable]) -> Callable[[str], pa.Table]:
        """A function that queries these tables, each under its name and at the version at which it was opened."""
        builder, copies = QueryBuilder(), self._copies
        for name, table in opened.items():
            with self.reading(name):
                builder.register(name, table if copies is None else self._copied(table, copies))
        only = next(iter(opened)) if len(opened) == 1 else ""

        def query(sql: str) -> pa.Table:
            with self.reading(only), contextlib.nullcontext(copies):  # their files stay while they may be asked for
                return plain_table(pa.table(builder.execute(sql).read_all()))

        return query

    def _copied(self, table: DeltaTable, copies: dict[str, LocalCopy]) -> DeltaTable:
        name = table.table_uri.rstrip("/").rpartition("/")[2]
        if name not in copies:
            copies[name] = LocalCopy(self.uri, name)
        return copies[name].of(table)

    @property
    def small_merges(self) -> DeltaMerges:
        return DeltaMerges(self)

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        if self._newest_version(self.latest(table), table, application) >= version:
            return False
        with self.writing(table):
            file = write_rows(self.data_uri, table, rows, f"ledger-{version:08d}")
        return self.commit(table, [file], rows.schema, application, version)

    def commit(self, table: str, files: Sequence[DataFile], schema: pa.Schema, application: str, version: int) -> bool:
        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(file.path, file.size_bytes, {}, now_ms, True, file.statistics) for file in files]
        properties = CommitProperties(app_transactions=[Transaction(application, version, now_ms)])

        def add(opened: DeltaTable) -> None:
            with self.writing(table):
                opened.create_write_transaction(actions, "append", schema, commit_properties=properties)

        return self.commit_once(table, {application: version}, add)

    def commit_once(self, table: str, versions: Mapping[str, int], write: Callable[[DeltaTable], object]) -> bool:
        """Lets `write` commit to a table with these transactions; False where one of them is committed already.

        The check and the commit use one version of the table: if another run commits between them, it wins, and all is
        tried again on what it left. Its commit may be of the same transaction, as the next attempt then sees.
        """
        for attempt in range(COMMIT_ATTEMPTS):
            opened = self.latest(table)
            if any(self._newest_version(opened, table, name) >= version for name, version in versions.items()):
                return False
            before = opened.version()
            try:
                write(opened)
            except CommitFailedError:
                self.read_again()
                time.sleep(min(0.05 * 2**attempt, 2.0))
            else:
                if versions or opened.version() != before:  # a merge that changes nothing commits nothing
                    self._committed(table, before, versions)
                return True
        raise InputError(self.table_uri(table), f"{COMMIT_ATTEMPTS} attempts to commit met other commits")

    def join_small_files(self, table: str) -> None:
        opened = self.latest(table)
        with self.reading(table):
            joined = files_of_like_size(opened) if is_plain(opened) else []
        for files in joined:
            before = opened.version()
            try:
                with self.writing(table, "its small files could not be joined"):
                    join_files(opened, self.uri, table, files)
                self._committed(table, before, NO_VERSIONS)
            except FilesChangedError:
                return  # another run changed these files: it joins the rest
            finally:
                if self._up_to_date is not None:  # committed or not, `opened` may be newer than what was looked at
                    self._up_to_date.discard(table)
            opened = self.latest(table)

    def share_plan(self, number: int, planned: Sequence[tuple[int, str]]) -> dict[str, str]:
        return {}

    def latest(self, table: str) -> DeltaTable:
        """The table as of now, for one use: of a table that was opened before only newer versions are read.

        Within `reading_once` it is the table as it was when it was read.
        """
        known = self._known.get(table)
        if known is not None:
            if self._up_to_date is not None and table in self._up_to_date:
                return known
            # If it cannot be updated, opening it again says why.
            with contextlib.suppress(OSError, DeltaError):
                known.update_incremental()
                return self._read(table, self._own(table, known))
        self._known[table] = opened = self.open(table)
        return self._read(table, opened)

    def _read(self, table: str, opened: DeltaTable) -> DeltaTable:
        """Notes that a table is up to date; `plans` with commits that are not our own makes all others stale."""
        if table == PLANS.name and opened.version() != self._plans_version:
            self.read_again()
            self._plans_version = opened.version()
        if self._up_to_date is not None:
            self._up_to_date.add(table)
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
    def writing(self, table: str, what: str = "cannot be written") -> Iterator[None]:
        """A full disk or a missing permission becomes one line about the lake: it comes as any of three errors."""
        try:
            yield
        except CommitFailedError:
            raise  # another commit came first, which is no error
        except (OSError, DeltaError, pa.ArrowException) as problem:
            raise InputError(self.table_uri(table), f"{what}: {error_line(problem)}") from problem

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

    def _newest_version(self, delta_table: DeltaTable, table: str, application: str) -> int:
        """The newest version of an application in this version of a table, 0 for none.

        `deltalake` reads every commit since the checkpoint for it, so that each answer is kept while the version stays.
        """
        known = self._transactions.get(table)
        if known is None or known.of_version != delta_table.version():
            known = self._transactions[table] = _Transactions(delta_table.version())
        if application not in known.newest:
            with self.reading(table):
                known.newest[application] = delta_table.transaction_version(application) or 0
        return known.newest[application]

    def _committed(self, table: str, before: int, versions: Mapping[str, int]) -> None:
        """Notes a commit of our own: what is known of the version before holds of the next one, but for this."""
        if table == PLANS.name:
            self._plans_version += 1
        if self._up_to_date is not None:
            self._up_to_date.discard(table)
        known = self._transactions.get(table)
        if known is not None and known.of_version == before:
            self._transactions[table] = _Transactions(before + 1, {**known.newest, **versions})


@dataclass(slots=True)
class _Transactions:
    """The newest version of each application that was asked for, in one version of a table."""

    of_version: int
    newest: dict[str, int] = field(default_factory=dict)


_TERMINAL: Final = re.compile("\x1b\\[[0-9;]*m|[\x00-\x1f\x7f]+")


def error_line(problem: Exception) -> str:
    """A library's error text on one line, without colours and its own stack frames."""
    return " ".join(_TERMINAL.sub(" ", str(problem).partition("   0: ")[0]).split())[:500]


_PLAIN: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.large_string(): pa.string()}


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
