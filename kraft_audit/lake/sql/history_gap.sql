-- The offsets that no replica holds any more: earlier plans know what happened below, a snapshot what was after.
SELECT cluster_id, plan, gap_from_offset AS from_offset, gap_to_offset AS to_offset,
    CASE WHEN gap_to_offset = started_at THEN snapshot END AS snapshot
FROM (SELECT * FROM {replays} WHERE {visible}) AS closed_replays
JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
WHERE gap_to_offset IS NOT NULL AND (replaced_from IS NULL OR gap_from_offset < replaced_from)
