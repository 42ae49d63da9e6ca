-- Epochs or voter sets: of each key the rows of the newest plan that has any, unless it withdrew them. Where a later plan
-- listed all that its captures show, and not this, a row holds if it was truncated, or had ended below that plan's log.
SELECT {columns},
    canonical AND coalesce(from_offset < newest_low, false) AS proven
FROM (
    SELECT *, max(plan) OVER (PARTITION BY {identity}) AS last_plan
    FROM (SELECT * FROM {table} WHERE {visible}) AS emitted
    JOIN ({replayed}) AS replayed ON cluster_id = replayed_cluster AND plan = replayed_plan
) AS ordered
WHERE plan = last_plan AND ended_by <> '{withdrawn}'
    AND (plan >= newest_list OR NOT canonical OR coalesce({ended}, false))
