-- Clusters in which a control was not met, by day
SELECT CAST(day AS TIMESTAMP) AS day_start, control,
    sum(CASE WHEN status = 'not_met' THEN 1 ELSE 0 END) AS not_met,
    sum(CASE WHEN status = 'weakened' THEN 1 ELSE 0 END) AS weakened,
    sum(CASE WHEN status = 'undecided' THEN 1 ELSE 0 END) AS undecided,
    sum(CASE WHEN status = 'met' THEN 1 ELSE 0 END) AS met
FROM cluster_compliance
GROUP BY day, control
ORDER BY day_start, control
