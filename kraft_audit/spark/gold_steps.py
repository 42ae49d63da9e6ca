"""The steps of a run after its plan is closed: `findings`, then `risk`. Either may be repeated at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kraft_audit.rules.model import Waiver
from kraft_audit.rules.settings import RuleSettingsError
from kraft_audit.rules.waivers import load_waivers
from kraft_audit.settings import FleetSettings, SettingsError, is_uri
from kraft_audit.spark.findings import FindingsTable
from kraft_audit.spark.gold import GoldLake, told_in_one_line
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import without_exposures_text
from kraft_audit.spark.risk import RiskTables
from kraft_audit.spark.summary import FindingCounts
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GoldSteps:
    """The gold tables of one fleet's lake. Spark is started only where there is something to do.

    Raises SettingsError, InputError where the fleet's waivers cannot be used.
    """

    def __init__(self, fleet: FleetSettings, lake: Lake, session: Callable[[], SparkSession]) -> None:
        gold = GoldLake(lake, session)
        self._lake = lake
        self._findings = FindingsTable(gold, waivers_of(fleet))
        self._risk = RiskTables(gold)

    def findings(self) -> list[int]:
        """Merge closed plans and waivers into `findings`; the plans merged."""
        with told_in_one_line(self._lake, "findings"):
            return self._findings.update()

    def counts(self) -> FindingCounts:
        """What `findings` holds."""
        return self._findings.counts()

    def risk(self) -> list[str]:
        """Bring `partition_risk` and `cluster_compliance` up to date; the tables that were touched."""
        with told_in_one_line(self._lake, "risk"):
            return self._risk.update()

    @property
    def left_out(self) -> str | None:
        """What the last `risk` could not compute anew, and why."""
        return without_exposures_text(self._risk.skipped) if self._risk.skipped else None


def waivers_of(fleet: FleetSettings) -> tuple[Waiver, ...]:
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
