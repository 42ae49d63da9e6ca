-- Waived findings, the first to expire first
SELECT findings.waiver.until AS until_day, coalesce(named.cluster_name, findings.cluster_id) AS cluster, rule, subject, findings.waiver.who AS who, findings.waiver.why AS why_accepted,
    concat('clusters/', findings.cluster_id, '.html') AS page
FROM findings
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = findings.cluster_id AND named.newness = 1
WHERE state IN ('waived', 'acknowledged')
ORDER BY until_day, cluster, rule
LIMIT 500
