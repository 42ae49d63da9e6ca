-- Controls of each cluster on its newest day
SELECT coalesce(named.cluster_name, compliance.cluster_id) AS cluster, named.owner, compliance.day, compliance.control, compliance.status, compliance.not_met_days, compliance.trend, compliance.open_findings, compliance.worst_severity, concat('clusters/', compliance.cluster_id, '.html') AS page
FROM cluster_compliance AS compliance
JOIN (SELECT cluster_id, max(day) AS day FROM cluster_compliance GROUP BY cluster_id) AS newest
    ON compliance.cluster_id = newest.cluster_id AND compliance.day = newest.day
LEFT JOIN (
    SELECT cluster_id, cluster_name, owner, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = compliance.cluster_id AND named.newness = 1
ORDER BY compliance.not_met_days DESC, cluster, compliance.control
LIMIT 1000
