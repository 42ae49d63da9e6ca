"""What a survey takes from the plan before it, and leaves for the one after it."""

from __future__ import annotations

from collections.abc import Sequence

from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.resumed.earlier_log import earlier_logs
from kraft_audit.capture.resumed.kept_survey import KeptCopy, KeptSnapshot, KeptSurvey
from kraft_audit.capture.resumed.log_marks import LogMarks
from kraft_audit.capture.resumed.survey_resume import resume_survey
from kraft_audit.capture.snapshots import Snapshot
from kraft_audit.capture.survey import Survey, SurveyBuilder


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
        found = resume_survey(self._earlier, replicas, self._records_from)
        self._known_to = [branch.to_offset for branch in found.branches]
        builder.tree.restore(found.branches, found.ends, found.rejoins)
        survey = builder.survey
        survey.epochs += found.epochs
        survey.controls += found.controls
        survey.unsound_offsets += found.unsound_offsets
        for number, mark in found.read_again.items():
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
