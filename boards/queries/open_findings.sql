-- Open findings by rule
SELECT severity, rule, name, count(*) AS findings, count(DISTINCT cluster_id) AS clusters
FROM findings
WHERE state = 'open'
GROUP BY severity, rule, name
ORDER BY clusters DESC, findings DESC, rule
