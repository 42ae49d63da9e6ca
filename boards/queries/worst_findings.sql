-- The worst open findings, the oldest first
SELECT cluster_id, severity, rule, subject, summary, from_time, what_to_do
FROM findings
WHERE status = 'raised' AND state = 'open' AND severity IN ('critical', 'high')
ORDER BY severity, from_ms, finding_id
LIMIT 200
