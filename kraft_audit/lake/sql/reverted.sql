-- The rows that a later plan contradicted: what they say was on a branch that the quorum did not keep.
SELECT {columns}
FROM (SELECT * FROM {table} WHERE {visible}) AS emitted
JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
WHERE {canonical_only}from_offset >= reverted_from
