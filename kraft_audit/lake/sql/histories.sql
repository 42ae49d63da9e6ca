-- Each history as its newest plan left it.
SELECT {columns}
FROM (
    SELECT *, row_number() OVER (PARTITION BY history_id ORDER BY plan DESC) AS place
    FROM {table} WHERE {visible}
) AS newest
WHERE place = 1
