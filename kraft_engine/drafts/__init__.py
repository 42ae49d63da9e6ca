"""The two membership protocols that never shipped, as their proposals describe them."""

from kraft_engine.drafts.kip642 import Kip642
from kraft_engine.drafts.kip856 import Kip856
from kraft_engine.drafts.runs import Kip642CancelRun, Kip642Run, Kip856Run, draft_run

__all__ = ["Kip642", "Kip642CancelRun", "Kip642Run", "Kip856", "Kip856Run", "draft_run"]
