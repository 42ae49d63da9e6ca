-- What is proven committed in each cluster, by its newest captures
SELECT coalesce(named.cluster_name, ordered.cluster_id) AS cluster, low, high, canonical_end_offset, canonical_epoch, read_to_ms, undecided,
    concat('clusters/', ordered.cluster_id, '.html') AS page
FROM (
    SELECT watermarks.*,
        row_number() OVER (PARTITION BY cluster_id ORDER BY plan DESC, capture_number DESC, read_to_ms DESC) AS place
    FROM watermarks
) AS ordered
LEFT JOIN (
    SELECT cluster_id, cluster_name, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = ordered.cluster_id AND named.newness = 1
WHERE place = 1
ORDER BY cluster
LIMIT 1000
