-- What was first seen, newest first
SELECT coalesce(named.cluster_name, findings.cluster_id) AS cluster, severity, rule, subject, summary, state, first_seen_ms, reopened_count,
    concat('clusters/', findings.cluster_id, '.html') AS page
FROM findings
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = findings.cluster_id AND named.newness = 1
WHERE status = 'raised'
ORDER BY first_seen_ms DESC, finding_id
LIMIT 200
