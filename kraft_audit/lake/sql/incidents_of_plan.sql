-- The changes that one plan brings to the table incidents: what it found, and what was open and it no longer found.
WITH judged AS (
    SELECT DISTINCT cluster_id, 'not_found' AS gone_by FROM {plans}
    WHERE plan = {plan} AND event = 'staged' AND outcome = 'read'
    UNION ALL
    SELECT history_id AS cluster_id, 'merged' AS gone_by FROM {histories}
    WHERE plan = {plan} AND merged_into IS NOT NULL
),
found AS (SELECT * FROM {staged} WHERE plan = {plan})
SELECT {columns}, false AS is_gone, CAST(NULL AS STRING) AS gone_by FROM found
UNION ALL
SELECT {columns}, true AS is_gone, gone_by
FROM {known} AS known
JOIN judged USING (cluster_id)
WHERE known.is_open AND NOT EXISTS (SELECT 1 FROM found WHERE found.incident_id = known.incident_id)
