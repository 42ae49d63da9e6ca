"""What the two risk tables are computed from and how, in SQL: `partition_risk` and `cluster_compliance`.

`changed` are the clusters to compute again; what a query reads beside it, `risk.py` hands over.
"""

from __future__ import annotations

from typing import Final

# A log's timestamps are whatever its writer's clock said, any 64 bits: days beyond these are not made, and a log that
# ends before 1970 has none.
DAYS_BACK_MAX: Final = 1100
DAY_MS: Final = "86400000L"

# An exposure ends with the next change of its partition, or at the log's end; of a partition that was gone when a
# history gap ended, at the snapshot behind it, of which brokers tell when that was.
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
again AS (
    SELECT cluster_id, from_offset + 1 AS offset_after, min(timestamp_ms) AS again_ms
    FROM broker_changes
    GROUP BY cluster_id, from_offset
),
states AS (
    SELECT
        cluster_id, topic_id, partition, topic, timestamp_ms AS from_ms,
        keeper_id, is_last_replica, is_offline, is_under_min_isr, to_offset,
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
        least(coalesce(next_ms, again_ms, end_ms), end_ms) AS last_ms
    FROM states
    JOIN log_end ON states.cluster_id = log_end.cluster_id
    LEFT JOIN again ON states.cluster_id = again.cluster_id AND to_offset = offset_after
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

# Where logs begin, as far as plans tell of which `cluster_compliance` does not know: all batches are many.
LOG_BEGINS: Final = """
SELECT cluster_id, min(base_timestamp_ms) AS begun_ms
FROM ({batches}) AS batches
WHERE valid AND source = 'log' AND base_timestamp_ms > 0 AND ({of_new_plans})
GROUP BY cluster_id
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
    SELECT changed.cluster_id, least(unix_date(known_first_day), floor(begun_ms / {day_ms})) AS first_day
    FROM changed
    LEFT JOIN log_begins ON changed.cluster_id = log_begins.cluster_id
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
SELECT judged.cluster_id, judged.plan, coalesce(found.changed_ms, 0) AS changed_ms,
    coalesce(done.plan, 0) AS known_plan, done.first_day AS known_first_day
FROM (
    SELECT cluster_id, max(plan) AS plan
    FROM plans
    WHERE event = 'staged' AND outcome = 'read' AND plan <= {closed}
    GROUP BY cluster_id
) AS judged
LEFT JOIN (SELECT cluster_id, max(changed_ms) AS changed_ms FROM findings GROUP BY cluster_id) AS found
ON judged.cluster_id = found.cluster_id
LEFT JOIN (
    SELECT cluster_id, max(plan) AS plan, max(as_of_ms) AS as_of_ms, min(day) AS first_day
    FROM cluster_compliance
    GROUP BY cluster_id
) AS done
ON judged.cluster_id = done.cluster_id
WHERE done.plan IS NULL OR judged.plan > done.plan OR coalesce(found.changed_ms, 0) > done.as_of_ms
"""
