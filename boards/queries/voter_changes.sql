-- Voter sets as they changed, reverted ones too
SELECT cluster_id, timestamp_ms, from_offset, from_epoch, source, cardinality(voters) AS number_of_voters,
    cardinality(added) AS added, cardinality(removed) AS removed, canonical, ended_by
FROM voter_sets
ORDER BY timestamp_ms DESC, cluster_id, from_offset
LIMIT 500
