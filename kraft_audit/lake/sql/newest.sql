-- The newest row of each key.
SELECT {columns} FROM (
    SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {newest_first}) AS place
    FROM ({rows}) AS every_row
) AS newest
WHERE place = 1
