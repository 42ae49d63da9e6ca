-- Exposure by day: partition-minutes without a leader, with one replica alone, under min ISR
SELECT CAST(day AS TIMESTAMP) AS day_start,
    sum(exposure_minutes) AS exposure_minutes,
    sum(offline_minutes) AS offline_minutes,
    sum(last_replica_minutes) AS last_replica_minutes,
    sum(under_min_isr_minutes) AS under_min_isr_minutes
FROM partition_risk
GROUP BY day
ORDER BY day_start
