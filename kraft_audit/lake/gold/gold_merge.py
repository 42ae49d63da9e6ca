"""What every gold table needs: its creation, a merge that happens once, and what computes its queries.

`GoldEngine` is Spark (`kraft_audit.spark.gold_engine`) or this process, by the DataFusion inside `deltalake`.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from kraft_audit.lake.delta import COMMIT_ATTEMPTS, DeltaLake, Lake, error_line
from kraft_audit.lake.gold.gold_query import IN_LAKE, GoldQuery
from kraft_audit.lake.ledger import Ledger, contract_schema
from kraft_audit.lake.views import TableReference
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import CHANGE_FEED
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from deltalake import DeltaTable


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


@dataclass(frozen=True, slots=True)
class Once:
    """The application transaction of a merge: done by whoever comes first, whatever dies meanwhile."""

    application: str
    version: int
    is_done: Callable[[], bool]


class LargeMerges(Protocol):
    """Merges more rows than this process should hold."""

    def merge(self, table: str, merge: Merge, once: Once | None = None) -> bool:
        """False if that was done before."""

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
    """The engine of a laptop, and of a run without Spark: everything in this process."""

    large_merges = None

    def __init__(self, lake: DeltaLake) -> None:
        self._lake = lake

    def rows(self, query: GoldQuery, shape: str) -> pa.Table:
        tables = {IN_LAKE.format(table): self._lake.latest(table) for table in query.tables}
        return self._lake.queries_of(tables)(shape.format(computed=query.datafusion_text))


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
        """Create the table if it is missing; two creators are no error."""
        properties = {"delta.enableChangeDataFeed": "true"} if table.name in CHANGE_FEED else {}
        described = f"{table.grain}. {table.comment}"
        self.lake.create(table.name, contract_schema(table), described, properties)

    def merge(self, table: str, merge: Merge, version: int | None = None) -> bool:
        """Merge once, under the application transaction `version` (the plan's place in the order of closing) if given.

        False if the table already had that version. A commit that loses against another run's is tried again. If Python
        reaches the lake and the rows are few, `deltalake` merges in a tenth of a second; else the engine does.
        """
        lake = self.lake
        is_large = not isinstance(lake, DeltaLake) or merge.row_count > SMALL_ROWS
        if is_large and (large_merges := self.engine.large_merges) is not None:
            return large_merges.merge(table, merge, None if version is None else self._once(table, version))
        assert isinstance(lake, DeltaLake)  # noqa: S101  # only Spark's engine has a lake of another kind
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

    def _once(self, table: str, version: int) -> Once:
        return Once(self.ledger.application(table), version, lambda: self.merged_place(table) >= version)

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


def _record(table: DeltaTable, transactions: list[Transaction]) -> None:
    """Record in a table that a plan was merged which changes nothing in it."""
    properties = CommitProperties(app_transactions=transactions)
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
