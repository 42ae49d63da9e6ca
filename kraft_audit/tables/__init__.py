"""Every table contract: name, grain, key, and the meaning of each column.

Here: the tables that a plan commits to a lake, and those that can be read straight from log dirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kraft_audit.tables.bronze import ARCHIVE, BATCHES, BRONZE, CAPTURES, DECODE_ERRORS, FILES, NODE_CARDS, RECORDS
from kraft_audit.tables.contract import Table, tables_by_name
from kraft_audit.tables.gold import HISTORIES, JUDGED_FINDINGS, JUDGED_INCIDENTS
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import SILVER

FINDINGS_STAGED: Final = replace(
    JUDGED_FINDINGS,
    name="findings_staged",
    layer="silver",
    grain="one episode of a finding as one plan judged it over all captures of its cluster",
    key=("cluster_id", "plan", "finding_id", "from_offset", "from_ms"),
    comment="What findings and their episodes are merged from: all of a cluster that a plan read, clear rules too.",
)
INCIDENTS_STAGED: Final = replace(
    JUDGED_INCIDENTS,
    name="incidents_staged",
    layer="silver",
    grain="one incident as one plan found it over all captures of its cluster",
    key=("cluster_id", "plan", "incident_id"),
    comment="What `incidents` is merged from.",
)
STAGED_AS: Final = {table.name.removesuffix("_staged"): table.name for table in (FINDINGS_STAGED, INCIDENTS_STAGED)}
"""Under which name a plan commits what rules say of a cluster."""
LAKE_TABLES: Final[Mapping[str, Table]] = {
    **BRONZE,
    **SILVER,
    **tables_by_name(LOSSES, FINDINGS_STAGED, INCIDENTS_STAGED, HISTORIES),
}
"""What plans commit, by name; `plans` itself is the ledger."""
READABLE_TABLES: Final[Mapping[str, Table]] = tables_by_name(
    *(CAPTURES, NODE_CARDS, FILES, BATCHES, RECORDS, ARCHIVE, DECODE_ERRORS),
    *SILVER.values(),
    LOSSES,
    JUDGED_FINDINGS,
    JUDGED_INCIDENTS,
)
"""What `format("kraft")` reads."""
