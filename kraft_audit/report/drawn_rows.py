"""What the pictures of a lake's clusters need beside the tables that their pages are made from.

A short log is drawn from its batches, as `check` draws it from disks. A long one, which a lake keeps for ever, is drawn
from its ends as plans found them: a point an hour is more than a picture shows of a year.
"""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.lake.delta import sql_text
from kraft_audit.picture.drawn_log import DatedEnd
from kraft_audit.picture.happened import DrawnLoss
from kraft_audit.picture.log_branches import is_log_ambiguous
from kraft_audit.picture.whole_picture import DrawnApart
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.loss_holders import Grade
from kraft_audit.tables.bronze import BATCHES, CAPTURES
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import WATERMARKS

DRAWN_BATCHES_MAX: Final = 100_000
"""Rows of `batches` of one cluster, a row for each replica that holds one: five hours of three idle voters."""


class DrawnRows:
    """The rows that the pictures of some clusters need; `listed` are their ids, quoted.

    `query` asks the lake's tables, and `view` is the query of a table's rows of closed plans.
    """

    def __init__(
        self,
        query: Callable[[str], pa.Table],
        view: Callable[[str], str],
        tables: Collection[str],
        listed: str,
    ) -> None:
        self._query = query
        self._view = view
        self._tables = tables
        self._batches = self._count(BATCHES.name, listed)
        self._captures = self._count(CAPTURES.name, listed)
        self._log_ends = self._log_ends_of(listed)
        self._losses = self._losses_of(listed)
        self._read: pa.Table | None = None

    def read_together(self, cluster_ids: Collection[str]) -> None:
        """Read the batches of some clusters at once, if they are few: a file of a lake holds rows of them all."""
        counts = [self._batches.get(cluster_id, 0) for cluster_id in cluster_ids]
        if 0 < sum(counts) <= DRAWN_BATCHES_MAX:
            self._read = self._batches_of(cluster_ids)

    def _batches_of(self, cluster_ids: Collection[str]) -> pa.Table:
        listed = ", ".join(map(sql_text, cluster_ids))
        rows = self._query(f"SELECT * FROM ({self._view(BATCHES.name)}) AS held WHERE cluster_id IN ({listed})")
        return rows.select(BATCHES.column_names)

    def history(self, history: ClusterHistory) -> ClusterHistory | None:
        """The same history with the batches of its log, if that is short and the batches say which log it is.

        What was derived without them is not kept.
        """
        if not 0 < self._batches.get(history.cluster_id, 0) <= DRAWN_BATCHES_MAX:
            return None
        rows = self._batches_of([history.cluster_id]) if self._read is None else self._read
        own = rows.filter(pc.field("cluster_id") == history.cluster_id)
        tables = {**history.tables, BATCHES.name: own}
        drawn = replace(history, tables=tables, _shared={})
        return None if is_log_ambiguous(drawn) else drawn

    def apart(self, cluster_id: str, spans: pa.Table) -> DrawnApart:
        """What the picture of a cluster shows beside its history; `spans` are when its partitions were exposed."""
        return DrawnApart(spans, self._losses.get(cluster_id, ()), self._log_ends.get(cluster_id, ()))

    def row_counts(self, cluster_id: str) -> tuple[int, ...]:
        """How many captures and batches of a cluster the lake holds."""
        return self._captures.get(cluster_id, 0), self._batches.get(cluster_id, 0)

    def _count(self, table: str, listed: str) -> dict[str, int]:
        if table not in self._tables:
            return {}
        rows = self._query(
            f"SELECT cluster_id, count(*) AS n FROM ({self._view(table)}) AS held "
            f"WHERE cluster_id IN ({listed}) GROUP BY cluster_id"
        ).to_pylist()
        return {row["cluster_id"]: row["n"] for row in rows}

    def _log_ends_of(self, listed: str) -> dict[str, tuple[DatedEnd, ...]]:
        """The ends of the canonical log as plans found them, with the append time of the last batch there."""
        if WATERMARKS.name not in self._tables or CAPTURES.name not in self._tables:
            return {}
        rows = self._query(
            "SELECT marks.cluster_id, marks.canonical_end_offset AS end_offset, max(held.last_timestamp_ms) AS at_ms "
            f"FROM ({self._view(WATERMARKS.name)}) AS marks JOIN ({self._view(CAPTURES.name)}) AS held "
            "ON held.cluster_id = marks.cluster_id AND held.plan = marks.plan "
            "AND held.capture_number = marks.capture_number AND held.log_end_offset = marks.canonical_end_offset "
            f"WHERE marks.cluster_id IN ({listed}) AND held.last_timestamp_ms IS NOT NULL "
            "AND held.last_epoch = marks.canonical_epoch "
            "GROUP BY marks.cluster_id, marks.canonical_end_offset ORDER BY end_offset"
        )
        ends: dict[str, tuple[DatedEnd, ...]] = defaultdict(tuple)
        for row in rows.to_pylist():
            ends[row["cluster_id"]] = (*ends[row["cluster_id"]], (row["end_offset"], row["at_ms"]))
        return ends

    def _losses_of(self, listed: str) -> dict[str, tuple[DrawnLoss, ...]]:
        """When partitions lost acknowledged records or may have, and how many at once."""
        if LOSSES.name not in self._tables:
            return {}
        grades = ", ".join(sql_text(grade.value) for grade in Grade if grade.is_reported)
        rows = self._query(
            f"SELECT cluster_id, timestamp_ms AS at_ms, count(*) AS n, sum(CASE WHEN grade = "
            f"{sql_text(Grade.PROVEN.value)} THEN 1 ELSE 0 END) AS proven FROM ({self._view(LOSSES.name)}) AS lost "
            f"WHERE cluster_id IN ({listed}) AND grade IN ({grades}) GROUP BY cluster_id, timestamp_ms ORDER BY at_ms"
        )
        lost: dict[str, tuple[DrawnLoss, ...]] = defaultdict(tuple)
        for row in rows.to_pylist():
            drawn = DrawnLoss(row["at_ms"], row["proven"], row["n"] - row["proven"])
            lost[row["cluster_id"]] = (*lost[row["cluster_id"]], drawn)
        return lost
