"""Incidents, one a file: what happens, and which findings it must raise."""

from kraft_engine.scenarios.model import SCENARIOS, Scenario, load, names

__all__ = ["SCENARIOS", "Scenario", "load", "names"]
