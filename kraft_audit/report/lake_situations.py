"""The table `situations`: where each history of a lake stands, made once after each run and read by everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kraft_audit.findings.situation import NOT_ASKED, Situation
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.gold_merge import GoldLake, LocalGold
from kraft_audit.lake.ledger import contract_schema
from kraft_audit.lake.merges import Merge, MergeAction, MergeClause
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.stored_situations import newest_judged, stored_situations
from kraft_audit.tables.gold import FINDINGS, INCIDENTS, SITUATIONS

_GONE: Final = "is_gone"
_ROWS: Final = contract_schema(SITUATIONS).append(pa.field(_GONE, pa.bool_()))


def update_situations(lake: DeltaLake, ids: Sequence[str]) -> dict[str, Situation]:
    """Writes the row of each history that a plan read, or whose findings changed, since its row was written.

    `ids` are the histories of the lake: one that is not among them proved to be another one, and has no row any more.
    Returns the situations of all of them.
    """
    if not all(lake.exists(table.name) for table in (FINDINGS, INCIDENTS, SITUATIONS)):
        return {}
    newest = newest_judged(lake)
    known, stored = stored_situations(lake, newest)
    wanted = [id_ for id_ in ids if id_ not in stored and id_ in newest]
    made = {given.cluster_id: given.situation for given in LakeSource(lake).of(wanted)} if wanted else {}
    gone = known - set(ids)
    if made or gone:
        rows = [{**made[id_].row(id_, *newest[id_]), _GONE: False} for id_ in made]
        rows += [{**NOT_ASKED.row(id_, 0, 0), _GONE: True} for id_ in sorted(gone)]
        GoldLake(lake, lambda: LocalGold(lake)).merge(SITUATIONS.name, _merge(pa.Table.from_pylist(rows, _ROWS)))
    return {id_: made.get(id_) or stored[id_] for id_ in ids if id_ in made or id_ in stored}


def _merge(rows: pa.Table) -> Merge:
    values = {name: f"found.{name}" for name in SITUATIONS.column_names}
    clauses = (
        MergeClause(MergeAction.DELETE, {}, f"found.{_GONE}"),
        MergeClause(MergeAction.UPDATE, {name: value for name, value in values.items() if name != "cluster_id"}),
        MergeClause(MergeAction.INSERT, values),
    )
    return Merge("known.cluster_id = found.cluster_id", clauses, rows=rows)
