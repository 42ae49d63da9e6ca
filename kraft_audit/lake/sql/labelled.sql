-- A gold table's rows beside the name and the labels of their cluster, as fleet.yaml last had them.
SELECT {columns}
FROM {table} AS own
LEFT JOIN ({clusters}) AS named ON own.cluster_id = named.cluster_id
