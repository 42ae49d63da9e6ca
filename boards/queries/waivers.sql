-- Waived findings, the first to expire first
SELECT findings.waiver.until AS until_day, cluster_id, rule, subject, findings.waiver.who AS who, findings.waiver.why AS why_accepted
FROM findings
WHERE state = 'waived'
ORDER BY until_day, cluster_id, rule
LIMIT 500
