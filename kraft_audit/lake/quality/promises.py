"""What a lake's tables promise: made from the contracts, with SQL where no kind of expectation says it.

The promises are judged in DuckDB. There each table has its name and the rows of closed plans, of silver tables the rows
that hold; `{batch}` is what is judged of it. Great Expectations judges whole tables (`suites`), `new_rows` vouches for
the rows of the newest plans. A promise has a name (`clause`) under which the gate, its page and the runbook report it.
"""
# ruff: noqa: S608  # every name and number in the SQL is our own

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.ledger import CHECKPOINT_PLANS, READ_ROWS
from kraft_audit.lake.views import SHOWN_FIRST, is_shown_by_disks, sql_file
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.tables.bronze import BATCHES, CAPTURES, FILES, NODE_CARDS, PLANS
from kraft_audit.tables.contract import Column, Table
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    FINDING_EPISODES,
    FINDINGS,
    GOLD,
    PARTITION_RISK,
)

ClauseSeverity = Literal["critical", "warning"]
QUANTITIES: Final = ("_count", "_bytes", "_minutes")
"""Ends of the names of columns that hold no negative number."""
REPLICA: Final = ("cluster_id", "node_id", "directory_id", "root", "path")
"""One replica's own log."""


def same_replica(first: str, second: str) -> str:
    """The SQL condition that rows of two tables are about one replica; null equals null."""
    return " AND ".join(f"{first}.{name} IS NOT DISTINCT FROM {second}.{name}" for name in REPLICA)


# What a replica's log holds: its batches without those that a later reading no longer found.
REPLICA_LOG: Final = f"""
WITH log AS (
    SELECT * FROM batches AS row
    WHERE source = 'log' AND status = 'present' AND NOT EXISTS (
        SELECT 1 FROM batches AS later
        WHERE later.source = 'log' AND later.status = 'truncated' AND {same_replica("later", "row")}
          AND later.base_offset = row.base_offset AND later.last_offset = row.last_offset
          AND later.leader_epoch = row.leader_epoch AND later.crc = row.crc
          AND (later.plan, later.capture_number) > (row.plan, row.capture_number))
),
judged AS (
    SELECT DISTINCT {", ".join(f"log.{name}" for name in REPLICA)}, log.base_offset, log.leader_epoch
    FROM log
    JOIN (SELECT * FROM {{batch}}) AS batch
    ON {same_replica("log", "batch")} AND log.base_offset = batch.base_offset AND log.crc = batch.crc
    WHERE NOT EXISTS (SELECT 1 FROM decode_errors AS bad WHERE bad.root = log.root AND bad.path = log.path)
)
"""
# What is known of a log may begin anywhere; where Kafka had deleted a part before it was read, a later capture's log
# begins after it.
OFFSET_GAPS: Final = f"""{REPLICA_LOG}
SELECT * FROM judged
WHERE NOT EXISTS (
    SELECT 1 FROM log WHERE {same_replica("log", "judged")} AND log.last_offset = judged.base_offset - 1
) AND NOT EXISTS (
    SELECT 1 FROM captures AS start
    WHERE start.root = judged.root AND start.path = judged.path AND start.log_start_offset = judged.base_offset
) AND judged.base_offset > (SELECT min(log.base_offset) FROM log WHERE {same_replica("log", "judged")})"""
EPOCH_FALLS: Final = f"""{REPLICA_LOG}
SELECT judged.* FROM judged
JOIN log ON {same_replica("log", "judged")} AND log.last_offset = judged.base_offset - 1
WHERE judged.leader_epoch < log.leader_epoch"""
BYTES_UNACCOUNTED: Final = """
SELECT * FROM (SELECT * FROM {batch}) AS batch
WHERE bytes_seen <> bytes_decoded + bytes_quarantined + bytes_unread"""
# Maintenance leaves the newest plans.
OFF_THE_MANIFEST: Final = """
SELECT '' AS cluster_id, plan, coalesce(promised, 0) AS promised, coalesce(written, 0) AS written
FROM (
    SELECT plan, sum(CAST(data_file ->> '$.row_count' AS BIGINT)) AS promised FROM plans
    WHERE event = 'staged' AND table_name = '{table}' AND data_file IS NOT NULL GROUP BY plan
)
FULL JOIN (SELECT plan, count(*) AS written FROM (SELECT * FROM {{batch}}) AS batch GROUP BY plan) USING (plan)
WHERE plan >= {first} AND coalesce(promised, 0) <> coalesce(written, 0)"""
# The plan of a row has read the row's cluster, as far as the ledger knows. Of plans that maintenance deleted it knows
# only that they were closed.
OFF_THE_LEDGER: Final = f"""
SELECT gold.* FROM (SELECT * FROM {{batch}}) AS gold
WHERE NOT EXISTS (
    SELECT 1 FROM plans AS staged WHERE {READ_ROWS} AND gold.cluster_id = staged.cluster_id AND gold.plan = staged.plan
) AND gold.plan NOT IN (SELECT plan FROM plans GROUP BY plan HAVING bool_and(event = 'closed'))"""
# Minutes are sums of floating numbers, hence the millionth.
IMPOSSIBLE_MINUTES: Final = """
SELECT * FROM (SELECT * FROM {batch}) AS batch
WHERE exposure_minutes <= 0 OR exposure_minutes > partitions * 1440 + 1e-6
   OR greatest(last_replica_minutes, offline_minutes, under_min_isr_minutes) > exposure_minutes + 1e-6"""
DAYS_MISSING: Final = f"""
SELECT * FROM (
    SELECT cluster_id, CAST(unnest(generate_series(min(day), max(day), INTERVAL 1 DAY)) AS DATE) AS day
    FROM (SELECT * FROM {{batch}}) AS batch GROUP BY cluster_id
)
CROSS JOIN (VALUES {", ".join(f"('{control}')" for control in CONTROLS)}) AS controls (control)
ANTI JOIN (SELECT * FROM {{batch}}) AS batch USING (cluster_id, day, control)"""

EPISODES_ASTRAY: Final = """
SELECT coalesce(found.cluster_id, lasted.cluster_id) AS cluster_id, lasted.finding_id
FROM (SELECT finding_id, cluster_id, bool_or(state = 'open') AS is_open FROM (SELECT * FROM {batch}) AS batch
    WHERE scope <> 'log' GROUP BY finding_id, cluster_id) AS lasted
LEFT JOIN findings AS found ON lasted.finding_id = found.finding_id
WHERE found.finding_id IS NULL OR is_open <> (found.state <> 'resolved')"""
LINKS_ASTRAY: Final = """
SELECT * FROM (SELECT * FROM {batch}) AS batch
WHERE incident_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.incident_id = batch.incident_id)"""


# What vouches for new rows without a look at older ones: the batch before a new one is new too, or ended where the
# replica's newest earlier capture says that its log ended.
NEW_BATCHES: Final = f"""
WITH new AS (SELECT * FROM {{batch}} WHERE source = 'log' AND status = 'present'),
earlier AS (
    SELECT row.* FROM captures AS row
    WHERE row.plan < (SELECT min(plan) FROM {{batch}})
    QUALIFY row_number() OVER (PARTITION BY {", ".join(REPLICA)} ORDER BY plan DESC, capture_number DESC) = 1
)"""
FOLLOWS: Final = f"""
    EXISTS (SELECT 1 FROM new AS before WHERE {same_replica("before", "new")}
        AND before.last_offset = new.base_offset - 1 AND before.leader_epoch <= new.leader_epoch)
    OR EXISTS (SELECT 1 FROM earlier WHERE {same_replica("earlier", "new")}
        AND earlier.log_end_offset = new.base_offset AND earlier.last_epoch <= new.leader_epoch)
    OR (NOT EXISTS (SELECT 1 FROM earlier WHERE {same_replica("earlier", "new")})
        AND new.base_offset = (SELECT min(base_offset) FROM new AS own WHERE {same_replica("own", "new")}))"""
OUT_OF_ORDER: Final = f"""{NEW_BATCHES}
SELECT 1 FROM new WHERE NOT ({FOLLOWS}) OR EXISTS (SELECT 1 FROM new AS before
    WHERE {same_replica("before", "new")} AND before.last_offset = new.base_offset - 1
      AND before.leader_epoch > new.leader_epoch)"""


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise of a table, as an expectation of Great Expectations: the name of its class and its arguments.

    `broken` is the SQL condition of a row that breaks it, where one row alone can. `doubtful` is a query over the rows
    of new plans: while it finds nothing, they keep the promise. It is empty where `broken` or the key says it.
    """

    clause: str
    text: str
    expectation: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    broken: str = ""
    doubtful: str = ""
    severity: ClauseSeverity = "critical"

    @property
    def broken_rows(self) -> str:
        """The query for the rows of `{batch}` that break it."""
        if self.doubtful:
            return str(self.arguments["unexpected_rows_query"])
        if self.broken:
            return f"SELECT * FROM {{batch}} WHERE {self.broken}"
        key = ", ".join(f'"{name}"' for name in self.arguments.get("column_list", [self.arguments.get("column")]))
        return f"SELECT * FROM {{batch}} QUALIFY count(*) OVER (PARTITION BY {key}) > 1"


def table_promises(table: Table, first: int, closed: int) -> Iterator[Promise]:
    """What one table's contract promises of the rows of closed plans; plans before `first` were judged before."""
    yield _unique_key(table)
    for column in table.columns:
        yield from _of_column(column)
    if table in (CAPTURES, FILES):
        yield _no_rows("bytes_unaccounted", "bytes seen = decoded + quarantined + unread", BYTES_UNACCOUNTED)
    if table is BATCHES:
        promise = "each batch begins where the one before it in its log ended, unless damage or a later start says why"
        yield _no_rows("offset_gaps", promise, OFFSET_GAPS, OUT_OF_ORDER)
        yield _no_rows("epoch_falls", "leader epochs of a replica's log never fall", EPOCH_FALLS, OUT_OF_ORDER)
    if table.name not in (*GOLD, PLANS.name, FILES.name):
        # Rows of captures, node cards and batches are never deleted or replaced, so that older plans are counted too.
        oldest = max(first, closed - CHECKPOINT_PLANS if table in (CAPTURES, NODE_CARDS, BATCHES) else closed)
        counted = OFF_THE_MANIFEST.format(table=table.name, first=oldest)
        yield _no_rows("rows_off_the_ledger", "each plan has the rows that its manifest counts", counted)


def _of_column(column: Column) -> Iterator[Promise]:
    name, quoted = {"column": column.name}, f'"{column.name}"'
    if not column.nullable:
        promise = "no required column is null"
        yield Promise("missing_values", promise, "ExpectColumnValuesToNotBeNull", name, f"{quoted} IS NULL")
    if column.values:
        promise, listed = "columns hold no value that their contract does not list", sorted(column.values)
        broken = f"{quoted} NOT IN ({', '.join(map(sql_text, listed))})"
        values = name | {"value_set": listed}
        yield Promise("unknown_values", promise, "ExpectColumnValuesToBeInSet", values, broken)
    if column.name.endswith(QUANTITIES) and pa.types.is_primitive(column.type):
        promise, least = "no count, size or time is negative", name | {"min_value": 0}
        yield Promise("negative_quantities", promise, "ExpectColumnValuesToBeBetween", least, f"{quoted} < 0")


def gold_promises(table: Table, first: int, closed: int, is_merged: str) -> Iterator[Promise]:
    """What a gold table promises; `is_merged` is the SQL condition that it has taken a plan."""
    yield from table_promises(table, first, closed)
    yield _no_rows("rows_off_the_ledger", "each row is of a closed plan that read its cluster", OFF_THE_LEDGER)
    if table is FINDINGS:
        promise = "open findings are exactly those of each cluster's newest plan"
        words = {"is_merged": is_merged, "is_shown_by_disks": is_shown_by_disks("found"), "shown_first": SHOWN_FIRST}
        yield _no_rows("open_off_the_plan", promise, sql_file("findings_off_the_plan", **words, batch="{batch}"))
    if table is FINDING_EPISODES:
        promise = "a finding is open while one of its episodes is"
        yield _no_rows("episodes_astray", promise, EPISODES_ASTRAY)
        yield _no_rows("links_astray", "what explains a finding is a known incident", LINKS_ASTRAY)
    if table is PARTITION_RISK:
        promise = "exposure is a part of a day's minutes, and no part of it is longer"
        yield _no_rows("minutes_impossible", promise, IMPOSSIBLE_MINUTES)
    if table is CLUSTER_COMPLIANCE:
        yield _no_rows("days_missing", "every control has every day", DAYS_MISSING)


def _unique_key(table: Table) -> Promise:
    promise = f"the key ({', '.join(table.key)}) is unique"
    if len(table.key) == 1:
        return Promise("repeated_keys", promise, "ExpectColumnValuesToBeUnique", {"column": table.key[0]})
    columns = {"column_list": list(table.key), "ignore_row_if": "never"}
    return Promise("repeated_keys", promise, "ExpectCompoundColumnsToBeUnique", columns)


def _no_rows(clause: str, promise: str, query: str, doubtful: str = "") -> Promise:
    rows = {"unexpected_rows_query": query.strip()}
    return Promise(clause, promise, "UnexpectedRowsExpectation", rows, doubtful=doubtful or query)
