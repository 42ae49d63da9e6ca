"""Vouches for the rows of the newest plans, without reading what was judged before.

What is asked here is enough for a table's promises to hold, and not more than enough: where a row is in doubt, the
table is judged as its suite defines it. Only files whose statistics allow new rows are read, and of older rows the keys
of those that could have the key of a new one.
"""
# ruff: noqa: S608  # every name and number in the SQL is our own

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.quality.promises import Promise
from kraft_audit.lake.views import IDENTITY
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import GOLD
from kraft_audit.tables.losses import LOSSES

ASCENDING: Final = ("offset", "from_offset", "base_offset", "captured_at_ms", "read_to_ms")
"""Columns of keys that go up from plan to plan."""
NEWEST_HOLDS: Final = (*IDENTITY, LOSSES.name)
"""Tables of whose rows with one key the newest plan's holds."""
CLUSTERS_ASKED: Final = 50
"""Of more clusters, one bound for all of them is cheaper."""


class NewRows:
    """The rows of closed plans from `first` on, in a DuckDB that has the tables `plans` and `captures`."""

    def __init__(self, lake: DeltaLake, database: duckdb.DuckDBPyConnection, closed: ClosedPlans, first: int) -> None:
        self._lake, self._database = lake, database
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
        if any(self._finds(promise.doubtful.format(batch=name)) for promise in promises if promise.doubtful):
            return False
        return table.name in (*GOLD, *NEWEST_HOLDS) or "plan" in table.key or not self._repeats(table, name)

    def _finds(self, query: str) -> bool:
        return self._database.execute(f"SELECT 1 FROM ({query}) LIMIT 1").fetchone() is not None

    def _load(self, table: Table) -> str:
        """Put the table's new rows into the database; the name there."""
        rows, name = self._rows(table), f"new_{table.name}"
        columns = ", ".join(f'"{column}"' for column in table.column_names if column in rows.schema.names)
        absent = "".join(f', NULL AS "{column}"' for column in table.column_names if column not in rows.schema.names)
        self._database.register("every_row", rows)
        select = f"SELECT {columns}{absent} FROM every_row WHERE {self._is_new}"
        self._database.execute(f"CREATE TEMP TABLE {name} AS {select}")
        self._database.unregister("every_row")
        return name

    def _rows(self, table: Table) -> ds.Dataset:
        return self._lake.latest(table.name).to_pyarrow_dataset()

    def _repeats(self, table: Table, new: str) -> bool:
        """Whether an older row has the key of a new one."""
        ascending = next(column for column in ASCENDING if column in table.key)
        starts = f'SELECT cluster_id, min("{ascending}") FROM {new} GROUP BY cluster_id'
        first_of = dict(self._database.execute(starts).fetchall())
        if not first_of:
            return False
        at, cluster = pc.field(ascending), pc.field("cluster_id")
        reached = at >= min(first_of.values())
        if len(first_of) <= CLUSTERS_ASKED:
            reached = reduce(or_, ((cluster == name) & (at >= first) for name, first in first_of.items()))
        keys, is_older = list(table.key), pc.field("plan") < self._first
        older = self._rows(table).to_table(columns=keys, filter=is_older & reached)
        self._database.register("older", older)
        same = " AND ".join(f'older."{column}" IS NOT DISTINCT FROM {new}."{column}"' for column in keys)
        return self._finds(f"SELECT 1 FROM {new} SEMI JOIN older ON {same}")
