"""Queries over the lake's tables: rows of closed plans only, and of silver tables only the rows that hold.

The SQL runs in every engine, except where a function says otherwise. Tables are only ever appended to. A
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
from kraft_audit.tables.bronze import BATCH_KEY, BATCHES, PLANS
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    CLUSTERS,
    FINDING_EPISODES,
    FINDINGS,
    GOLD,
    GOLD_VIEWS,
    HISTORIES,
    INCIDENTS,
    LABELS,
    OPEN_FINDINGS,
    PARTITION_RISK,
)
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import LEADER_EPOCHS, REPLAYS, SILVER, VOTER_SETS, WATERMARKS, WITHDRAWN

TableReference = Callable[[str], str]
"""How a query names a table of the lake."""
LOG_VIEW: Final = "log"
HISTORY_GAP_VIEW: Final = "history_gap"
REVERTED: Final = "_reverted"
LABELLED: Final = tuple(
    table.name for table in (FINDINGS, FINDING_EPISODES, INCIDENTS, PARTITION_RISK, CLUSTER_COMPLIANCE)
)
"""Gold tables whose views show names and labels."""
CHANGE_TABLES: Final = tuple(name for name in SILVER if name.endswith("_changes"))
REVERTIBLE: Final = (*CHANGE_TABLES, VOTER_SETS.name, LEADER_EPOCHS.name)
IDENTITY: Final = {
    VOTER_SETS.name: ("cluster_id", "from_offset", "from_epoch"),
    LEADER_EPOCHS.name: ("cluster_id", "epoch", "from_offset"),
}
ENDED: Final = {
    VOTER_SETS.name: "from_offset < newest_log_start AND ended_by = 'superseded'",
    LEADER_EPOCHS.name: "to_offset <= newest_log_start",
}
REPLICA_KEY: Final = (
    *("cluster_id", "node_id", "directory_id"),
    *(f"CASE WHEN node_id IS NULL THEN {name} ELSE '' END" for name in ("root", "path")),
)
"""A replica is its node and directory id; without a node id, its folder (`replica_identity`)."""


def sql_file(name: str, **values: object) -> str:
    """The query in `kraft_audit/lake/sql` of this name, with the values filled in."""
    return files("kraft_audit.lake").joinpath("sql", f"{name}.sql").read_text("utf-8").format(**values)


SHOWN_FIRST: Final = (
    "is_over, status <> 'raised', coalesce(from_offset, from_ms, 0) * CASE WHEN is_over THEN -1 ELSE 1 END, summary"
)
"""SQL: the order of a finding's episodes in one plan, that of its row in `findings` first: the oldest that lasts, else
the newest that ended."""


def is_shown_by_disks(row: str) -> str:
    """SQL: whether a finding, a row of this name, is about the log itself, or is KV014: an archive shows neither."""
    return f"({row}.scope = 'log' OR {row}.rule = 'KV014')"


def newest_rows(rows: str, key: Iterable[str], newest_first: str, columns: str = "*") -> str:
    """The newest row of each key: of `rows` (a query) the first one in the order `newest_first`.

    `columns` are those of `newest`; without them the result has the column `place` (1) beside those of `rows`.
    """
    return _part("newest", rows=rows, key=", ".join(key), newest_first=newest_first, columns=columns)


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
    return [*LAKE_TABLES, LOG_VIEW, HISTORY_GAP_VIEW, *(f"{table}{REVERTED}" for table in REVERTIBLE)]


def labelled_names() -> list[str]:
    """The views of gold tables with each cluster's name and labels, and `clusters` with what holds now."""
    return [CLUSTERS.name, *LABELLED]


def labelled_sql(name: str, reference: TableReference) -> str:
    """A gold table's rows beside the name and the labels of their cluster, as fleet.yaml last had them.

    Of `clusters` the newest row of each cluster id. In every engine. Raises KeyError.
    """
    known = f"SELECT * FROM {reference(CLUSTERS.name)}"  # noqa: S608  # a name of our own
    newest = newest_rows(known, ("cluster_id",), "valid_from_ms DESC", _columns("newest", CLUSTERS.column_names))
    if name == CLUSTERS.name:
        return newest
    columns = f"{_columns('own', GOLD[name].column_names)}, {_columns('named', ('cluster_name', *LABELS))}"
    return _part("labelled", columns=columns, table=reference(name), clusters=newest)


def gold_view_sql(name: str, reference: TableReference) -> str:
    """One of GOLD_VIEWS, in every engine; the gold tables that it reads must be there. Raises KeyError."""
    texts = _ViewTexts(reference, None)
    canonical_epochs = f"SELECT * FROM ({texts.of(LEADER_EPOCHS.name)}) AS epochs WHERE canonical"  # noqa: S608  # ours
    gold = {table: reference(table) for table in GOLD if table != CLUSTERS.name}
    return sql_file(
        GOLD_VIEWS[name].name,
        **gold,
        columns=_columns("own", (name for name in OPEN_FINDINGS.column_names if name in FINDINGS.column_names)),
        labels=_columns("named", LABELS),
        clusters=labelled_sql(CLUSTERS.name, reference),
        histories=texts.of(HISTORIES.name),
        newest_epochs=newest_rows(canonical_epochs, ("cluster_id",), "epoch DESC"),
        newest_watermarks=texts.newest_watermarks(),
    )


def path_tables(lake: str) -> TableReference:
    """Tables by their paths below a lake."""
    return lambda table: "delta.`" + f"{lake}/{table}".replace("`", "``") + "`"


def query_of(name: str, reference: TableReference, closed: ClosedPlans | None = None) -> str:
    """The view's query over tables as `reference` names them; that of `log` is for Spark only.

    `closed` are the closed plans; without them each reading looks them up in `plans`. Raises KeyError where there is no
    view of that name.
    """
    return _ViewTexts(reference, closed).of(name)


def holding(table: str, reference: TableReference, closed: ClosedPlans) -> str:
    """The rows of a `*_changes` table, or of `replays`, that hold, without their ends: finding those takes a sort.

    `gone_at` is where a subject's last row ends because a history gap follows it; else null.
    """
    columns = _columns("emitted", LAKE_TABLES[table].column_names)
    return _ViewTexts(reference, closed).replayed_rows("holding", table, columns=columns)


class _ViewTexts:
    """The texts of `kraft_audit/lake/sql` over tables as `reference` names them, for these closed plans."""

    def __init__(self, reference: TableReference, closed: ClosedPlans | None) -> None:
        self._reference = reference
        self.visible = where_closed(reference(PLANS.name)) if closed is None else closed.where()

    def of(self, name: str) -> str:
        """The query of a view. Raises KeyError."""
        table = name.removesuffix(REVERTED)
        if name == LOG_VIEW:
            return self._log()
        if name == HISTORY_GAP_VIEW:
            return self._part(
                HISTORY_GAP_VIEW, REPLAYS.name, replays=self._reference(REPLAYS.name), replayed=self._replayed
            )
        if table != name and table in REVERTIBLE:
            canonical_only = f"canonical AND ended_by <> '{WITHDRAWN}' AND " if table in IDENTITY else ""
            columns = _columns("emitted", LAKE_TABLES[table].column_names)
            return self.replayed_rows("reverted", table, columns=columns, canonical_only=canonical_only)
        if name in CHANGE_TABLES:
            return self._changes(name)
        if name in IDENTITY:
            return self._epochs_or_voter_sets(name)
        if name == HISTORIES.name:
            columns = _columns("newest", HISTORIES.column_names)
            return newest_rows(self._closed(name), ("history_id",), "plan DESC", columns)
        if name == LOSSES.name:
            columns = _columns("newest", LOSSES.column_names)
            return newest_rows(self._closed(name), LOSSES.key, "plan DESC", columns)
        if name == PLANS.name:
            return self._part(PLANS.name, name, not_abandoned=not_abandoned(self._reference(name)))
        return self._closed(LAKE_TABLES[name].name)

    def newest_watermarks(self) -> str:
        """The newest row of `watermarks` of each cluster."""
        return newest_rows(
            self._closed(WATERMARKS.name), ("cluster_id",), "plan DESC, capture_number DESC, capture DESC"
        )

    def replayed_rows(self, text: str, table: str, **values: str) -> str:
        """A text that reads a table's closed rows beside what later plans did to them."""
        return self._part(text, table, replayed=self._replayed, **values)

    def _closed(self, table: str) -> str:
        return self._part("closed_rows", table)

    @property
    def _replayed(self) -> str:
        return self._part("replayed", REPLAYS.name, replays=self._reference(REPLAYS.name))

    def _part(self, text: str, table: str, **values: str) -> str:
        return _part(text, table=self._reference(table), visible=self.visible, **values)

    def _changes(self, table: str) -> str:
        contract = LAKE_TABLES[table]
        # `partition` is a word of SQL: it needs the table's name before it.
        subject = _columns("emitted", [column for column in contract.key if column != "from_offset"])
        return self.replayed_rows("changes", table, columns=_columns("emitted", contract.column_names), subject=subject)

    def _epochs_or_voter_sets(self, table: str) -> str:
        contract = LAKE_TABLES[table]
        columns = _columns("ordered", contract.column_names)
        if "to_offset" not in contract.column_names:
            next_set = "lead(from_offset) OVER (PARTITION BY cluster_id, canonical ORDER BY from_offset)"
            columns += f", CASE WHEN canonical THEN {next_set} END AS to_offset"
        identity = ", ".join(IDENTITY[table])
        return self.replayed_rows(
            "epochs_and_voter_sets",
            table,
            columns=columns,
            identity=identity,
            ended=ENDED[table],
            withdrawn=WITHDRAWN,
        )

    def _log(self) -> str:
        return self._part(
            LOG_VIEW,
            BATCHES.name,
            newest_batches=newest_batches(self.of(BATCHES.name)),
            epochs=self.of(LEADER_EPOCHS.name),
            newest_watermarks=self.newest_watermarks(),
        )


def _part(name: str, **values: object) -> str:
    """A text without the comment above it, to stand inside another."""
    lines = sql_file(name, **values).splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def _columns(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{name}" for name in names)
