"""Incidents: what happens in each, and which findings it must raise."""

from kraft_engine.scenarios.scenario import SCENARIOS, Scenario, load, names

__all__ = ["SCENARIOS", "Scenario", "load", "names"]
