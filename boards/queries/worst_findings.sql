-- The worst open findings, the oldest first
SELECT coalesce(named.cluster_name, findings.cluster_id) AS cluster, named.owner, severity, rule, subject, summary, from_time, what_to_do,
    concat('clusters/', findings.cluster_id, '.html#rule-', rule) AS page
FROM findings
LEFT JOIN (
    SELECT cluster_id, cluster_name, owner, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = findings.cluster_id AND named.newness = 1
WHERE state = 'open'
    AND severity_now IN ('critical', 'high')
ORDER BY severity, from_ms, finding_id
LIMIT 200
