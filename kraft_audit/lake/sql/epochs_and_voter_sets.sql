-- Epochs or voter sets: the newest plan's, and of earlier plans what was truncated or lies below today's log.
-- Each plan emits all that its captures show. What they no longer show comes from an earlier plan, where it had ended
-- by then.
SELECT {columns},
    canonical AND coalesce(from_offset < newest_low, false) AS proven
FROM (
    SELECT *, max(plan) OVER (PARTITION BY {identity}) AS last_plan
    FROM (SELECT * FROM {table} WHERE {visible}) AS emitted
    JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
) AS ordered
WHERE plan = newest_plan OR (plan = last_plan AND (NOT canonical OR coalesce({ended}, false)))
