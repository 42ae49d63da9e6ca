-- Controls of each cluster on its newest day
SELECT told.cluster_id, told.day, told.control, told.status, told.broken_days, told.trend, told.open_findings, told.worst_severity
FROM cluster_compliance AS told
JOIN (SELECT cluster_id, max(day) AS day FROM cluster_compliance GROUP BY cluster_id) AS newest
    ON told.cluster_id = newest.cluster_id AND told.day = newest.day
ORDER BY told.broken_days DESC, told.cluster_id, told.control
LIMIT 1000
