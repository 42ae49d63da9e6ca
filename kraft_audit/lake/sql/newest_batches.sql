-- The newest row of each valid batch in each replica's log. Equal offsets, epoch and CRC are equal bytes.
SELECT * FROM (
    SELECT *, row_number() OVER (
        PARTITION BY {replica}, {batch}
        ORDER BY plan DESC, captured_at_ms DESC, capture_number DESC, status DESC
    ) AS place
    FROM ({rows}) AS known
    WHERE source = 'log' AND valid
) AS placed
WHERE place = 1
