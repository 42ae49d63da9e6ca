"""What a replay has to know before it begins: the branches of a log, who ends where, and every control record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kraft_audit.capture.altered_batches import AlteredRun
from kraft_audit.capture.branches import Branch, BranchTree, LogEnd, path_to
from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.decoded_records import ControlRecord, DecodedBatches, Decoder, Records, controls_of
from kraft_audit.capture.reconcile import DistinctBatches, Window
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.snapshots import HEADER, Snapshot
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.file_names import FileKind
from kraft_codec.kernels.codes import OK
from kraft_codec.schemas import Dialect

LEADER_CHANGE: Final = "LEADER_CHANGE"


@dataclass(slots=True)
class BranchEpoch:
    """One leader epoch on one branch, offsets half-open.

    `timestamp_ms` and `first_batch_end` are the max timestamp and the end offset of its first batch. `data_from` is
    where its first metadata batch begins; None without one. Where the epoch begins with its LeaderChange, that is after
    the first batch.
    """

    branch: int
    epoch: int
    from_offset: int
    to_offset: int
    timestamp_ms: int
    first_batch_end: int
    data_from: int | None = None

    @property
    def has_data(self) -> bool:
        """Whether a metadata batch of the epoch was read."""
        return self.data_from is not None

    def up_to(self, offset: int) -> BranchEpoch:
        """What of it lies before an offset."""
        data_from = self.data_from if self.data_from is not None and self.data_from < offset else None
        return replace(self, to_offset=min(self.to_offset, offset), data_from=data_from)


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


@dataclass(frozen=True, slots=True)
class EarlierLog:
    """What earlier readings knew of a log before the offset where its first `branch` begins now.

    `snapshots` say which voter set it began with.
    """

    branch: int
    epochs: tuple[BranchEpoch, ...] = ()
    controls: tuple[ControlRecord, ...] = ()
    snapshots: tuple[SurveyedSnapshot, ...] = ()


@dataclass(slots=True)
class Survey:
    """What the headers of all replicas of a plan say.

    `replicas` have been read to their ends; `ends` are in their order. `epochs` and `controls` are in the order of
    offsets, each with its branch. `snapshots` are one for each id, `altered` the runs of batches in several
    versions. `unsound_offsets` are base offsets of control batches that could not be decoded. `is_overflowing` is set
    where the logs part more often than is followed: the last branch then stands for several. `earlier_logs` are known
    where what an earlier reading kept is at hand.
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
    earlier_logs: list[EarlierLog] = field(default_factory=list)

    @property
    def holds_anything(self) -> bool:
        """Whether any batch of the log was met, or a complete snapshot of more than what a disk is formatted with."""
        return bool(self.branches) or bool(self.complete_snapshots)

    @property
    def complete_snapshots(self) -> list[SurveyedSnapshot]:
        """Those that some replica holds complete, of more than what a disk is formatted with."""
        return [snapshot for snapshot in self.snapshots if snapshot.end_offset > 0 and snapshot.replicas]

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
        return path_to(self.branches, branch)

    def common_to(self, first: int | None, second: int | None) -> int:
        """The end of the last branch on the way to both of these; 0 where none is."""
        path = self.path(second)
        common = [number for number in self.path(first) if number in path]
        return self.branches[common[-1]].to_offset if common else 0

    def epochs_to(self, branch: int | None, end_offset: int | None = None) -> list[BranchEpoch]:
        """The epochs on the way to a branch's end, or to `end_offset` on it; an epoch across branches is one entry."""
        runs = [run for number in self.path(branch) for run in self.epochs if run.branch == number]
        if end_offset is not None:
            runs = [run.up_to(end_offset) for run in runs if run.from_offset < end_offset]
        return joined_epochs(runs)

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

    def earlier_log(self, branch: int | None) -> EarlierLog:
        """What is known of the log on the way to a branch before its first offset."""
        first = self.path(branch)[:1]
        return next((log for log in self.earlier_logs if [log.branch] == first), EarlierLog(-1))


def joined_epochs(runs: Iterable[BranchEpoch]) -> list[BranchEpoch]:
    """The runs of a log in its order, an epoch across several of them as one."""
    joined: list[BranchEpoch] = []
    for run in runs:
        if joined and joined[-1].epoch == run.epoch:
            data_from = run.data_from if joined[-1].data_from is None else joined[-1].data_from
            joined[-1] = replace(joined[-1], to_offset=run.to_offset, data_from=data_from)
        else:
            joined.append(replace(run))
    return joined


class SurveyBuilder:
    """Follows a reading of all replicas; `survey` is complete when `finish` was called."""

    def __init__(self, replicas: list[Replica], dialect: Dialect) -> None:
        self.tree = BranchTree([replica.plan.identity for replica in replicas])
        self._dialect = dialect
        self.survey = Survey(replicas, self.tree.branches, [])

    def add_window(self, window: Window) -> Rows:
        """Takes the headers of a window; returns the branch of each of its distinct batches."""
        holdings = {part.replica.number: part.numbers for part in window.slices}
        labels = self.tree.grow(window.batches, holdings, lambda: self._voting(window))
        _add_epochs(self.survey.epochs, window, labels)
        return labels

    def _voting(self, window: Window | None = None) -> frozenset[int]:
        """The numbers of replicas whose nodes are voters by any voter set, LeaderChange or quorum-state read so far."""
        controls = [control for _, control in self.survey.controls]
        controls += [control for snapshot in self.survey.snapshots for control in snapshot.controls]
        controls += () if window is None else _controls_in(window, self._dialect)
        ids = _named_voters(controls)
        for replica in self.survey.replicas:
            ids |= set() if replica.quorum_state is None else set(replica.quorum_state.current_voters or ())
        return frozenset(replica.number for replica in self.survey.replicas if replica.plan.node_id in ids)

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
        versions = tuple(numbers for _, numbers in snapshot.version_holders())
        self.survey.snapshots.append(
            SurveyedSnapshot(
                snapshot.source, snapshot.end_offset, copy.file.epoch or 0, holders, tuple(copy.controls), versions
            )
        )

    def finish(self) -> None:
        """Notes where every log ended, and what was altered.

        A log that ends in the version of an altered run that is not taken for the log counts as ending where the run
        begins, unless the run is tied, or the logs agree again after it.
        """
        self.survey.snapshots = [self._borne(snapshot) for snapshot in self.survey.snapshots]
        self._join_ends_to_beginnings()
        self.survey.controls.sort(key=lambda entry: entry[1].batch_start)
        self.survey.ends = self.tree.ends()
        leaders = {
            (branch, control.batch_start) for branch, control in self.survey.controls if control.name == LEADER_CHANGE
        }
        logs = [replica.log for replica in self.survey.replicas]
        starts = [(log and log.first_offset) or 0 for log in logs]
        self.survey.altered = self.tree.altered_runs(leaders, starts, self._voting())
        for run in self.survey.altered:
            if run.rejoins or run.is_tied:
                continue
            for branch, replicas in run.versions[1:]:
                before = self._before(run, branch)
                for number in replicas if before is not None else ():
                    self.survey.ends[number] = LogEnd(number, before, run.from_offset, run.epoch)
        self.survey.is_overflowing = self.tree.is_overflowing

    def _borne(self, snapshot: SurveyedSnapshot) -> SurveyedSnapshot:
        """Without the replicas from which it was taken, as nothing beside it bears it out (`borne_snapshots`)."""
        if snapshot.end_offset == 0:
            return snapshot
        own, replicas = (snapshot.end_offset, snapshot.epoch), self.survey.replicas
        return replace(snapshot, replicas=tuple(n for n in snapshot.replicas if own in replicas[n].snapshots))

    def _before(self, run: AlteredRun, branch: int) -> int | None:
        """The branch that holds what comes before the altered run on the way to one of its versions; None without any.

        A log that begins with its own version is taken to follow what the others hold.
        """
        branches = self.survey.branches
        if branches[branch].from_offset < run.from_offset:
            return branch
        followed = branches[run.versions[0][0]]
        if branches[branch].parent is None and followed.from_offset < run.from_offset:
            return followed.number
        return branches[branch].parent

    def _join_ends_to_beginnings(self) -> None:
        """Lets logs that begin where others end continue them, where both are known to hold the record before.

        Offset and epoch identify a record. So it is where they begin with a snapshot and the others end with its last
        record, and where both have that epoch: its leader only appends. No disk need hold both sides of that place.
        """
        branches = self.survey.branches
        ended: dict[tuple[int, int], int] = {}
        for branch in branches:
            ended.setdefault((branch.to_offset, branch.last_epoch), branch.number)
        snapshots = {each.end_offset: each.epoch for each in self.survey.complete_snapshots}
        for branch in branches:
            offset = branch.from_offset
            if branch.parent is None and offset and branch.epochs:
                epochs = (snapshots.get(offset, branch.epochs[0][0]), branch.epochs[0][0])
                branch.parent = next((ended[offset, epoch] for epoch in epochs if (offset, epoch) in ended), None)


def _controls_in(window: Window, dialect: Dialect) -> list[ControlRecord]:
    """The control records of a window that has just been read."""
    decoder, controls = Decoder(dialect, None), list[ControlRecord]()
    for part, numbers, rows in window.runs(window.header("is_control")):
        for _, records in decoder.batches(part.chunk, numbers, rows):
            controls += controls_of(records.index, dialect)
    return controls


def _named_voters(controls: Iterable[ControlRecord]) -> set[int]:
    """Every node id that a voter set or a LeaderChange lists."""
    listed = (control.fields.get("voters") or () for control in controls)
    return {voter["voter_id"] for voters in listed for voter in voters}


def _add_epochs(epochs: list[BranchEpoch], window: Window, labels: Rows) -> None:
    batches, timestamp_ms = window.batches, window.header("max_timestamp_ms")
    is_data = ~window.header("is_control")
    for branch in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == branch)
        epoch = batches.leader_epoch[rows]
        starts = np.flatnonzero(run_begins(epoch))
        for group in np.split(rows, starts[1:]):
            first, last = int(group[0]), int(group[-1])
            end = int(batches.last_offset[last]) + 1
            known = next((run for run in reversed(epochs) if run.branch == branch), None)
            if known is not None and known.epoch == int(batches.leader_epoch[first]):
                known.to_offset = end
                known.data_from = _first_data(batches, is_data, group) if known.data_from is None else known.data_from
                continue
            epochs.append(
                BranchEpoch(
                    branch,
                    int(batches.leader_epoch[first]),
                    int(batches.base_offset[first]),
                    end,
                    int(timestamp_ms[first]),
                    int(batches.last_offset[first]) + 1,
                    _first_data(batches, is_data, group),
                )
            )


def _first_data(batches: DistinctBatches, is_data: Mask, rows: Rows) -> int | None:
    data = rows[is_data[rows]]
    return int(batches.base_offset[data[0]]) if len(data) else None
