"""Vouches for the rows of the newest plans, without reading what was judged before.

What is asked here is enough for a table's promises to hold, and not more than enough: where a row is in doubt, the
table is judged as its suite defines it. Only files whose statistics allow new rows are read, and of older rows the keys
of those that could have the key of a new one.
"""
# ruff: noqa: S608  # every name and number in the SQL is our own

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.quality.promises import Promise
from kraft_audit.lake.quality.table_files import TableFiles
from kraft_audit.lake.views import IDENTITY
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import GOLD
from kraft_audit.tables.losses import LOSSES

RISING_KEYS: Final = ("offset", "from_offset", "base_offset", "captured_at_ms", "read_to_ms")
"""Columns of keys that go up from plan to plan."""
NEWEST_HOLDS: Final = (*IDENTITY, LOSSES.name)
"""Tables of whose rows with one key the newest plan's holds."""


class NewRows:
    """The rows of closed plans from `first` on, in a DuckDB that has the tables `plans` and `captures`."""

    def __init__(self, files: TableFiles, database: duckdb.DuckDBPyConnection, closed: ClosedPlans, first: int) -> None:
        self._files, self._database = files, database
        self._is_new = f"plan >= {first} AND {closed.where()}"
        self._first = first

    def keep(self, table: Table, promises: Sequence[Promise]) -> bool:
        """Whether the new rows keep these promises for certain, alone and beside the older rows."""
        name = table.name if table.name in GOLD else self._load(table)
        broken = [promise.broken for promise in promises if promise.broken]
        if broken and self._finds(f"SELECT 1 FROM {name} WHERE {' OR '.join(broken)}"):
            return False
        by_plan = ("plan",) if table.name in NEWEST_HOLDS and "plan" not in table.key else ()
        key = ", ".join(f'"{column}"' for column in (*table.key, *by_plan))
        if self._finds(f"SELECT 1 FROM {name} GROUP BY {key} HAVING count(*) > 1"):
            return False
        doubtful = {promise.doubtful: None for promise in promises if promise.doubtful}  # some stand for two promises
        if any(self._finds(query.format(batch=name)) for query in doubtful):
            return False
        return table.name in (*GOLD, *NEWEST_HOLDS) or "plan" in table.key or not self._repeats(table, name)

    def _finds(self, query: str) -> bool:
        return self._database.execute(f"SELECT 1 FROM ({query}) LIMIT 1").fetchone() is not None

    def _load(self, table: Table) -> str:
        """Put the table's new rows into the database; the name there."""
        name = f"new_{table.name}"
        self._files.view(table, "every_row", "plan", self._first)
        self._database.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM every_row WHERE {self._is_new}")
        return name

    def _repeats(self, table: Table, new: str) -> bool:
        """Whether an older row has the key of a new one."""
        ascending = next(column for column in RISING_KEYS if column in table.key)
        (start,) = self._database.execute(f'SELECT min("{ascending}") FROM {new}').fetchone() or (None,)
        if start is None:
            return False
        self._files.view(table, "older_rows", ascending, start)
        same = " AND ".join(f'older."{column}" IS NOT DISTINCT FROM new."{column}"' for column in table.key)
        older = f'SELECT * FROM older_rows WHERE plan < {self._first} AND "{ascending}" >= {start}'
        return self._finds(f"SELECT 1 FROM {new} AS new SEMI JOIN ({older}) AS older ON {same}")
