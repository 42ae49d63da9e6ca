"""A deterministic KRaft quorum that writes byte-true log dirs: the independent witness of the audit.

Names are imported when they are first asked for: the pytest plugin lies in this package, and every pytest of an
environment loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft_engine.runs.options import Options
    from kraft_engine.runs.simulate import Simulation, scenario_names, simulate, summaries, tree_hash

__all__ = ["Options", "Simulation", "scenario_names", "simulate", "summaries", "tree_hash"]


def __getattr__(name: str) -> Any:
    """The public name from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kraft_engine.runs import options, simulate

    return getattr(options if name == "Options" else simulate, name)
