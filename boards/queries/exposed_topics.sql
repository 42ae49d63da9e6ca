-- Topics by exposure, with the racks that everything hung on
SELECT cluster_id, topic, rack, sum(exposure_minutes) AS exposure_minutes, max(partitions) AS partitions, max(day) AS last_day
FROM partition_risk
GROUP BY cluster_id, topic, rack
ORDER BY exposure_minutes DESC, cluster_id, topic, rack
LIMIT 100
