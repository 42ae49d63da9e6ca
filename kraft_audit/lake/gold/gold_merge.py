"""What every gold table needs: its creation, a merge that happens once, and what computes its queries.

A `GoldEngine` is this process, by the DataFusion inside `deltalake`, or a session of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import pyarrow as pa

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.gold_query import IN_LAKE, GoldQuery
from kraft_audit.lake.lake import Lake, require_columns
from kraft_audit.lake.ledger import Ledger, contract_schema
from kraft_audit.lake.merges import Merge, Merges, Once
from kraft_audit.tables import FINDINGS_STAGED, INCIDENTS_STAGED
from kraft_audit.tables.bronze import CAPTURES
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import CHANGE_FEED, GOLD
from kraft_audit.tables.silver import BROKER_CHANGES, EXPOSURE_CHANGES

MADE_OF: Final = (
    *(table.name for table in (CAPTURES, EXPOSURE_CHANGES, BROKER_CHANGES, FINDINGS_STAGED, INCIDENTS_STAGED)),
    *GOLD,
)
"""The tables that gold queries read."""
SMALL_ROWS: Final = 100_000
"""So many rows of findings easily fit into the driver's memory; an engine merges more of them, where it can."""


def bytes_read(lake: DeltaLake) -> int:
    """The size of the files that gold tables are made of."""
    return sum(sum(lake.file_sizes(name)) for name in MADE_OF if lake.exists(name))


class LargeMerges(Merges, Protocol):
    """Merges more rows than this process should hold."""

    def computed(self, query: GoldQuery, shape: str) -> str:
        """The text of `shape`, for a merge; `rows` of the same query came before."""


class GoldEngine(Protocol):
    """Computes gold's queries."""

    @property
    def large_merges(self) -> LargeMerges | None:
        """What merges more than SMALL_ROWS rows; None where `deltalake` merges any number."""

    def rows(self, query: GoldQuery, shape: str) -> pa.Table:
        """The rows of `shape`, a query over `{computed}`: SMALL_ROWS + 1 where others merge more."""


class LocalGold:
    """The engine of a laptop: everything in this process."""

    large_merges = None

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def rows(self, query: GoldQuery, shape: str) -> pa.Table:
        tables = {IN_LAKE.format(table): table for table in query.tables}
        return self._lake.query_as(shape.format(computed=query.datafusion_text()), tables)


class GoldLake:
    """The gold tables of one lake. `engine` is asked for only if there is something to do."""

    def __init__(self, lake: Lake, engine: Callable[[], GoldEngine]) -> None:
        self.lake = lake
        self.ledger = Ledger(lake)
        self._engine = engine
        self._own: GoldEngine | None = None

    @property
    def engine(self) -> GoldEngine:
        if self._own is None:
            self._own = self._engine()
        return self._own

    def merged_place(self, table: str) -> int:
        """The place in the order of closing up to which plans were merged into the table, 0 for none.

        Plans are merged in that order, so that one number stands for all before it.
        """
        if not self.lake.exists(table):
            return 0
        return self.lake.versions(table, [self.ledger.application(table)])[0]

    def create(self, table: Table) -> None:
        """Create the table if it is missing; two creators are no error.

        Raises InputError where an earlier build made it, without all of its columns.
        """
        if self.lake.exists(table.name):
            require_columns(self.lake, table)
            return
        properties = {"delta.enableChangeDataFeed": "true"} if table.name in CHANGE_FEED else {}
        described = f"{table.grain}. {table.comment}"
        self.lake.create(table.name, contract_schema(table), described, properties)

    def merge(self, table: str, merge: Merge, version: int | None = None) -> bool:
        """Merge once, under the application transaction `version` (the plan's place in the order of closing) if given.

        False if the table already had that version. Few rows are merged by the lake, where it can; more by the engine.
        """
        once = None if version is None else self._once(table, version)
        small_merges = self.lake.small_merges
        is_large = small_merges is None or merge.row_count > SMALL_ROWS
        if is_large and (large_merges := self.engine.large_merges) is not None:
            return large_merges.merge(table, merge, once)
        assert small_merges is not None  # noqa: S101  # where there are none, the engine merges
        return small_merges.merge(table, merge, once)

    def _once(self, table: str, version: int) -> Once:
        return Once(self.ledger.application(table), version, lambda: self.merged_place(table) >= version)
