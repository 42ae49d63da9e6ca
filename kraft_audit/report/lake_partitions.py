"""The partitions of a lake, as far as pages tell of them: the newest row of each, all rows of the few that are shown.

A large cluster's whole history is more than a laptop holds; `exposure_changes` says who was ever exposed, and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.tables import BROKER_CHANGES, EXPOSURE_CHANGES, PARTITION_CHANGES
from kraft_audit.report.ledger import PartitionKey, partitions_shown
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.parts import SCHEMA
from kraft_audit.spark.lake import sql_text

Query = Callable[[str], pa.Table]
ByCluster = Mapping[str, pa.Table]

_COLUMNS: Final = ", ".join(f"held.{name}" for name in ("cluster_id", *SCHEMA.names))
_SAME: Final = "held.cluster_id = {0}.cluster_id AND held.topic_id = {0}.topic_id AND held.partition = {0}.partition"
NEWEST: Final = """
WITH held AS (SELECT * FROM ({changes}) AS told WHERE cluster_id IN ({clusters}))
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
SHOWN: Final = """
SELECT {columns}
FROM (VALUES {shown}) AS shown (cluster_id, topic_id, partition)
JOIN (SELECT * FROM ({changes}) AS told WHERE cluster_id IN ({clusters})) AS held
ON {same}
"""
EXPOSED: Final = """
SELECT held.cluster_id, held.topic_id, held.partition, held.from_ms, coalesce(held.to_ms, again.at_ms) AS to_ms
FROM (
    SELECT *, timestamp_ms AS from_ms,
        lead(timestamp_ms) OVER (PARTITION BY cluster_id, topic_id, partition ORDER BY from_offset) AS to_ms
    FROM ({exposures}) AS told WHERE cluster_id IN ({clusters})
) AS held
LEFT JOIN ({again}) AS again
ON held.cluster_id = again.cluster_id AND held.gone_at = again.offset_after
WHERE is_last_replica OR is_offline OR is_under_min_isr
"""
# A partition that was gone when a history gap ended has no change there: brokers of the snapshot tell when that was.
AGAIN: Final = """
SELECT cluster_id, from_offset + 1 AS offset_after, min(timestamp_ms) AS at_ms
FROM ({brokers}) AS told WHERE cluster_id IN ({clusters}) GROUP BY cluster_id, from_offset
"""


class LakePartitions:
    """Some clusters of a lake: the rows of `partition_changes` that pages tell of, by cluster, and what exposed them.

    `holding` gives the query of a table's rows that hold; `split` parts rows by their cluster.
    """

    def __init__(
        self, query: Query, holding: Callable[[str], str], split: Callable[[pa.Table], ByCluster], ids: Sequence[str]
    ) -> None:
        clusters = ", ".join(sql_text(one) for one in ids)
        changes = holding(PARTITION_CHANGES.name)
        exposures = holding(EXPOSURE_CHANGES.name)
        again = AGAIN.format(brokers=holding(BROKER_CHANGES.name), clusters=clusters)
        self.exposed_spans = split(query(EXPOSED.format(exposures=exposures, again=again, clusters=clusters)))
        rows = NEWEST.format(
            changes=changes, again=again, clusters=clusters, columns=_COLUMNS, same=_SAME.format("newest")
        )
        newest = split(query(rows))
        self.first_change_ms: dict[str, int] = {
            id_: min(table["first_change_ms"].to_pylist()) for id_, table in newest.items()
        }
        ended = {id_: _ended(table) for id_, table in newest.items()}
        last = {
            id_: pa.concat_tables([table.filter(table["gone_at"].is_null()).select(SCHEMA.names), ended[id_]])
            for id_, table in newest.items()
        }
        shown = {id_: set(partitions_shown(_history(id_, table), self._once(id_))) for id_, table in last.items()}
        listed = ", ".join(
            f"({sql_text(id_)}, {sql_text(topic_id)}, {partition})"
            for id_, keys in shown.items()
            for topic_id, partition in sorted(keys)
        )
        whole: ByCluster = defaultdict(SCHEMA.empty_table)
        if listed:
            all_rows = SHOWN.format(
                changes=changes, clusters=clusters, columns=_COLUMNS, shown=listed, same=_SAME.format("shown")
            )
            whole = split(query(all_rows))
        self.changes = {
            id_: pa.concat_tables(
                [
                    _of(table, shown[id_], is_among=False),
                    _of(ended[id_], shown[id_]),
                    whole[id_].select(SCHEMA.names),
                ]
            )
            if shown[id_]
            else table
            for id_, table in last.items()
        }

    def _once(self, id_: str) -> frozenset[PartitionKey]:
        if id_ not in self.exposed_spans:
            return frozenset()
        spans = self.exposed_spans[id_]
        return frozenset(zip(spans["topic_id"].to_pylist(), spans["partition"].to_pylist(), strict=True))


def _history(id_: str, newest: pa.Table) -> ClusterHistory:
    tables: dict[str, Any] = {PARTITION_CHANGES.name: newest}
    return ClusterHistory(id_, tables)


def _ended(newest: pa.Table) -> pa.Table:
    """A row more of each partition that was gone when a history gap ended: that it was."""
    gone = newest.filter(newest["gone_at"].is_valid())
    told = {
        "from_offset": pc.subtract(gone["gone_at"], 1),
        "timestamp_ms": gone["gone_ms"],
        "exists": pa.repeat(False, gone.num_rows),
        "cause": pa.repeat("snapshot", gone.num_rows),
    }
    rows = gone.select(SCHEMA.names)
    for name, values in told.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), values)
    return rows


def _of(rows: pa.Table, keys: set[PartitionKey], *, is_among: bool = True) -> pa.Table:
    """The rows of these partitions, or of all others."""
    held = zip(rows["topic_id"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    return rows.filter(pa.array([(key in keys) == is_among for key in held], pa.bool_())).select(SCHEMA.names)
