"""Queries over the lake's tables: rows of closed plans only, and of silver tables only the rows that hold.

The SQL runs in Spark and in DataFusion, except where a function says otherwise. Tables are only ever appended to. A
plan's row of `replays` says from which offset on its rows replace those of earlier plans, so that a query decides which
rows hold. Rows that a later plan contradicted stay visible in the views `…_reverted`. `to_offset` (the next change of
the same subject) and `proven` are never stored either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Final

from kraft_audit.lake.closed_plans import ClosedPlans, not_abandoned, where_closed
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import BATCHES, PLANS
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    CLUSTERS,
    FINDING_EPISODES,
    FINDINGS,
    GOLD,
    HISTORIES,
    INCIDENTS,
    LABELS,
    PARTITION_RISK,
)
from kraft_audit.tables.silver import LEADER_EPOCHS, REPLAYS, SILVER, VOTER_SETS, WATERMARKS

TableReference = Callable[[str], str]
"""How a query names a table of the lake."""
ClosedRows = Callable[[str], str]
"""The query of a table's rows of closed plans."""
LOG: Final = "log"
HISTORY_GAP: Final = "history_gap"
REVERTED: Final = "_reverted"
LABELLED: Final = tuple(
    table.name for table in (FINDINGS, FINDING_EPISODES, INCIDENTS, PARTITION_RISK, CLUSTER_COMPLIANCE)
)
"""Gold tables whose views show names and labels."""
CHANGE_TABLES: Final = tuple(name for name in SILVER if name.endswith("_changes"))
REVERTIBLE: Final = (*CHANGE_TABLES, VOTER_SETS.name, LEADER_EPOCHS.name)
# Each plan emits all epochs and voter sets that its captures show. What they no longer show comes from an earlier plan,
# where it had ended by then.
IDENTITY: Final = {
    VOTER_SETS.name: ("cluster_id", "from_offset", "from_epoch"),
    LEADER_EPOCHS.name: ("cluster_id", "epoch", "from_offset"),
}
ENDED: Final = {
    VOTER_SETS.name: "from_offset < newest_log_start AND ended_by = 'superseded'",
    LEADER_EPOCHS.name: "to_offset <= newest_log_start",
}
REPLICA_KEY: Final = ("cluster_id", "node_id", "directory_id", "CASE WHEN node_id IS NULL THEN path ELSE '' END")
"""A replica is its node and directory id; without them, its folder."""
BATCH_KEY: Final = ("base_offset", "last_offset", "leader_epoch", "crc")
"""Equal keys are equal bytes."""

_HOLDS: Final = "(replaced_from IS NULL OR from_offset < replaced_from)"
_IS_STILL_FIRST: Final = "(replaced_from IS NULL OR complete_from <= replaced_from)"
_GONE_AT: Final = "coalesce(CASE WHEN from_offset < own_gap_to - 1 THEN own_gap_to END, known_again_from)"


def sql_file(name: str, **values: object) -> str:
    """The query in `kraft_audit/lake/sql` of this name, with the values filled in."""
    return files("kraft_audit.lake").joinpath("sql", f"{name}.sql").read_text("utf-8").format(**values)


def newest_rows(rows: str, key: Iterable[str], newest_first: str) -> str:
    """The newest row of each key: of `rows` (a query) the first one in the order `newest_first`.

    The result has the column `place` (1) beside those of `rows`.
    """
    return f"""
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY {", ".join(key)} ORDER BY {newest_first}) AS place
            FROM ({rows}) AS every_row
        ) AS placed WHERE place = 1"""  # noqa: S608  # names of our own


def newest_batches(rows: str) -> str:
    """The newest row of each valid batch in each replica's log, of these rows of `batches` (a query)."""
    of_log = f"SELECT * FROM ({rows}) AS known WHERE source = 'log' AND valid"  # noqa: S608  # names of our own
    order = "plan DESC, captured_at_ms DESC, capture_number DESC, status DESC"
    return newest_rows(of_log, (*REPLICA_KEY, *BATCH_KEY), order)


def rows_of_clusters(rows: str, clusters: str) -> str:
    """The rows of these clusters, a list of quoted ids."""
    return f"SELECT * FROM ({rows}) AS every_row WHERE cluster_id IN ({clusters})"  # noqa: S608  # quoted


def newest_plan_rows(rows: str, clusters: str, columns: str = "held.*") -> str:
    """The rows of each cluster's newest plan that has any. Few columns are read to find out which rows those are.

    `clusters` is a list of quoted ids; `columns` are those of `held`.
    """
    return f"""
        WITH held AS ({rows_of_clusters(rows, clusters)})
        SELECT {columns}
        FROM (SELECT cluster_id, max(plan) AS plan FROM held GROUP BY cluster_id) AS newest
        JOIN held ON held.cluster_id = newest.cluster_id AND held.plan = newest.plan"""  # noqa: S608  # quoted


def last_captures(rows: str, clusters: str) -> str:
    """The captures of each plan that saw some replica last, or the log's end, or anything; DataFusion only.

    After a year of hourly runs that is a thousandth of the rows. They are grouped, not sorted by `newest_rows`: half
    the time over a million captures.
    """
    return f"""
        WITH held AS ({rows_of_clusters(rows, clusters)})
        SELECT held.*
        FROM (
            SELECT cluster_id, max(plan) AS plan FROM held GROUP BY {", ".join(REPLICA_KEY)}
            UNION
            SELECT cluster_id, first_value(plan ORDER BY last_timestamp_ms DESC NULLS LAST) AS plan FROM held
            GROUP BY cluster_id
            UNION
            SELECT cluster_id, first_value(plan ORDER BY read_to_ms DESC) AS plan FROM held
            GROUP BY cluster_id
        ) AS newest
        JOIN held ON held.cluster_id = newest.cluster_id AND held.plan = newest.plan"""  # noqa: S608  # quoted


def view_names() -> list[str]:
    """Every view: the tables of the lake, `log`, `history_gap` and the `…_reverted` ones."""
    return [*LAKE_TABLES, LOG, HISTORY_GAP, *(f"{table}{REVERTED}" for table in REVERTIBLE)]


def labelled_names() -> list[str]:
    """The views of gold tables with each cluster's name and labels, and `clusters` with what holds now."""
    return [CLUSTERS.name, *LABELLED]


def labelled_sql(name: str, reference: TableReference) -> str:
    """A gold table's rows beside the name and the labels of their cluster, as fleet.yaml last had them.

    Of `clusters` the newest row of each cluster id. In Spark and in DataFusion. Raises KeyError.
    """
    newest = newest_rows(f"SELECT * FROM {reference(CLUSTERS.name)}", ("cluster_id",), "valid_from_ms DESC")  # noqa: S608
    if name == CLUSTERS.name:
        return f"SELECT {_columns('newest', CLUSTERS.column_names)} FROM ({newest}) AS newest"  # noqa: S608
    own = _columns("own", GOLD[name].column_names)
    return f"""
        SELECT {own}, {_columns("named", ("cluster_name", *LABELS))}
        FROM {reference(name)} AS own LEFT JOIN ({newest}) AS named ON own.cluster_id = named.cluster_id"""  # noqa: S608


def view_sql(lake: str, name: str, closed: ClosedPlans | None = None) -> str:
    """The view's query for Spark; the same text makes a permanent view in a catalog. Raises KeyError."""
    return query_of(name, path_tables(lake), closed)


def path_tables(lake: str) -> TableReference:
    """Tables by their paths below a lake."""
    return lambda table: "delta.`" + f"{lake}/{table}".replace("`", "``") + "`"


def query_of(name: str, reference: TableReference, closed: ClosedPlans | None = None) -> str:
    """The view's query over tables as `reference` names them; that of `log` is for Spark only.

    `closed` are the closed plans; without them each reading looks them up in `plans`. Raises KeyError where there is no
    view of that name.
    """
    rows = _closed(reference, closed)
    if name == LOG:
        return _log(rows)
    if name == HISTORY_GAP:
        return _history_gap(rows)
    if name.endswith(REVERTED) and name.removesuffix(REVERTED) in REVERTIBLE:
        return _reverted(name.removesuffix(REVERTED), rows)
    if name in CHANGE_TABLES:
        return _changes(name, rows)
    if name in IDENTITY:
        return _newest(name, rows)
    if name == HISTORIES.name:
        newest = newest_rows(rows(name), ("history_id",), "plan DESC")
        return f"SELECT {_columns('newest', HISTORIES.column_names)} FROM ({newest}) AS newest"  # noqa: S608
    if name == PLANS.name:
        return f"{rows(name)} AND {not_abandoned(reference(name))}"
    return rows(LAKE_TABLES[name].name)


def holding(table: str, reference: TableReference, closed: ClosedPlans) -> str:
    """The rows of a `*_changes` table, or of `replays`, that hold, without their ends: finding those takes a sort.

    `gone_at` is where a subject's last row ends because a history gap follows it; else null.
    """
    columns = f"{_columns('emitted', LAKE_TABLES[table].column_names)}, {_GONE_AT} AS gone_at"
    return f"SELECT {columns} FROM {_with_later_plans(table, _closed(reference, closed))} WHERE {_HOLDS}"  # noqa: S608


def _closed(reference: TableReference, closed: ClosedPlans | None = None) -> ClosedRows:
    visible = where_closed(reference(PLANS.name)) if closed is None else closed.where()
    return lambda table: f"SELECT * FROM {reference(table)} WHERE {visible}"  # noqa: S608


def _replayed(rows: ClosedRows) -> str:
    """Of each plan of each cluster: the offsets from which a later plan replaces or contradicts it, and the newest low.

    `known_again_from` is the end of the snapshot from which a later plan emits everything again, after a gap or with
    another default. A subject that is not in that snapshot was gone by then, although the row that said so may no
    longer hold.
    """
    later = "OVER (PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    every = "OVER (PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    plans = f"""
        SELECT *, min(from_offset) {later} AS replaced_from,
            coalesce(
                gap_to_offset, CASE WHEN snapshot IS NOT NULL AND from_offset < started_at THEN started_at END
            ) AS complete_from
        FROM ({rows(REPLAYS.name)}) AS closed_replays"""  # noqa: S608
    return f"""
        SELECT cluster_id AS replayed_cluster, plan AS replayed_plan, replaced_from,
            min(contradicted_from) {later} AS reverted_from,
            min(CASE WHEN {_IS_STILL_FIRST} AND why_nothing IS NULL THEN complete_from END) {later} AS known_again_from,
            CASE WHEN {_IS_STILL_FIRST} THEN gap_to_offset END AS own_gap_to,
            last_value(low) {every} AS newest_low,
            last_value(log_start_offset) {every} AS newest_log_start,
            last_value(plan) {every} AS newest_plan
        FROM ({plans}) AS all_replays"""  # noqa: S608


def _with_later_plans(table: str, rows: ClosedRows) -> str:
    """A table's closed rows beside what later plans did to them."""
    return f"""({rows(table)}) AS emitted
        JOIN ({_replayed(rows)}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan"""


def _changes(table: str, rows: ClosedRows) -> str:
    """A row ends where the next row of its subject begins; before a history gap, where the snapshot after it is taken.

    That snapshot gives every subject again that was still there. A plan that emits everything again may itself pass a
    gap.
    """
    contract = LAKE_TABLES[table]
    # `partition` is a word of SQL: it needs the table's name before it.
    subject = _columns("emitted", [column for column in contract.key if column != "from_offset"])
    return f"""
        SELECT {_columns("emitted", contract.column_names)},
            coalesce(
                lead(from_offset) OVER (PARTITION BY {subject} ORDER BY from_offset),
                {_GONE_AT}
            ) AS to_offset,
            from_offset < newest_low AS proven
        FROM {_with_later_plans(table, rows)}
        WHERE {_HOLDS}"""  # noqa: S608  # names of our own


def _history_gap(rows: ClosedRows) -> str:
    """The offsets that no replica holds any more: earlier plans know what happened below, a snapshot what was after."""
    return f"""
        SELECT cluster_id, plan, gap_from_offset AS from_offset, gap_to_offset AS to_offset,
            CASE WHEN gap_to_offset = started_at THEN snapshot END AS snapshot
        FROM ({rows(REPLAYS.name)}) AS closed_replays
        JOIN ({_replayed(rows)}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
        WHERE gap_to_offset IS NOT NULL AND (replaced_from IS NULL OR gap_from_offset < replaced_from)"""  # noqa: S608


def _newest(table: str, rows: ClosedRows) -> str:
    """Epochs and voter sets: the newest plan's, and of earlier plans what was truncated or lies below today's log."""
    contract = LAKE_TABLES[table]
    next_set = "lead(from_offset) OVER (PARTITION BY cluster_id, canonical ORDER BY from_offset)"
    end = "" if "to_offset" in contract.column_names else f"CASE WHEN canonical THEN {next_set} END AS to_offset,"
    return f"""
        SELECT {_columns("ordered", contract.column_names)}, {end}
            canonical AND coalesce(from_offset < newest_low, false) AS proven
        FROM (
            SELECT *, max(plan) OVER (PARTITION BY {", ".join(IDENTITY[table])}) AS last_plan
            FROM {_with_later_plans(table, rows)}
        ) AS ordered
        WHERE plan = newest_plan
            OR (plan = last_plan AND (NOT canonical OR coalesce({ENDED[table]}, false)))"""  # noqa: S608


def _reverted(table: str, rows: ClosedRows) -> str:
    canonical = "canonical AND " if table in IDENTITY else ""
    return f"""
        SELECT {_columns("emitted", LAKE_TABLES[table].column_names)}
        FROM {_with_later_plans(table, rows)}
        WHERE {canonical}from_offset >= reverted_from"""  # noqa: S608


def _columns(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{name}" for name in names)


def _log(rows: ClosedRows) -> str:
    """Each distinct batch once: the nodes that held it when they were last read, and its status by the newest low.

    `committed`: on the canonical log, below low. `uncommitted`: on it, not proven. `divergent`: on another branch.
    """
    return f"""
        WITH held AS (
            SELECT cluster_id, base_offset, last_offset, leader_epoch, crc, max(max_timestamp_ms) AS max_timestamp_ms,
                max(record_count) AS record_count, max(size_bytes) AS size_bytes,
                array_sort(collect_set(CASE WHEN status = 'present' THEN node_id END)) AS held_by
            FROM ({newest_batches(rows(BATCHES.name))})
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
