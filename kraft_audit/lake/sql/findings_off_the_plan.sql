-- Findings that are open although the newest merged plan of their cluster did not report them, and findings that it
-- reported and that are not open.
-- Findings about the log itself, and KV014, stay open after a plan that read only the archive, which cannot see them.
-- Lost records (KP020) stay open until a person acknowledges them.
-- Findings of a rule that could not be decided for the whole cluster stay open after that plan.
WITH newest AS (
    SELECT cluster_id, max(plan) AS plan FROM plans
    WHERE event = 'staged' AND outcome = 'read' AND {is_merged}
    GROUP BY cluster_id
),
judged AS (
    SELECT newest.cluster_id, newest.plan,
           coalesce(bool_or(opened.cluster_plan LIKE '%"archive:%'), false) AS is_from_archive
    FROM newest
    JOIN (SELECT * FROM plans WHERE event = 'staged' AND outcome = 'read') AS staged USING (cluster_id, plan)
    LEFT JOIN (SELECT * FROM plans WHERE event = 'opened') AS opened
    ON staged.plan = opened.plan AND staged.cluster_number = opened.cluster_number
    GROUP BY newest.cluster_id, newest.plan
),
reported AS (
    SELECT staged.*, is_from_archive,
           row_number() OVER (
               PARTITION BY finding_id ORDER BY {shown_first}
           ) AS place
    FROM findings_staged AS staged
    JOIN judged USING (cluster_id, plan)
    WHERE status <> 'clear'
),
expected AS (
    SELECT cluster_id, finding_id FROM reported AS found
    WHERE place = 1 AND NOT is_over AND NOT (is_from_archive AND {is_shown_by_disks})
),
undecided AS (
    SELECT DISTINCT cluster_id, rule FROM reported WHERE status = 'undecided' AND subject = ''
),
open AS (
    SELECT found.cluster_id, found.finding_id
    FROM (SELECT * FROM {batch}) AS found
    JOIN judged ON found.cluster_id = judged.cluster_id
    LEFT JOIN expected ON found.finding_id = expected.finding_id
    LEFT JOIN undecided ON found.cluster_id = undecided.cluster_id AND found.rule = undecided.rule
    WHERE state <> 'resolved' AND NOT (is_from_archive AND {is_shown_by_disks})
      AND (expected.finding_id IS NOT NULL OR (undecided.rule IS NULL AND found.rule <> 'KP020'))
)
SELECT coalesce(expected.cluster_id, open.cluster_id) AS cluster_id, expected.finding_id AS expected_id,
       open.finding_id AS open_id
FROM expected FULL OUTER JOIN open ON expected.finding_id = open.finding_id
WHERE expected.finding_id IS NULL OR open.finding_id IS NULL
