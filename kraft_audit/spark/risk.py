"""`partition_risk` and `cluster_compliance`: how exposed each cluster was on each day, and which controls held.

Spark SQL over the lake's own tables, across clusters and time. Only clusters that a plan read since, or whose findings
changed, are computed again; a row is written only where it differs, so that a second run changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.tables import BROKER_CHANGES, EXPOSURE_CHANGES, REPLAYS, SILVER
from kraft_audit.rules.controls import CONTROL_OF
from kraft_audit.spark import gold
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.gold import Action, Clause, GoldLake, Merge
from kraft_audit.spark.gold_tables import CLUSTER_COMPLIANCE, FINDINGS, PARTITION_RISK
from kraft_audit.spark.lake import DeltaLake, sql_text
from kraft_audit.spark.risk_queries import (
    COMPLIANCE,
    COMPLIANCE_CHANGED,
    DAY_MS,
    DAYS_BACK_MAX,
    FOUND,
    GONE,
    LOG_BEGINS,
    RISK,
    RISK_CHANGED,
)
from kraft_audit.spark.source import spark_schema
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_audit.spark.views import TableReference, query_of
from kraft_codec.contract import Table
from kraft_codec.tables import BATCHES, CAPTURES, PLANS

# What the queries take of each table, where Spark is handed the rows.
INPUTS: Final = {
    CAPTURES.name: ["cluster_id", "last_timestamp_ms", "read_to_ms"],
    BROKER_CHANGES.name: ["cluster_id", "broker_id", "rack", "from_offset", "timestamp_ms", "exists"],
    EXPOSURE_CHANGES.name: [
        *("cluster_id", "topic_id", "partition", "topic", "timestamp_ms", "from_offset", "to_offset"),
        *("keeper_id", "is_last_replica", "is_offline", "is_under_min_isr"),
    ],
    FINDINGS.name: [
        *("cluster_id", "rule", "severity", "status", "state", "waived_until"),
        *("from_ms", "to_ms", "is_over", "first_seen_ms", "last_seen_ms", "closed_by"),
    ],
}


class RiskTables:
    """The two tables of one lake.

    Where Python reaches the lake, Spark is handed the rows of small tables: to open a Delta table of a hundred rows
    takes the JVM longer than all that it does with them.
    """

    def __init__(self, gold: GoldLake) -> None:
        self.gold = gold
        self.skipped: list[str] = []
        """The clusters whose `partition_risk` the last `update` left as it was: their exposures are not all told."""

    def update(self) -> list[str]:
        """Bring both up to the newest closed plan; the tables that were touched."""
        closed = self.gold.ledger.status().closed
        touched = []
        self.skipped = []
        if self._lags(closed) and (changed := self._risk_changed(closed)).num_rows:
            self.gold.create(PARTITION_RISK)
            self._update_risk(closed, changed)
            touched.append(PARTITION_RISK.name)
            failpoint("after-risk")
        if self.gold.lake.exists(FINDINGS.name) and closed > 0:
            self.gold.create(CLUSTER_COMPLIANCE)
            changed = self._compliance_changed(closed)
            if changed.num_rows:
                self._update_compliance(closed, changed)
                touched.append(CLUSTER_COMPLIANCE.name)
        return touched

    def _lags(self, closed: int) -> bool:
        return self.gold.lake.exists(EXPOSURE_CHANGES.name) and self.gold.merged_plan(PARTITION_RISK.name) < closed

    def _compliance_changed(self, closed: int) -> pa.Table:
        sql = COMPLIANCE_CHANGED.format(closed=closed)
        return self.gold.lake.query(sql, PLANS.name, FINDINGS.name, CLUSTER_COMPLIANCE.name)

    def _risk_changed(self, closed: int) -> pa.Table:
        """The clusters that plans read since: a plan may have read none, and only tell that it could not."""
        done = self.gold.merged_plan(PARTITION_RISK.name)
        return self.gold.lake.query(RISK_CHANGED.format(done=done, closed=closed), PLANS.name)

    def _update_risk(self, closed: int, changed: pa.Table) -> None:
        lacking = self.gold.ledger.without_exposures(closed)
        is_skipped = pc.is_in(changed["cluster_id"], pa.array(lacking, pa.string()))
        self.skipped = changed["cluster_id"].filter(is_skipped).to_pylist()
        changed = changed.filter(pc.invert(is_skipped))
        if self._is_never_exposed(changed):
            self._merge_rows(PARTITION_RISK, _no_rows(PARTITION_RISK), changed, closed)
            return
        self._rows("changed", changed)
        self._inputs(closed, changed, CAPTURES.name, EXPOSURE_CHANGES.name, BROKER_CHANGES.name)
        self._merge(PARTITION_RISK, RISK.format(day_ms=DAY_MS, days_back=DAYS_BACK_MAX), changed, closed)

    def _is_never_exposed(self, changed: pa.Table) -> bool:
        """Whether no partition of these clusters ever was, as is usual: then nothing has to be computed."""
        if not isinstance(self.gold.lake, DeltaLake):
            return False
        sql = f"SELECT count(*) AS n FROM {EXPOSURE_CHANGES.name} WHERE {_of_clusters(changed)}"  # noqa: S608
        return bool(self.gold.lake.query(sql, EXPOSURE_CHANGES.name).column("n")[0].as_py() == 0)

    def _update_compliance(self, closed: int, changed: pa.Table) -> None:
        # What was changed must not move while rows are merged by it.
        self._rows("changed", changed)
        ranks = ((name, rank) for rank, name in enumerate(("low", "medium", "high", "critical")))
        self._values("severities (name, rank)", ranks)
        self._values("controls (rule, control)", CONTROL_OF.items())
        self._inputs(closed, changed, CAPTURES.name, FINDINGS.name)
        self._log_begins(closed, changed)
        self._merge(CLUSTER_COMPLIANCE, COMPLIANCE.format(day_ms=DAY_MS, days_back=DAYS_BACK_MAX), changed)

    def _inputs(self, closed: int, changed: pa.Table, *names: str) -> None:
        """What the queries read, of closed plans: rows where the tables behind it are small, else the Delta tables."""
        behind = {name: (name, REPLAYS.name) if name in SILVER else (name,) for name in names}
        for name, tables in behind.items():
            query = partial(query_of, name, closed=closed) if name in LAKE_TABLES else _findings
            if self._is_small(*tables):
                sql = f"SELECT * FROM ({query(str)}) AS every WHERE {_of_clusters(changed)}"  # noqa: S608
                self._rows(name, self.gold.lake.query(sql, *tables).select(INPUTS[name]))
            else:
                self._view(name, query(self.gold.place))

    def _log_begins(self, closed: int, changed: pa.Table) -> None:
        sql = partial(LOG_BEGINS.format, of_new_plans=_of_new_plans(changed))
        batches = partial(query_of, BATCHES.name, closed=closed)
        if isinstance(self.gold.lake, DeltaLake):
            self._rows("log_begins", self.gold.lake.query(sql(batches=batches(str)), BATCHES.name))
        else:
            self._view("log_begins", sql(batches=batches(self.gold.place)))

    def _is_small(self, *tables: str) -> bool:
        lake = self.gold.lake
        if not isinstance(lake, DeltaLake):
            return False
        counts = (lake.query(f"SELECT count(*) AS n FROM {name}", name) for name in tables)  # noqa: S608
        return all(int(count.column("n")[0].as_py()) <= gold.SMALL_ROWS for count in counts)

    def _rows(self, name: str, rows: pa.Table) -> None:
        # PySpark cannot take an Arrow table without a chunk, which is what no rows often are.
        frame = rows if rows.num_rows else []
        self.gold.spark.createDataFrame(frame, schema=spark_schema(rows.schema)).createOrReplaceTempView(name)

    def _values(self, name: str, rows: Iterable[tuple[str, object]]) -> None:
        values = ", ".join(map(repr, rows))
        self._view(name, f"VALUES {values}")

    def _view(self, name: str, sql: str) -> None:
        self.gold.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {sql}")

    def _merge(self, table: Table, computed: str, changed: pa.Table, version: int | None = None) -> None:
        """Computed by Spark; merged by `deltalake` where Python reaches the lake and the rows are few."""
        columns, key = table.column_names, table.key
        found = FOUND.format(computed=computed, columns=", ".join(columns))
        if isinstance(self.gold.lake, DeltaLake):
            rows = self.gold.spark.sql(found).limit(gold.SMALL_ROWS + 1).toArrow()
            if rows.num_rows <= gold.SMALL_ROWS:
                self._merge_rows(table, rows, changed, version)
                return
        gone = GONE.format(
            table=self.gold.place(table.name),
            columns=", ".join(columns),
            old_is_new=" AND ".join(f"computed.{name} = old.{name}" for name in key),
        )
        sql = f"{found} UNION ALL {gone}"
        merge = Merge(_same_row(table), _clauses(table), lambda _: sql, row_count=gold.SMALL_ROWS + 1)
        self.gold.merge(table.name, merge, version)

    def _merge_rows(self, table: Table, found: pa.Table, changed: pa.Table, version: int | None) -> None:
        """Merges the rows that FOUND gave, all that the changed clusters have from now on."""
        rows = pa.concat_tables([found, self._gone(table, found, changed)])
        self.gold.merge(table.name, Merge(_same_row(table), _clauses(table), rows=rows), version)

    def _gone(self, table: Table, found: pa.Table, changed: pa.Table) -> pa.Table:
        """Rows of the changed clusters that are no longer computed."""
        sql = f"SELECT * FROM {table.name} WHERE {_of_clusters(changed)}"  # noqa: S608
        old, keys = self.gold.lake.query(sql, table.name), list(table.key)
        places = old.select(keys).append_column("place", pa.array(range(old.num_rows), pa.int64()))
        gone = old.take(places.join(found.select(keys), keys, join_type="left anti").column("place"))
        for name, value in (("is_newest", False), ("is_gone", True)):
            gone = gone.append_column(name, pa.repeat(pa.scalar(value), gone.num_rows))
        return gone.select(found.column_names).cast(found.schema)


def _same_row(table: Table) -> str:
    return " AND ".join(f"known.{name} = found.{name}" for name in table.key)


def _clauses(table: Table) -> tuple[Clause, ...]:
    """Rows that are no longer computed go, those that differ are written, new ones too."""
    # A newer plan alone is no difference, but on the newest day, which tells how far the cluster was computed.
    values = [name for name in table.column_names if name not in (*table.key, "plan", "as_of_ms")]
    differs = [f"(known.{name} IS DISTINCT FROM found.{name})" for name in values]
    if "as_of_ms" in table.column_names:
        differs.append("(found.is_newest AND (known.plan <> found.plan OR known.as_of_ms <> found.as_of_ms))")
    inserted = {name: f"found.{name}" for name in table.column_names}
    updated = {name: value for name, value in inserted.items() if name not in table.key}
    return (
        Clause(Action.DELETE, {}, "found.is_gone"),
        Clause(Action.UPDATE, updated, f"NOT found.is_gone AND ({' OR '.join(differs)})"),
        Clause(Action.INSERT, inserted),
    )


def _no_rows(table: Table) -> pa.Table:
    """What FOUND gives where nothing is computed."""
    more = [pa.field("is_newest", pa.bool_()), pa.field("is_gone", pa.bool_())]
    return pa.schema([*table.schema, *more]).empty_table()


def _findings(reference: TableReference) -> str:
    """A struct that is null, of columns that may not be, does not cross from Arrow into Spark."""
    return f"SELECT *, waiver['until'] AS waived_until FROM {reference(FINDINGS.name)}"  # noqa: S608


def _of_clusters(changed: pa.Table) -> str:
    clusters = map(sql_text, changed.column("cluster_id").to_pylist())
    return f"cluster_id IN ({', '.join(clusters) or 'NULL'})"


def _of_new_plans(changed: pa.Table) -> str:
    """Of each of the clusters the plans of which `cluster_compliance` does not know: most know equally many."""
    clusters = defaultdict(list)
    for row in changed.to_pylist():
        clusters[row["known_plan"]].append(sql_text(row["cluster_id"]))
    return " OR ".join(f"plan > {plan} AND cluster_id IN ({', '.join(some)})" for plan, some in clusters.items())
