"""Where the captured logs of a cluster differ, who holds what there, and where that stands in time.

No offset of the canonical log says where captures and branches that are not canonical stand in a timeline.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kraft_audit.capture.branches import Branch, LogEnd
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import BranchEpoch, Survey
from kraft_audit.quorum.canonical_branches import CanonicalBranches
from kraft_audit.quorum.rounds import ProvenRound, proven_rounds


@dataclass(frozen=True, slots=True)
class Holder:
    """A replica that holds a branch: `node_id` is None where nothing names the node of its folder."""

    node_id: int | None
    capture: str
    path: str


@dataclass(frozen=True, slots=True)
class DivergentBranch:
    """The records from `offset` on that some replicas share and others do not.

    `first_crc` is the checksum of its first batch. `to_offset` is the furthest log end on it, exclusive.
    """

    offset: int
    epoch: int
    first_crc: int
    to_offset: int
    is_canonical: bool
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first offset at which captured logs differ: at least two branches, by epoch."""

    offset: int
    branches: tuple[DivergentBranch, ...]


@dataclass(frozen=True, slots=True)
class HeldEpoch:
    """The records of one leader epoch in the log of one captured disk: offsets [from_offset, to_offset)."""

    holder: Holder
    epoch: int
    from_offset: int
    to_offset: int


def held_epochs(survey: Survey) -> list[HeldEpoch]:
    """What the log of each captured disk holds, by disk and offset; a log that holds nothing has no entry.

    A version of some batches that fewer disks hold than another counts as what it stands for.
    """
    held = []
    for replica, end in zip(survey.replicas, survey.ends, strict=True):
        holder = Holder(replica.plan.node_id, replica.plan.capture, replica.plan.path)
        first_offset = (replica.log.first_offset if replica.log else None) or 0
        for run in survey.epochs_to(end.branch, end.end_offset):
            from_offset = max(run.from_offset, first_offset)
            if from_offset < run.to_offset:
                held.append(HeldEpoch(holder, run.epoch, from_offset, run.to_offset))
    return held


def divergences(survey: Survey, plan: ClusterPlan) -> list[Divergence]:
    """Every offset at which captured logs of a cluster differ, ascending. A replica that only lags does not differ."""
    canonical = CanonicalBranches.of(survey, proven_rounds(survey, plan)).ends
    siblings: dict[int | None, list[Branch]] = defaultdict(list)
    for branch in survey.branches:
        siblings[branch.parent].append(branch)
    divergences = []
    for children in siblings.values():
        if len(children) > 1 and _overlap(children):
            ordered = sorted(children, key=lambda branch: (branch.epochs[0][0], branch.number))
            branches = tuple(_divergent(survey, branch, branch.number in canonical) for branch in ordered)
            divergences.append(Divergence(min(branch.offset for branch in branches), branches))
    return sorted(divergences, key=lambda divergence: divergence.offset)


def _divergent(survey: Survey, branch: Branch, is_canonical: bool) -> DivergentBranch:
    numbers = replicas_on(survey, branch)
    to_offset = max((survey.ends[number].end_offset for number in numbers), default=branch.to_offset)
    plans = [survey.replicas[number].plan for number in numbers]
    holders = tuple(Holder(plan.node_id, plan.capture, plan.path) for plan in plans)
    epoch, _ = branch.epochs[0]
    return DivergentBranch(branch.from_offset, epoch, branch.first_crc, to_offset, is_canonical, holders)


def replicas_on(survey: Survey, branch: Branch) -> list[int]:
    """The numbers of the replicas whose log runs along a branch, or that hold it as their version of some offsets."""
    versions = {version: set(replicas) for run in survey.altered for version, replicas in run.versions}
    if branch.number in versions:
        return sorted(versions[branch.number])
    return [number for number, end in enumerate(survey.ends) if branch.number in survey.path(end.branch)]


def _overlap(branches: list[Branch]) -> bool:
    """Whether any two hold the same offset: roots of logs that begin at different offsets need not."""
    ordered = sorted(branches, key=lambda branch: branch.from_offset)
    return any(later.from_offset < earlier.to_offset for earlier, later in pairwise(ordered))


TimelineKey = tuple[int, int, int, int, int]
"""What events are sorted by: an offset of the canonical log, a rank there, then (epoch, offset, number)."""
BEFORE: Final = 0
CAPTURED: Final = 1
NOT_CANONICAL: Final = 2
RECORD: Final = 3
"""The ranks at one offset: what a snapshot holds up to there; captures that end there; records there that are not
canonical; the canonical record."""
BEYOND: Final = sys.maxsize
"""Stands for an offset after the end of the canonical log."""


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
    """What one capture itself proves: who leads (-1: none is known) and who votes (None: unknown)."""

    leader_id: int
    voters: frozenset[int] | None
    is_canonical: bool
    key: TimelineKey


@dataclass(frozen=True, slots=True)
class ProvenOrder:
    """`captures` by their numbers. `epoch_starts`: (epoch, first offset) of the canonical log, both ascending."""

    epoch_starts: tuple[tuple[int, int], ...]
    captures: dict[int, CaptureView]
    lost: tuple[LostBranch, ...]

    def key_of_lost(self, epoch: int, offset: int) -> TimelineKey:
        """Where a record stands that is not canonical: before the canonical records of every later epoch."""
        return _key_of_lost(self.epoch_starts, epoch, offset)


def _key_of_lost(epoch_starts: Sequence[tuple[int, int]], epoch: int, offset: int, number: int = -1) -> TimelineKey:
    """An epoch's leader is elected by a majority that leaves all earlier epochs (KIP-595), so what their leaders still
    write comes after it by their clock alone.
    """
    later = bisect_right(epoch_starts, epoch, key=lambda start: start[0])
    place = epoch_starts[later][1] if later < len(epoch_starts) else BEYOND
    return (place, NOT_CANONICAL, epoch, offset, number)


def proven_order(survey: Survey, plan: ClusterPlan) -> ProvenOrder:
    """The order that the captures of a surveyed cluster prove; `plan` has them numbered in it (`OrderedReading`)."""
    rounds = proven_rounds(survey, plan)
    canonical = CanonicalBranches.of(survey, rounds)
    epochs = canonical.epochs
    starts = _starts(epochs)
    views: dict[int, CaptureView] = {}
    for place, captured in enumerate(rounds):
        view = _view(canonical, captured, starts, views, place)
        if view is not None:
            views[captured.number] = view
    return ProvenOrder(starts, views, _lost_branches(canonical, epochs))


def _starts(epochs: Sequence[BranchEpoch]) -> tuple[tuple[int, int], ...]:
    starts: list[tuple[int, int]] = []
    for epoch in epochs:
        if not starts or epoch.epoch > starts[-1][0]:  # in a damaged log epochs may go back
            starts.append((epoch.epoch, epoch.from_offset))
    return tuple(starts)


def _view(
    branches: CanonicalBranches,
    captured: ProvenRound,
    epoch_starts: Sequence[tuple[int, int]],
    views: Mapping[int, CaptureView],
    place: int,
) -> CaptureView | None:
    """A capture stands where its own log ends, and after every capture that is proven to be earlier."""
    canonical = captured.interval.canonical
    if canonical is None:
        return None
    epoch, end = canonical.end
    is_canonical = branches.leaves_at(LogEnd(-1, canonical.number, end, epoch)) is None
    key = (end, CAPTURED, 0, 0, place) if is_canonical else _key_of_lost(epoch_starts, epoch, end, place)
    earlier = [views[number].key for number in captured.follows if number in views]
    if earlier and max(earlier) > key:
        key = (*max(earlier)[:-1], place)
    voters = captured.interval.voters
    _, leader_id = captured.evidence.newest_leader
    return CaptureView(leader_id, None if voters is None else voters.ids, is_canonical, key)


def _lost_branches(canonical: CanonicalBranches, epochs: Sequence[BranchEpoch]) -> tuple[LostBranch, ...]:
    """What replicas of this cluster hold of each branch after it left the canonical log.

    Without a canonical log it is the branches that diverge from each other; what they share is not lost.
    """
    survey, is_any = canonical.survey, bool(canonical.path)
    children = Counter(branch.parent for branch in survey.branches)
    lost_branches = []
    for branch in survey.branches:
        left = canonical.leaves_at(LogEnd(-1, branch.number, branch.to_offset, branch.last_epoch))
        replicas = [survey.replicas[number] for number in replicas_on(survey, branch)]
        plans = [replica.plan for replica in replicas if replica.is_accepted]
        if left is None or not plans or (not is_any and children[branch.parent] == 1):
            continue
        from_offset = max(left, branch.from_offset)
        ids = sorted({plan.node_id for plan in plans if plan.node_id is not None})
        unnamed = sorted({plan.path for plan in plans if plan.node_id is None})
        root = survey.path(branch.number)[0]
        parted_at = left if root in canonical.ends else None
        at = [e.epoch for e in epochs if parted_at is not None and e.from_offset <= parted_at < e.to_offset]
        held = [run for run in survey.epochs if run.branch == branch.number and run.to_offset > from_offset]
        lost_branches.append(
            LostBranch(
                from_offset,
                branch.to_offset,
                tuple(dict.fromkeys(run.epoch for run in held)),
                held[0].timestamp_ms if held else None,
                (*map(str, ids), *unnamed),
                parted_at,
                at[0] if at else None,
            )
        )
    return tuple(lost_branches)
