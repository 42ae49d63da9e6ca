-- Controls of each cluster on its newest day
SELECT compliance.cluster_id, compliance.day, compliance.control, compliance.status, compliance.broken_days, compliance.trend, compliance.open_findings, compliance.worst_severity
FROM cluster_compliance AS compliance
JOIN (SELECT cluster_id, max(day) AS day FROM cluster_compliance GROUP BY cluster_id) AS newest
    ON compliance.cluster_id = newest.cluster_id AND compliance.day = newest.day
ORDER BY compliance.broken_days DESC, compliance.cluster_id, compliance.control
LIMIT 1000
