"""How captured logs share a beginning and part: their branches, grown window by window.

Followers append the leader's bytes, so two logs that hold an equal batch are equal before it (log matching, Raft
section 5.3; KIP-595). A branch is a maximal run of batches with one parent: where two replicas continue with different
batches, their common branch ends and each continuation is a branch of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kraft_audit.capture.altered_batches import AlteredRun, Disk, Rejoin, most_held, parted_runs, rejoined_runs
from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.reconcile import DistinctBatches
from kraft_audit.tables.number_arrays import Rows

NO_PARENT: Final = -1
BRANCHES_MAX: Final = 10_000
"""A hostile pair of logs could part at every batch. Beyond this all batches join the last branch: `is_overflowing`."""
_UNSET: Final = np.iinfo(np.int64).max


@dataclass(slots=True)
class Branch:
    """A run of batches: offsets [from_offset, to_offset), `epochs` as (epoch, first offset of it on this branch).

    `gaps` are offsets inside it that no replica holds in a readable batch, as [from, to), ascending. `parent` is the
    number of the branch that it continues, None where it continues no captured batch.
    """

    number: int
    parent: int | None
    from_offset: int
    first_crc: int
    to_offset: int
    last_epoch: int
    epochs: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where one replica's log ends: branch, offset (exclusive) and epoch. `branch` is None for an empty log."""

    replica: int
    branch: int | None
    end_offset: int
    last_epoch: int


def path_to(branches: Sequence[Branch], branch: int | None) -> list[int]:
    """The branches from the first one to `branch`, each the parent of the next."""
    path: list[int] = []
    while branch is not None and branch not in path:
        path.append(branch)
        branch = branches[branch].parent
    return path[::-1]


class BranchTree:
    """The branches of all replicas, built window by window.

    numpy throughout: where replicas agree, no Python runs per batch.
    """

    def __init__(self, disks: Sequence[Disk]) -> None:
        """`disks`: for each replica, the disk that it was captured from."""
        self.branches: list[Branch] = []
        self.is_overflowing = False
        self._disks = disks
        self._rejoins: list[Rejoin] = []
        self._has_children: set[int] = set()
        self._branch_of: list[int | None] = [None] * len(disks)
        self._end_of: list[tuple[int, int]] = [(0, -1)] * len(disks)
        self._position_of: list[int | None] = [None] * len(disks)

    def grow(
        self,
        batches: DistinctBatches,
        holdings: dict[int, Rows],
        voting: Callable[[], Container[int]] = frozenset[int],
    ) -> Rows:
        """Adds a window of at least one batch; returns the branch number of each batch.

        `holdings`: of each replica with batches in the window, the row numbers of these batches, ascending. `voting`
        gives the replicas of voters, and is asked where logs that had parted agree again.
        """
        label = self._labels(batches, holdings, voting)
        for replica, numbers in holdings.items():
            last = int(numbers[-1])
            self._branch_of[replica] = int(label[last])
            self._end_of[replica] = (int(batches.last_offset[last]) + 1, int(batches.leader_epoch[last]))
            self._position_of[replica] = int(batches.last_offset[last]) + 1
        self._extend(batches, label)
        return label

    def ends(self) -> list[LogEnd]:
        """Where each replica's log ends, by replica number."""
        return [LogEnd(replica, branch, *self._end_of[replica]) for replica, branch in enumerate(self._branch_of)]

    def altered_runs(
        self, led_from: Collection[tuple[int, int]], starts: Sequence[int], voting: Container[int]
    ) -> list[AlteredRun]:
        """The offsets that disks hold in several versions, when all logs have been read.

        `starts`: the first offset of each replica's log. `voting`: the replicas of voters.
        `led_from`: (branch, base offset) of the batches with a LeaderChange. Branches that begin with one are not among
        them: two leaders wrote in one epoch there. A batch that only claims to be a control batch proves no leader.
        """
        spans = [(each.from_offset, each.to_offset, each.last_epoch) for each in self.branches]
        paths = [frozenset(self._path(branch)) for branch in self._branch_of]
        siblings: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        begun = [] if self.is_overflowing else self._begun_without_leader(led_from)
        for branch in begun:
            if branch.parent is None:
                continue
            epoch = branch.epochs[0][0] if branch.epochs else self.branches[branch.parent].last_epoch
            if epoch == self.branches[branch.parent].last_epoch:
                siblings[branch.parent, branch.from_offset, epoch].append(branch.number)
        runs = [
            *rejoined_runs(self._rejoins, spans, paths, starts, self._disks, voting),
            *parted_runs(
                {at: each for at, each in siblings.items() if len(each) > 1}, spans, paths, starts, self._disks, voting
            ),
        ]
        for key, versions in self._begun_otherwise(begun).items():
            # A log that ends there or before says nothing of what comes after.
            beyond = [path if end > key[1] else frozenset() for path, (end, _) in zip(paths, self._end_of, strict=True)]
            runs += parted_runs({key: versions}, spans, beyond, starts, self._disks, voting)
        return runs

    def _begun_without_leader(self, led_from: Collection[tuple[int, int]]) -> list[Branch]:
        """The branches that begin with no LeaderChange, but those that rejoin."""
        rejoined = {branch for rejoin in self._rejoins for branch in rejoin.replicas_of}
        return [
            branch
            for branch in self.branches
            if branch.number not in rejoined and (branch.number, branch.from_offset) not in led_from
        ]

    def _begun_otherwise(self, begun: Sequence[Branch]) -> dict[tuple[int, int, int], list[int]]:
        """Branches that continue no batch, though another one holds their first offset in the same epoch.

        Equal batches would be one branch. By (NO_PARENT, offset, epoch), the branches that hold it.
        """
        versions_at: dict[tuple[int, int, int], list[int]] = {}
        for branch in begun:
            offset = branch.from_offset
            if branch.parent is not None or not offset or not branch.epochs:
                continue
            epoch = branch.epochs[0][0]
            others = [each.number for each in self.branches if each is not branch and _holds(each, offset, epoch)]
            if others:
                versions_at[NO_PARENT, offset, epoch] = sorted([*others, branch.number])
        return versions_at

    def _path(self, branch: int | None) -> Iterator[int]:
        while branch is not None:
            yield branch
            branch = self.branches[branch].parent

    def _labels(
        self, batches: DistinctBatches, holdings: dict[int, Rows], voting: Callable[[], Container[int]]
    ) -> Rows:
        """The branch of each batch; creates the branches that begin in this window."""
        parent, rejoins = self._parents(batches, holdings, voting)
        inner = parent[parent >= 0]
        children = np.bincount(inner, minlength=len(batches))
        outer_children = np.unique(parent[parent < NO_PARENT], return_counts=True)
        parted = set(outer_children[0][outer_children[1] > 1].tolist())
        label = np.full(len(batches), -1, np.int64)
        starts = (parent < 0) | (children[np.maximum(parent, 0)] > 1)
        for number in np.flatnonzero(starts).tolist():
            label[number] = self._start(batches, number, int(parent[number]), parted)
        self._inherit(label, parent)
        for number in np.flatnonzero(starts & (parent >= 0)).tolist():
            branch, continued = self.branches[int(label[number])], int(label[int(parent[number])])
            if branch.parent is None and continued != branch.number:  # equal where there are too many branches
                branch.parent = continued
                self._has_children.add(continued)
        for followed, replicas_of in rejoins:
            by_branch = {self._branch_at(label, key): tuple(replicas) for key, replicas in replicas_of.items()}
            if len(by_branch) > 1:
                self._rejoins.append(Rejoin(self._branch_at(label, followed), by_branch))
        return label

    @staticmethod
    def _branch_at(label: Rows, parent: int) -> int:
        outer = _outer_branch(parent)
        return int(label[parent]) if outer is None else outer

    def _start(self, batches: DistinctBatches, number: int, parent: int, parted: set[int]) -> int:
        outer = _outer_branch(parent)
        if outer is not None and parent not in parted and outer not in self._has_children:
            return outer
        first, crc = int(batches.base_offset[number]), int(batches.crc[number])
        return self._new_branch(outer, first, first, -1, crc)

    def _new_branch(self, parent: int | None, from_offset: int, to_offset: int, last_epoch: int, crc: int) -> int:
        number = len(self.branches)
        if number == BRANCHES_MAX:
            self.is_overflowing = True
            return number - 1
        self.branches.append(Branch(number, parent, from_offset, crc, to_offset, last_epoch))
        if parent is not None:
            self._has_children.add(parent)
        return number

    @staticmethod
    def _inherit(label: Rows, parent: Rows) -> None:
        """Gives every batch the label of its branch's first batch, by pointer doubling."""
        pointer = np.where(label >= 0, np.arange(len(label)), parent)
        while True:
            jumped = pointer[pointer]
            if np.array_equal(jumped, pointer):
                break
            pointer = jumped
        label[:] = label[pointer]

    def _parents(
        self, batches: DistinctBatches, holdings: dict[int, Rows], voting: Callable[[], Container[int]]
    ) -> tuple[Rows, list[tuple[int, dict[int, list[int]]]]]:
        """The parent of each batch: a batch of this window, a branch of earlier windows (below NO_PARENT), or none.

        A parent that the batch directly follows wins over one before a gap: where one replica lost a batch, another
        that still has it shows how the log runs. A batch wins over a branch: of a replica that was read up to here by
        an earlier plan only the end of its branch is known. Where replicas disagree about what a batch directly
        follows, the parent that most voters hold wins: also returned are it and the replicas by parent.
        """
        rejoins = []
        choices = [np.full(len(batches), _UNSET, np.int64) for _ in range(4)]
        adjacent, outer_adjacent, apart, outer_apart = choices
        for replica, numbers in holdings.items():
            before = numbers[:-1]
            is_adjacent = batches.last_offset[before] + 1 == batches.base_offset[numbers[1:]]
            np.minimum.at(adjacent, numbers[1:][is_adjacent], before[is_adjacent])
            np.minimum.at(apart, numbers[1:][~is_adjacent], before[~is_adjacent])
            branch = self._branch_of[replica]
            if branch is not None:
                first = int(numbers[0])
                outer = outer_adjacent if self._position_of[replica] == batches.base_offset[first] else outer_apart
                outer[first] = min(int(outer[first]), _outer_parent(branch))
        disputed = self._disputed(batches, holdings, adjacent, outer_adjacent)
        of_voters = voting() if disputed else ()
        for number in disputed:
            replicas_of = self._followed(batches, holdings, number)
            followed, _ = most_held(replicas_of, self._disks, of_voters)
            rejoins.append((followed, replicas_of))
            (adjacent if followed >= 0 else outer_adjacent)[number] = followed
        parent = np.full(len(batches), NO_PARENT, np.int64)
        for choice in reversed(choices):
            parent = np.where(choice != _UNSET, choice, parent)
        return parent, rejoins

    def _disputed(
        self, batches: DistinctBatches, holdings: dict[int, Rows], adjacent: Rows, outer_adjacent: Rows
    ) -> list[int]:
        """The batches that directly follow another batch, or another branch, in some replica than in the rest."""
        disputed: set[int] = set()
        for replica, numbers in holdings.items():
            before, following = numbers[:-1], numbers[1:]
            is_adjacent = batches.last_offset[before] + 1 == batches.base_offset[following]
            disputed.update(following[is_adjacent & (adjacent[following] != before)].tolist())
            branch, first = self._branch_of[replica], int(numbers[0])
            if branch is None or self._position_of[replica] != batches.base_offset[first]:
                continue
            if int(outer_adjacent[first]) != _outer_parent(branch):
                disputed.add(first)
        return sorted(disputed)

    def _followed(self, batches: DistinctBatches, holdings: dict[int, Rows], number: int) -> dict[int, list[int]]:
        """What a batch directly follows, with the replicas in which it does."""
        replicas_of: dict[int, list[int]] = defaultdict(list)
        for replica, numbers in holdings.items():
            place = int(np.searchsorted(numbers, number))
            if place == len(numbers) or int(numbers[place]) != number:
                continue
            branch = self._branch_of[replica]
            if place and batches.last_offset[numbers[place - 1]] + 1 == batches.base_offset[number]:
                replicas_of[int(numbers[place - 1])].append(replica)
            elif not place and branch is not None and self._position_of[replica] == batches.base_offset[number]:
                replicas_of[_outer_parent(branch)].append(replica)
        return replicas_of

    def _extend(self, batches: DistinctBatches, label: Rows) -> None:
        for number in np.unique(label).tolist():
            rows = np.flatnonzero(label == number)
            branch = self.branches[number]
            epoch, last = batches.leader_epoch[rows], int(rows[-1])
            steps = np.flatnonzero(run_begins(epoch, branch.last_epoch))
            branch.epochs += [(int(epoch[step]), int(batches.base_offset[rows[step]])) for step in steps.tolist()]
            base, before = batches.base_offset[rows], np.append(branch.to_offset, batches.last_offset[rows[:-1]] + 1)
            skips = np.flatnonzero(base > before)
            branch.gaps += zip(before[skips].tolist(), base[skips].tolist(), strict=True)
            branch.to_offset = int(batches.last_offset[last]) + 1
            branch.last_epoch = int(batches.leader_epoch[last])


def _holds(branch: Branch, offset: int, epoch: int) -> bool:
    """Whether a branch holds an offset in a batch of an epoch."""
    if not branch.from_offset <= offset < branch.to_offset or any(start <= offset < end for start, end in branch.gaps):
        return False
    return [known for known, first in branch.epochs if first <= offset][-1:] == [epoch]


def _outer_parent(branch: int) -> int:
    return -2 - branch


def _outer_branch(parent: int) -> int | None:
    return None if parent >= NO_PARENT else -2 - parent
