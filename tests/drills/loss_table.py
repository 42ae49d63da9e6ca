"""The drills of losses, one a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraft_audit.rules.columns.witnesses import Label
from tests.drills import loss_stories as story
from tests.drills.losing_cluster import LosingCluster
from tests.drills.loss_stories import A, B, C

UNCLEAN, LAST, ALONE = Label.UNCLEAN_ELECTION, Label.LAST_KNOWN_LEADER, Label.CAME_BACK_ALONE
STALE, EMPTIED, OUTSIDE = Label.STALE_ELIGIBLE, Label.EMPTIED_REPLICA, Label.OUTSIDE_ELIGIBLE


@dataclass(frozen=True, slots=True)
class LossDrill:
    """One drill.

    * `label`: of the event that the audit has to name, `times` in a row; None where it has to name none.
    * `is_lost`: whether records of the ledger are gone when everything is back.
    * `held_by`: the brokers that do not serve, and have all of these on their disks when the capture is taken; where
      nothing is lost, those that the audit says hold what may be.
    * `is_noted`: whether a stop that was not clean is to be noted, with nothing to show a loss.
    * `brokers`: how many; the last one has no replica. `data_dirs`: how many each has.
    """

    name: str
    release: str
    story: Callable[[LosingCluster], None]
    label: Label | None
    is_lost: bool = True
    held_by: tuple[int, ...] = ()
    times: int = 1
    is_noted: bool = False
    elr: bool = False
    brokers: int = 3
    data_dirs: int = 1
    ci: bool = False

    @property
    def what(self) -> str:
        """The story in words."""
        about = (self.story.__doc__ or "").partition("\n")[0].removesuffix(".")
        return f"{about}; ELR" if self.elr else about


LOSS_DRILLS: Final = (
    # Another replica is elected
    LossDrill("unclean", "4.3.1", story.killed_then_unclean, UNCLEAN, held_by=(A,), elr=True, ci=True),
    LossDrill("unclean-stopped", "4.0.2", story.stopped_then_unclean, UNCLEAN, held_by=(A,)),
    LossDrill("unclean-paused", "4.0.2", story.paused_then_unclean, UNCLEAN, held_by=(A,)),
    LossDrill("unclean-twice", "4.3.1", story.unclean_twice, UNCLEAN, held_by=(B,), times=2),
    LossDrill("unclean-config", "3.9.2", story.unclean_by_config, UNCLEAN, held_by=(A,)),
    LossDrill("unclean-lagger", "4.3.1", story.lagger_elected, UNCLEAN, held_by=(A, B), elr=True, brokers=4),
    LossDrill("min-isr-lowered", "3.9.2", story.min_isr_lowered, UNCLEAN, held_by=(A,)),
    LossDrill("min-isr-lowered-elr", "4.3.1", story.min_isr_lowered, UNCLEAN, held_by=(A,), elr=True),
    LossDrill("removed", "4.3.1", story.removed_but_eligible, STALE, held_by=(A, C), elr=True, brokers=4),
    LossDrill("removed-4.0", "4.0.2", story.removed_but_eligible, STALE, held_by=(A, C), elr=True, brokers=4),
    # The leader's own disk lacks something
    LossDrill("last-leader", "4.3.1", story.last_leader_back, LAST, is_lost=False, held_by=(A,), elr=True, brokers=4),
    LossDrill("last-leader-tail", "4.0.2", story.last_leader_without_its_tail, LAST, held_by=(A,), elr=True, brokers=4),
    LossDrill("killed-elr", "4.3.1", story.killed_at_once, LAST, is_lost=False, elr=True),
    LossDrill("alone-tail", "4.3.1", story.alone_without_its_tail, ALONE),
    LossDrill("alone-tail-4.0", "4.0.2", story.alone_without_its_tail, ALONE),
    LossDrill("alone-tail-3.9", "3.9.2", story.alone_without_its_tail, ALONE),
    LossDrill("replaced", "4.3.1", story.sole_disk_replaced, EMPTIED, brokers=2, elr=True, ci=True),
    LossDrill("replaced-4.0", "4.0.2", story.sole_disk_replaced, EMPTIED, brokers=2, data_dirs=2),
    LossDrill("replaced-3.9", "3.9.2", story.sole_disk_replaced, EMPTIED, brokers=2, data_dirs=2),
    # Nothing is lost: only what Kafka elected at its own risk may be announced
    LossDrill("complete", "3.9.2", story.complete_but_not_eligible, OUTSIDE, is_lost=False, held_by=(A,)),
    LossDrill("stopped", "4.3.1", story.stopped_and_started, None, is_lost=False, elr=True),
    LossDrill("stopped-3.9", "3.9.2", story.stopped_and_started, None, is_lost=False),
    LossDrill("killed", "4.0.2", story.killed_at_once, None, is_lost=False, is_noted=True),
    LossDrill("sole-restarted", "4.0.2", story.sole_replica_restarted, None, is_lost=False, brokers=2),
    LossDrill("moved", "4.3.1", story.moved, None, is_lost=False, elr=True, ci=True),
    LossDrill("moved-3.9", "3.9.2", story.moved, None, is_lost=False),
    LossDrill("eligible", "4.3.1", story.eligible_elected, None, is_lost=False, elr=True, brokers=4),
)
