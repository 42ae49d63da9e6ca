"""The tables that a plan commits to a lake, and those that can be read straight from log dirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kraft_audit.replay.tables import SILVER
from kraft_audit.rules.tables import FINDINGS
from kraft_codec.contract import Table
from kraft_codec.tables import BRONZE, PLANS, TABLES

FINDINGS_STAGED: Final = replace(
    FINDINGS,
    name="findings_staged",
    layer="silver",
    grain="one finding as one plan judged it over all that was captured of its cluster",
    key=("cluster_id", "plan", "finding_id"),
    comment="What `findings` is merged from. A cluster with news has all its findings in a plan, clear ones included.",
)
LAKE_TABLES: Final[Mapping[str, Table]] = {**TABLES, **SILVER, FINDINGS_STAGED.name: FINDINGS_STAGED}
"""What plans commit, by name; `plans` itself is the ledger."""
READABLE_TABLES: Final[Mapping[str, Table]] = {
    **{table.name: table for table in BRONZE if table.name != PLANS.name},
    **SILVER,
    FINDINGS.name: FINDINGS,
}
"""What `format("kraft")` reads."""
