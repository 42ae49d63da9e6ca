-- Each distinct batch once: the nodes that held it when they were last read, and its status by the newest low.
-- committed: on the canonical log, below low. uncommitted: on it, not proven. divergent: on another branch.
WITH held AS (
    SELECT cluster_id, base_offset, last_offset, leader_epoch, crc, max(max_timestamp_ms) AS max_timestamp_ms,
        max(record_count) AS record_count, max(size_bytes) AS size_bytes,
        -- An aggregate of nothing is an empty list on one engine and null on another: -1 stands for no node, and goes.
        array_remove(
            array_sort(array_agg(
                DISTINCT CASE WHEN status = 'present' AND node_id IS NOT NULL THEN node_id ELSE -1 END
            )), -1
        ) AS held_by
    FROM ({newest_batches}) AS newest
    GROUP BY cluster_id, base_offset, last_offset, leader_epoch, crc
),
canonical AS (
    SELECT cluster_id, epoch, min(from_offset) AS from_offset, max(to_offset) AS to_offset
    FROM ({epochs}) AS epochs
    WHERE canonical AND from_offset IS NOT NULL
    GROUP BY cluster_id, epoch
),
watermark AS (
    SELECT cluster_id, low FROM ({newest_watermarks}) AS newest_of_cluster
)
SELECT held.*,
    CASE
        WHEN canonical.epoch IS NULL THEN 'divergent'
        WHEN held.last_offset < watermark.low THEN 'committed'
        ELSE 'uncommitted'
    END AS status
FROM held
LEFT JOIN canonical ON held.cluster_id = canonical.cluster_id AND held.leader_epoch = canonical.epoch
    AND held.base_offset >= canonical.from_offset AND held.base_offset < canonical.to_offset
LEFT JOIN watermark ON held.cluster_id = watermark.cluster_id
