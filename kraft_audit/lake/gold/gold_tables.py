"""The gold tables of a fleet's lake as steps of a run, whatever engine computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kraft_audit.lake.gold.cluster_summaries import ClusterSummary, cluster_summaries
from kraft_audit.lake.gold.clusters_table import update_clusters
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldEngine, GoldLake
from kraft_audit.lake.gold.risk import RiskTables
from kraft_audit.lake.lake import Lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.progress import FindingCounts
from kraft_audit.lake.settings import FleetSettings, SettingsError
from kraft_audit.rules.rule_model import Waiver
from kraft_audit.rules.rule_settings import RuleSettingsError, load_waivers
from kraft_audit.tables.gold import FINDINGS, INCIDENTS
from kraft_codec.errors import InputError


class GoldTables:
    """The gold tables of one fleet's lake. The engine is started only if there is something to do.

    Raises SettingsError, InputError if the fleet's waivers cannot be used.
    """

    def __init__(self, fleet: FleetSettings, lake: Lake, engine: Callable[[], GoldEngine]) -> None:
        gold = GoldLake(lake, engine)
        self._lake = lake
        self._clusters = fleet.clusters
        self._findings = FindingsTable(gold, fleet_waivers(fleet))
        self._risk = RiskTables(gold)

    def findings(self) -> list[int]:
        """Merge closed plans and waivers into `findings`, labels into `clusters`; returns the plans merged."""
        merged = self._findings.update()
        update_clusters(self._lake, Ledger(self._lake).status().done, self._clusters)
        return merged

    def counts(self) -> FindingCounts:
        """The counts of `findings`."""
        return self._findings.counts()

    def states(self) -> list[ClusterSummary]:
        """What is open in each cluster, the most urgent first."""
        closed = Ledger(self._lake).status().done
        is_merged = all(self._lake.exists(table.name) for table in (FINDINGS, INCIDENTS))
        return cluster_summaries(self._lake, closed) if is_merged else []

    def risk(self) -> list[str]:
        """Bring `partition_risk` and `cluster_compliance` up to date; returns the tables that were changed."""
        return self._risk.update()


def fleet_waivers(fleet: FleetSettings) -> tuple[Waiver, ...]:
    """The waivers that a fleet.yaml names. Raises SettingsError, InputError."""
    if fleet.waivers is None:
        return ()
    if is_uri(fleet.waivers):
        raise SettingsError("fleet", "waivers", fleet.waivers, "a local file")
    try:
        return load_waivers(Path(fleet.waivers))
    except RuleSettingsError as problem:
        raise SettingsError(problem.source, problem.key, problem.value, problem.expected) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(fleet.waivers, getattr(problem, "strerror", None) or "no UTF-8 text") from None
