"""The Delta table `findings`: what each plan's rules said, merged plan by plan.

A finding keeps its row as long as it lives: seen again it is updated, gone it is closed, back it is reopened. The
merge of a plan carries the plan's number as its application transaction, so that a plan is merged once, whoever comes
first and whatever died meanwhile. Waivers are compared at every run, as they begin and expire without any plan.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_audit.rules.model import Waiver
from kraft_audit.rules.tables import FINDINGS as JUDGED
from kraft_audit.rules.tables import WAIVER
from kraft_audit.rules.waivers import is_expired, matches
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.gold import Action, Clause, GoldLake, Merge
from kraft_audit.spark.gold_tables import FINDINGS
from kraft_audit.spark.ledger import contract_schema
from kraft_audit.spark.summary import SEVERITIES, FindingCounts
from kraft_audit.spark.tables import FINDINGS_STAGED
from kraft_audit.spark.views import TableReference
from kraft_codec.tables import PLANS

STAGED_FINDINGS: Final = FINDINGS_STAGED.name
_WAIVED: Final = pa.schema(
    [
        pa.field("finding_id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("waiver", WAIVER),
        pa.field("expired_waiver", WAIVER),
    ]
)

# What only disks can tell, findings about the log itself, no plan that read the archive alone can close; nor can one
# whose rule could not look at the cluster at all.
# `looked_ms` is the same whenever the plan is merged: the time of the captures, else that of the plan's staging.
CHANGES: Final = """
WITH judged AS (
    SELECT staged.cluster_id, max(staged.at_ms) AS staged_ms,
           coalesce(bool_or(opened.cluster_plan LIKE '%"archive:%'), false) AS is_from_archive
    FROM {plans} AS staged
    LEFT JOIN (SELECT * FROM {plans} WHERE plan = {plan} AND event = 'opened') AS opened
    ON staged.cluster_number = opened.cluster_number
    WHERE staged.plan = {plan} AND staged.event = 'staged' AND staged.outcome = 'read'
    GROUP BY staged.cluster_id
),
said AS (
    SELECT staged.*, coalesce(staged.seen_ms, judged.staged_ms) AS looked_ms,
           row_number() OVER (PARTITION BY finding_id ORDER BY from_offset, summary) AS place
    FROM {staged} AS staged
    JOIN judged ON staged.cluster_id = judged.cluster_id
    WHERE staged.plan = {plan} AND staged.status <> 'clear'
),
gone AS (
    SELECT known.*, judged.staged_ms AS looked_ms
    FROM {findings} AS known
    JOIN judged ON known.cluster_id = judged.cluster_id
    WHERE known.state <> 'closed' AND NOT EXISTS (SELECT 1 FROM said WHERE said.finding_id = known.finding_id)
      AND NOT (judged.is_from_archive AND known.scope = 'log')
      AND NOT EXISTS (
          SELECT 1 FROM said
          WHERE said.cluster_id = known.cluster_id AND said.rule = known.rule
            AND said.status = 'undecided' AND said.subject = ''
      )
)
SELECT {columns}, looked_ms, false AS is_gone FROM said WHERE place = 1
UNION ALL
SELECT {columns}, looked_ms, true AS is_gone FROM gone
"""
# What becomes of a row, by column: the same expressions for both engines that merge. `nobody` is NULL as a waiver.
GONE: Final = {
    "state": "'closed'",
    "closed_ms": "found.looked_ms",
    "closed_by": "'not_found'",
    "is_over": "true",
    "waiver": "{nobody}",
    "expired_waiver": "{nobody}",
    "changed_ms": "found.looked_ms",
    "plan": "{plan}",
}
SEEN: Final = {
    "state": "CASE WHEN found.is_over THEN 'closed' WHEN known.state = 'waived' THEN 'waived' ELSE 'open' END",
    "waiver": "CASE WHEN found.is_over THEN {nobody} ELSE known.waiver END",
    "last_seen_ms": "greatest(known.last_seen_ms, found.looked_ms)",
    "closed_ms": "CASE WHEN found.is_over THEN coalesce(found.to_ms, known.closed_ms, found.looked_ms) END",
    "closed_by": "CASE WHEN found.is_over THEN 'ended' END",
    "reopened_count": (
        "known.reopened_count + CASE WHEN known.state = 'closed' AND NOT found.is_over "
        "THEN CAST(1 AS INT) ELSE CAST(0 AS INT) END"
    ),
    "changed_ms": (
        "CASE WHEN (known.state = 'closed') <> found.is_over OR known.status <> found.status "
        "THEN found.looked_ms ELSE known.changed_ms END"
    ),
}
NEW: Final = {
    "waiver": "{nobody}",
    "state": "CASE WHEN found.is_over THEN 'closed' ELSE 'open' END",
    "first_seen_ms": "found.looked_ms",
    "last_seen_ms": "found.looked_ms",
    "closed_ms": "CASE WHEN found.is_over THEN coalesce(found.to_ms, found.looked_ms) END",
    "closed_by": "CASE WHEN found.is_over THEN 'ended' END",
    "reopened_count": "CAST(0 AS INT)",
    "first_plan": "CAST({plan} AS BIGINT)",
    "changed_ms": "found.looked_ms",
    "expired_waiver": "{nobody}",
}
WAIVED: Final = {
    "state": "found.state",
    "waiver": "found.waiver",
    "expired_waiver": "found.expired_waiver",
    "changed_ms": "CAST({now_ms} AS BIGINT)",
}
_SCHEMA: Final = contract_schema(FINDINGS)
_KEY: Final = "known.finding_id = found.finding_id"


class FindingsTable:
    """The table `findings` of one lake."""

    def __init__(self, gold: GoldLake, waivers: Sequence[Waiver] = ()) -> None:
        self.gold = gold
        self.waivers = tuple(waivers)

    def update(self, now_ms: int | None = None) -> list[int]:
        """Merge every closed plan that is not yet in, then the waivers as they hold now; the plans merged."""
        closed = self.gold.ledger.status().closed
        if not self.gold.lake.exists(STAGED_FINDINGS):
            return []
        done = self.gold.merged_plan(FINDINGS.name)
        if done < closed:
            self.gold.create(FINDINGS)
        merged = [plan for plan in range(done + 1, closed + 1) if self._merge(plan)]
        if closed:
            self._update_waivers(time.time_ns() // 1_000_000 if now_ms is None else now_ms)
        return merged

    def counts(self) -> FindingCounts:
        """How many findings there are of each kind."""
        if not self.gold.lake.exists(FINDINGS.name):
            return FindingCounts()
        rows = self.gold.lake.query(
            "SELECT status, state, severity, expired_waiver IS NOT NULL AS is_expired, count(*) AS n FROM findings "
            "WHERE state <> 'closed' GROUP BY status, state, severity, expired_waiver IS NOT NULL",
            FINDINGS.name,
        ).to_pylist()
        raised = [row for row in rows if row["status"] == "raised"]
        open_: Counter[str] = Counter()
        for row in raised:
            open_[row["severity"]] += row["n"] if row["state"] == "open" else 0
        return FindingCounts(
            {severity: open_[severity] for severity in SEVERITIES},
            sum(row["n"] for row in raised if row["state"] == "waived"),
            sum(row["n"] for row in raised if row["is_expired"]),
            sum(row["n"] for row in rows if row["status"] == "undecided"),
        )

    def _merge(self, plan: int) -> bool:
        merged = self.gold.merge(FINDINGS.name, self.merge_of(plan), plan)
        failpoint(f"after-findings:{plan}")
        return merged

    def merge_of(self, plan: int) -> Merge:
        """What one plan's rows do to the table."""
        names = JUDGED.column_names
        # Who accepts a finding is no word of the rules: waivers have a merge of their own.
        said = {name: f"found.{name}" for name in names if name not in ("finding_id", "waiver")}

        def changes(reference: TableReference) -> str:
            tables = {"plans": PLANS.name, "staged": STAGED_FINDINGS, "findings": FINDINGS.name}
            places = {name: reference(table) for name, table in tables.items()}
            return CHANGES.format(**places, plan=plan, columns=", ".join(names))

        clauses = (
            Clause(Action.UPDATE, _with(GONE, plan=plan), "found.is_gone"),
            Clause(Action.UPDATE, _with({**said, **SEEN}, plan=plan), "NOT found.is_gone"),
            Clause(Action.INSERT, _with({"finding_id": "found.finding_id", **said, **NEW}, plan=plan)),
        )
        tables = (PLANS.name, STAGED_FINDINGS, FINDINGS.name)
        return Merge(_KEY, clauses, changes, tables, self._row_count(plan), nobody=_SCHEMA.field("waiver").type)

    def _row_count(self, plan: int) -> int:
        """How many rows a merge may have to hold: what the plan said, and what is not closed."""
        lake = self.gold.lake
        said = lake.query(f"SELECT count(*) AS n FROM {STAGED_FINDINGS} WHERE plan = {plan}", STAGED_FINDINGS)  # noqa: S608
        known = lake.query("SELECT count(*) AS n FROM findings WHERE state <> 'closed'", FINDINGS.name)
        return int(said.column("n")[0].as_py()) + int(known.column("n")[0].as_py())

    def _update_waivers(self, now_ms: int) -> None:
        changed = list(waived_rows(self._waivable(), self.waivers, now_ms))
        if not changed:
            return
        rows = pa.Table.from_pylist(changed, schema=_WAIVED)
        clause = Clause(Action.UPDATE, _with(WAIVED, now_ms=now_ms), "known.state <> 'closed'")
        self.gold.merge(FINDINGS.name, Merge(_KEY, (clause,), rows=rows))

    def _waivable(self) -> list[dict[str, Any]]:
        """Findings that a waiver is, was or may be about."""
        rules = ", ".join(sorted({f"'{waiver.rule}'" for waiver in self.waivers})) or "''"
        rows: list[dict[str, Any]] = self.gold.lake.query(
            "SELECT finding_id, cluster_id, rule, subject, state, waiver, expired_waiver FROM findings "  # noqa: S608
            "WHERE status = 'raised' AND state <> 'closed' "
            f"AND (rule IN ({rules}) OR waiver IS NOT NULL OR expired_waiver IS NOT NULL)",
            FINDINGS.name,
        ).to_pylist()
        return rows


def _with(expressions: Mapping[str, str], **values: int) -> dict[str, str]:
    """The expressions with their numbers filled in; `{nobody}` stays for the engine to name."""
    return {name: text.format(nobody="{nobody}", **values) for name, text in expressions.items()}


def waived_rows(rows: Iterable[Mapping[str, Any]], waivers: Sequence[Waiver], now_ms: int) -> Iterable[dict[str, Any]]:
    """What has to change in findings, so that they are waived as the waivers say at `now_ms`."""
    for row in rows:
        mine = [
            w for w in waivers if matches(w, rule=row["rule"], cluster_id=row["cluster_id"], subject=row["subject"])
        ]
        valid = next((one for one in mine if not is_expired(one, now_ms)), None)
        expired = mine[0] if mine and valid is None else None
        wanted = {
            "finding_id": row["finding_id"],
            "state": "open" if valid is None else "waived",
            "waiver": _who(valid),
            "expired_waiver": _who(expired),
        }
        if any(row[name] != value for name, value in wanted.items()):
            yield wanted


def _who(waiver: Waiver | None) -> dict[str, str] | None:
    return None if waiver is None else {"who": waiver.who, "why": waiver.why, "until": waiver.until}
