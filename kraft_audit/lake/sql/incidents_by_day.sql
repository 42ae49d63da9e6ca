-- Of each cluster and day, UTC: the incidents that began, by kind and severity. Those whose log has no time are left out.
SELECT cluster_id, day, kind, severity,
    count(*) AS incidents,
    count(*) FILTER (WHERE state = 'open') AS still_open,
    count(*) FILTER (WHERE is_clean) AS clean,
    max(to_ms - from_ms) AS longest_ms
FROM (
    SELECT *, DATE '1970-01-01' + CAST(floor(CAST(from_ms AS DOUBLE) / 86400000) AS INT) AS day
    FROM {incidents} WHERE from_ms >= 0
) AS dated
GROUP BY cluster_id, day, kind, severity
