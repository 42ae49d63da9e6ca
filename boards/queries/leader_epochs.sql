-- Leader epochs of the metadata quorum that began, by cluster
SELECT coalesce(named.cluster_name, leader_epochs.cluster_id) AS cluster, count(*) AS epochs, max(epoch) AS newest_epoch,
    sum(CASE WHEN ended_by = 'burnt' THEN 1 ELSE 0 END) AS without_a_leader,
    concat('clusters/', leader_epochs.cluster_id, '.html') AS page
FROM leader_epochs
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = leader_epochs.cluster_id AND named.newness = 1
GROUP BY leader_epochs.cluster_id, named.cluster_name
ORDER BY epochs DESC, cluster
LIMIT 500
