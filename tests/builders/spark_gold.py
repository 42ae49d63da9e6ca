"""Gold tables that Spark makes, however small they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_audit.lake.lake import Lake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.spark.gold_engine import SparkGold
from kraft_audit.spark.run_fleet import SparkGoldSteps


def spark_gold(fleet: FleetSettings, lake: Lake, session: Callable[[], Any]) -> SparkGoldSteps:
    """The steps; `session` is called when they need Spark."""
    return SparkGoldSteps(fleet, lake, lambda: SparkGold(lake, session))
