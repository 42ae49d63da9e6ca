-- What is proven committed in each cluster, by its newest captures
SELECT cluster_id, low, high, canonical_end_offset, canonical_epoch, read_to_ms, undecided
FROM (
    SELECT watermarks.*,
        row_number() OVER (PARTITION BY cluster_id ORDER BY plan DESC, capture_number DESC, read_to_ms DESC) AS place
    FROM watermarks
) AS ordered
WHERE place = 1
ORDER BY cluster_id
LIMIT 1000
