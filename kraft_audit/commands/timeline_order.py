"""What of a timeline no offset of the canonical log places: captures, and the branches that it left behind."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraft_audit.commands.diverge import ends_on

if TYPE_CHECKING:
    from kraft_audit.replay.branches import Branch
    from kraft_audit.replay.plan import ClusterPlan
    from kraft_audit.replay.rounds import RoundInterval
    from kraft_audit.replay.survey import BranchEpoch, Survey

Key = tuple[int, int, int, int, int]
"""What events are sorted by: an offset of the canonical log, a rank there, then (epoch, offset, number)."""
BEFORE: Final = 0
CAPTURED: Final = 1
NOT_CANONICAL: Final = 2
RECORD: Final = 3
"""The ranks at one offset: what a snapshot tells up to there; captures that end there; what was written there and is
not canonical; the canonical record."""
BEYOND: Final = sys.maxsize
"""Stands for an offset behind the end of the canonical log."""


@dataclass(frozen=True, slots=True)
class LostBranch:
    """Records at offsets [from_offset, to_offset) that the canonical log does not have, and who held them.

    `parted_at`: where the canonical log goes on without them, None where it shares no record with them or there is
    none; `canonical_epoch`: that of its record there, None where it ends there.
    """

    from_offset: int
    to_offset: int
    epochs: tuple[int, ...]
    timestamp_ms: int | None
    holders: tuple[str, ...]
    parted_at: int | None
    canonical_epoch: int | None


@dataclass(frozen=True, slots=True)
class CaptureView:
    """What one capture itself proves: who leads (-1: nobody, as far as known) and who votes (None: unknown)."""

    leader_id: int
    voters: frozenset[int] | None
    is_canonical: bool
    key: Key


@dataclass(frozen=True, slots=True)
class ProvenOrder:
    """`captures` by their numbers. `epoch_starts`: (epoch, first offset) of the canonical log, both ascending."""

    epoch_starts: tuple[tuple[int, int], ...]
    captures: dict[int, CaptureView]
    lost: tuple[LostBranch, ...]

    def key_of_lost(self, epoch: int, offset: int, number: int = -1) -> Key:
        """Where a record stands that is not canonical: before the canonical records of every later epoch.

        An epoch's leader is elected by a majority that leaves all earlier epochs (KIP-595), so what their leaders still
        write is behind it by their clock alone.
        """
        later = bisect_right(self.epoch_starts, epoch, key=lambda start: start[0])
        place = self.epoch_starts[later][1] if later < len(self.epoch_starts) else BEYOND
        return (place, NOT_CANONICAL, epoch, offset, number)


def proven_order(shape: Survey, plan: ClusterPlan) -> ProvenOrder:
    """The order that the captures of a surveyed cluster prove; `plan` has them numbered in it (`in_proven_order`)."""
    from kraft_audit.replay.rounds import committed_intervals
    from kraft_audit.replay.silver import newest_canonical

    intervals = committed_intervals(shape, plan)
    known = newest_canonical(intervals)
    newest = None if known is None else known.interval.canonical
    path = [] if newest is None else shape.path(newest.number)
    epochs = [] if newest is None else shape.epochs_to(newest.number, newest.end[1])
    order = ProvenOrder(_starts(epochs), {}, _lost_branches(shape, path, epochs))
    for place, one in enumerate(intervals):
        view = _view(shape, one, path, order, place)
        if view is not None:
            order.captures[one.round.number] = view
    return order


def _starts(epochs: Sequence[BranchEpoch]) -> tuple[tuple[int, int], ...]:
    starts: list[tuple[int, int]] = []
    for one in epochs:
        if not starts or one.epoch > starts[-1][0]:  # of a damaged log epochs may go back
            starts.append((one.epoch, one.from_offset))
    return tuple(starts)


def _view(
    shape: Survey, known: RoundInterval, path: Sequence[int], order: ProvenOrder, place: int
) -> CaptureView | None:
    """A capture stands where its own log ends, and behind every capture that is proven to be earlier."""
    canonical = known.interval.canonical
    if canonical is None:
        return None
    epoch, end = canonical.end
    is_canonical = _parting(shape, canonical.number, path) is None
    key = (end, CAPTURED, 0, 0, place) if is_canonical else order.key_of_lost(epoch, end, place)
    earlier = [order.captures[number].key for number in known.follows if number in order.captures]
    if earlier and max(earlier) > key:
        key = (*max(earlier)[:-1], place)
    voters = known.interval.voters
    return CaptureView(_leader_id(known), None if voters is None else frozenset(voters.ids), is_canonical, key)


def _leader_id(known: RoundInterval) -> int:
    """The leader of the highest epoch that any disk tells, as `quorum` has it: by quorum-state or LeaderChange."""
    evidence = known.evidence
    told = [(one.persisted.epoch, one.persisted.leader_id) for one in evidence.replicas if one.persisted is not None]
    told += [(epoch, start.leader_id) for epoch, start in evidence.leaders.items()]
    return max(told, default=(-1, -1))[1]


def _parting(shape: Survey, branch: int | None, path: Sequence[int]) -> Branch | None:
    """The first branch on the way to this one that is not on the canonical path; None where it is on it.

    What stands before a gap that the canonical log begins behind counts as part of it.
    """
    from kraft_audit.replay.branches import LogEnd
    from kraft_audit.replay.rounds import comes_before

    own = shape.path(branch)
    left = next((number for number in own if number not in path), None)
    if left is None:
        return None
    end = shape.branches[own[-1]]
    is_before = comes_before(shape, LogEnd(-1, end.number, end.to_offset, end.last_epoch), path)
    return None if is_before else shape.branches[left]


def _lost_branches(shape: Survey, path: Sequence[int], epochs: Sequence[BranchEpoch]) -> tuple[LostBranch, ...]:
    """Every branch off the canonical path that a replica of this cluster holds.

    Without a canonical path they are the branches that part from another; what they share is nobody's loss.
    """
    children = Counter(branch.parent for branch in shape.branches)
    found = []
    for branch in shape.branches:
        parting = _parting(shape, branch.number, path)
        plans = [shape.replicas[number].plan for number in ends_on(shape, branch) if shape.replicas[number].is_accepted]
        if parting is None or not plans or (not path and children[branch.parent] == 1):
            continue
        ids = sorted({plan.node_id for plan in plans if plan.node_id is not None})
        unnamed = sorted({plan.path for plan in plans if plan.node_id is None})
        parted_at = parting.from_offset if path and parting.parent is not None else None
        at = [one.epoch for one in epochs if parted_at is not None and one.from_offset <= parted_at < one.to_offset]
        times = [one.timestamp_ms for one in shape.epochs if one.branch == branch.number]
        found.append(
            LostBranch(
                branch.from_offset,
                branch.to_offset,
                tuple(dict.fromkeys(epoch for epoch, _ in branch.epochs)),
                times[0] if times else None,
                (*map(str, ids), *unnamed),
                parted_at,
                at[0] if at else None,
            )
        )
    return tuple(found)
