"""Where the reading of a cluster goes on from a kept survey, what of it still stands, and what the next one gets.

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
from kraft_audit.capture.resumed.earlier_log import earlier_logs
from kraft_audit.capture.resumed.kept_log import KeptLog, LogMark, LogMarks, NotResumableError
from kraft_audit.capture.resumed.kept_survey import KeptCopy, KeptSnapshot, KeptSurvey, SurveyCut
from kraft_audit.capture.snapshots import Snapshot
from kraft_audit.capture.survey import BranchEpoch, Survey, SurveyBuilder
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


class SurveyMemory:
    """Follows one reading, from the `earlier` survey (None: there is none) to what is kept after it.

    `records_from` is as in `resume_survey`. A reading from the first byte may know a survey, too: `known`.
    """

    def __init__(
        self,
        earlier: KeptSurvey | None,
        records_from: tuple[int, int] | None = None,
        known: KeptSurvey | None = None,
    ) -> None:
        self.marks = LogMarks()
        self._known_to: list[int] = []
        self._earlier = earlier
        self._records_from = records_from
        self._survey_before = known if earlier is None else earlier
        known_snapshots = () if earlier is None else earlier.snapshots
        self._known = {snapshot.source: snapshot for snapshot in known_snapshots}
        self._digests = {copy.place: bytes.fromhex(copy.digest) for each in known_snapshots for copy in each.copies}
        self._snapshots: list[KeptSnapshot] = []

    def resume(self, builder: SurveyBuilder, replicas: Sequence[Replica]) -> None:
        """Lets a survey and the replicas' logs go on from what was kept. Raises NotResumableError."""
        if self._earlier is None:
            return
        resumed_survey = resume_survey(self._earlier, replicas, self._records_from)
        self._known_to = [branch.to_offset for branch in resumed_survey.branches]
        builder.tree.restore(resumed_survey.branches, resumed_survey.ends, resumed_survey.rejoins)
        survey = builder.survey
        survey.epochs += resumed_survey.epochs
        survey.controls += resumed_survey.controls
        survey.unsound_offsets += resumed_survey.unsound_offsets
        for number, mark in resumed_survey.read_again.items():
            log = replicas[number].log
            if log is not None:
                log.read_again_from(mark)

    def known_to(self, path: Sequence[int]) -> int:
        """The end of what was known of a path before the reading."""
        return max((self._known_to[branch] for branch in path if branch < len(self._known_to)), default=0)

    def log_ended(self, builder: SurveyBuilder, replica: Replica) -> None:
        """Notes that a log has been read to its end."""
        end = builder.tree.ends()[replica.number]
        if end.branch is not None:
            self.marks.want(end.end_offset)

    def know(self, snapshot: Snapshot) -> None:
        """Says of the copies that are not read again what they say."""
        for copy in snapshot.copies:
            if copy.is_known:
                place = (copy.replica.plan.root, copy.replica.plan.path, copy.file.name)
                copy.digest = self._digests.get(place, b"")

    def controls_of(self, snapshot: Snapshot) -> Sequence[ControlRecord]:
        """The control records of a snapshot that was kept."""
        known = self._known.get(snapshot.source)
        return () if known is None else known.controls

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Takes a snapshot whose copies have been checked."""
        copies = [copy for copy in snapshot.copies if copy.is_complete and copy.digest]
        if not copies:
            return
        decoded = snapshot.decoded
        controls = self.controls_of(snapshot) if decoded is None else decoded.controls
        places = [
            KeptCopy(copy.replica.plan.root, copy.replica.plan.path, copy.file.name, copy.digest.hex())
            for copy in copies
        ]
        self._snapshots.append(KeptSnapshot(snapshot.source, tuple(controls), tuple(places)))

    def finish(self, survey: Survey) -> None:
        """Notes in a survey that is complete what only an earlier one knows."""
        if self._survey_before is not None:
            survey.earlier_logs += earlier_logs(self._survey_before, survey)

    def kept_survey(self, builder: SurveyBuilder, replicas: Sequence[Replica]) -> KeptSurvey:
        """What the next plan needs, once everything was read."""
        survey, tree = builder.survey, builder.tree
        return KeptSurvey(
            logs=tuple(self.marks.kept_logs(replicas, tree.ends())),
            branches=tuple(tree.branches),
            epochs=tuple(survey.epochs),
            controls=tuple(survey.controls),
            snapshots=tuple(self._snapshots),
            unsound_offsets=tuple(survey.unsound_offsets),
            rejoins=tuple(tree.rejoins),
            is_overflowing=tree.is_overflowing,
            earlier_logs=tuple(survey.earlier_logs),
        )
