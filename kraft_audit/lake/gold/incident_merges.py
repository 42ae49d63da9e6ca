"""What a plan brings to the Delta tables `incidents` and `incident_findings`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft_audit.lake.gold.gold_merge import Merge, MergeAction, MergeClause
from kraft_audit.lake.views import TableReference, sql_file
from kraft_audit.tables import INCIDENTS_STAGED
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import FINDINGS, HISTORIES, INCIDENT_FINDINGS, INCIDENTS

_COLUMNS: Final = tuple(name for name in INCIDENTS.column_names if name not in ("closed_by", "first_plan", "plan"))


def incidents_of(plan: int) -> Merge:
    """The merge of one plan's incidents. One that was open and is no longer found is not open."""

    def changes(reference: TableReference) -> str:
        tables = {"plans": PLANS, "staged": INCIDENTS_STAGED, "histories": HISTORIES, "known": INCIDENTS}
        places = {name: reference(table.name) for name, table in tables.items()}
        return sql_file("incidents_of_plan", **places, plan=plan, columns=", ".join(_COLUMNS))

    found = {name: f"found.{name}" for name in _COLUMNS}
    found |= {"closed_by": "CASE WHEN found.is_open THEN NULL ELSE 'ended' END", "plan": f"CAST({plan} AS BIGINT)"}
    seen = {name: value for name, value in found.items() if name != "incident_id"}
    closed = "CASE WHEN found.gone_by = 'merged' THEN known.plan ELSE CAST({} AS BIGINT) END".format(plan)  # noqa: UP032
    gone = {"is_open": "false", "closed_by": "found.gone_by", "plan": closed}
    clauses = (
        MergeClause(MergeAction.UPDATE, gone, "found.is_gone"),
        MergeClause(MergeAction.UPDATE, seen, "NOT found.is_gone"),
        MergeClause(MergeAction.INSERT, {**found, "first_plan": f"CAST({plan} AS BIGINT)"}),
    )
    tables = (PLANS.name, INCIDENTS_STAGED.name, HISTORIES.name, INCIDENTS.name)
    return Merge("known.incident_id = found.incident_id", clauses, changes, tables)


def incident_findings_of(plan: int) -> Merge:
    """The merge of the findings that one plan's incidents explain."""

    def changes(reference: TableReference) -> str:
        known, staged = reference(INCIDENT_FINDINGS.name), reference(INCIDENTS_STAGED.name)
        # One row an element: the two engines have different names for it.
        each = "unnest" if staged == INCIDENTS_STAGED.name else "explode"
        findings = reference(FINDINGS.name)
        return sql_file(
            "incident_findings_of_plan", known=known, staged=staged, findings=findings, plan=plan, each=each
        )

    found = {name: f"found.{name}" for name in ("incident_id", "finding_id", "cluster_id")}
    clauses = (
        MergeClause(MergeAction.DELETE, {}, "found.is_gone"),
        MergeClause(MergeAction.INSERT, {**found, "plan": f"CAST({plan} AS BIGINT)"}),
    )
    same = "known.incident_id = found.incident_id AND known.finding_id = found.finding_id"
    return Merge(same, clauses, changes, (INCIDENTS_STAGED.name, FINDINGS.name, INCIDENT_FINDINGS.name))


INCIDENT_MERGES: Final[tuple[tuple[Table, Callable[[int], Merge]], ...]] = (
    (INCIDENTS, incidents_of),
    (INCIDENT_FINDINGS, incident_findings_of),
)
"""The tables of incidents with the merge of a plan."""
