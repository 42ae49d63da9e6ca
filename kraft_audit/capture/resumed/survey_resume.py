"""Where the reading of a cluster goes on from a kept survey, and what of that survey still stands.

The replicas with changes go on where their logs ended. What another log already holds after the end of such a log is
read again from there: only so can it be said which batches are the same. A log that parted before that, or that
ends there, stays as it was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.capture.altered_batches import Rejoin
from kraft_audit.capture.branches import Branch, LogEnd
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.resumed.kept_log import KeptLog, LogMark, NotResumableError
from kraft_audit.capture.resumed.kept_survey import KeptSurvey
from kraft_audit.capture.resumed.survey_cut import SurveyCut
from kraft_audit.capture.survey import BranchEpoch
from kraft_codec.file_names import FileKind


@dataclass(frozen=True, slots=True)
class ResumedSurvey:
    """What is known already, and where each replica is read from.

    `ends` are in the order of the replicas: where each is known to. `read_again` are, by replica number, the places
    from which known batches are read again: what follows there is cut from everything else.
    """

    branches: list[Branch]
    ends: list[LogEnd]
    epochs: list[BranchEpoch]
    controls: list[tuple[int, ControlRecord]]
    unsound_offsets: list[int]
    rejoins: list[Rejoin]
    read_again: Mapping[int, LogMark]


def resume_survey(
    earlier: KeptSurvey, replicas: Sequence[Replica], records_from: tuple[int, int] | None = None
) -> ResumedSurvey:
    """Decides it for replicas that have been opened.

    `records_from`: the log is read at least from this offset on, after a record of this epoch. Raises
    NotResumableError, which says why a full reading is due.
    """
    places = _places(earlier, replicas)
    logs = [earlier.logs[place] for place in places]
    if earlier.is_overflowing:
        raise NotResumableError("its logs part too often")
    for replica, log in zip(replicas, logs, strict=True):
        _require_same_log(replica, log)
    _require_known_copies(earlier, replicas)
    changed = [number for number, replica in enumerate(replicas) if _has_changes(replica, logs[number])]
    again = _read_again(earlier, logs, changed)
    if changed and records_from is not None:
        _reach_back(earlier, logs, again, *records_from)
    marks, joins = {}, {}
    for number, offset in again.items():
        joins[number], marks[number] = _mark(earlier, replicas[number], logs[number], offset)
    cut = SurveyCut.of(earlier, {number: (logs[number].branch, offset) for number, offset in again.items()})
    place_of = {place: number for number, place in enumerate(places)}
    ends = []
    for number, log in enumerate(logs):
        branch, end_offset = log.branch, log.end_offset
        if number in again:
            branch = joins[number]
            end_offset = 0 if branch is None else cut.end(branch)
        ends.append(LogEnd(number, None if branch is None else cut.number_of[branch], end_offset, log.last_epoch))
    return ResumedSurvey(
        cut.branches(), ends, list(cut.epochs()), cut.controls(), cut.unsound_offsets(), cut.rejoins(place_of), marks
    )


def _places(earlier: KeptSurvey, replicas: Sequence[Replica]) -> list[int]:
    """Of each replica the place of its log among those that were kept."""
    known = {log.place: place for place, log in enumerate(earlier.logs)}
    now = [(replica.plan.root, replica.plan.path) for replica in replicas]
    for place in now:
        if place not in known:
            raise NotResumableError(f"{place[1]}: no earlier plan read it")
    for place in known.keys() - set(now):
        raise NotResumableError(f"{place[1]}: it is not there any more")
    if len(set(now)) != len(now):
        raise NotResumableError("a replica is planned twice")
    return [known[place] for place in now]


def _require_same_log(replica: Replica, log: KeptLog) -> None:
    path = replica.plan.path
    if replica.plan.identity != log.identity:
        raise NotResumableError(f"{path}: it is another disk")
    if log.is_lossy:
        raise NotResumableError(f"{path}: bytes of it could not be read")
    if replica.log is None:
        if log.last_batch is not None:
            raise NotResumableError(f"{path}: it is of another cluster now")
        return
    if log.last_batch is None:
        if replica.at_rest is None and any(tally.plan.size_bytes for tally in replica.log.segments):
            raise NotResumableError(f"{path}: its log was empty")
        return
    if replica.log.torn is not None:
        raise NotResumableError(f"{path}: {replica.log.torn}")
    if not replica.log.is_resumed:
        raise NotResumableError(f"{path}: the last batch that was read is not there any more")
    if replica.log.end_offset != log.end_offset:
        raise NotResumableError(f"{path}: it was read to {replica.log.end_offset}, and kept to {log.end_offset}")


def _require_known_copies(earlier: KeptSurvey, replicas: Sequence[Replica]) -> None:
    """Of snapshots that are not read again it must be known what they say."""
    known = {copy.place for snapshot in earlier.snapshots for copy in snapshot.copies}
    for replica in replicas:
        for file in replica.files_of(FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT):
            is_whole = file.is_unchanged and replica.tallies[file.name].damage_count == 0
            if replica.is_accepted and is_whole and (replica.plan.root, replica.plan.path, file.name) not in known:
                raise NotResumableError(f"{replica.plan.path}: {file.name} was not kept")


def _has_changes(replica: Replica, log: KeptLog) -> bool:
    has_batches = log.last_batch is not None and replica.log is not None
    return has_batches and replica.at_rest is None and replica.log is not None and replica.log.has_changes


def _branch_at(earlier: KeptSurvey, branch: int | None, offset: int) -> int | None:
    """The branch on the way to another one that holds what comes before an offset."""
    while branch is not None and earlier.branches[branch].from_offset >= offset:
        branch = earlier.branches[branch].parent
    return branch


def _read_again(earlier: KeptSurvey, logs: Sequence[KeptLog], changed: Sequence[int]) -> dict[int, int]:
    """The replicas whose known batches must be read again, and from which offset on.

    It is those that run on where a log with changes ends, and those that begin after that, as they may be joined to it
    now. Where disks hold the same offsets with different bytes, logs that parted may agree again: then all of them.
    """
    has_altered = bool(earlier.rejoins) or _may_be_altered(earlier)
    again: dict[int, int] = {}
    for number, log in enumerate(logs):
        for ended in (logs[each] for each in changed if logs[each].end_offset < log.end_offset):
            branch = _branch_at(earlier, log.branch, ended.end_offset)
            if branch is None:
                start = earlier.branches[earlier.path(log.branch)[0]].from_offset
                again[number] = min(again.get(number, start), start)
            elif has_altered or branch == ended.branch:
                again[number] = min(again.get(number, ended.end_offset), ended.end_offset)
    return again


def _reach_back(earlier: KeptSurvey, logs: Sequence[KeptLog], again: dict[int, int], offset: int, epoch: int) -> None:
    """Lets the logs that hold an offset after a record of an epoch be read from there on, or from before it.

    They are read again from where another log ended: there all of them know their batches.
    """
    last = offset - 1
    runs = [run for run in earlier.epochs if run.epoch == epoch and run.from_offset <= last < run.to_offset]
    on_branch = {run.branch for run in runs}
    beyond = [n for n, log in enumerate(logs) if log.end_offset > offset]
    beyond = [n for n in beyond if _branch_at(earlier, logs[n].branch, offset) in on_branch]
    if all(again.get(number, logs[number].end_offset) <= offset for number in beyond):
        return
    ends = sorted({log.end_offset for log in logs if log.end_offset <= offset}, reverse=True)
    known = [{mark.offset for mark in logs[number].marks} for number in beyond]
    start = next((end for end in ends if all(end in offsets for offsets in known)), None)
    if start is None:
        raise NotResumableError(f"records from offset {offset} on are due, and no batch is known to begin before it")
    for number in beyond:
        again[number] = min(again.get(number, start), start)


def _may_be_altered(earlier: KeptSurvey) -> bool:
    """Whether two branches of one parent begin in the same epoch, which no leader does."""
    starts = [
        (branch.parent, branch.from_offset, branch.epochs[0][0])
        for branch in earlier.branches
        if branch.parent is not None and branch.epochs
    ]
    return len(set(starts)) < len(starts)


def _mark(earlier: KeptSurvey, replica: Replica, log: KeptLog, offset: int) -> tuple[int | None, LogMark]:
    """Where to read a replica again, and the branch that it is on until there; None where that is its log's start."""
    segments = [] if replica.log is None else replica.log.segments
    branch = _branch_at(earlier, log.branch, offset)
    first_offset = segments[0].plan.base_offset if segments else None
    if segments and first_offset is not None and (branch is None or first_offset >= offset):
        return None, LogMark(first_offset, segments[0].plan.name, 0)
    mark = log.mark_at(offset)
    if mark.file_name not in {tally.plan.name for tally in segments}:
        raise NotResumableError(f"{replica.plan.path}: {mark.file_name} is not there any more")
    return branch, mark
