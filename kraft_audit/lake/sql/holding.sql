-- The rows of a table of changes, or of `replays`, that hold, without their ends: finding those takes a sort.
-- `gone_at` is where a subject's last row ends because a history gap follows it.
SELECT {columns},
    coalesce(CASE WHEN from_offset < own_gap_to - 1 THEN own_gap_to END, known_again_from) AS gone_at
FROM (SELECT * FROM {table} WHERE {visible}) AS emitted
JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
WHERE replaced_from IS NULL OR from_offset < replaced_from
