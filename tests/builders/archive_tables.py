"""The tables of one reading as `kraft_audit.archive.archived_captures` asks for them, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.tables.bronze import ARCHIVE, BATCHES, CAPTURES


@dataclass
class MemoryTables:
    """Rows of one or more readings; `contents_asked` counts how often bytes were fetched."""

    rows: list[tuple[str, pa.RecordBatch]]
    contents_asked: int = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[str, pa.RecordBatch]]) -> MemoryTables:
        return cls(list(rows))

    def table(self, contract: object) -> pa.Table:
        name, schema = contract.name, contract.schema  # type: ignore[attr-defined]
        return pa.Table.from_batches([batch for table, batch in self.rows if table == name], schema)

    def captures(self) -> pa.Table:
        return self.table(CAPTURES)

    def holdings(self) -> pa.Table:
        batches = self.table(BATCHES)
        return batches.filter(batches["valid"])

    def runs(self) -> pa.Table:
        return self.table(ARCHIVE).drop_columns(["content"])

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        self.contents_asked += 1
        runs = self.table(ARCHIVE)
        begins = pc.and_(pc.greater_equal(runs["from_offset"], from_offset), pc.less(runs["from_offset"], to_offset))
        return runs.filter(pc.and_(pc.equal(runs["source"], source), begins))
