"""A deterministic KRaft quorum that writes byte-true log dirs: the independent witness of the audit."""

from kraft_engine.simulate import Simulation, scenario_names, simulate, summaries, tree_hash

__all__ = ["Simulation", "scenario_names", "simulate", "summaries", "tree_hash"]
