"""The archives of many small clusters, read together: a file of a lake holds rows of them all, and is opened once."""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.archive.runs import ArchiveTables
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.staging.archive_reading import CONTENTS, HOLDINGS, LakeArchive
from kraft_audit.tables.bronze import ARCHIVE, BATCHES

TOGETHER_BYTES: Final = 16 << 20
"""Archives of up to so many bytes in all are read together."""


class SmallArchives:
    """The archives of some clusters: `of` gives one, which is read with others where all of them are small."""

    def __init__(self, lake: DeltaLake, ids: Iterable[str], closed: ClosedPlans) -> None:
        self._lake = lake
        self._ids = sorted(ids)
        self._closed = closed

    def of(self, cluster_id: str) -> ArchiveTables:
        for together in self._parts:
            if cluster_id in together.ids:
                return _OneOfMany(together, cluster_id)
        return LakeArchive.of(self._lake, cluster_id, closed=self._closed)

    @cached_property
    def _parts(self) -> list[_Together]:
        listed = ", ".join(map(sql_text, self._ids))
        where = f"cluster_id IN ({listed}) AND {self._closed.where()}"
        sizes = self._lake.query(
            f"SELECT cluster_id, sum(size_bytes) AS size FROM archive WHERE {where} GROUP BY cluster_id ORDER BY size",
            ARCHIVE.name,
        )
        parts: list[_Together] = []
        ids: list[str] = []
        size = 0
        for row in sizes.to_pylist():
            if row["size"] > TOGETHER_BYTES:
                break
            if size + row["size"] > TOGETHER_BYTES:
                parts.append(_Together(self._lake, ids, self._closed))
                ids, size = [], 0
            ids.append(row["cluster_id"])
            size += row["size"]
        return [*parts, _Together(self._lake, ids, self._closed)] if ids else parts


class _Together:
    """The rows of some clusters, each kind read once."""

    def __init__(self, lake: DeltaLake, ids: Sequence[str], closed: ClosedPlans) -> None:
        self.ids = frozenset(ids)
        self._archive = LakeArchive.of(lake, *ids, closed=closed)

    @cached_property
    def captures(self) -> pa.Table:
        return self._archive.captures()

    @cached_property
    def holdings(self) -> pa.Table:
        return self._archive.select(BATCHES, ("cluster_id", *HOLDINGS), "valid")

    @cached_property
    def runs(self) -> pa.Table:
        return self._archive.runs()

    @cached_property
    def contents(self) -> pa.Table:
        return self._archive.select(ARCHIVE, ("cluster_id", "source", *CONTENTS))


class _OneOfMany:
    """One cluster's archive, of rows that were read with others'."""

    def __init__(self, together: _Together, cluster_id: str) -> None:
        self._together = together
        self._cluster_id = cluster_id

    def captures(self) -> pa.Table:
        return self._own(self._together.captures)

    def holdings(self) -> pa.Table:
        return self._own(self._together.holdings).select(HOLDINGS)

    def runs(self) -> pa.Table:
        return self._own(self._together.runs)

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        rows = self._own(self._together.contents)
        offset = pc.field("from_offset")
        wanted = (pc.field("source") == source) & (offset >= from_offset) & (offset < to_offset)
        return rows.filter(wanted).select(CONTENTS)

    def _own(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.field("cluster_id") == self._cluster_id)
