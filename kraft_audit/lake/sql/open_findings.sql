-- What is open now, each with the name and the labels of its cluster: what `check` alarms about, and every page, metric,
-- message and board with it.
SELECT {columns}, named.cluster_name, {labels} FROM {findings} AS own
LEFT JOIN ({clusters}) AS named ON own.cluster_id = named.cluster_id
WHERE own.state = 'open'
