-- The changes that one plan brings to the table incident_findings, of the incidents that it found. What a plan of the
-- archive says of disks is not among the findings.
WITH staged_links AS (
    SELECT incident_id, cluster_id, {explode}(finding_ids) AS finding_id FROM {staged} WHERE plan = {plan}
),
found AS (SELECT * FROM staged_links WHERE finding_id IN (SELECT finding_id FROM {findings}))
SELECT incident_id, finding_id, cluster_id, false AS is_gone FROM found
UNION ALL
SELECT incident_id, finding_id, cluster_id, true AS is_gone
FROM {known} AS known
WHERE incident_id IN (SELECT incident_id FROM found) AND NOT EXISTS (
    SELECT 1 FROM found WHERE found.incident_id = known.incident_id AND found.finding_id = known.finding_id
)
