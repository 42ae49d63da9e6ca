-- cluster_compliance: which controls held on each day, from the findings of the clusters in `changed`.
-- A cluster of whose log nothing was read, or whose log ended before 1970 by its timestamps, has the day of its capture.
-- A finding lasts from its first moment to its end. If it is not over, it lasts to the last day that was captured; if no
-- record dates it, from the day on which it was first seen. No days are made beyond 1,100.
WITH seen AS (
    SELECT captures.cluster_id,
           floor(
               least(max(last_timestamp_ms) FILTER (WHERE last_timestamp_ms >= 0), max(read_to_ms)) / 86400000L
           ) AS last_day
    FROM captures
    JOIN changed ON captures.cluster_id = changed.cluster_id
    GROUP BY captures.cluster_id
),
begun AS (
    SELECT changed.cluster_id, least(unix_date(known_first_day), floor(begun_ms / 86400000L)) AS first_day
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
    SELECT cluster_id, day_number, control
    FROM spans
    CROSS JOIN (SELECT DISTINCT control FROM controls) AS all_controls
    LATERAL VIEW explode(sequence(first_day, last_day)) AS day_number
),
lasting AS (
    SELECT
        findings.cluster_id, controls.control, findings.rule, findings.severity, findings.status, findings.state,
        unix_date(try_cast(findings.waived_until AS DATE)) AS waived_to,
        greatest(first_day, least(last_day, floor(coalesce(from_ms, first_seen_ms) / 86400000L))) AS from_day,
        CASE
            WHEN closed_by IN ('not_found', 'reverted') THEN least(last_day, floor(last_seen_ms / 86400000L))
            WHEN is_over THEN least(last_day, coalesce(floor(greatest(try_subtract(to_ms, 1), from_ms) / 86400000L),
                                                       floor(from_ms / 86400000L), last_day))
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
