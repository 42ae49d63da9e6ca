-- Leader epochs of the metadata quorum that began, by cluster
SELECT cluster_id, count(*) AS epochs, max(epoch) AS newest_epoch,
    sum(CASE WHEN ended_by = 'burnt' THEN 1 ELSE 0 END) AS without_a_leader
FROM leader_epochs
GROUP BY cluster_id
ORDER BY epochs DESC, cluster_id
LIMIT 500
