"""The tree that the replicas' logs form: where they run together, where they part, who ends where.

Followers append the leader's bytes, so two logs that hold an equal batch are equal before it (log matching, Raft
section 5.3; KIP-595). A branch is a maximal run of batches with one parent: where two replicas go on with different
batches, the branch that they shared ends and each continuation is a branch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.replay.continuity import Rows

NO_PARENT: Final = -1
BRANCHES_MAX: Final = 10_000
"""A hostile pair of logs could part at every batch; what comes beyond is put on the last branch, and said so."""
_UNSET: Final = np.iinfo(np.int64).max


@dataclass(slots=True)
class Branch:
    """A run of batches: offsets [from_offset, to_offset), `epochs` as (epoch, first offset of it on this branch).

    `holes` are offsets inside it that no replica holds in a readable batch, as [from, to), ascending.
    `parent` is the number of the branch that it continues, None for one that continues nothing captured.
    """

    number: int
    parent: int | None
    from_offset: int
    first_crc: int
    to_offset: int
    last_epoch: int
    last_crc: int
    epochs: list[tuple[int, int]] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where one replica's log ends: on which branch, at which offset (exclusive) and epoch; None where it is empty."""

    replica: int
    branch: int | None
    end_offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class DistinctBatches:
    """The different batches of a window, ordered by (base_offset, leader_epoch, last_offset, crc)."""

    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    crc: Rows

    def __len__(self) -> int:
        return len(self.base_offset)


class BranchTree:
    """Grows window by window; numpy throughout, so that agreement costs nothing per batch."""

    def __init__(self, replica_count: int) -> None:
        self.branches: list[Branch] = []
        self.is_overflowing = False
        self._has_children: set[int] = set()
        self._branch_of: list[int | None] = [None] * replica_count
        self._end_of: list[tuple[int, int]] = [(0, -1)] * replica_count
        self._is_at: list[int | None] = [None] * replica_count

    def grow(self, batches: DistinctBatches, holdings: dict[int, Rows]) -> Rows:
        """Adds a window and returns the branch of each of its batches.

        A window has at least one batch. `holdings` are, for each replica that has any, the numbers of its batches,
        ascending.
        """
        label = self._labels(batches, holdings)
        for replica, numbers in holdings.items():
            last = int(numbers[-1])
            self._branch_of[replica] = int(label[last])
            self._end_of[replica] = (int(batches.last_offset[last]) + 1, int(batches.leader_epoch[last]))
            self._is_at[replica] = int(batches.last_offset[last]) + 1
        self._extend(batches, label)
        return label

    def ends(self) -> list[LogEnd]:
        """Where each replica's log ends."""
        return [LogEnd(replica, branch, *self._end_of[replica]) for replica, branch in enumerate(self._branch_of)]

    def _labels(self, batches: DistinctBatches, holdings: dict[int, Rows]) -> Rows:
        """The branch of each batch; makes the branches that begin in this window."""
        parent = self._parents(batches, holdings)
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
            if branch.parent is None and continued != branch.number:  # else too many: the last branch has its parent
                branch.parent = continued
                self._has_children.add(continued)
        return label

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
        self.branches.append(Branch(number, parent, from_offset, crc, to_offset, last_epoch, crc))
        if parent is not None:
            self._has_children.add(parent)
        return number

    @staticmethod
    def _inherit(label: npt.NDArray[np.int64], parent: npt.NDArray[np.int64]) -> None:
        """Gives every batch the label of the start that it descends from: pointers are halved until all are found."""
        pointer = np.where(label >= 0, np.arange(len(label)), parent)
        while True:
            further = pointer[pointer]
            if np.array_equal(further, pointer):
                break
            pointer = further
        label[:] = label[pointer]

    def _parents(self, batches: DistinctBatches, holdings: dict[int, Rows]) -> npt.NDArray[np.int64]:
        """Each batch's parent: a batch of this window, a branch of earlier ones (below NO_PARENT), or none.

        A parent that touches the batch wins over one behind a hole: where a replica has lost a batch that another has,
        the other tells how the log runs. A batch wins over a branch: a replica that was read up to here before stands
        on a branch of which no more is known than its end.
        """
        choices = [np.full(len(batches), _UNSET, np.int64) for _ in range(4)]
        touching, outer_touching, apart, outer_apart = choices
        for replica, numbers in holdings.items():
            before = numbers[:-1]
            touches = batches.last_offset[before] + 1 == batches.base_offset[numbers[1:]]
            np.minimum.at(touching, numbers[1:][touches], before[touches])
            np.minimum.at(apart, numbers[1:][~touches], before[~touches])
            branch = self._branch_of[replica]
            if branch is not None:
                first = int(numbers[0])
                outer = outer_touching if self._is_at[replica] == batches.base_offset[first] else outer_apart
                outer[first] = min(int(outer[first]), _outer_parent(branch))
        parent = np.full(len(batches), NO_PARENT, np.int64)
        for choice in reversed(choices):
            parent = np.where(choice != _UNSET, choice, parent)
        return parent

    def _extend(self, batches: DistinctBatches, label: npt.NDArray[np.int64]) -> None:
        for number in np.unique(label).tolist():
            rows = np.flatnonzero(label == number)
            branch = self.branches[number]
            epoch, last = batches.leader_epoch[rows], int(rows[-1])
            steps = np.flatnonzero(np.concatenate(([epoch[0] != branch.last_epoch], epoch[1:] != epoch[:-1])))
            branch.epochs += [(int(epoch[step]), int(batches.base_offset[rows[step]])) for step in steps.tolist()]
            base, before = batches.base_offset[rows], np.append(branch.to_offset, batches.last_offset[rows[:-1]] + 1)
            skips = np.flatnonzero(base > before)
            branch.holes += zip(before[skips].tolist(), base[skips].tolist(), strict=True)
            branch.to_offset = int(batches.last_offset[last]) + 1
            branch.last_epoch, branch.last_crc = int(batches.leader_epoch[last]), int(batches.crc[last])


def _outer_parent(branch: int) -> int:
    return -2 - branch


def _outer_branch(parent: int) -> int | None:
    return None if parent >= NO_PARENT else -2 - parent
