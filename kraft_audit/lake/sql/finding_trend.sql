-- Of each cluster, day, UTC, and severity: the episodes of findings that were seen first, that were closed, and that were
-- open when the day ended. A day on which nothing changed has no row: the row before it holds.
SELECT cluster_id, day, severity, opened, closed,
    CAST(sum(opened - closed) OVER (
        PARTITION BY cluster_id, severity ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS open_at_end
FROM (
    SELECT cluster_id, day, severity, CAST(sum(opened) AS BIGINT) AS opened, CAST(sum(closed) AS BIGINT) AS closed
    FROM (
        SELECT cluster_id, severity, 1 AS opened, 0 AS closed,
            DATE '1970-01-01' + CAST(floor(CAST(first_seen_ms AS DOUBLE) / 86400000) AS INT) AS day
        FROM {finding_episodes} WHERE status = 'raised'
        UNION ALL
        SELECT cluster_id, severity, 0 AS opened, 1 AS closed,
            DATE '1970-01-01'
                + CAST(floor(CAST(greatest(closed_ms, first_seen_ms) AS DOUBLE) / 86400000) AS INT) AS day
        FROM {finding_episodes} WHERE status = 'raised' AND closed_ms IS NOT NULL
    ) AS events
    GROUP BY cluster_id, day, severity
) AS days
