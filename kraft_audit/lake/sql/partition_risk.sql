-- partition_risk: the minutes that partitions were exposed, by cluster, day, topic and rack. `changed` holds the clusters
-- to compute again.
-- An exposure ends with the next change of its partition, or at the log's end. If the partition was gone when a history
-- gap ended, it ends at the snapshot after the gap, which broker_changes dates.
-- A log's timestamps come from its writer's clock and may be any 64 bits: no days are made beyond 1,100, and none for a
-- log that ends before 1970.
WITH log_end AS (
    SELECT captures.cluster_id, least(max(last_timestamp_ms), max(read_to_ms)) AS end_ms, max(changed.plan) AS plan
    FROM captures
    JOIN changed ON captures.cluster_id = changed.cluster_id
    WHERE last_timestamp_ms >= 0
    GROUP BY captures.cluster_id
),
racks AS (
    SELECT cluster_id, broker_id, rack
    FROM (
        SELECT
            cluster_id, broker_id, rack,
            row_number() OVER (PARTITION BY cluster_id, broker_id ORDER BY from_offset DESC) AS place
        FROM broker_changes
        WHERE broker_changes.exists
    ) AS registered
    WHERE place = 1
),
again AS (
    SELECT cluster_id, from_offset + 1 AS offset_after, min(timestamp_ms) AS again_ms
    FROM broker_changes
    GROUP BY cluster_id, from_offset
),
states AS (
    SELECT
        cluster_id, topic_id, partition, topic, timestamp_ms AS from_ms,
        keeper_id, is_last_replica, is_offline, is_under_min_isr, to_offset,
        lead(timestamp_ms) OVER (
            PARTITION BY {by_hash}cluster_id, topic_id, partition
            ORDER BY from_offset
        ) AS next_ms
    FROM exposure_changes
    WHERE cluster_id IN (SELECT cluster_id FROM changed)
),
exposed AS (
    SELECT
        states.*, plan, greatest(from_ms, end_ms - 95040000000) AS first_ms,
        least(coalesce(next_ms, again_ms, end_ms), end_ms) AS last_ms
    FROM states
    JOIN log_end ON states.cluster_id = log_end.cluster_id
    LEFT JOIN again ON states.cluster_id = again.cluster_id AND to_offset = offset_after
    WHERE {is_exposed}
),
days AS (
    SELECT *, {explode}({sequence}(first_day, last_day)) AS day_number
    FROM (
        SELECT
            *,
            CAST(floor(CAST(first_ms AS DOUBLE) / 86400000.0) AS BIGINT) AS first_day,
            CAST(floor(CAST(last_ms - 1 AS DOUBLE) / 86400000.0) AS BIGINT) AS last_day
        FROM exposed
        WHERE last_ms > first_ms
    ) AS lasting
),
pieces AS (
    SELECT *, least(last_ms, (day_number + 1) * 86400000) - greatest(first_ms, day_number * 86400000) AS length_ms
    FROM days
)
SELECT
    pieces.cluster_id, DATE '1970-01-01' + CAST(day_number AS INT) AS day, topic, coalesce(rack, '') AS rack,
    count(DISTINCT concat(topic_id, '-', CAST(partition AS STRING))) AS partitions,
    CAST(coalesce(sum(length_ms) FILTER (WHERE is_last_replica), 0) AS DOUBLE) / 60000.0 AS last_replica_minutes,
    CAST(coalesce(sum(length_ms) FILTER (WHERE is_offline), 0) AS DOUBLE) / 60000.0 AS offline_minutes,
    CAST(coalesce(sum(length_ms) FILTER (WHERE is_under_min_isr), 0) AS DOUBLE) / 60000.0 AS under_min_isr_minutes,
    CAST(sum(length_ms) AS DOUBLE) / 60000.0 AS exposure_minutes, max(plan) AS plan
FROM pieces
LEFT JOIN racks ON pieces.cluster_id = racks.cluster_id AND pieces.keeper_id = racks.broker_id
GROUP BY pieces.cluster_id, day_number, topic, coalesce(rack, '')
