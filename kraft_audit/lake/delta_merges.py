"""Merges into a lake's tables by `deltalake`, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from kraft_audit.lake.merges import EngineWords, Merge, MergeAction, Once

if TYPE_CHECKING:
    from kraft_audit.lake.delta import DeltaLake

DATAFUSION_WORDS: Final[EngineWords] = {
    "explode": "unnest",
    "sequence": "generate_series",
    "array": "make_array",
    "by_hash": "",
}


class DeltaMerges:
    """Merges into the tables of a lake by `deltalake`."""

    def __init__(self, lake: DeltaLake) -> None:
        self._lake = lake

    def merge(self, table: str, merge: Merge, once: Once | None = None) -> bool:
        transactions = [] if once is None else [Transaction(once.application, once.version)]

        def write(opened: DeltaTable) -> None:
            with self._lake.writing(table, "cannot be merged into"):
                self._merge(opened, merge, transactions)

        return self._lake.commit_once(table, {} if once is None else {once.application: once.version}, write)

    def _merge(self, known: DeltaTable, merge: Merge, transactions: list[Transaction]) -> None:
        rows = merge.rows
        if rows is None:
            assert merge.changes is not None  # noqa: S101  # a merge has rows or the query that gives them
            rows = self._lake.query(merge.changes(str, DATAFUSION_WORDS), *merge.tables)
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
