-- Leader epochs of the metadata quorum that began, by cluster
SELECT coalesce(named.cluster_name, leader_epochs.cluster_id) AS cluster, count(*) AS epochs, max(epoch) AS newest_epoch,
    sum(CASE WHEN ended_by = 'burnt' THEN 1 ELSE 0 END) AS without_a_leader
FROM leader_epochs
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = leader_epochs.cluster_id AND named.newness = 1
GROUP BY coalesce(named.cluster_name, leader_epochs.cluster_id)
ORDER BY epochs DESC, cluster
LIMIT 500
