"""What a report reads of tables to which every plan adds: after a year of hourly runs, a thousandth of their rows.

Each query finds in few columns which rows those are before it reads them whole. `rows` is the query of a table's rows
of closed plans, `clusters` a list of ids.
"""

from __future__ import annotations

from typing import Final

NEWEST_CAPTURES: Final = """
WITH held AS (SELECT * FROM ({rows}) AS told WHERE cluster_id IN ({clusters}))
SELECT held.*
FROM (
    SELECT cluster_id, max(plan) AS plan FROM held
    GROUP BY cluster_id, node_id, directory_id, CASE WHEN node_id IS NULL THEN path ELSE '' END
    UNION
    SELECT cluster_id, first_value(plan ORDER BY last_timestamp_ms DESC NULLS LAST) AS plan FROM held
    GROUP BY cluster_id
    UNION
    SELECT cluster_id, first_value(plan ORDER BY read_to_ms DESC) AS plan FROM held
    GROUP BY cluster_id
) AS newest
JOIN held ON held.cluster_id = newest.cluster_id AND held.plan = newest.plan
"""
"""The captures of each plan in which some replica was seen last, the log's end was, or anything was."""
NEWEST_PLAN: Final = """
WITH held AS (SELECT * FROM ({rows}) AS told WHERE cluster_id IN ({clusters}))
SELECT {columns}
FROM (SELECT cluster_id, max(plan) AS plan FROM held GROUP BY cluster_id) AS newest
JOIN held ON held.cluster_id = newest.cluster_id AND held.plan = newest.plan
"""
"""The rows of each cluster's newest plan that has any."""
EVERY_ROW: Final = "SELECT * FROM ({rows}) AS told WHERE cluster_id IN ({clusters})"
