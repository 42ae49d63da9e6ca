-- Who needs action, the most urgent first
SELECT coalesce(named.cluster_name, situations.cluster_id) AS cluster, named.owner, what, since_ms, hit, command,
    concat('clusters/', situations.cluster_id, '.html') AS page
FROM situations
LEFT JOIN (
    SELECT cluster_id, cluster_name, owner, row_number() OVER (PARTITION BY cluster_id ORDER BY valid_from_ms DESC) AS newness
    FROM clusters
) AS named ON named.cluster_id = situations.cluster_id AND named.newness = 1
WHERE need IS NOT NULL
ORDER BY need, hit DESC, situations.cluster_id
LIMIT 200
