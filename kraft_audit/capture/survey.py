"""What a replay has to know before it begins: the branches of a log, who ends where, and every control record.

Followers append the leader's bytes, so two logs that hold an equal batch are equal before it (log matching, Raft
section 5.3; KIP-595). A branch is a maximal run of batches with one parent: where two replicas continue with different
batches, their common branch ends and each continuation is a branch of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kraft_audit.capture.altered_batches import AlteredRun, Disk, Rejoin, most_held, parted_runs, rejoined_runs
from kraft_audit.capture.continuity import Rows
from kraft_audit.capture.decoded_records import ControlRecord, DecodedBatches, Records, controls_of
from kraft_audit.capture.reconcile import DistinctBatches, Window
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.snapshots import HEADER, Snapshot
from kraft_codec.file_names import FileKind
from kraft_codec.kernels.codes import OK
from kraft_codec.schemas import Dialect

LEADER_CHANGE: Final = "LEADER_CHANGE"
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
    last_crc: int
    epochs: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where one replica's log ends: branch, offset (exclusive) and epoch. `branch` is None for an empty log."""

    replica: int
    branch: int | None
    end_offset: int
    last_epoch: int


@dataclass(slots=True)
class BranchEpoch:
    """One leader epoch on one branch: half-open offsets, max timestamp and end of its first batch.

    `has_data_after` is set where a metadata batch of the epoch follows that first batch.
    """

    branch: int
    epoch: int
    from_offset: int
    to_offset: int
    timestamp_ms: int
    first_batch_end: int
    has_data_after: bool = False


@dataclass(frozen=True, slots=True)
class SurveyedSnapshot:
    """A snapshot by its source id: `replicas` hold a complete copy, `controls` are its control records.

    `versions` are the replicas by what their copies say: the one that is taken for the snapshot comes first.
    """

    source: str
    end_offset: int
    epoch: int
    replicas: tuple[int, ...]
    controls: tuple[ControlRecord, ...]
    versions: tuple[tuple[int, ...], ...] = ()

    @property
    def timestamp_ms(self) -> int | None:
        """The append time of the last record that it contains, as its header says; None where it has no header."""
        headers = (record.fields for record in self.controls if record.name == HEADER)
        return next((int(fields["last_contained_log_timestamp"]) for fields in headers), None)


@dataclass(slots=True)
class Survey:
    """What the headers of all replicas of a plan say.

    `replicas` have been read to their ends; `ends` are in their order. `epochs` and `controls` are in the order of
    offsets, each with its branch. `unsound_offsets` are base offsets of control batches that could not be decoded.
    `is_overflowing` is set where the logs part more often than is followed: the last branch then stands for several.
    """

    replicas: list[Replica]
    branches: list[Branch]
    ends: list[LogEnd]
    epochs: list[BranchEpoch] = field(default_factory=list)
    controls: list[tuple[int, ControlRecord]] = field(default_factory=list)
    snapshots: list[SurveyedSnapshot] = field(default_factory=list)
    unsound_offsets: list[int] = field(default_factory=list)
    is_overflowing: bool = False
    altered: list[AlteredRun] = field(default_factory=list)

    @property
    def holds_anything(self) -> bool:
        """Whether any batch of the log was met, or a complete snapshot of more than what a disk is formatted with."""
        return bool(self.branches) or any(snapshot.end_offset > 0 and snapshot.replicas for snapshot in self.snapshots)

    @property
    def is_unstarted(self) -> bool:
        """Whether all node dirs are as formatting leaves them: no log, no vote, and the snapshot of offset 0.

        Without that snapshot a node dir may as well have lost its log.
        """
        accepted = [replica for replica in self.replicas if replica.is_accepted]
        is_new = all(
            replica.quorum_state is None
            and not replica.leader_epochs
            and not replica.files_of(FileKind.SEGMENT)
            and all(end_offset == 0 for end_offset, _ in replica.snapshots)
            for replica in accepted
        )
        return is_new and any(replica.snapshots for replica in accepted)

    def path(self, branch: int | None) -> list[int]:
        """The branches from the first one to `branch`, each the parent of the next."""
        path: list[int] = []
        while branch is not None and branch not in path:
            path.append(branch)
            branch = self.branches[branch].parent
        return path[::-1]

    def epochs_to(self, branch: int | None, end_offset: int | None = None) -> list[BranchEpoch]:
        """The epochs on the way to a branch's end, or to `end_offset` on it; an epoch across branches is one entry."""
        joined: list[BranchEpoch] = []
        for number in self.path(branch):
            for run in (run for run in self.epochs if run.branch == number):
                if end_offset is not None and run.from_offset >= end_offset:
                    continue
                to_offset = run.to_offset if end_offset is None else min(run.to_offset, end_offset)
                if joined and joined[-1].epoch == run.epoch:
                    has_data = joined[-1].has_data_after or run.has_data_after
                    joined[-1] = replace(joined[-1], to_offset=to_offset, has_data_after=has_data)
                else:
                    joined.append(replace(run, to_offset=to_offset))
        return joined

    def gaps_to(self, branch: int | None, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """The offsets in [from_offset, to_offset) that no batch on the way to a branch's end holds, as [from, to).

        Their batches were refused, or are in no log: what a replay shows after them may be wrong.
        """
        steps = [self.branches[number] for number in self.path(branch)]
        ends = [from_offset, *(step.to_offset for step in steps)]
        gaps = [gap for step, end in zip(steps, ends, strict=False) for gap in ((end, step.from_offset), *step.gaps)]
        clipped = ((max(start, from_offset), min(end, to_offset)) for start, end in gaps)
        return [(start, end) for start, end in clipped if start < end]

    def controls_to(self, branch: int | None) -> list[ControlRecord]:
        """The control records on the way to a branch's end, in log order."""
        on_path = set(self.path(branch))
        return [record for number, record in self.controls if number in on_path]


class SurveyBuilder:
    """Follows a reading of all replicas; `survey` is complete when `finish` was called."""

    def __init__(self, replicas: list[Replica], dialect: Dialect) -> None:
        self._tree = BranchTree([replica.plan.identity for replica in replicas])
        self._dialect = dialect
        self.survey = Survey(replicas, self._tree.branches, [])

    def add_window(self, window: Window) -> Rows:
        """Takes the headers of a window; returns the branch of each of its distinct batches."""
        holdings = {part.replica.number: part.numbers for part in window.slices}
        labels = self._tree.grow(window.batches, holdings)
        _add_epochs(self.survey.epochs, window, labels)
        return labels

    def add_controls(self, window: Window, labels: Rows, numbers: Rows, records: Records) -> None:
        """Takes the control records among the records of the batches `numbers`."""
        index = records.index
        if not index.is_control.any():
            return
        rows = np.flatnonzero(index.is_control)
        places = numbers[np.searchsorted(index.selected, index.batch_row[rows])]
        number_of = dict(zip(index.offset[rows].tolist(), places.tolist(), strict=True))
        for control in controls_of(index, self._dialect):
            number = number_of[control.offset]
            batch_offset = int(window.batches.base_offset[number])
            self.survey.controls.append((int(labels[number]), replace(control, batch_offset=batch_offset)))

    def add_unsound(self, window: Window, decoded: DecodedBatches) -> None:
        """Takes the control batches of a window that could not be decoded."""
        unsound = np.flatnonzero(decoded.status != OK)
        if len(unsound):
            unsound = unsound[window.header("is_control")[unsound]]
            self.survey.unsound_offsets += window.batches.base_offset[unsound].tolist()

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Takes a snapshot whose copies have been checked."""
        copy = snapshot.decoded or snapshot.copies[0]
        holders = tuple(own.replica.number for own in snapshot.copies if own.is_complete)
        epoch = copy.file.epoch or 0
        self.survey.snapshots.append(
            SurveyedSnapshot(
                snapshot.source,
                snapshot.end_offset,
                epoch,
                holders,
                tuple(copy.controls),
                tuple(map(snapshot.holders, snapshot.versions)),
            )
        )

    def finish(self) -> None:
        """Notes where every log ended, and what was altered.

        A log whose end only fewer disks hold ends where that version begins: what it holds there is not the log.
        """
        self.survey.ends = self._tree.ends()
        leaders = {
            (branch, control.offset if control.batch_offset is None else control.batch_offset)
            for branch, control in self.survey.controls
            if control.name == LEADER_CHANGE
        }
        self.survey.altered = self._tree.altered_runs(leaders)
        for run in self.survey.altered:
            if run.rejoins or run.is_tied:
                continue
            parent = self.survey.branches[run.versions[0][0]].parent
            for _, replicas in run.versions[1:]:
                for number in replicas:
                    self.survey.ends[number] = LogEnd(number, parent, run.from_offset, run.epoch)
        self.survey.is_overflowing = self._tree.is_overflowing


def _add_epochs(epochs: list[BranchEpoch], window: Window, labels: Rows) -> None:
    batches, timestamp_ms = window.batches, window.header("max_timestamp_ms")
    is_data = ~window.header("is_control")
    for branch in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == branch)
        epoch = batches.leader_epoch[rows]
        starts = np.flatnonzero(np.concatenate(([True], epoch[1:] != epoch[:-1])))
        for group in np.split(rows, starts[1:]):
            first, last = int(group[0]), int(group[-1])
            end = int(batches.last_offset[last]) + 1
            known = next((run for run in reversed(epochs) if run.branch == branch), None)
            if known is not None and known.epoch == int(batches.leader_epoch[first]):
                known.to_offset = end
                known.has_data_after = known.has_data_after or bool(is_data[group].any())
                continue
            epochs.append(
                BranchEpoch(
                    branch,
                    int(batches.leader_epoch[first]),
                    int(batches.base_offset[first]),
                    end,
                    int(timestamp_ms[first]),
                    int(batches.last_offset[first]) + 1,
                    bool(is_data[group[1:]].any()),
                )
            )


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

    def grow(self, batches: DistinctBatches, holdings: dict[int, Rows]) -> Rows:
        """Adds a window of at least one batch; returns the branch number of each batch.

        `holdings`: of each replica with batches in the window, the row numbers of these batches, ascending.
        """
        label = self._labels(batches, holdings)
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

    def altered_runs(self, led_from: Collection[tuple[int, int]]) -> list[AlteredRun]:
        """The offsets that disks hold in several versions, when all logs have been read.

        `led_from`: (branch, base offset) of the batches with a LeaderChange. Branches that begin with one are not among
        them: two leaders wrote in one epoch there. A batch that only claims to be a control batch proves no leader.
        """
        spans = [(each.from_offset, each.to_offset, each.last_epoch) for each in self.branches]
        paths = [frozenset(self._path(branch)) for branch in self._branch_of]
        siblings: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        rejoined = {branch for rejoin in self._rejoins for branch in rejoin.replicas_of}
        for branch in self.branches:
            is_led = (branch.number, branch.from_offset) in led_from
            if branch.parent is None or branch.number in rejoined or is_led or self.is_overflowing:
                continue
            epoch = branch.epochs[0][0] if branch.epochs else self.branches[branch.parent].last_epoch
            if epoch == self.branches[branch.parent].last_epoch:
                siblings[branch.parent, branch.from_offset, epoch].append(branch.number)
        return [
            *rejoined_runs(self._rejoins, spans, paths, self._disks),
            *parted_runs({key: found for key, found in siblings.items() if len(found) > 1}, spans, paths, self._disks),
        ]

    def _path(self, branch: int | None) -> Iterator[int]:
        while branch is not None:
            yield branch
            branch = self.branches[branch].parent

    def _labels(self, batches: DistinctBatches, holdings: dict[int, Rows]) -> Rows:
        """The branch of each batch; creates the branches that begin in this window."""
        parent, rejoins = self._parents(batches, holdings)
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
        self.branches.append(Branch(number, parent, from_offset, crc, to_offset, last_epoch, crc))
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
        self, batches: DistinctBatches, holdings: dict[int, Rows]
    ) -> tuple[Rows, list[tuple[int, dict[int, list[int]]]]]:
        """The parent of each batch: a batch of this window, a branch of earlier windows (below NO_PARENT), or none.

        A parent that the batch directly follows wins over one before a gap: where one replica lost a batch, another
        that still has it shows how the log runs. A batch wins over a branch: of a replica that was read up to here by
        an earlier plan only the end of its branch is known. Where replicas disagree about what a batch directly
        follows, the parent that most disks hold wins: also returned are it and the replicas by parent.
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
        for number in self._disputed(batches, holdings, adjacent, outer_adjacent):
            replicas_of = self._followed(batches, holdings, number)
            followed, _ = most_held(replicas_of, self._disks)
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
            steps = np.flatnonzero(np.concatenate(([epoch[0] != branch.last_epoch], epoch[1:] != epoch[:-1])))
            branch.epochs += [(int(epoch[step]), int(batches.base_offset[rows[step]])) for step in steps.tolist()]
            base, before = batches.base_offset[rows], np.append(branch.to_offset, batches.last_offset[rows[:-1]] + 1)
            skips = np.flatnonzero(base > before)
            branch.gaps += zip(before[skips].tolist(), base[skips].tolist(), strict=True)
            branch.to_offset = int(batches.last_offset[last]) + 1
            branch.last_epoch, branch.last_crc = int(batches.leader_epoch[last]), int(batches.crc[last])


def _outer_parent(branch: int) -> int:
    return -2 - branch


def _outer_branch(parent: int) -> int | None:
    return None if parent >= NO_PARENT else -2 - parent
