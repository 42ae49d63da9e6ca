-- Voter sets as they changed, reverted ones too
SELECT coalesce(named.cluster_name, voter_sets.cluster_id) AS cluster, timestamp_ms, from_offset, from_epoch, source, cardinality(voters) AS number_of_voters,
    cardinality(added) AS added, cardinality(removed) AS removed, canonical, ended_by,
    concat('clusters/', voter_sets.cluster_id, '.html') AS page
FROM voter_sets
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = voter_sets.cluster_id AND named.newness = 1
ORDER BY timestamp_ms DESC, cluster, from_offset
LIMIT 500
