-- Each cluster's name and labels as they hold now.
SELECT {columns}
FROM (
    SELECT *, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS place
    FROM {clusters}
) AS newest
WHERE place = 1
