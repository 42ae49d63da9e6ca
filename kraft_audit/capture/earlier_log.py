"""What an earlier reading knew of a log before the offset where its disks begin now.

Kafka deletes the segments that a snapshot covers, and with them the records that say who led an epoch and which voter
sets there were. A state that an earlier plan kept still has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kraft_audit.capture.kept_survey import KeptSurvey
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, Survey, SurveyedSnapshot, joined_epochs


def earlier_logs(earlier: KeptSurvey, survey: Survey) -> Iterator[EarlierLog]:
    """Of each log of a survey that begins after offset 0, what a kept one knew before that."""
    if earlier.is_overflowing:
        return
    for branch in survey.branches:
        if branch.parent is None and branch.from_offset > 0 and branch.epochs:
            known = _branch_with(earlier, survey, branch.from_offset, branch.epochs[0][0])
            if known is not None:
                yield from _before(earlier, known, branch.number, branch.from_offset)


def _branch_with(earlier: KeptSurvey, survey: Survey, offset: int, epoch: int) -> int | None:
    """The kept branch that a log continues whose first record is of an epoch; None where that is not sure.

    Offset and epoch identify a record. The record before it is known by a snapshot that ends there, and where it is of
    the same epoch: its leader only appends.
    """
    last = {(each.epoch, offset - 1) for each in survey.snapshots if each.end_offset == offset and each.replicas}
    for own, at in ((epoch, offset), *last, (epoch, offset - 1)):
        held_by = {run.branch for run in earlier.epochs if run.epoch == own and run.from_offset <= at < run.to_offset}
        if held_by:
            return held_by.pop() if len(held_by) == 1 else None
    return None


def _before(earlier: KeptSurvey, known_branch: int, branch: int, to_offset: int) -> Iterator[EarlierLog]:
    """What is known of the way to a kept branch, before an offset."""
    path = earlier.path(known_branch)
    known_log = next((log for log in earlier.earlier_logs if log.branch == path[0]), EarlierLog(branch))
    runs = [run for number in path for run in earlier.epochs if run.branch == number and run.from_offset < to_offset]
    epochs = joined_epochs([*known_log.epochs, *(_up_to(run, to_offset) for run in runs)])
    if not epochs:
        return
    own = (record for number, record in earlier.controls if number in path and record.offset < to_offset)
    snapshots = known_log.snapshots or tuple(_first_snapshots(earlier, epochs[0].from_offset))
    epochs = [replace(run, branch=branch) for run in epochs]
    yield EarlierLog(branch, tuple(epochs), (*known_log.controls, *own), snapshots)


def _up_to(run: BranchEpoch, offset: int) -> BranchEpoch:
    data_from = run.data_from if run.data_from is not None and run.data_from < offset else None
    return replace(run, to_offset=min(run.to_offset, offset), data_from=data_from)


def _first_snapshots(earlier: KeptSurvey, from_offset: int) -> Iterator[SurveyedSnapshot]:
    """The snapshots that say which voter set a log began with: those that end by then, and the first one after."""
    for snapshot in sorted((each.surveyed for each in earlier.snapshots), key=lambda each: each.end_offset):
        yield snapshot
        if snapshot.end_offset > from_offset:
            return
