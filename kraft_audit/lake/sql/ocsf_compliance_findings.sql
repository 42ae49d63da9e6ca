-- Each finding as an OCSF Compliance Finding (class 2003): its newest event, with the columns of OCSF_SCHEMA.
WITH known AS (
    SELECT *, {known_state} AS lifecycle FROM {findings}
),
acted AS (
    SELECT *,
        CASE WHEN lifecycle = 'closed' THEN 'closed' WHEN first_plan <> plan THEN 'updated' ELSE 'created' END
            AS activity,
        CASE WHEN lifecycle = 'closed' THEN changed_ms
            WHEN first_plan <> plan THEN greatest(changed_ms, last_seen_ms) ELSE first_seen_ms END AS event_ms,
        CASE WHEN summary = '' THEN name ELSE summary END AS title
    FROM known
),
required (rule_id, control, claim, standards, requirements) AS (
    VALUES {rules}
)
SELECT
    CAST({category_uid} AS INT) AS category_uid,
    CAST({class_uid} AS INT) AS class_uid,
    {activity_id} AS activity_id,
    '{category_name}' AS category_name,
    '{class_name}' AS class_name,
    {activity_caption} AS activity_name,
    CAST({class_uid} * 100 + {activity_id} AS BIGINT) AS type_uid,
    concat('{class_name}: ', {activity_caption}) AS type_name,
    event_ms AS time,
    from_ms AS start_time,
    to_ms AS end_time,
    {severity_id} AS severity_id,
    {severity_caption} AS severity,
    {state_id} AS status_id,
    {state_caption} AS status,
    CASE WHEN waiver IS NULL THEN reason
        ELSE concat(waiver['who'], ' until ', waiver['until'], ': ', waiver['why']) END AS status_detail,
    CASE WHEN subject = '' THEN title ELSE concat(subject, ': ', summary) END AS message,
    named_struct(
        'version', '{ocsf_version}',
        'uid', concat(finding_id, '.', CAST(coalesce(from_offset, from_ms, 0) AS STRING), '.', CAST(event_ms AS STRING)),
        'event_code', rule,
        'product', named_struct('name', '{product}', 'vendor_name', '{product}', 'version', '{version}')
    ) AS metadata,
    named_struct(
        'uid', finding_id,
        'title', title,
        'desc', why,
        'types', {array}(scope),
        'first_seen_time', first_seen_ms,
        'last_seen_time', last_seen_ms,
        'created_time', first_seen_ms,
        'modified_time', changed_ms,
        'analytic', named_struct('uid', rule, 'name', name, 'type_id', CAST({analytic_id} AS INT), 'type', '{analytic}')
    ) AS finding_info,
    named_struct(
        'control', coalesce(required.control, rule),
        'desc', required.claim,
        'standards', coalesce(required.standards, {array}()),
        'requirements', coalesce(required.requirements, {array}()),
        'status_id', {check_id},
        'status', {check_caption}
    ) AS compliance,
    CASE WHEN what_to_do <> '' THEN named_struct('desc', what_to_do) END AS remediation,
    {array}(named_struct(
        'uid', concat(cluster_id, '/', subject),
        'name', CASE WHEN subject = '' THEN cluster_id ELSE subject END,
        'type', scope,
        'namespace', cluster_id
    )) AS resources,
    named_struct(
        'from_offset', from_offset, 'to_offset', to_offset, 'epoch', epoch, 'evidence', evidence, 'waiver', waiver
    ) AS unmapped
FROM acted LEFT JOIN required ON acted.rule = required.rule_id
