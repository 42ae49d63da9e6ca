-- The rows of a table of changes that hold. A row ends where the next row of its subject begins; before a history gap,
-- where the snapshot after it is taken: that snapshot gives every subject again that was still there. A plan that emits
-- everything again may itself pass a gap.
SELECT {columns},
    coalesce(
        lead(from_offset) OVER (PARTITION BY {subject} ORDER BY from_offset),
        CASE WHEN from_offset < own_gap_to - 1 THEN own_gap_to END,
        known_again_from
    ) AS to_offset,
    from_offset < newest_low AS proven
FROM (SELECT * FROM {table} WHERE {visible}) AS emitted
JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
WHERE replaced_from IS NULL OR from_offset < replaced_from
