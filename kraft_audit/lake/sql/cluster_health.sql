-- One row a cluster: who answers for it, how fresh its reading is, how far its log is committed, who leads, and what is
-- open. Controls are those of the newest day that was judged.
WITH known AS (
    SELECT history_id AS cluster_id, name FROM ({histories}) AS histories WHERE merged_into IS NULL
),
read AS (
    SELECT * FROM ({newest_watermarks}) AS newest_of_cluster
),
led AS (
    SELECT * FROM ({newest_epochs}) AS newest_of_cluster
),
found AS (
    SELECT cluster_id,
        count(*) FILTER (WHERE severity_now = 'critical') AS open_critical,
        count(*) FILTER (WHERE severity_now = 'high') AS open_high,
        count(*) FILTER (WHERE severity_now = 'medium') AS open_medium,
        count(*) FILTER (WHERE severity_now = 'low') AS open_low,
        count(*) FILTER (WHERE state = 'undecided') AS undecided,
        count(*) FILTER (WHERE state IN ('waived', 'acknowledged')) AS waived
    FROM {findings}
    GROUP BY cluster_id
),
happening AS (
    SELECT cluster_id, severity, headline, open_incidents FROM (
        SELECT cluster_id, severity, headline,
            count(*) OVER (PARTITION BY cluster_id) AS open_incidents,
            row_number() OVER (
                PARTITION BY cluster_id
                ORDER BY
                    CASE severity WHEN 'critical' THEN 1 WHEN 'high' THEN 2 WHEN 'medium' THEN 3 ELSE 4 END,
                    from_ms DESC NULLS LAST, incident_id
            ) AS place
        FROM {incidents} WHERE state = 'open'
    ) AS placed
    WHERE place = 1
),
judged AS (
    SELECT cluster_id, day, control, status, max(day) OVER (PARTITION BY cluster_id) AS newest_day
    FROM {cluster_compliance}
),
controls AS (
    SELECT cluster_id, max(day) AS judged_day,
        count(*) FILTER (WHERE status = 'not_met') AS not_met_controls,
        count(*) FILTER (WHERE status = 'weakened') AS weakened_controls,
        count(*) FILTER (WHERE status = 'undecided') AS undecided_controls
    FROM judged WHERE day = newest_day
    GROUP BY cluster_id
)
SELECT known.cluster_id,
    coalesce(named.cluster_name, known.name) AS cluster_name, named.owner, named.environment, named.tier, named.contact,
    read.plan, read.read_to_ms, read.low, read.high, read.canonical_end_offset,
    read.canonical_end_offset - read.low AS not_proven_count, read.undecided AS why_not_proven,
    CAST(cardinality(read.voters) AS BIGINT) AS voter_count,
    CAST(cardinality(read.captured_voters) AS BIGINT) AS captured_voter_count,
    led.epoch AS leader_epoch, led.leader_id,
    coalesce(happening.open_incidents, 0) AS open_incidents, happening.severity AS worst_incident_severity,
    happening.headline AS worst_incident,
    coalesce(found.open_critical, 0) AS open_critical, coalesce(found.open_high, 0) AS open_high,
    coalesce(found.open_medium, 0) AS open_medium, coalesce(found.open_low, 0) AS open_low,
    coalesce(found.undecided, 0) AS undecided_findings, coalesce(found.waived, 0) AS waived_findings,
    controls.judged_day, coalesce(controls.not_met_controls, 0) AS not_met_controls,
    coalesce(controls.weakened_controls, 0) AS weakened_controls,
    coalesce(controls.undecided_controls, 0) AS undecided_controls
FROM known
LEFT JOIN ({clusters}) AS named ON known.cluster_id = named.cluster_id
LEFT JOIN read ON known.cluster_id = read.cluster_id
LEFT JOIN led ON known.cluster_id = led.cluster_id
LEFT JOIN found ON known.cluster_id = found.cluster_id
LEFT JOIN happening ON known.cluster_id = happening.cluster_id
LEFT JOIN controls ON known.cluster_id = controls.cluster_id
