"""The two membership protocols that never shipped, as their proposals describe them."""

from kraft_engine.drafts.draft_runs import Kip642CancelRun, Kip642Run, Kip856Run, draft_run
from kraft_engine.drafts.kip642 import Kip642
from kraft_engine.drafts.kip856 import Kip856

__all__ = ["Kip642", "Kip642CancelRun", "Kip642Run", "Kip856", "Kip856Run", "draft_run"]
