-- Of each plan of each cluster: the offsets from which a later plan replaces or contradicts it, the newest low, and the
-- newest plan that listed all epochs and voter sets that it knows.
-- `known_again_from` is the end of the snapshot from which a later plan emits everything again, after a gap or with
-- another default. A subject that is not in that snapshot was gone by then, although the row that said so may no longer
-- hold.
SELECT cluster_id AS replayed_cluster, plan AS replayed_plan, replaced_from,
    min(contradicted_from) OVER later AS reverted_from,
    min(CASE WHEN is_still_first AND why_nothing IS NULL THEN complete_from END) OVER later AS known_again_from,
    CASE WHEN is_still_first THEN gap_to_offset END AS own_gap_to,
    last_value(low) OVER every_plan AS newest_low,
    last_value(log_start_offset) OVER every_plan AS newest_log_start,
    max(CASE WHEN coalesce(lists_all, true) THEN plan END) OVER every_plan AS newest_list
FROM (
    SELECT *, replaced_from IS NULL OR complete_from <= replaced_from AS is_still_first
    FROM (
        SELECT *, min(from_offset) OVER later_replay AS replaced_from,
            coalesce(
                gap_to_offset, CASE WHEN snapshot IS NOT NULL AND from_offset < started_at THEN started_at END
            ) AS complete_from
        FROM {replays} WHERE {visible}
        WINDOW later_replay AS (
            PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        )
    ) AS replays_with_ends
) AS all_replays
WINDOW later AS (PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING),
    every_plan AS (
        PARTITION BY cluster_id ORDER BY plan ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
