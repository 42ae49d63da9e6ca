"""The testimony drills, one a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.drills import testimony_stories as story
from tests.drills.advised_operator import Operator
from tests.drills.drill import Drill

FIRST_BROKER: Final = 101
"""The node whose copy a rescue goes on from, where it comes to that: no disk of a controller is left."""


@dataclass(frozen=True, slots=True)
class TestimonyDrill:
    """A quorum, static unless it says otherwise, and what happens to it."""

    __test__ = False

    name: str
    release: str
    story: Callable[[Operator], None]
    voters: int = 3
    brokers: int = 1
    ci: bool = False

    @property
    def cluster(self) -> Drill:
        source = FIRST_BROKER if self.voters > 1 else 1
        return Drill(self.name, self.release, self.voters, is_static=True, brokers=self.brokers, source=source)

    @property
    def what(self) -> str:
        """The story in words."""
        return " ".join((self.story.__doc__ or "").split())


TESTIMONY_DRILLS: Final = (
    TestimonyDrill("static-scale-out", "4.3.1", story.static_scale_out, voters=1),
    TestimonyDrill("voters-dropped", "4.3.1", story.voters_dropped),
    TestimonyDrill("voters-dropped-everywhere", "4.3.1", story.voters_dropped_everywhere),
    TestimonyDrill("controllers-emptied", "4.0.2", story.controllers_emptied, brokers=2),
    TestimonyDrill("controllers-emptied-started", "4.3.1", story.controllers_emptied_and_started, brokers=2),
    TestimonyDrill("foreign-disk", "4.3.1", story.foreign_disk, ci=True),
    TestimonyDrill("set-aside-voter", "4.3.1", story.set_aside_voter),
    TestimonyDrill("disk-went-back", "4.3.1", story.disk_went_back),
    TestimonyDrill("voter-cut-off", "3.9.2", story.voter_cut_off),
    TestimonyDrill("majority-dead", "3.9.2", story.majority_dead),
)
