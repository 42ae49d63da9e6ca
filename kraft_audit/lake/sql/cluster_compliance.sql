-- cluster_compliance: which controls were met on each day, from the findings of the clusters in `changed`.
-- An open finding of severity high or critical, as is every loss that nobody acknowledged, means that a control is not met.
-- Open findings of severity medium weaken it, and an acknowledged loss weakens it on the day of the loss.
-- A cluster of whose log nothing was read, or whose log ended before 1970 by its timestamps, has the day of its capture.
-- A finding lasts from its first moment to its end. If it is not over, it lasts to the last day that was captured; if no
-- record dates it, from the day on which it was first seen. No days are made beyond 1,100.
WITH seen AS (
    SELECT captures.cluster_id,
        CAST(floor(
            CAST(least(max(last_timestamp_ms) FILTER (WHERE last_timestamp_ms >= 0), max(read_to_ms)) AS DOUBLE)
            / 86400000.0
        ) AS BIGINT) AS last_day
    FROM captures
    JOIN changed ON captures.cluster_id = changed.cluster_id
    GROUP BY captures.cluster_id
),
begun AS (
    SELECT changed.cluster_id,
        least(known_first_day, CAST(floor(CAST(begun_ms AS DOUBLE) / 86400000.0) AS BIGINT)) AS first_day
    FROM changed
    LEFT JOIN log_begins ON changed.cluster_id = log_begins.cluster_id
),
spans AS (
    SELECT seen.cluster_id, last_day,
        least(last_day, greatest(coalesce(first_day, last_day), last_day - 1100)) AS first_day
    FROM seen
    LEFT JOIN begun ON seen.cluster_id = begun.cluster_id
),
calendar AS (
    SELECT cluster_id, control, {explode}({sequence}(first_day, last_day)) AS day_number
    FROM spans
    CROSS JOIN (SELECT DISTINCT control FROM controls) AS all_controls
),
lasting AS (
    SELECT
        findings.cluster_id, controls.control, findings.rule, findings.severity, findings.status, findings.state,
        try_cast(findings.waived_until AS DATE) AS waived_to,
        greatest(
            first_day,
            least(last_day, CAST(floor(CAST(coalesce(from_ms, first_seen_ms) AS DOUBLE) / 86400000.0) AS BIGINT))
        ) AS from_day,
        CASE
            WHEN closed_by IN ('not_found', 'reverted')
                THEN least(last_day, CAST(floor(CAST(last_seen_ms AS DOUBLE) / 86400000.0) AS BIGINT))
            WHEN is_over THEN least(last_day, coalesce(
                CAST(floor(CAST(
                    greatest(CASE WHEN to_ms >= -9223372036854775807 THEN to_ms - 1 END, from_ms) AS DOUBLE
                ) / 86400000.0) AS BIGINT),
                CAST(floor(CAST(from_ms AS DOUBLE) / 86400000.0) AS BIGINT), last_day
            ))
            ELSE last_day
        END AS to_day
    FROM findings
    JOIN controls ON findings.rule = controls.rule
    JOIN spans ON findings.cluster_id = spans.cluster_id
),
judged AS (
    SELECT
        *,
        coalesce(
            status = 'raised' AND state IN ('waived', 'acknowledged')
                AND DATE '1970-01-01' + CAST(day_number AS INT) <= waived_to,
            false
        ) AS is_waived
    FROM (SELECT *, {explode}({sequence}(from_day, greatest(from_day, to_day))) AS day_number FROM lasting) AS each_day
),
weighed AS (
    SELECT
        *,
        status = 'raised' AND NOT is_waived AND severity <> 'low' AS is_open,
        status = 'raised' AND NOT is_waived AND severity IN ('critical', 'high') AS is_severe,
        is_waived AND rule = {loss} AND day_number = from_day AS is_acknowledged_loss
    FROM judged
),
daily AS (
    SELECT
        cluster_id, control, day_number,
        array_sort(array_agg(DISTINCT rule) FILTER (WHERE is_severe)) AS not_met_by,
        array_sort(
            array_agg(DISTINCT rule) FILTER (WHERE is_acknowledged_loss OR (is_open AND NOT is_severe))
        ) AS weakened_by,
        array_sort(array_agg(DISTINCT rule) FILTER (WHERE is_waived)) AS waived_by,
        array_sort(array_agg(DISTINCT rule) FILTER (WHERE status = 'undecided')) AS undecided_by,
        count(*) FILTER (WHERE is_open) AS open_findings,
        count(*) FILTER (WHERE is_acknowledged_loss) AS acknowledged_losses,
        count(*) FILTER (WHERE is_waived) AS waived_findings,
        count(*) FILTER (WHERE status = 'raised' AND severity = 'low' AND NOT is_waived) AS low_findings,
        max(rank) FILTER (WHERE is_open) AS worst_rank
    FROM weighed
    JOIN severities ON weighed.severity = severities.name
    GROUP BY cluster_id, control, day_number
),
complete AS (
    SELECT
        calendar.cluster_id, calendar.day_number, calendar.control,
        coalesce(not_met_by, {array}()) AS not_met_by, coalesce(weakened_by, {array}()) AS weakened_by,
        coalesce(waived_by, {array}()) AS waived_by, coalesce(undecided_by, {array}()) AS undecided_by,
        coalesce(open_findings, 0) AS open_findings, coalesce(acknowledged_losses, 0) AS acknowledged_losses,
        coalesce(waived_findings, 0) AS waived_findings, coalesce(low_findings, 0) AS low_findings,
        severities.name AS worst_severity,
        CASE
            WHEN cardinality(not_met_by) > 0 THEN 'not_met'
            WHEN cardinality(undecided_by) > 0 THEN 'undecided'
            WHEN cardinality(weakened_by) > 0 THEN 'weakened'
            ELSE 'met'
        END AS status
    FROM calendar
    LEFT JOIN daily
    ON calendar.cluster_id = daily.cluster_id AND calendar.control = daily.control
        AND calendar.day_number = daily.day_number
    LEFT JOIN severities ON daily.worst_rank = severities.rank
),
before AS (
    SELECT
        *,
        lag(open_findings) OVER by_day AS open_before,
        max(CASE WHEN status <> 'not_met' THEN day_number END) OVER by_day AS last_other_day,
        min(day_number) OVER by_day AS first_day
    FROM complete
    WINDOW by_day AS (PARTITION BY cluster_id, control ORDER BY day_number)
)
SELECT
    before.cluster_id, DATE '1970-01-01' + CAST(day_number AS INT) AS day, control, status,
    not_met_by, weakened_by, waived_by, undecided_by,
    open_findings, acknowledged_losses, waived_findings, low_findings, worst_severity,
    CASE
        WHEN open_before IS NULL THEN 'first'
        WHEN open_findings > open_before THEN 'worse'
        WHEN open_findings < open_before THEN 'better'
        ELSE 'same'
    END AS trend,
    CAST(day_number - coalesce(last_other_day, first_day - 1) AS BIGINT) AS not_met_days,
    changed.changed_ms AS as_of_ms, changed.plan
FROM before
JOIN changed ON before.cluster_id = changed.cluster_id
