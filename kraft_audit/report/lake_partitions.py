"""The partitions of a lake's clusters that pages show, and when they were exposed.

A large cluster's whole history is more than a laptop holds. So of `partition_changes` only the newest row of each
partition is read, and all rows of the few partitions with a ledger: `exposure_changes` says which were ever exposed.
"""

# queries hold names of our own and quoted literals
from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.views import holding, rows_of_clusters
from kraft_audit.picture.whole_picture import SPANS
from kraft_audit.replay.kernels.codes import IS_EXPOSED_SQL
from kraft_audit.report.partition_exposure import PartitionKey, partitions_shown
from kraft_audit.rules.cluster_history import JUDGED_CHANGES, ClusterHistory
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.silver import BROKER_CHANGES, EXPOSURE_CHANGES, PARTITION_CHANGES

_SAME: Final = "held.cluster_id = {0}.cluster_id AND held.topic_id = {0}.topic_id AND held.partition = {0}.partition"
NEWEST_PARTITIONS: Final = """
WITH held AS ({changes})
SELECT {columns}, newest.first_change_ms, held.gone_at, coalesce(again.at_ms, held.timestamp_ms) AS gone_ms
FROM (
    SELECT cluster_id, topic_id, partition, max(from_offset) AS from_offset, min(timestamp_ms) AS first_change_ms
    FROM held GROUP BY cluster_id, topic_id, partition
) AS newest
JOIN held
ON {same} AND held.from_offset = newest.from_offset
LEFT JOIN ({again}) AS again
ON held.cluster_id = again.cluster_id AND held.gone_at = again.offset_after
"""
SHOWN_PARTITIONS: Final = """
SELECT {columns}
FROM (VALUES {shown}) AS shown (cluster_id, topic_id, partition)
JOIN ({changes}) AS held
ON {same}
"""
EXPOSURES: Final = """
SELECT held.cluster_id, held.topic_id, held.partition, held.from_ms, coalesce(held.to_ms, again.at_ms) AS to_ms,
    held.is_last_replica, held.is_offline, held.is_under_min_isr
FROM (
    SELECT *, timestamp_ms AS from_ms,
        lead(timestamp_ms) OVER (PARTITION BY cluster_id, topic_id, partition ORDER BY from_offset) AS to_ms
    FROM ({exposures}) AS exposures
) AS held
LEFT JOIN ({again}) AS again
ON held.cluster_id = again.cluster_id AND held.gone_at = again.offset_after
WHERE {is_exposed}
"""
# A partition that was gone when a history gap ended has no change there: brokers of the snapshot date that moment.
SNAPSHOT_TIMES: Final = """
SELECT cluster_id, from_offset + 1 AS offset_after, min(timestamp_ms) AS at_ms
FROM ({brokers}) AS brokers GROUP BY cluster_id, from_offset
"""
NO_SPANS: Final = pa.schema([("topic_id", pa.string()), ("partition", pa.int32()), *SPANS]).empty_table()


def partitions_of(query: Callable[[str], pa.Table], closed: ClosedPlans, listed: str) -> dict[str, Partitions]:
    """The partitions of these clusters, a list of quoted ids."""
    changes, exposures, brokers = (
        rows_of_clusters(holding(table.name, lambda name: name, closed), listed)
        for table in (PARTITION_CHANGES, EXPOSURE_CHANGES, BROKER_CHANGES)
    )
    again = SNAPSHOT_TIMES.format(brokers=brokers)
    spans = by_cluster(query(EXPOSURES.format(exposures=exposures, again=again, is_exposed=IS_EXPOSED_SQL)))
    columns = ", ".join(f"held.{name}" for name in ("cluster_id", *JUDGED_CHANGES.names))
    names = {"changes": changes, "columns": columns}
    newest = by_cluster(query(NEWEST_PARTITIONS.format(again=again, same=_SAME.format("newest"), **names)))
    partitions = {id_: Partitions(id_, table, spans.get(id_, NO_SPANS)) for id_, table in newest.items()}
    shown = ", ".join(
        f"({sql_text(id_)}, {sql_text(topic_id)}, {partition})"
        for id_, known in partitions.items()
        for topic_id, partition in sorted(known.shown)
    )
    if shown:
        sql = SHOWN_PARTITIONS.format(shown=shown, same=_SAME.format("shown"), **names)
        for id_, rows in by_cluster(query(sql)).items():
            partitions[id_].show(rows)
    return partitions


def by_cluster(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of each cluster, in one sort."""
    table = table.sort_by("cluster_id")
    ids = table["cluster_id"].to_pylist()
    starts = [place for place, id_ in enumerate(ids) if place == 0 or ids[place - 1] != id_]
    return {
        ids[start]: table.slice(start, end - start).combine_chunks() for start, end in pairwise([*starts, len(ids)])
    }


class Partitions:
    """The rows of one cluster's `partition_changes` that pages show, and when its partitions were exposed.

    Made from the newest row of each partition; `shown` are the partitions of which `show` takes all rows.
    """

    def __init__(self, cluster_id: str, newest: pa.Table, exposed_spans: pa.Table) -> None:
        self.exposed_spans = exposed_spans
        self.first_change_ms = pc.min(newest["first_change_ms"]).as_py()
        self._ended = _ended(newest)
        last = newest.filter(newest["gone_at"].is_null()).select(JUDGED_CHANGES.names)
        self.changes = pa.concat_tables([last, self._ended])
        history = ClusterHistory(cluster_id, {PARTITION_CHANGES.name: self.changes})
        self.shown = set(partitions_shown(history, frozenset(_keys(exposed_spans))))

    def show(self, rows: pa.Table) -> None:
        """Replaces the newest rows of the shown partitions by all of their rows."""
        others = pa.array([key not in self.shown for key in _keys(self.changes)], pa.bool_())
        ended = pa.array([key in self.shown for key in _keys(self._ended)], pa.bool_())
        whole = rows.select(JUDGED_CHANGES.names)
        self.changes = pa.concat_tables([self.changes.filter(others), self._ended.filter(ended), whole])


def _keys(rows: pa.Table) -> Iterator[PartitionKey]:
    return zip(rows["topic_id"].to_pylist(), rows["partition"].to_pylist(), strict=True)


def _ended(newest: pa.Table) -> pa.Table:
    """One more row for each partition that was gone when a history gap ended: it no longer exists from there on."""
    gone = newest.filter(newest["gone_at"].is_valid())
    changes = {
        "from_offset": pc.subtract(gone["gone_at"], 1),
        "timestamp_ms": gone["gone_ms"],
        "exists": pa.repeat(False, gone.num_rows),
        "cause": pa.repeat("snapshot", gone.num_rows),
    }
    rows = gone.select(JUDGED_CHANGES.names)
    for name, values in changes.items():
        rows = with_column(rows, name, values)
    return rows
