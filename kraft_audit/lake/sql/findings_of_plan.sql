-- The changes that one plan brings to the table findings, or finding_episodes: what it reported, what it no longer found,
-- and what belongs to a history that proved to be another one.
-- A plan that read only the archive neither closes nor reports findings about the logs themselves, which only disks show,
-- unless it shows that they were about several logs read as one. Among them is KV014, which says nothing of voters whose
-- quorum stands still. Nor can a plan close a finding of a rule that could not be decided for the whole cluster.
-- Findings may have stood in the lake under other ids: a new row keeps the time of the first of them.
-- A finding is shown as in its episode that lasts, the oldest one; without one that lasts, as in the newest.
-- Lost records (KP020) are acknowledged by people: that Kafka has deleted the record of the loss does not end it.
-- What began at or after the offset where the log parts from that of earlier plans stood on records that the quorum did
-- not keep: it is reverted.
-- log_start is where the plan's replay began: an episode that was open there began before it, as an earlier plan saw.
-- judged_ms is the same whenever the plan is merged: the time of the captures, else of the plan's staging.
WITH judged AS (
    SELECT staged.cluster_id, max(staged.at_ms) AS staged_ms,
           coalesce(bool_or(opened.cluster_plan LIKE '%"archive:%'), false) AS is_from_archive
    FROM {plans} AS staged
    LEFT JOIN (SELECT * FROM {plans} WHERE plan = {plan} AND event = 'opened') AS opened
    ON staged.cluster_number = opened.cluster_number
    WHERE staged.plan = {plan} AND staged.event = 'staged' AND staged.outcome = 'read'
    GROUP BY staged.cluster_id
),
merged AS (
    SELECT history_id, (SELECT max(at_ms) FROM {plans} WHERE plan = {plan} AND event = 'staged') AS staged_ms
    FROM {histories}
    WHERE plan = {plan} AND merged_into IS NOT NULL
),
starts AS (
    SELECT cluster_id AS of_log, min(started_at) AS log_start FROM {replays} WHERE plan = {plan} GROUP BY cluster_id
),
reported AS (
    SELECT staged.*, log_start, coalesce(staged.seen_ms, judged.staged_ms) AS judged_ms,
           row_number() OVER (
               PARTITION BY {same} ORDER BY {shown_first}
           ) AS place
    FROM {staged} AS staged
    JOIN judged ON staged.cluster_id = judged.cluster_id
    LEFT JOIN starts ON of_log = staged.cluster_id
    WHERE staged.plan = {plan} AND staged.status <> 'clear'
      AND NOT (
          judged.is_from_archive AND (staged.rule LIKE 'KQ%' OR staged.rule = 'KV014')
          AND staged.cluster_id NOT IN ({split})
      )
),
parted AS (
    SELECT cluster_id, min(contradicted_from) AS contradicted_from
    FROM {replays}
    WHERE plan = {plan} AND contradicted_from IS NOT NULL
    GROUP BY cluster_id
),
gone AS (
    SELECT known.*, judged.staged_ms AS judged_ms,
           CASE
               WHEN known.scope <> 'log' AND known.from_offset >= parted.contradicted_from THEN 'reverted'
               ELSE 'not_found'
           END AS gone_by
    FROM {known} AS known
    JOIN judged ON known.cluster_id = judged.cluster_id
    LEFT JOIN parted ON known.cluster_id = parted.cluster_id
    WHERE known.state <> 'resolved'
      AND NOT EXISTS (SELECT 1 FROM reported WHERE reported.finding_id = known.finding_id AND {is_same})
      AND (known.rule <> 'KP020' OR known.from_offset >= parted.contradicted_from)
      AND NOT (
          judged.is_from_archive AND {is_known_by_disks}
          AND known.cluster_id NOT IN ({split})
      )
      AND NOT EXISTS (
          SELECT 1 FROM reported
          WHERE reported.cluster_id = known.cluster_id AND reported.rule = known.rule
            AND reported.status = 'undecided' AND reported.subject = ''
      )
    UNION ALL
    SELECT known.*, merged.staged_ms AS judged_ms, 'merged' AS gone_by
    FROM {known} AS known
    JOIN merged ON known.cluster_id = merged.history_id
    WHERE known.state <> 'resolved'
),
first_known AS (
    SELECT cluster_id AS of_cluster, rule AS of_rule, subject AS of_subject, {of_episode}
           min(first_seen_ms) AS first_seen_ms, min(first_plan) AS first_plan
    FROM ({stood}) AS stood
    GROUP BY cluster_id, rule, subject{by_episode}
)
SELECT {columns}, log_start, judged_ms, least(judged_ms, coalesce(first_seen_ms, judged_ms)) AS began_ms,
       least({plan}, coalesce(first_plan, {plan})) AS began_plan, false AS is_gone, CAST(NULL AS STRING) AS gone_by
FROM reported LEFT JOIN first_known
ON of_cluster = cluster_id AND of_rule = rule AND of_subject = subject{and_episode}
WHERE place = 1
UNION ALL
SELECT {columns}, CAST(NULL AS BIGINT) AS log_start, judged_ms, judged_ms AS began_ms, {plan} AS began_plan, true AS is_gone, gone_by FROM gone
