"""What the table contracts promise, as SQL: each clause counts, per cluster, the rows that break it.

The SQL runs where the lake is read anyway (DataFusion, or Spark where only the JVM reaches it), so that only a few
counts per cluster ever reach Python. Rows of closed plans alone are judged: an open plan is not finished yet.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Final, Literal

from kraft_audit.replay.tables import REPLAYS, SILVER
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import CHECKPOINT_PLANS, FAILED, HOUR_MS, STAGED, Ledger
from kraft_audit.spark.quality_shares import (
    REPLICA,
    cluster_shares_of,
    rows_beside_new,
    rows_beside_new_batches,
    shares_of,
)
from kraft_audit.spark.views import CHANGES, holding, query_of
from kraft_codec.contract import Table
from kraft_codec.tables import BATCHES, CAPTURES, DECODE_ERRORS, FILES, PLANS

Severity = Literal["critical", "warning"]
# A branch is what stands in one replica's own log in the order of offsets, without batches that went again.
OF_REPLICA: Final = ", ".join(REPLICA)


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise; `counts` is cluster id to how many rows (or hours, where `limit` is one) break it."""

    name: str
    severity: Severity
    promise: str
    counts: dict[str, float]
    limit: float = 0


def table_clauses(lake: Lake, table: Table, closed: int, first: int = 1) -> list[Clause]:
    """The clauses of one table's contract, each with what the lake holds of the plans from `first` on.

    What these plans brought is held against older rows too, where a promise is about both.
    """
    if "cluster_id" not in table.column_names or "plan" not in table.column_names:
        return []
    rows = f"(SELECT * FROM {table.name} WHERE plan BETWEEN {first} AND {closed})"  # noqa: S608  # our own name
    clauses = [_unique_among_what_holds(lake, table, closed, first), required(lake, table, rows)]
    if "bytes_seen" in table.column_names:
        clauses.append(_bytes_add_up(lake, table, rows))
    if table.name not in (PLANS.name, FILES.name):
        clauses.append(_as_staged(lake, table, rows, closed, first))
    if table is BATCHES:
        clauses += _log_order(lake, rows_beside_new_batches(first, closed), closed)
    return clauses


def fleet_clauses(lake: Lake, closed: int, now_ms: int, fresh_hours: float) -> list[Clause]:
    """What a fleet should be: each cluster read by the last plan that tried, and something new of it lately."""
    fresh = f"""SELECT cluster_id, max(captured_at_ms) AS newest_ms FROM {CAPTURES.name}
        WHERE plan <= {closed} GROUP BY cluster_id"""  # noqa: S608
    ages = {
        row["cluster_id"]: round((now_ms - row["newest_ms"]) / HOUR_MS, 2)
        for row in lake.query(fresh, CAPTURES.name).to_pylist()
    }
    outcomes = f"""SELECT cluster_id, outcome FROM (
            SELECT cluster_id, outcome, row_number() OVER (PARTITION BY cluster_id ORDER BY plan DESC) AS place
            FROM {PLANS.name}
            WHERE plan <= {closed} AND event = '{STAGED}' AND outcome IS NOT NULL AND summary IS NOT NULL
        ) WHERE place = 1"""  # noqa: S608
    failed = {
        row["cluster_id"]: float(row["outcome"] == FAILED) for row in lake.query(outcomes, PLANS.name).to_pylist()
    }
    failed |= {one.cluster_name: 1.0 for one in Ledger(lake).unread().values() if not failed.get(one.cluster_id)}
    return [
        Clause("hours_since_news", "warning", f"news of every cluster within {fresh_hours:g} hours", ages, fresh_hours),
        Clause("unread_clusters", "warning", "the last plan that tried could read the cluster, all of it", failed),
        Clause(
            "incomplete_replays",
            "warning",
            "no record was missing or unknown in what the silver tables were told from, or a later plan told it anew",
            _incomplete_replays(lake, closed),
        ),
    ]


def _incomplete_replays(lake: Lake, closed: int) -> dict[str, float]:
    """How many plans told of each cluster past what was missing: a later copy may have it, a later release know it."""
    sql = f"""SELECT cluster_id, count(*) AS n FROM ({holding(REPLAYS.name, str, closed)}) AS held
        WHERE NOT is_complete AND from_offset < to_offset GROUP BY cluster_id"""  # noqa: S608
    return counts(lake, sql, REPLAYS.name)


def _unique_among_what_holds(lake: Lake, table: Table, closed: int, first: int) -> Clause:
    """Plans tell silver rows again: what holds of them is a matter of reading, as the views do it."""
    if table.name not in SILVER:
        return unique_key(lake, table, f"(SELECT * FROM {table.name} WHERE plan <= {closed})", first=first)  # noqa: S608
    held = holding(table.name, str, closed) if table.name in CHANGES else query_of(table.name, str, closed)
    return unique_key(lake, table, f"({held})", REPLAYS.name, first=first)


def unique_key(lake: Lake, table: Table, every: str, *beside: str, first: int = 1) -> Clause:
    """No key of the contract has two of these rows, which the tables `beside` tell too.

    `first`: keys alone of which a plan from this one on has a row.
    """
    key = ", ".join(f'"{column}"' for column in table.key) if _is_datafusion(lake) else ", ".join(table.key)
    cluster = "coalesce(cluster_id, '')"
    selected = key if "cluster_id" in table.key else f"{key}, min(cluster_id) AS cluster_id"
    rows, is_new = (every, "") if first <= 1 else (rows_beside_new(table, every, first), f"HAVING max(plan) >= {first}")
    found: dict[str, float] = defaultdict(float)
    for share in shares_of(lake, table, rows, *beside):
        sql = f"""SELECT {cluster} AS cluster_id, sum(n - 1) AS n FROM (
                SELECT {selected}, count(*) AS n FROM {rows} AS every WHERE {share} GROUP BY {key} {is_new}
            ) AS counted GROUP BY {cluster}"""  # noqa: S608
        for cluster_id, count in counts(lake, sql, table.name, *beside).items():
            found[cluster_id] += count
    promise = f"the key ({', '.join(table.key)}) is unique"
    return Clause("repeated_keys", "critical", promise, found)


def required(lake: Lake, table: Table, rows: str) -> Clause:
    """No row lacks what the contract does not let be null."""
    required = [column.name for column in table.columns if not column.nullable]
    quote = '"' if _is_datafusion(lake) else "`"
    is_missing = " OR ".join(f"{quote}{name}{quote} IS NULL" for name in required)
    sql = f"""SELECT coalesce(cluster_id, '') AS cluster_id, sum(CASE WHEN {is_missing} THEN 1 ELSE 0 END) AS n
        FROM {rows} AS every GROUP BY coalesce(cluster_id, '')"""  # noqa: S608
    return Clause("missing_values", "critical", "no column that must be there is null", counts(lake, sql, table.name))


def _bytes_add_up(lake: Lake, table: Table, rows: str) -> Clause:
    sql = f"""SELECT cluster_id, sum(CASE WHEN bytes_seen <> bytes_decoded + bytes_quarantined + bytes_unread
            THEN 1 ELSE 0 END) AS n FROM {rows} AS every GROUP BY cluster_id"""  # noqa: S608
    promise = "bytes seen = decoded + quarantined + unread"
    return Clause("bytes_unaccounted", "critical", promise, counts(lake, sql, table.name))


def _as_staged(lake: Lake, table: Table, rows: str, closed: int, first_plan: int) -> Clause:
    """Rows of the newest plan against its manifest; of older ones too where nothing ever takes rows away."""
    first = 1 if table in (CAPTURES, BATCHES) else closed
    # Maintenance leaves these; an earlier release did not.
    oldest = lake.query("SELECT min(plan) AS plan FROM plans", PLANS.name).column("plan")[0].as_py()
    first = max(first, closed - CHECKPOINT_PLANS, oldest, first_plan)
    sql = f"""SELECT plan, data_file FROM {PLANS.name} WHERE event = '{STAGED}' AND table_name = '{table.name}'
        AND plan >= {first} AND plan <= {closed} AND data_file IS NOT NULL"""  # noqa: S608
    promised: Counter[int] = Counter()
    for row in lake.query(sql, PLANS.name).to_pylist():
        promised[row["plan"]] += json.loads(row["data_file"])["row_count"]
    found_sql = f"SELECT plan, count(*) AS n FROM {rows} AS every WHERE plan >= {first} GROUP BY plan"  # noqa: S608
    found = {row["plan"]: row["n"] for row in lake.query(found_sql, table.name).to_pylist()}
    off = sum(abs(promised[plan] - found.get(plan, 0)) for plan in promised.keys() | found.keys())
    return Clause(
        "rows_off_the_ledger", "critical", "each plan has the rows that its manifest counts", {"": float(off)}
    )


def _log_order(lake: Lake, rows: str, closed: int) -> list[Clause]:
    """Offsets of a replica's log are dense and its epochs never fall, but where decode_errors says what is wrong."""
    gaps: dict[str, float] = defaultdict(float)
    falls: dict[str, float] = defaultdict(float)
    for share in cluster_shares_of(lake, BATCHES, rows):
        for row in _disorder(lake, f"(SELECT * FROM {rows} AS every WHERE {share})", closed):  # noqa: S608
            gaps[row["cluster_id"]] += float(row["gaps"] or 0)
            falls[row["cluster_id"]] += float(row["falls"] or 0)
    dense = "offsets of each replica's branch are dense, or decode_errors or the start of a later log says why"
    return [
        Clause("offset_gaps", "critical", dense, gaps),
        Clause("epoch_falls", "critical", "epochs of each replica's branch never fall", falls),
    ]


def _disorder(lake: Lake, rows: str, closed: int) -> list[dict[str, Any]]:
    """Each cluster's gaps and falls."""
    log = f"""SELECT {OF_REPLICA}, base_offset, last_offset, leader_epoch,
            lag(last_offset) OVER ({_BRANCH}) AS before_offset, lag(leader_epoch) OVER ({_BRANCH}) AS before_epoch
        FROM (
            SELECT {OF_REPLICA}, base_offset, last_offset, leader_epoch, crc, status,
                row_number() OVER (PARTITION BY {OF_REPLICA}, base_offset, last_offset, leader_epoch, crc
                                   ORDER BY plan DESC, capture_number DESC, status) AS place
            FROM {rows} AS every WHERE source = 'log'
        ) AS newest WHERE place = 1 AND status = 'present'"""  # noqa: S608
    told = f"""SELECT DISTINCT root AS told_root, path AS told_path
        FROM {DECODE_ERRORS.name} WHERE plan <= {closed}"""  # noqa: S608
    starts = f"""SELECT DISTINCT root AS start_root, path AS start_path, log_start_offset
        FROM {CAPTURES.name} WHERE plan <= {closed}"""  # noqa: S608
    # Where Kafka removed what nobody had read yet, a later capture's log begins anew: a history gap.
    sql = f"""SELECT cluster_id,
            sum(CASE WHEN told_root IS NULL AND start_root IS NULL AND base_offset <> before_offset + 1
                THEN 1 ELSE 0 END) AS gaps,
            sum(CASE WHEN told_root IS NULL AND leader_epoch < before_epoch THEN 1 ELSE 0 END) AS falls
        FROM ({log}) AS log LEFT JOIN ({told}) AS told ON root = told_root AND path = told_path
            LEFT JOIN ({starts}) AS starts
            ON root = start_root AND path = start_path AND base_offset = log_start_offset
        GROUP BY cluster_id"""  # noqa: S608
    found: list[dict[str, Any]] = lake.query(sql, BATCHES.name, CAPTURES.name, DECODE_ERRORS.name).to_pylist()
    return found


_BRANCH: Final = f"PARTITION BY {OF_REPLICA} ORDER BY base_offset, last_offset"


def counts(lake: Lake, sql: str, *tables: str) -> dict[str, float]:
    """Cluster id to the number `n` that a query over these tables gives."""
    rows: list[dict[str, Any]] = lake.query(sql, *tables).to_pylist()
    return {row["cluster_id"] or "": float(row["n"] or 0) for row in rows}


def _is_datafusion(lake: Lake) -> bool:
    """DataFusion quotes names with ", Spark with `; both take a bare name that is no word of SQL."""
    from kraft_audit.spark.lake import DeltaLake

    return isinstance(lake, DeltaLake)
