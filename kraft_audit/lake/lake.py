"""What the pipeline needs of a lake, whatever commits to it, and which lake it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol, get_args

import pyarrow as pa

from kraft_audit.lake.data_files import DataFile
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.merges import Merges
from kraft_audit.lake.settings import Committer
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.contract import Table
from kraft_codec.errors import InputError

# Other runs append at the same time, and each attempt re-reads the log: a few attempts are plenty, more mean a fault.
COMMIT_ATTEMPTS: Final = 20
NO_PROPERTIES: Final[Mapping[str, str]] = {}
NO_VERSIONS: Final[Mapping[str, int]] = {}
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.checkpointInterval": "10",
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

    def reading_once(self) -> AbstractContextManager[None]:
        """Within it a table may be taken as it was read, until a commit shows that another run changed it."""

    def read_again(self) -> None:
        """Read every table again when it is next asked for: another engine of this run committed."""

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

    def table_id(self, table: str) -> str:
        """The id that the table got when it was created, which stays when the lake is moved."""

    def versions(self, table: str, applications: Sequence[str]) -> list[int]:
        """The newest version of each application that committed to the table, 0 for none. Reads no data."""

    @property
    def small_merges(self) -> Merges | None:
        """Merges few rows in this process, in a tenth of a second; None where only an engine's session can."""

    def query(self, sql: str, *tables: str) -> pa.Table:
        """SQL over tables of the lake, each under its own name. It takes milliseconds where there are small merges."""

    def query_as(self, sql: str, tables: Mapping[str, str]) -> pa.Table:
        """SQL over tables of the lake, by the names that it has for them."""

    def append_rows(self, table: str, rows: pa.Table, application: str, version: int) -> bool:
        """Add a few rows in one transaction. False, and nothing added, where `version` is already there."""

    def commit(self, table: str, files: Sequence[DataFile], schema: pa.Schema, application: str, version: int) -> bool:
        """Add data files in one transaction. False, and nothing added, where `version` is already there."""

    def join_small_files(self, table: str) -> None:
        """Make many small files of like size one, so that queries do not open more of them hour by hour.

        No row changes. Files that another run changes meanwhile are left to it. Raises InputError where they cannot be
        read or written.
        """

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

    Two kinds do not see each other everywhere: on S3, one may overwrite a commit that another kind put there.
    """
    for kind in get_args(Committer):
        if kind != lake.committer and any(lake.versions(PLANS.name, [COMMITTED_BY.format(kind)])):
            why = f"its committer is {kind}, and a second kind could overwrite its commits: `committer: {kind}` in"
            raise InputError(lake.uri, f"{why} fleet.yaml, `--committer {kind}` on the command line")


def require_columns(lake: Lake, table: Table) -> None:
    """Raises InputError where an earlier build made the table, without all columns of its contract."""
    there = lake.query(f"SELECT * FROM {table.name} WHERE false", table.name).column_names  # noqa: S608  # our own word
    if missing := [name for name in table.column_names if name not in there]:
        why = f"its table {table.name} was made by an earlier build and has no column {missing[0]}"
        raise InputError(lake.uri, f"{why}: read the fleet into a new lake")
