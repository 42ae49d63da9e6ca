-- Clusters in which a control was broken, by day
SELECT CAST(day AS TIMESTAMP) AS day_start, control,
    sum(CASE WHEN status = 'broken' THEN 1 ELSE 0 END) AS broken,
    sum(CASE WHEN status = 'undecided' THEN 1 ELSE 0 END) AS undecided,
    sum(CASE WHEN status = 'held' THEN 1 ELSE 0 END) AS held
FROM cluster_compliance
GROUP BY day, control
ORDER BY day_start, control
