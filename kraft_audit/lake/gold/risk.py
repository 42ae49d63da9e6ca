"""`partition_risk` and `cluster_compliance`: how exposed each cluster was on each day, and which controls were met.

SQL over the lake's own tables, across clusters and time. Only clusters that a plan has read
since, or whose findings changed, are computed again. A row is written only if it differs, so that a second run changes
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Final

import pyarrow as pa

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.gold import gold_merge
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.gold.gold_query import GoldQuery, LakeInput
from kraft_audit.lake.merges import EngineWords, Merge, MergeAction, MergeClause
from kraft_audit.lake.progress import failpoint
from kraft_audit.lake.views import TableReference, query_of
from kraft_audit.replay.kernels.codes import IS_EXPOSED_SQL
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import LOSS
from kraft_audit.tables.bronze import BATCHES, CAPTURES, PLANS
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    FINDING_EPISODES,
    FINDINGS,
    PARTITION_RISK,
    SEVERITIES,
)
from kraft_audit.tables.silver import BROKER_CHANGES, EXPOSURE_CHANGES, REPLAYS, SILVER

# The columns that the queries use of each table.
INPUT_COLUMNS: Final = {
    CAPTURES.name: ["cluster_id", "last_timestamp_ms", "read_to_ms"],
    BROKER_CHANGES.name: ["cluster_id", "broker_id", "rack", "from_offset", "timestamp_ms", "exists"],
    EXPOSURE_CHANGES.name: [
        *("cluster_id", "topic_id", "partition", "topic", "timestamp_ms", "from_offset", "to_offset"),
        *("keeper_id", "is_last_replica", "is_offline", "is_under_min_isr"),
    ],
    FINDINGS.name: [
        *("cluster_id", "rule", "severity", "status", "state", "waived_until"),
        *("from_ms", "to_ms", "is_over", "first_seen_ms", "last_seen_ms", "closed_by"),
    ],
}

# Where logs begin, from the plans that `cluster_compliance` does not know yet: reading all batches would take long.
LOG_BEGINS: Final = """
SELECT cluster_id, min(base_timestamp_ms) AS begun_ms
FROM ({batches}) AS batches
WHERE valid AND source = 'log' AND base_timestamp_ms > 0 AND ({of_new_plans})
GROUP BY cluster_id
"""
# Rows that are no longer computed are deleted. Equal rows stay, except the newest: it says how far the cluster is.
COMPUTED_ROWS: Final = """
WITH computed AS ({computed})
SELECT {columns}, day = max(day) OVER (PARTITION BY cluster_id) AS is_newest, false AS is_gone
FROM computed
"""
NO_LONGER_COMPUTED: Final = """
SELECT {columns}, false AS is_newest, true AS is_gone
FROM {table} AS old
WHERE cluster_id IN (SELECT cluster_id FROM changed)
  AND NOT EXISTS (SELECT 1 FROM computed WHERE {old_is_new})
"""
# The lake answers these queries itself, so that no engine is started where nothing changed.
RISK_CHANGED: Final = """
SELECT cluster_id, max(plan) AS plan
FROM plans
WHERE event = 'staged' AND outcome = 'read' AND plan IN ({plans})
GROUP BY cluster_id
"""
COMPLIANCE_CHANGED: Final = """
SELECT judged.cluster_id, judged.plan, coalesce(found.changed_ms, 0) AS changed_ms,
    coalesce(done.plan, 0) AS known_plan, done.first_day AS known_first_day
FROM (
    SELECT cluster_id, max(plan) AS plan
    FROM plans
    WHERE event = 'staged' AND outcome = 'read' AND {is_closed}
    GROUP BY cluster_id
) AS judged
LEFT JOIN (SELECT cluster_id, max(changed_ms) AS changed_ms FROM findings GROUP BY cluster_id) AS found
ON judged.cluster_id = found.cluster_id
LEFT JOIN (
    SELECT cluster_id, max(plan) AS plan, max(as_of_ms) AS as_of_ms, min(day) AS first_day
    FROM cluster_compliance
    GROUP BY cluster_id
) AS done
ON judged.cluster_id = done.cluster_id
WHERE done.plan IS NULL OR judged.plan > done.plan OR coalesce(found.changed_ms, 0) > done.as_of_ms
"""


class RiskTables:
    """The two tables of one lake."""

    def __init__(self, gold: GoldLake) -> None:
        self.gold = gold

    def update(self) -> list[str]:
        """Bring both tables up to the newest closed plan; returns the tables that were changed."""
        status = self.gold.ledger.status()
        closed = status.done
        touched = []
        if self._lags(status.closed) and (changed := self._risk_changed()).num_rows:
            self.gold.create(PARTITION_RISK)
            self._update_risk(closed, changed, status.closed)
            touched.append(PARTITION_RISK.name)
            failpoint("after-risk")
        if self.gold.lake.exists(FINDINGS.name) and closed.newest:
            self.gold.create(CLUSTER_COMPLIANCE)
            changed = self._compliance_changed(closed)
            if changed.num_rows:
                self._update_compliance(closed, changed)
                touched.append(CLUSTER_COMPLIANCE.name)
        return touched

    def _lags(self, place: int) -> bool:
        return self.gold.lake.exists(EXPOSURE_CHANGES.name) and self.gold.merged_place(PARTITION_RISK.name) < place

    def _compliance_changed(self, closed: ClosedPlans) -> pa.Table:
        """The clusters whose compliance has to be computed again. `known_first_day` is counted from 1970 on."""
        sql = COMPLIANCE_CHANGED.format(is_closed=closed.where())
        changed = self.gold.lake.query(sql, PLANS.name, FINDINGS.name, CLUSTER_COMPLIANCE.name)
        days = changed["known_first_day"].cast(pa.int32()).cast(pa.int64())
        return changed.set_column(changed.schema.get_field_index("known_first_day"), "known_first_day", days)

    def _risk_changed(self) -> pa.Table:
        """The clusters that plans have read since: a plan may have read none, and only recorded failures."""
        closed_since = self.gold.ledger.closings(self.gold.merged_place(PARTITION_RISK.name))
        plans = ", ".join(str(plan) for _, plan in closed_since) or "NULL"
        return self.gold.lake.query(RISK_CHANGED.format(plans=plans), PLANS.name)

    def _update_risk(self, closed: ClosedPlans, changed: pa.Table, place: int) -> None:
        if self._is_never_exposed(changed):
            self._merge_rows(PARTITION_RISK, _no_rows(PARTITION_RISK), changed, place)
            return
        inputs = self._inputs(closed, CAPTURES.name, EXPOSURE_CHANGES.name, BROKER_CHANGES.name)
        words = {"is_exposed": IS_EXPOSED_SQL}
        query = GoldQuery("partition_risk", {"changed": changed}, inputs, words, _of_clusters(changed))
        self._merge(PARTITION_RISK, query, changed, place)

    def _is_never_exposed(self, changed: pa.Table) -> bool:
        """Whether no partition of these clusters was ever exposed, as is usual: then nothing has to be computed."""
        if self.gold.lake.small_merges is None:
            return False  # to ask would cost what it is to save
        sql = f"SELECT count(*) AS n FROM {EXPOSURE_CHANGES.name} WHERE {_of_clusters(changed)}"  # noqa: S608
        return bool(self.gold.lake.query(sql, EXPOSURE_CHANGES.name).column("n")[0].as_py() == 0)

    def _update_compliance(self, closed: ClosedPlans, changed: pa.Table) -> None:
        values = {
            # Which clusters changed must stay fixed while their rows are merged.
            "changed": changed,
            "severities": pa.table({"name": list(SEVERITIES)[::-1], "rank": range(len(SEVERITIES))}),
            "controls": pa.table(
                {"rule": list(rules()), "control": [str(rule.control) for rule in rules().values()]},
            ),
            "log_begins": self._log_begins(closed, changed),
        }
        inputs = self._inputs(closed, CAPTURES.name, FINDINGS.name)
        query = GoldQuery("cluster_compliance", values, inputs, {"loss": sql_text(LOSS)}, _of_clusters(changed))
        self._merge(CLUSTER_COMPLIANCE, query, changed)

    def _inputs(self, closed: ClosedPlans, *names: str) -> dict[str, LakeInput]:
        """What the queries read of closed plans."""
        inputs = {}
        for name in names:
            if name == FINDINGS.name:
                tables: tuple[str, ...] = (name, FINDING_EPISODES.name)
                select = _lasting_findings
            else:
                tables = (name, REPLAYS.name) if name in SILVER else (name,)
                select = partial(query_of, name, closed=closed)
            inputs[name] = LakeInput(tables, select, tuple(INPUT_COLUMNS[name]))
        return inputs

    def _log_begins(self, closed: ClosedPlans, changed: pa.Table) -> pa.Table:
        sql = LOG_BEGINS.format(batches=query_of(BATCHES.name, str, closed=closed), of_new_plans=_of_new_plans(changed))
        return self.gold.lake.query(sql, BATCHES.name)

    def _merge(self, table: Table, query: GoldQuery, changed: pa.Table, version: int | None = None) -> None:
        """Compute, and merge rows if they are few and the lake merges those itself; else what the engine computes."""
        columns, key, engine = table.column_names, table.key, self.gold.engine
        shape = COMPUTED_ROWS.format(computed="{computed}", columns=", ".join(columns))
        rows, large_merges = engine.rows(query, shape), engine.large_merges
        is_small = self.gold.lake.small_merges is not None and rows.num_rows <= gold_merge.SMALL_ROWS
        if large_merges is None or is_small:
            self._merge_rows(table, rows, changed, version)
            return
        computed = large_merges.computed(query, shape)
        old_is_new = " AND ".join(f"computed.{name} = old.{name}" for name in key)

        def changes(reference: TableReference, _: EngineWords) -> str:
            old = {"table": reference(table.name), "columns": ", ".join(columns), "old_is_new": old_is_new}
            return f"{computed} UNION ALL {NO_LONGER_COMPUTED.format(**old)}"

        merge = Merge(_same_row(table), _clauses(table), changes, row_count=gold_merge.SMALL_ROWS + 1)
        self.gold.merge(table.name, merge, version)

    def _merge_rows(self, table: Table, computed_rows: pa.Table, changed: pa.Table, version: int | None) -> None:
        """Merge the rows that COMPUTED_ROWS gave: all rows that the changed clusters have from now on."""
        rows = pa.concat_tables([computed_rows, self._gone(table, computed_rows, changed)])
        self.gold.merge(table.name, Merge(_same_row(table), _clauses(table), rows=rows), version)

    def _gone(self, table: Table, computed_rows: pa.Table, changed: pa.Table) -> pa.Table:
        """Rows of the changed clusters that are no longer computed."""
        sql = f"SELECT * FROM {table.name} WHERE {_of_clusters(changed)}"  # noqa: S608
        old, keys = self.gold.lake.query(sql, table.name), list(table.key)
        places = old.select(keys).append_column("place", pa.array(range(old.num_rows), pa.int64()))
        gone = old.take(places.join(computed_rows.select(keys), keys, join_type="left anti").column("place"))
        for name, value in (("is_newest", False), ("is_gone", True)):
            gone = gone.append_column(name, pa.repeat(pa.scalar(value), gone.num_rows))
        return gone.select(computed_rows.column_names).cast(computed_rows.schema)


def _same_row(table: Table) -> str:
    return " AND ".join(f"known.{name} = found.{name}" for name in table.key)


def _clauses(table: Table) -> tuple[MergeClause, ...]:
    """Delete rows that are no longer computed, write rows that differ, and add new rows."""
    # A newer plan alone is no difference, except on the newest day, which says how far the cluster was computed.
    values = [name for name in table.column_names if name not in (*table.key, "plan", "as_of_ms")]
    differs = [f"(known.{name} IS DISTINCT FROM found.{name})" for name in values]
    if "as_of_ms" in table.column_names:
        differs.append("(found.is_newest AND (known.plan <> found.plan OR known.as_of_ms <> found.as_of_ms))")
    inserted = {name: f"found.{name}" for name in table.column_names}
    updated = {name: value for name, value in inserted.items() if name not in table.key}
    return (
        MergeClause(MergeAction.DELETE, {}, "found.is_gone"),
        MergeClause(MergeAction.UPDATE, updated, f"NOT found.is_gone AND ({' OR '.join(differs)})"),
        MergeClause(MergeAction.INSERT, inserted),
    )


def _no_rows(table: Table) -> pa.Table:
    """The result of COMPUTED_ROWS if nothing is computed."""
    more = [pa.field("is_newest", pa.bool_()), pa.field("is_gone", pa.bool_())]
    return pa.schema([*table.schema, *more]).empty_table()


OF_FINDING: Final = "found.cluster_id, found.rule, found.waiver['until'] AS waived_until"
"""`waived_until` stands beside the waiver: a null struct of required columns does not cross into every engine."""
OF_EPISODE: Final = ("from_ms", "to_ms", "is_over", "status", "severity", "first_seen_ms", "last_seen_ms", "closed_by")


def _lasting_findings(reference: TableReference) -> str:
    """Every episode with its finding's waiver, but for those that a stop in order explains."""
    findings, episodes = reference(FINDINGS.name), reference(FINDING_EPISODES.name)
    return f"""
        SELECT {OF_FINDING}, CASE WHEN lasted.state = 'resolved' THEN 'resolved' ELSE found.state END AS state,
            {", ".join(f"lasted.{name}" for name in OF_EPISODE)}
        FROM {findings} AS found JOIN {episodes} AS lasted ON found.finding_id = lasted.finding_id
        WHERE lasted.is_over OR found.state <> 'folded'"""  # noqa: S608


def _of_clusters(changed: pa.Table) -> str:
    clusters = map(sql_text, changed.column("cluster_id").to_pylist())
    return f"cluster_id IN ({', '.join(clusters) or 'NULL'})"


def _of_new_plans(changed: pa.Table) -> str:
    """The condition for the plans that `cluster_compliance` does not know yet of each cluster, grouped by plan."""
    clusters = defaultdict(list)
    for row in changed.to_pylist():
        clusters[row["known_plan"]].append(sql_text(row["cluster_id"]))
    return " OR ".join(f"plan > {plan} AND cluster_id IN ({', '.join(ids)})" for plan, ids in clusters.items())
