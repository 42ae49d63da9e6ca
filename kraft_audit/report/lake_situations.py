"""The table `situations`: where each history of a lake stands, made once after each run and read by everything else."""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.findings.situation import Situation
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.gold.gold_merge import GoldLake, LocalGold
from kraft_audit.lake.ledger import contract_schema
from kraft_audit.lake.merges import Merge, MergeAction, MergeClause
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.stored_situations import newest_judged, stored_situations
from kraft_audit.tables.gold import FINDINGS, INCIDENTS, SITUATIONS

_SCHEMA: Final = contract_schema(SITUATIONS)
_GONE: Final = "is_gone"


def update_situations(lake: DeltaLake) -> dict[str, Situation]:
    """Writes the row of each history that a plan read, or whose findings changed, since its row was written.

    Returns those of all histories. A history that proved to be another one has no row any more.
    """
    if not all(lake.exists(table.name) for table in (FINDINGS, INCIDENTS)):
        return {}
    gold = GoldLake(lake, lambda: LocalGold(lake))
    gold.create(SITUATIONS)
    source, stored, newest = LakeSource(lake.uri), stored_situations(lake), newest_judged(lake)
    ids = source.ids()
    wanted = [id_ for id_ in ids if id_ not in stored and id_ in newest]
    made = {given.cluster_id: given.situation for given in source.of(wanted)}
    known = lake.query(f"SELECT cluster_id FROM {SITUATIONS.name}", SITUATIONS.name)["cluster_id"].to_pylist()
    gone = set(known) - set(ids)
    if made or gone:
        rows = pa.Table.from_pylist([made[id_].row(id_, *newest[id_]) for id_ in made], _SCHEMA)
        rows = rows.append_column(_GONE, pa.repeat(False, rows.num_rows))
        old = lake.query(
            f"SELECT * FROM {SITUATIONS.name} WHERE cluster_id IN ({', '.join(map(sql_text, sorted(gone))) or 'NULL'})",
            SITUATIONS.name,
        ).cast(_SCHEMA)
        old = old.append_column(_GONE, pa.repeat(True, old.num_rows))
        gold.merge(SITUATIONS.name, _merge(pa.concat_tables([rows, old])))
    return {id_: made.get(id_) or stored[id_] for id_ in ids if id_ in made or id_ in stored}


def _merge(rows: pa.Table) -> Merge:
    values = {name: f"found.{name}" for name in SITUATIONS.column_names}
    clauses = (
        MergeClause(MergeAction.DELETE, {}, f"found.{_GONE}"),
        MergeClause(MergeAction.UPDATE, {name: value for name, value in values.items() if name != "cluster_id"}),
        MergeClause(MergeAction.INSERT, values),
    )
    return Merge("known.cluster_id = found.cluster_id", clauses, rows=rows)
