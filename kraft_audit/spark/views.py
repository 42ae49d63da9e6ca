"""The lake's tables as they are shown to people: closed plans only, and of silver tables the rows that hold.

Tables are only ever appended to. A plan's row of `replays` says from which offset on its rows stand for those of
earlier plans, so that what holds is a matter of reading; what was told and then contradicted stays, in the views
`…_reverted`. `to_offset` (the next change of the same subject) and `proven` are never stored either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kraft_audit.replay.tables import LEADER_EPOCHS, REPLAYS, SILVER, VOTER_SETS, WATERMARKS
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.tables import BATCHES, PLANS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TableReference = Callable[[str], str]
"""How a query names a table of the lake."""
ClosedRows = Callable[[str], str]
"""The query of a table's rows of closed plans."""
LOG: Final = "log"
HISTORY_GAP: Final = "history_gap"
REVERTED: Final = "_reverted"
CHANGES: Final = tuple(name for name in SILVER if name.endswith("_changes"))
REVERTIBLE: Final = (*CHANGES, VOTER_SETS.name, LEADER_EPOCHS.name)
# Each plan tells all epochs and voter sets that its captures show; of what they no longer show, what ended before.
IDENTITY: Final = {
    VOTER_SETS.name: ("cluster_id", "from_offset", "from_epoch"),
    LEADER_EPOCHS.name: ("cluster_id", "epoch", "from_offset"),
}
ENDED: Final = {
    VOTER_SETS.name: "from_offset < newest_log_start AND ended_by = 'superseded'",
    LEADER_EPOCHS.name: "to_offset <= newest_log_start",
}


_HOLDS: Final = "(said_again_from IS NULL OR from_offset < said_again_from)"
_STILL_TOLD: Final = "(said_again_from IS NULL OR all_told_at <= said_again_from)"


def register_views(spark: SparkSession, lake: str) -> list[str]:
    """Make every table of the lake a temporary view, and `log` and the `…_reverted` ones beside them; their names.

    A view is evaluated when it is asked, so that it shows what was closed by then.
    """
    names = [*LAKE_TABLES, LOG, HISTORY_GAP, *(f"{table}{REVERTED}" for table in REVERTIBLE)]
    for name in names:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {view_sql(lake, name)}")
    return names


def read_closed(spark: SparkSession, lake: str, table: str) -> DataFrame:
    """One table of the lake, rows of closed plans only."""
    return spark.sql(_closed(path_tables(lake))(table))


def read_view(spark: SparkSession, lake: str, name: str) -> DataFrame:
    """One view of the lake, by the name that `register_views` gives it."""
    return spark.sql(view_sql(lake, name))


def view_sql(lake: str, name: str, closed: int | None = None) -> str:
    """The view's query for Spark; the same text makes a permanent view in a catalog. Raises KeyError."""
    return query_of(name, path_tables(lake), closed)


def path_tables(lake: str) -> TableReference:
    """Tables by their paths below a lake."""
    return lambda table: "delta.`" + f"{lake}/{table}".replace("`", "``") + "`"


def query_of(name: str, reference: TableReference, closed: int | None = None) -> str:
    """The view's query over tables as `reference` names them, in SQL that Spark and DataFusion share but for `log`.

    `closed` is the newest closed plan; without it each reading looks into `plans` for it. Raises KeyError where there
    is no view of that name.
    """
    rows = _closed(reference, closed)
    if name == LOG:
        return _log(rows)
    if name == HISTORY_GAP:
        return _history_gap(rows)
    if name.endswith(REVERTED) and name.removesuffix(REVERTED) in REVERTIBLE:
        return _reverted(name.removesuffix(REVERTED), rows)
    if name in CHANGES:
        return _changes(name, rows)
    if name in IDENTITY:
        return _newest(name, rows)
    return rows(LAKE_TABLES[name].name)


def _closed(reference: TableReference, closed: int | None = None) -> ClosedRows:
    newest = f"SELECT coalesce(max(plan), 0) FROM {reference(PLANS.name)} WHERE event = 'closed'"  # noqa: S608
    newest = f"({newest})" if closed is None else str(closed)
    return lambda table: f"SELECT * FROM {reference(table)} WHERE plan <= {newest}"  # noqa: S608


def _replayed(rows: ClosedRows) -> str:
    """Of each plan of each cluster: from which offset on a later plan stands for it, or contradicts it; newest low.

    `known_again_from` is the end of the snapshot with which a later plan tells everything again, behind a gap or with
    another default: whoever is not in it was gone by then, though the row that said so may not hold any more.
    """
    later = "OVER (PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    every = "OVER (PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    told = f"""
        SELECT *, min(from_offset) {later} AS said_again_from,
            coalesce(
                gap_to_offset, CASE WHEN snapshot IS NOT NULL AND from_offset < started_at THEN started_at END
            ) AS all_told_at
        FROM ({rows(REPLAYS.name)}) AS closed_replays"""  # noqa: S608
    return f"""
        SELECT cluster_id AS replayed_cluster, plan AS replayed_plan, said_again_from,
            min(contradicted_from) {later} AS said_otherwise_from,
            min(CASE WHEN {_STILL_TOLD} AND why_nothing IS NULL THEN all_told_at END) {later} AS known_again_from,
            CASE WHEN {_STILL_TOLD} THEN gap_to_offset END AS own_gap_to,
            last_value(low) {every} AS newest_low,
            last_value(log_start_offset) {every} AS newest_log_start,
            last_value(plan) {every} AS newest_plan
        FROM ({told}) AS told_replays"""  # noqa: S608


def _told(table: str, rows: ClosedRows) -> str:
    """A table's closed rows beside what later plans did to them."""
    return f"""({rows(table)}) AS told
        JOIN ({_replayed(rows)}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan"""


def holding(table: str, reference: TableReference, closed: int) -> str:
    """The rows of a `*_changes` table, or of `replays`, that hold, without their ends: those take a sort to find.

    `gone_at` is where a row ends that is the last one of its subject, as a history gap lies behind it; else null.
    """
    columns = f"{_columns('told', LAKE_TABLES[table].column_names)}, {_GONE_AT} AS gone_at"
    return f"SELECT {columns} FROM {_told(table, _closed(reference, closed))} WHERE {_HOLDS}"  # noqa: S608


def _changes(table: str, rows: ClosedRows) -> str:
    """A row ends where the next of its subject begins; before a history gap, where the snapshot behind it is taken.

    That snapshot tells every subject again that was still there. A plan that tells all anew may pass a gap itself.
    """
    contract = LAKE_TABLES[table]
    # `partition` is a word of SQL: it needs the table's name before it.
    subject = _columns("told", [column for column in contract.key if column != "from_offset"])
    return f"""
        SELECT {_columns("told", contract.column_names)},
            coalesce(
                lead(from_offset) OVER (PARTITION BY {subject} ORDER BY from_offset),
                {_GONE_AT}
            ) AS to_offset,
            from_offset < newest_low AS proven
        FROM {_told(table, rows)}
        WHERE {_HOLDS}"""  # noqa: S608  # names of our own


_GONE_AT: Final = "coalesce(CASE WHEN from_offset < own_gap_to - 1 THEN own_gap_to END, known_again_from)"


def _history_gap(rows: ClosedRows) -> str:
    """What nobody holds any more: below it earlier plans told what happened, from its end on a snapshot does."""
    return f"""
        SELECT cluster_id, plan, gap_from_offset AS from_offset, gap_to_offset AS to_offset,
            CASE WHEN gap_to_offset = started_at THEN snapshot END AS snapshot
        FROM ({rows(REPLAYS.name)}) AS closed_replays
        JOIN ({_replayed(rows)}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
        WHERE gap_to_offset IS NOT NULL AND (said_again_from IS NULL OR gap_from_offset < said_again_from)"""  # noqa: S608


def _newest(table: str, rows: ClosedRows) -> str:
    """Epochs and voter sets: the newest plan's, and of earlier plans what was cut, or lies below today's log."""
    contract = LAKE_TABLES[table]
    next_set = "lead(from_offset) OVER (PARTITION BY cluster_id, canonical ORDER BY from_offset)"
    end = "" if "to_offset" in contract.column_names else f"CASE WHEN canonical THEN {next_set} END AS to_offset,"
    return f"""
        SELECT {_columns("ordered", contract.column_names)}, {end}
            canonical AND coalesce(from_offset < newest_low, false) AS proven
        FROM (
            SELECT *, max(plan) OVER (PARTITION BY {", ".join(IDENTITY[table])}) AS told_last
            FROM {_told(table, rows)}
        ) AS ordered
        WHERE plan = newest_plan
            OR (plan = told_last AND (NOT canonical OR coalesce({ENDED[table]}, false)))"""  # noqa: S608


def _reverted(table: str, rows: ClosedRows) -> str:
    canonical = "canonical AND " if table in IDENTITY else ""
    return f"""
        SELECT {_columns("told", LAKE_TABLES[table].column_names)}
        FROM {_told(table, rows)}
        WHERE {canonical}from_offset >= said_otherwise_from"""  # noqa: S608


def _columns(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{name}" for name in names)


def _log(rows: ClosedRows) -> str:
    """Each distinct batch once: which nodes held it when they were last read, and what the newest low says of it.

    `committed`: on the canonical log, below low. `uncommitted`: on it, not proven. `divergent`: on another branch.
    """
    newest_row = f"""
        SELECT *, row_number() OVER (
            PARTITION BY cluster_id, node_id, directory_id, CASE WHEN node_id IS NULL THEN path ELSE '' END,
                base_offset, last_offset, leader_epoch, crc
            ORDER BY plan DESC, captured_at_ms DESC, capture_number DESC, status DESC
        ) AS place
        FROM ({rows(BATCHES.name)}) WHERE source = 'log' AND valid"""  # noqa: S608
    return f"""
        WITH held AS (
            SELECT cluster_id, base_offset, last_offset, leader_epoch, crc, max(max_timestamp_ms) AS max_timestamp_ms,
                max(record_count) AS record_count, max(size_bytes) AS size_bytes,
                array_sort(collect_set(CASE WHEN status = 'present' THEN node_id END)) AS held_by
            FROM ({newest_row}) WHERE place = 1
            GROUP BY cluster_id, base_offset, last_offset, leader_epoch, crc
        ),
        canonical AS (
            SELECT cluster_id, epoch, min(from_offset) AS from_offset, max(to_offset) AS to_offset
            FROM ({_newest(LEADER_EPOCHS.name, rows)}) WHERE canonical AND from_offset IS NOT NULL
            GROUP BY cluster_id, epoch
        ),
        watermark AS (
            SELECT cluster_id, max_by(low, struct(plan, capture_number, capture)) AS low
            FROM ({rows(WATERMARKS.name)}) GROUP BY cluster_id
        )
        SELECT held.*,
            CASE WHEN canonical.epoch IS NULL THEN 'divergent'
                WHEN held.last_offset < watermark.low THEN 'committed' ELSE 'uncommitted' END AS status
        FROM held
        LEFT JOIN canonical ON held.cluster_id = canonical.cluster_id AND held.leader_epoch = canonical.epoch
            AND held.base_offset >= canonical.from_offset AND held.base_offset < canonical.to_offset
        LEFT JOIN watermark ON held.cluster_id = watermark.cluster_id"""  # noqa: S608
