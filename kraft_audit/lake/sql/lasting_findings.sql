-- Findings that are not closed. What lasts only because the cluster was stopped in order is left out: `check` and the
-- pages do not count it either. What was lost is lost all the same (KP020).
SELECT known.* FROM {findings} AS known
LEFT JOIN (
    SELECT DISTINCT explained.finding_id AS stopped_id
    FROM {incident_findings} AS explained
    JOIN {incidents} AS stops ON stops.incident_id = explained.incident_id
    WHERE stops.is_open AND stops.kind = 'cluster_stop'
) AS stopped ON stopped.stopped_id = known.finding_id
WHERE known.state <> 'closed' AND (known.status <> 'raised' OR stopped.stopped_id IS NULL OR known.rule = 'KP020')
