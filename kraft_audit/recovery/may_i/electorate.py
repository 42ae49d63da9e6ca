"""The voters of one set with their running disks, and how many votes a candidate gets.

Each of thousands of voters may stand: what they have in common is computed once, so that a candidate costs a few steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kraft_audit.quorum.quorum_evidence import PersistedState, majority
from kraft_audit.quorum.voter_history import Voter, VoterSet

NO_EPOCH: Final = -1
"""Before every epoch."""
EMPTY_END: Final = (-1, 0)


@dataclass(frozen=True, slots=True)
class DiskDoubt:
    """Why a disk that was read is no evidence, and the (last epoch, end offset) that its bytes claim."""

    reason: str
    claimed_end: tuple[int, int] = EMPTY_END


@dataclass(frozen=True, slots=True)
class VoterDisk:
    """What a disk can do in an election.

    `end` is (last epoch, end offset); it holds the canonical log below `held_to`. `voter_sets`: those that it may go by
    as a candidate, one where its disk was read. `forgotten_to`: the newest epoch in which it may have voted without
    knowing it now, NO_EPOCH where it knows its votes. `doubt` is set where the disk contradicts itself or could not be
    read: it is not captured then, and `end` is what its bytes claim. `is_configured` where `voter_sets` are those of
    its controller.quorum.voters, which outlives the disk.
    """

    node_id: int
    directory_id: str | None
    end: tuple[int, int] = EMPTY_END
    held_to: int = 0
    voter_sets: tuple[VoterSet, ...] = ()
    state: PersistedState | None = None
    forgotten_to: int = NO_EPOCH
    is_captured: bool = True
    doubt: DiskDoubt | None = None
    is_configured: bool = False

    def emptied(self, forgotten_to: int) -> VoterDisk:
        """The disk after a wipe: no record, no vote, the same id and directory id."""
        return replace(self, end=EMPTY_END, held_to=0, state=None, forgotten_to=forgotten_to)


Grants = Callable[[VoterDisk], bool]
VoterPlace = tuple[Voter, Sequence[VoterDisk]]
"""A voter, and the running disks that may be its own."""


class Electorate:
    """The voters of one set, each with the running disks that may be its own."""

    def __init__(self, voter_set: VoterSet, running: Collection[VoterDisk]) -> None:
        of_node: dict[int, list[VoterDisk]] = defaultdict(list)
        for disk in running:
            of_node[disk.node_id].append(disk)
        self.majority = majority(len(voter_set.voters))
        self.places: list[VoterPlace] = [
            (voter, [d for d in of_node.get(voter.voter_id, ()) if voter_set.is_disk_of(voter, d.directory_id)])
            for voter in voter_set.voters
        ]
        self._places_of: dict[int, list[VoterPlace]] = defaultdict(list)
        for place in self.places:
            self._places_of[place[0].voter_id].append(place)
        self._in_epoch: dict[int, _VotesInEpoch] = {}

    def votes(self, candidate: VoterDisk, grants: Grants, granted_count: int) -> tuple[int, ...] | None:
        """The voters that elect a candidate: itself, and those with a disk that grants its vote. None where they are no
        majority, or it is no voter. `granted_count`: how many voters have such a disk, by one of the methods below.
        """
        own = [disks for _, disks in self._places_of.get(candidate.node_id, ()) if candidate in disks]
        more = sum(not any(map(grants, disks)) for disks in own)
        if not own or granted_count + more < self.majority:
            return None
        return tuple(voter.voter_id for voter, disks in self.places if candidate in disks or any(map(grants, disks)))

    def count(self) -> int:
        """How many voters have a disk."""
        return len(self._lowest_ends)

    def count_ends_to(self, end: tuple[int, int]) -> int:
        """How many voters have a disk whose log does not end after `end`."""
        return bisect_right(self._lowest_ends, end)

    def count_held_to(self, offset: int) -> int:
        """How many voters have a disk that does not hold the record at `offset`."""
        return bisect_right(self._least_held, offset)

    @cached_property
    def _lowest_ends(self) -> list[tuple[int, int]]:
        return sorted(min(disk.end for disk in disks) for _, disks in self.places if disks)

    @cached_property
    def _least_held(self) -> list[int]:
        return sorted(min(disk.held_to for disk in disks) for _, disks in self.places if disks)

    def votes_in_epoch(self, candidate: VoterDisk, epoch: int) -> tuple[int, ...] | None:
        """The voters that may elect the candidate in this epoch, one that forgot its vote among them."""
        if epoch not in self._in_epoch:
            self._in_epoch[epoch] = _VotesInEpoch(self.places, epoch)
        known, node_id = self._in_epoch[epoch], candidate.node_id
        own = [disks for _, disks in self._places_of.get(node_id, ()) if candidate in disks]
        more = sum(not any(may_vote(disk, node_id, epoch) for disk in disks) for disks in own)
        count = known.free_count + known.bound_counts.get(node_id, 0) + more
        if not own or not known.has_forgotten or count < self.majority:
            return None
        return tuple(
            voter.voter_id
            for voter, disks in self.places
            if any(disk == candidate or may_vote(disk, node_id, epoch) for disk in disks)
        )


class _VotesInEpoch:
    """How many voters may vote for any candidate in an epoch, and how many others for one node alone."""

    def __init__(self, places: Sequence[VoterPlace], epoch: int) -> None:
        self.free_count = 0
        self.bound_counts: dict[int, int] = defaultdict(int)
        self.has_forgotten = any(disk.forgotten_to >= epoch for _, disks in places for disk in disks)
        for _, disks in places:
            if any(may_vote(disk, NO_EPOCH, epoch) for disk in disks):
                self.free_count += 1
                continue
            named = {node for disk in disks if disk.state for node in (disk.state.voted_id, disk.state.leader_id)}
            for node in named:
                self.bound_counts[node] += any(may_vote(disk, node, epoch) for disk in disks)


def may_vote(disk: VoterDisk, candidate: int, epoch: int) -> bool:
    """Whether a disk may give a node its vote in an epoch: as far as it knows, it gave none to another."""
    state = disk.state
    if state is None or disk.forgotten_to >= epoch or state.epoch < epoch:
        return True
    return state.epoch == epoch and {state.voted_id, state.leader_id} <= {-1, candidate}
