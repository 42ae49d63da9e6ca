-- Topics by exposure, with the racks that everything hung on
SELECT coalesce(named.cluster_name, partition_risk.cluster_id) AS cluster, topic, rack, sum(exposure_minutes) AS exposure_minutes, max(partitions) AS partitions, max(day) AS last_day,
    concat('clusters/', partition_risk.cluster_id, '.html') AS page
FROM partition_risk
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = partition_risk.cluster_id AND named.newness = 1
GROUP BY partition_risk.cluster_id, named.cluster_name, topic, rack
ORDER BY exposure_minutes DESC, cluster, topic, rack
LIMIT 100
