-- What was first seen, newest first
SELECT cluster_id, severity, rule, subject, summary, state, first_seen_ms, reopened_count
FROM findings
WHERE status = 'raised'
ORDER BY first_seen_ms DESC, finding_id
LIMIT 200
