"""What the gold tables promise, as SQL: that they are what the newest plans said, whole, and not left behind.

Gold follows closed plans by a step of its own, so that each table is held to the plans that it has taken; how long it
has not taken what is closed is a promise of its own, a warning.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from kraft_audit.rules.controls import CONTROLS
from kraft_audit.spark.gold_tables import CLUSTER_COMPLIANCE, FINDINGS, PARTITION_RISK
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import CLOSED, HOUR_MS, READ_ROWS, Ledger
from kraft_audit.spark.quality_clauses import Clause, counts, required, unique_key
from kraft_audit.spark.tables import FINDINGS_STAGED
from kraft_codec.contract import Table
from kraft_codec.tables import CAPTURES, PLANS

# Minutes are sums of floating numbers.
MINUTES_OFF: Final = 1e-6
DAY_MINUTES: Final = 1440
# Findings about the log itself outlive a plan that read the archive alone, which cannot see them; those of a rule that
# could not look at the cluster at all outlive that plan.
OPEN_FINDINGS: Final = """
WITH newest AS (
    SELECT cluster_id, max(plan) AS plan FROM plans WHERE {read} AND plan <= {merged} GROUP BY cluster_id
),
judged AS (
    SELECT newest.cluster_id, newest.plan,
           coalesce(bool_or(opened.cluster_plan LIKE '%"archive:%'), false) AS is_from_archive
    FROM newest
    JOIN (SELECT * FROM plans WHERE {read}) AS staged
    ON newest.cluster_id = staged.cluster_id AND newest.plan = staged.plan
    LEFT JOIN (SELECT * FROM plans WHERE event = 'opened') AS opened
    ON staged.plan = opened.plan AND staged.cluster_number = opened.cluster_number
    GROUP BY newest.cluster_id, newest.plan
),
placed AS (
    SELECT staged.*, is_from_archive,
           row_number() OVER (PARTITION BY finding_id ORDER BY from_offset, summary) AS place
    FROM findings_staged AS staged
    JOIN judged ON staged.cluster_id = judged.cluster_id AND staged.plan = judged.plan
    WHERE status <> 'clear'
),
said AS (
    SELECT cluster_id, finding_id FROM placed
    WHERE place = 1 AND NOT is_over AND NOT (is_from_archive AND scope = 'log')
),
not_looked AS (
    SELECT DISTINCT cluster_id, rule FROM placed WHERE status = 'undecided' AND subject = ''
),
known AS (
    SELECT findings.cluster_id, findings.finding_id
    FROM findings
    JOIN judged ON findings.cluster_id = judged.cluster_id
    LEFT JOIN said ON findings.finding_id = said.finding_id
    LEFT JOIN not_looked ON findings.cluster_id = not_looked.cluster_id AND findings.rule = not_looked.rule
    WHERE state <> 'closed' AND NOT (is_from_archive AND scope = 'log')
      AND (said.finding_id IS NOT NULL OR not_looked.rule IS NULL)
)
SELECT coalesce(said.cluster_id, known.cluster_id) AS cluster_id,
       sum(CASE WHEN said.finding_id IS NULL OR known.finding_id IS NULL THEN 1 ELSE 0 END) AS n
FROM said FULL OUTER JOIN known ON said.finding_id = known.finding_id
GROUP BY coalesce(said.cluster_id, known.cluster_id)
"""
# A plan that a row names has read the row's cluster, as far as the ledger knows: of plans that maintenance forgot it
# knows that they were closed, and where an earlier release forgot them, nothing at all.
UNKNOWN_PLANS: Final = """
SELECT gold.cluster_id, sum(CASE WHEN staged.plan IS NULL AND forgotten.plan IS NULL
    AND (gold.plan < 1 OR gold.plan >= oldest.plan) THEN 1 ELSE 0 END) AS n
FROM {table} AS gold
LEFT JOIN (SELECT DISTINCT cluster_id, plan FROM plans WHERE {read} AND plan <= {closed}) AS staged
ON gold.cluster_id = staged.cluster_id AND gold.plan = staged.plan
LEFT JOIN (SELECT plan FROM plans GROUP BY plan HAVING bool_and(event = 'closed')) AS forgotten
ON gold.plan = forgotten.plan
CROSS JOIN (SELECT min(plan) AS plan FROM plans) AS oldest
GROUP BY gold.cluster_id
"""
MINUTES: Final = """
SELECT cluster_id, sum(CASE WHEN exposure_minutes <= 0 OR exposure_minutes > partitions * {day} + {off}
    OR greatest(last_replica_minutes, offline_minutes, under_min_isr_minutes) > exposure_minutes + {off}
    OR least(last_replica_minutes, offline_minutes, under_min_isr_minutes) < 0 THEN 1 ELSE 0 END) AS n
FROM partition_risk
GROUP BY cluster_id
"""


def gold_clauses(lake: Lake, table: Table, closed: int, now_ms: int, fresh_hours: float) -> list[Clause]:
    """The clauses of one gold table, which the lake has."""
    rows = f"(SELECT * FROM {table.name})"  # noqa: S608  # a contract's own name
    clauses = [unique_key(lake, table, rows), required(lake, table, rows), _unknown_plans(lake, table, closed)]
    if table is FINDINGS:
        clauses.append(_open_findings(lake))
    if table is PARTITION_RISK:
        sql = MINUTES.format(day=DAY_MINUTES, off=MINUTES_OFF)
        promise = "exposure is some of a day's minutes, and none of its parts is more"
        clauses.append(Clause("minutes_impossible", "critical", promise, counts(lake, sql, table.name)))
    if table is CLUSTER_COMPLIANCE:
        clauses.append(_whole_calendar(lake))
        behind = _clusters_behind(lake, closed, now_ms)
    else:
        behind = {"": _hours_behind(lake, table, closed, now_ms)}
    promise = f"takes what is closed within {fresh_hours:g} hours"
    return [*clauses, Clause("hours_behind", "warning", promise, behind, fresh_hours)]


def _unknown_plans(lake: Lake, table: Table, closed: int) -> Clause:
    sql = UNKNOWN_PLANS.format(table=table.name, read=READ_ROWS, closed=closed)
    promise = "each row is of a closed plan that read its cluster"
    return Clause("rows_off_the_ledger", "critical", promise, counts(lake, sql, table.name, PLANS.name))


def _open_findings(lake: Lake) -> Clause:
    sql = OPEN_FINDINGS.format(read=READ_ROWS, merged=_merged(lake, FINDINGS))
    found = counts(lake, sql, PLANS.name, FINDINGS_STAGED.name, FINDINGS.name)
    promise = "open is what the newest plan of each cluster said, and nothing else"
    return Clause("open_off_the_plan", "critical", promise, found)


def _whole_calendar(lake: Lake) -> Clause:
    """Every control has a row for each day from its cluster's first to its last."""
    sql = """SELECT cluster_id, control, min(day) AS first_day, max(day) AS last_day, count(DISTINCT day) AS days
        FROM cluster_compliance GROUP BY cluster_id, control"""
    rows = lake.query(sql, CLUSTER_COMPLIANCE.name).to_pylist()
    spans: dict[str, tuple[date, date]] = {}
    for row in rows:
        first, last = spans.get(row["cluster_id"], (row["first_day"], row["last_day"]))
        spans[row["cluster_id"]] = (min(first, row["first_day"]), max(last, row["last_day"]))
    missing = {name: float(len(CONTROLS) * ((last - first).days + 1)) for name, (first, last) in spans.items()}
    for row in rows:
        missing[row["cluster_id"]] -= row["days"]
    return Clause("days_missing", "critical", "every control on every day, without a gap", missing)


def _hours_behind(lake: Lake, table: Table, closed: int, now_ms: int) -> float:
    """Since when a closed plan that read anything waits for this table."""
    sql = f"""SELECT min(at_ms) AS since_ms FROM {PLANS.name}
        WHERE event = '{CLOSED}' AND plan > {_merged(lake, table)} AND plan <= {closed}
          AND plan IN (SELECT plan FROM {PLANS.name} WHERE {READ_ROWS})"""  # noqa: S608
    since_ms = lake.query(sql, PLANS.name).column("since_ms")[0].as_py()
    return 0.0 if since_ms is None else round((now_ms - since_ms) / HOUR_MS, 2)


def _clusters_behind(lake: Lake, closed: int, now_ms: int) -> dict[str, float]:
    """The same by cluster, as this table tells of each how far it is."""
    sql = f"""SELECT staged.cluster_id, min(ended.at_ms) AS since_ms
        FROM (SELECT cluster_id, plan FROM {PLANS.name} WHERE {READ_ROWS} AND plan <= {closed}) AS staged
        JOIN (SELECT plan, max(at_ms) AS at_ms FROM {PLANS.name} WHERE event = '{CLOSED}' GROUP BY plan) AS ended
        ON staged.plan = ended.plan
        JOIN (SELECT DISTINCT cluster_id FROM {CAPTURES.name}) AS seen
        ON staged.cluster_id = seen.cluster_id
        LEFT JOIN (SELECT cluster_id, max(plan) AS plan FROM {CLUSTER_COMPLIANCE.name} GROUP BY cluster_id) AS done
        ON staged.cluster_id = done.cluster_id
        WHERE done.plan IS NULL OR staged.plan > done.plan
        GROUP BY staged.cluster_id"""  # noqa: S608
    waiting = lake.query(sql, PLANS.name, CAPTURES.name, CLUSTER_COMPLIANCE.name).to_pylist()
    return {row["cluster_id"]: round((now_ms - row["since_ms"]) / HOUR_MS, 2) for row in waiting}


def _merged(lake: Lake, table: Table) -> int:
    return lake.versions(table.name, [Ledger(lake).application(table.name)])[0]
