-- Clusters by their worst open finding
SELECT worst, count(*) AS clusters
FROM (
    SELECT cluster_id,
        min(CASE severity WHEN 'critical' THEN '1 critical' WHEN 'high' THEN '2 high'
            WHEN 'medium' THEN '3 medium' ELSE '4 low' END) AS worst
    FROM findings
    WHERE state = 'open'
    GROUP BY cluster_id
) AS by_cluster
GROUP BY worst
ORDER BY worst
