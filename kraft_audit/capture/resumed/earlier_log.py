"""What an earlier reading knew of a log before the offset where its disks begin now.

Kafka deletes the segments that a snapshot covers, and with them the records that say who led an epoch and which voter
sets there were. A state that an earlier plan kept still has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import replace

from kraft_audit.capture.branches import Branch
from kraft_audit.capture.resumed.kept_survey import KeptSurvey
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, Survey, SurveyedSnapshot, joined_epochs


def earlier_logs(earlier: KeptSurvey, survey: Survey) -> Iterator[EarlierLog]:
    """Of each log of a survey that begins after offset 0, what a kept one knew before that."""
    if earlier.is_overflowing:
        return
    replicas: dict[int, set[int]] = defaultdict(set)
    for end in survey.ends:
        for first in survey.path(end.branch)[:1]:
            replicas[first].add(end.replica)
    for branch in survey.branches:
        if branch.parent is None and branch.from_offset > 0 and branch.epochs:
            known = _branch_with(earlier, branch, _snapshot_epochs(survey, branch, replicas[branch.number]))
            if known is not None:
                yield from _before(earlier, known, branch)


def _snapshot_epochs(survey: Survey, branch: Branch, replicas: Set[int]) -> set[int]:
    """The epochs of the record before a log, as snapshots say that end there.

    The snapshots of another log say nothing of this one. And epochs never go back in a log.
    """
    return {
        each.epoch
        for each in survey.snapshots
        if each.end_offset == branch.from_offset
        and each.epoch <= branch.epochs[0][0]
        and not replicas.isdisjoint(each.replicas)
    }


def _branch_with(earlier: KeptSurvey, branch: Branch, snapshot_epochs: Set[int]) -> int | None:
    """The kept branch that a log continues; None where that is not sure.

    Offset and epoch identify a record. The record before it is known by a snapshot that ends there, and where it is of
    the same epoch: its leader only appends. The history of another log would be worse than none, so nothing of this
    may contradict the rest.
    """
    epoch, last = branch.epochs[0][0], branch.from_offset - 1
    first_held_by = {run.branch for run in _runs_at(earlier, branch.from_offset) if run.epoch == epoch}
    last_held_by = {run.branch for run in _runs_at(earlier, last) if run.epoch in {*snapshot_epochs, epoch}}
    candidates = first_held_by or last_held_by
    if len(candidates) != 1:
        return None
    known = candidates.pop()
    path = set(earlier.path(known))
    last_epochs = {run.epoch for run in _runs_at(earlier, last) if run.branch in path}
    return known if last_held_by <= path and len(last_epochs | snapshot_epochs) <= 1 else None


def _runs_at(earlier: KeptSurvey, offset: int) -> list[BranchEpoch]:
    return [run for run in earlier.epochs if run.from_offset <= offset < run.to_offset]


def _before(earlier: KeptSurvey, known_branch: int, branch: Branch) -> Iterator[EarlierLog]:
    """What is known of the way to a kept branch, before the first offset of the branch that continues it."""
    to_offset = branch.from_offset
    path = earlier.path(known_branch)
    known_log = next((log for log in earlier.earlier_logs if log.branch == path[0]), EarlierLog(branch.number))
    runs = [run for number in path for run in earlier.epochs if run.branch == number and run.from_offset < to_offset]
    epochs = joined_epochs([*known_log.epochs, *(run.up_to(to_offset) for run in runs)])
    if not epochs or epochs[-1].epoch > branch.epochs[0][0]:
        return
    own = (record for number, record in earlier.controls if number in path and record.offset < to_offset)
    snapshots = known_log.snapshots or tuple(_first_snapshots(earlier, epochs[0].from_offset))
    epochs = [replace(run, branch=branch.number) for run in epochs]
    yield EarlierLog(branch.number, tuple(epochs), (*known_log.controls, *own), snapshots)


def _first_snapshots(earlier: KeptSurvey, from_offset: int) -> Iterator[SurveyedSnapshot]:
    """The snapshots that say which voter set a log began with: those that end by then, and the first one after."""
    for snapshot in sorted((each.surveyed for each in earlier.snapshots), key=lambda each: each.end_offset):
        yield snapshot
        if snapshot.end_offset > from_offset:
            return
