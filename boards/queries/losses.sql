-- Partitions that may have lost acknowledged records
SELECT coalesce(named.cluster_name, losses.cluster_id) AS cluster, losses.severity_now AS severity, losses.grade, losses.topic, losses.partition AS partition_number, losses.timestamp_ms, losses.label AS how, losses.leader_id AS leader, losses.from_offset, losses.to_offset, losses.saved_until AS last_copy_back_at_offset,
    concat('clusters/', losses.cluster_id, '.html#rule-KP020') AS page
FROM losses
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = losses.cluster_id AND named.newness = 1
WHERE losses.grade IN ('proven', 'possible')
ORDER BY losses.timestamp_ms DESC, cluster, losses.topic, partition_number
LIMIT 500
