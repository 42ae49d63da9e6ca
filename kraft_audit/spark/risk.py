"""`partition_risk` and `cluster_compliance`: how exposed each cluster was on each day, and which controls held.

Spark SQL over the lake's own tables, across clusters and time. Only clusters that a plan read since, or whose findings
changed, are computed again; a row is written only where it differs, so that a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import pyarrow as pa

from kraft_audit.replay.tables import BROKER_CHANGES, EXPOSURE_CHANGES, PARTITION_CHANGES, REPLAYS, SILVER
from kraft_audit.rules.controls import CONTROL_OF
from kraft_audit.spark import gold
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.gold import Action, Clause, GoldLake, Merge
from kraft_audit.spark.gold_tables import CLUSTER_COMPLIANCE, FINDINGS, PARTITION_RISK
from kraft_audit.spark.lake import DeltaLake, sql_text
from kraft_audit.spark.source import spark_schema
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_audit.spark.views import TableReference, query_of
from kraft_codec.contract import Table
from kraft_codec.tables import BATCHES, CAPTURES, PLANS

# A log's timestamps are whatever its writer's clock said, any 64 bits: days beyond these are not made, and a log that
# ends before 1970 has none.
DAYS_BACK_MAX: Final = 1100
DAY_MS: Final = "86400000L"

# What the queries take of each table, where Spark is handed the rows.
INPUTS: Final = {
    CAPTURES.name: ["cluster_id", "last_timestamp_ms", "read_to_ms"],
    BATCHES.name: ["cluster_id", "source", "valid", "base_timestamp_ms"],
    BROKER_CHANGES.name: ["cluster_id", "broker_id", "rack", "from_offset", "exists"],
    EXPOSURE_CHANGES.name: [
        *("cluster_id", "topic_id", "partition", "topic", "timestamp_ms", "from_offset"),
        *("keeper_id", "is_last_replica", "is_offline", "is_under_min_isr"),
    ],
    FINDINGS.name: [
        *("cluster_id", "rule", "severity", "status", "state", "waived_until"),
        *("from_ms", "to_ms", "is_over", "first_seen_ms", "last_seen_ms", "closed_by"),
    ],
}

# `changed`: the clusters to compute again. An exposure ends with the next change of its partition, or at the log's end.
# The hash goes first in the sort as what it orders by are texts, of which thousands begin alike.
RISK: Final = """
WITH log_end AS (
    SELECT captures.cluster_id, least(max(last_timestamp_ms), max(read_to_ms)) AS end_ms, max(changed.plan) AS plan
    FROM captures
    JOIN changed ON captures.cluster_id = changed.cluster_id
    WHERE last_timestamp_ms >= 0
    GROUP BY captures.cluster_id
),
racks AS (
    SELECT cluster_id, broker_id, max_by(rack, from_offset) AS rack
    FROM broker_changes
    WHERE exists
    GROUP BY cluster_id, broker_id
),
states AS (
    SELECT
        cluster_id, topic_id, partition, topic, timestamp_ms AS from_ms,
        keeper_id, is_last_replica, is_offline, is_under_min_isr,
        lead(timestamp_ms) OVER (
            PARTITION BY xxhash64(cluster_id, topic_id, partition), cluster_id, topic_id, partition
            ORDER BY from_offset
        ) AS next_ms
    FROM exposure_changes
    WHERE cluster_id IN (SELECT cluster_id FROM changed)
),
exposed AS (
    SELECT
        states.*, plan, greatest(from_ms, end_ms - {days_back} * {day_ms}) AS first_ms,
        least(coalesce(next_ms, end_ms), end_ms) AS last_ms
    FROM states
    JOIN log_end ON states.cluster_id = log_end.cluster_id
    WHERE is_last_replica OR is_offline OR is_under_min_isr
),
days AS (
    SELECT *, explode(sequence(floor(first_ms / {day_ms}), floor((last_ms - 1) / {day_ms}))) AS day_number
    FROM exposed
    WHERE last_ms > first_ms
),
pieces AS (
    SELECT *, least(last_ms, (day_number + 1) * {day_ms}) - greatest(first_ms, day_number * {day_ms}) AS length_ms
    FROM days
)
SELECT
    pieces.cluster_id, date_from_unix_date(CAST(day_number AS INT)) AS day, topic, coalesce(rack, '') AS rack,
    count(DISTINCT topic_id, partition) AS partitions,
    coalesce(sum(length_ms) FILTER (WHERE is_last_replica), 0) / 60000D AS last_replica_minutes,
    coalesce(sum(length_ms) FILTER (WHERE is_offline), 0) / 60000D AS offline_minutes,
    coalesce(sum(length_ms) FILTER (WHERE is_under_min_isr), 0) / 60000D AS under_min_isr_minutes,
    sum(length_ms) / 60000D AS exposure_minutes, max(plan) AS plan
FROM pieces
LEFT JOIN racks ON pieces.cluster_id = racks.cluster_id AND pieces.keeper_id = racks.broker_id
GROUP BY pieces.cluster_id, day_number, topic, coalesce(rack, '')
"""

# A cluster of whose log nothing was read, or whose log says that it ended before 1970, has the day when it was seen.
# A finding lasts from its first moment to its end; one that is not over, to the last day that was seen; one that no
# record dates, from the day on which it was seen first.
COMPLIANCE: Final = """
WITH seen AS (
    SELECT captures.cluster_id,
           floor(
               least(max(last_timestamp_ms) FILTER (WHERE last_timestamp_ms >= 0), max(read_to_ms)) / {day_ms}
           ) AS last_day
    FROM captures
    JOIN changed ON captures.cluster_id = changed.cluster_id
    GROUP BY captures.cluster_id
),
begun AS (
    SELECT cluster_id, floor(min(base_timestamp_ms) FILTER (WHERE base_timestamp_ms > 0) / {day_ms}) AS first_day
    FROM batches
    JOIN changed USING (cluster_id)
    WHERE valid AND source = 'log'
    GROUP BY cluster_id
),
spans AS (
    SELECT seen.cluster_id, last_day,
           least(last_day, greatest(coalesce(first_day, last_day), last_day - {days_back})) AS first_day
    FROM seen
    LEFT JOIN begun ON seen.cluster_id = begun.cluster_id
),
calendar AS (
    SELECT cluster_id, day_number, control
    FROM spans
    CROSS JOIN (SELECT DISTINCT control FROM controls) AS all_controls
    LATERAL VIEW explode(sequence(first_day, last_day)) AS day_number
),
lasting AS (
    SELECT
        findings.cluster_id, controls.control, findings.rule, findings.severity, findings.status, findings.state,
        unix_date(try_cast(findings.waived_until AS DATE)) AS waived_to,
        greatest(first_day, least(last_day, floor(coalesce(from_ms, first_seen_ms) / {day_ms}))) AS from_day,
        CASE
            WHEN closed_by = 'not_found' THEN least(last_day, floor(last_seen_ms / {day_ms}))
            WHEN is_over THEN least(last_day, coalesce(floor(greatest(try_subtract(to_ms, 1), from_ms) / {day_ms}),
                                                       floor(from_ms / {day_ms}), last_day))
            ELSE last_day
        END AS to_day
    FROM findings
    JOIN controls ON findings.rule = controls.rule
    JOIN spans ON findings.cluster_id = spans.cluster_id
),
judged AS (
    SELECT
        lasting.*, day_number,
        status = 'raised' AND state = 'waived' AND day_number <= waived_to AS is_waived,
        status = 'raised' AND severity <> 'low' AS counts
    FROM lasting
    LATERAL VIEW explode(sequence(from_day, greatest(from_day, to_day))) AS day_number
),
daily AS (
    SELECT
        cluster_id, control, day_number,
        sort_array(collect_set(rule) FILTER (WHERE counts AND NOT is_waived)) AS broken_by,
        sort_array(collect_set(rule) FILTER (WHERE is_waived)) AS waived_by,
        sort_array(collect_set(rule) FILTER (WHERE status = 'undecided')) AS undecided_by,
        count_if(counts AND NOT is_waived) AS open_findings,
        count_if(is_waived) AS waived_findings,
        count_if(status = 'raised' AND severity = 'low' AND NOT is_waived) AS low_findings,
        max_by(severity, rank) FILTER (WHERE counts AND NOT is_waived) AS worst_severity
    FROM judged
    JOIN severities ON judged.severity = severities.name
    GROUP BY cluster_id, control, day_number
),
complete AS (
    SELECT
        calendar.cluster_id, calendar.day_number, calendar.control,
        coalesce(broken_by, array()) AS broken_by, coalesce(waived_by, array()) AS waived_by,
        coalesce(undecided_by, array()) AS undecided_by, coalesce(open_findings, 0) AS open_findings,
        coalesce(waived_findings, 0) AS waived_findings, coalesce(low_findings, 0) AS low_findings, worst_severity,
        CASE
            WHEN open_findings > 0 THEN 'broken'
            WHEN size(undecided_by) > 0 THEN 'undecided'
            ELSE 'held'
        END AS status
    FROM calendar
    LEFT JOIN daily
    ON calendar.cluster_id = daily.cluster_id AND calendar.control = daily.control
       AND calendar.day_number = daily.day_number
),
before AS (
    SELECT
        *,
        lag(open_findings) OVER by_day AS open_before,
        max(CASE WHEN status <> 'broken' THEN day_number END) OVER by_day AS last_unbroken_day,
        min(day_number) OVER by_day AS first_day
    FROM complete
    WINDOW by_day AS (PARTITION BY cluster_id, control ORDER BY day_number)
)
SELECT
    before.cluster_id, date_from_unix_date(CAST(day_number AS INT)) AS day, control, status,
    broken_by, waived_by, undecided_by, open_findings, waived_findings, low_findings, worst_severity,
    CASE
        WHEN open_before IS NULL THEN 'first'
        WHEN open_findings > open_before THEN 'worse'
        WHEN open_findings < open_before THEN 'better'
        ELSE 'same'
    END AS trend,
    CAST(day_number - coalesce(last_unbroken_day, first_day - 1) AS BIGINT) AS broken_days,
    changed.changed_ms AS as_of_ms, changed.plan
FROM before
JOIN changed ON before.cluster_id = changed.cluster_id
"""

# Rows that are no longer computed go; rows that are the same stay, but for the newest, which tells how far it is.
FOUND: Final = """
WITH computed AS ({computed})
SELECT {columns}, day = max(day) OVER (PARTITION BY cluster_id) AS is_newest, false AS is_gone
FROM computed
"""
GONE: Final = """
SELECT {columns}, false AS is_newest, true AS is_gone
FROM {table} AS old
WHERE cluster_id IN (SELECT cluster_id FROM changed)
  AND NOT EXISTS (SELECT 1 FROM computed WHERE {old_is_new})
"""
# Both engines read these texts: Spark, and the one that looks whether Spark has to be started at all.
RISK_CHANGED: Final = """
SELECT cluster_id, max(plan) AS plan
FROM plans
WHERE event = 'staged' AND outcome = 'read' AND plan > {done} AND plan <= {closed}
GROUP BY cluster_id
"""
COMPLIANCE_CHANGED: Final = """
SELECT judged.cluster_id, judged.plan, coalesce(found.changed_ms, 0) AS changed_ms
FROM (
    SELECT cluster_id, max(plan) AS plan
    FROM plans
    WHERE event = 'staged' AND outcome = 'read' AND plan <= {closed}
    GROUP BY cluster_id
) AS judged
LEFT JOIN (SELECT cluster_id, max(changed_ms) AS changed_ms FROM findings GROUP BY cluster_id) AS found
ON judged.cluster_id = found.cluster_id
LEFT JOIN (
    SELECT cluster_id, max(plan) AS plan, max(as_of_ms) AS as_of_ms FROM cluster_compliance GROUP BY cluster_id
) AS done
ON judged.cluster_id = done.cluster_id
WHERE done.plan IS NULL OR judged.plan > done.plan OR coalesce(found.changed_ms, 0) > done.as_of_ms
"""


class RiskTables:
    """The two tables of one lake.

    Where Python reaches the lake, Spark is handed the rows of small tables: to open a Delta table of a hundred rows
    takes the JVM longer than all that it does with them.
    """

    def __init__(self, gold: GoldLake) -> None:
        self.gold = gold

    def update(self) -> list[str]:
        """Bring both up to the newest closed plan; the tables that were touched."""
        closed = self.gold.ledger.status().closed
        touched = []
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
        return self.gold.lake.exists(PARTITION_CHANGES.name) and self.gold.merged_plan(PARTITION_RISK.name) < closed

    def _compliance_changed(self, closed: int) -> pa.Table:
        sql = COMPLIANCE_CHANGED.format(closed=closed)
        return self.gold.lake.query(sql, PLANS.name, FINDINGS.name, CLUSTER_COMPLIANCE.name)

    def _risk_changed(self, closed: int) -> pa.Table:
        """The clusters that plans read since: a plan may have read none, and only tell that it could not."""
        done = self.gold.merged_plan(PARTITION_RISK.name)
        return self.gold.lake.query(RISK_CHANGED.format(done=done, closed=closed), PLANS.name)

    def _update_risk(self, closed: int, changed: pa.Table) -> None:
        self._rows("changed", changed)
        self._inputs(closed, changed, CAPTURES.name, EXPOSURE_CHANGES.name, BROKER_CHANGES.name)
        self._merge(PARTITION_RISK, RISK.format(day_ms=DAY_MS, days_back=DAYS_BACK_MAX), changed, closed)

    def _update_compliance(self, closed: int, changed: pa.Table) -> None:
        # What was changed must not move while rows are merged by it.
        self._rows("changed", changed)
        ranks = ((name, rank) for rank, name in enumerate(("low", "medium", "high", "critical")))
        self._values("severities (name, rank)", ranks)
        self._values("controls (rule, control)", CONTROL_OF.items())
        self._inputs(closed, changed, CAPTURES.name, BATCHES.name, FINDINGS.name)
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
        # A newer plan alone is no difference, but on the newest day, which tells how far the cluster was computed.
        values = [name for name in columns if name not in (*key, "plan", "as_of_ms")]
        differs = [f"(known.{name} IS DISTINCT FROM found.{name})" for name in values]
        if "as_of_ms" in columns:
            differs.append("(found.is_newest AND (known.plan <> found.plan OR known.as_of_ms <> found.as_of_ms))")
        found = FOUND.format(computed=computed, columns=", ".join(columns))
        inserted = {name: f"found.{name}" for name in columns}
        updated = {name: value for name, value in inserted.items() if name not in key}
        clauses = (
            Clause(Action.DELETE, {}, "found.is_gone"),
            Clause(Action.UPDATE, updated, f"NOT found.is_gone AND ({' OR '.join(differs)})"),
            Clause(Action.INSERT, inserted),
        )
        same_row = " AND ".join(f"known.{name} = found.{name}" for name in key)
        if isinstance(self.gold.lake, DeltaLake):
            rows = self.gold.spark.sql(found).limit(gold.SMALL_ROWS + 1).toArrow()
            if rows.num_rows <= gold.SMALL_ROWS:
                rows = pa.concat_tables([rows, self._gone(table, rows, changed)])
                self.gold.merge(table.name, Merge(same_row, clauses, rows=rows), version)
                return
        gone = GONE.format(
            table=self.gold.place(table.name),
            columns=", ".join(columns),
            old_is_new=" AND ".join(f"computed.{name} = old.{name}" for name in key),
        )
        sql = f"{found} UNION ALL {gone}"
        merge = Merge(same_row, clauses, lambda _: sql, row_count=gold.SMALL_ROWS + 1)
        self.gold.merge(table.name, merge, version)

    def _gone(self, table: Table, found: pa.Table, changed: pa.Table) -> pa.Table:
        """Rows of the changed clusters that are no longer computed."""
        sql = f"SELECT * FROM {table.name} WHERE {_of_clusters(changed)}"  # noqa: S608
        old, keys = self.gold.lake.query(sql, table.name), list(table.key)
        places = old.select(keys).append_column("place", pa.array(range(old.num_rows), pa.int64()))
        gone = old.take(places.join(found.select(keys), keys, join_type="left anti").column("place"))
        for name, value in (("is_newest", False), ("is_gone", True)):
            gone = gone.append_column(name, pa.repeat(pa.scalar(value), gone.num_rows))
        return gone.select(found.column_names).cast(found.schema)


def _findings(reference: TableReference) -> str:
    """A struct that is null, of columns that may not be, does not cross from Arrow into Spark."""
    return f"SELECT *, waiver['until'] AS waived_until FROM {reference(FINDINGS.name)}"  # noqa: S608


def _of_clusters(changed: pa.Table) -> str:
    clusters = map(sql_text, changed.column("cluster_id").to_pylist())
    return f"cluster_id IN ({', '.join(clusters) or 'NULL'})"
