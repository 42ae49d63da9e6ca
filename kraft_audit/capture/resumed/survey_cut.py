"""A kept survey without what is read again. Branches, epochs and control records are known by offset: it is exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from kraft_audit.capture.altered_batches import Rejoin
from kraft_audit.capture.branches import Branch
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.resumed.kept_log import NotResumableError
from kraft_audit.capture.resumed.kept_survey import KeptSurvey
from kraft_audit.capture.survey import BranchEpoch


@dataclass(frozen=True, slots=True)
class SurveyCut:
    """`cut_at` are, by branch, the offsets from which on batches are left out; `number_of` are the new numbers of the
    branches that stay, by their old ones.
    """

    earlier: KeptSurvey
    cut_at: Mapping[int, int]
    number_of: Mapping[int, int]

    @classmethod
    def of(cls, earlier: KeptSurvey, read_again: Mapping[int, tuple[int | None, int]]) -> Self:
        """`read_again`: of each log that is read again its branch, and from which offset on.

        Logs that share a branch are read from the same offset, if it lies on that branch or before it.
        """
        cut_at: dict[int, int] = {}
        for branch, offset in read_again.values():
            for number in earlier.path(branch):
                cut_at[number] = min(cut_at.get(number, offset), offset)
        stays = [each.number for each in earlier.branches if each.from_offset < cut_at.get(each.number, each.to_offset)]
        return cls(earlier, cut_at, {old: new for new, old in enumerate(stays)})

    def end(self, number: int) -> int:
        """Where a branch ends now: before a gap that reaches up to where it is cut."""
        branch, offset = self.earlier.branches[number], self.cut_at.get(number)
        if offset is None or branch.to_offset <= offset:
            return branch.to_offset
        return min(offset, next((start for start, end in branch.gaps if end >= offset), offset))

    def branches(self) -> list[Branch]:
        """The branches that stay."""
        return [self._branch(self.earlier.branches[number]) for number in self.number_of]

    def _branch(self, branch: Branch) -> Branch:
        offset = self.cut_at.get(branch.number, branch.to_offset)
        parent = None if branch.parent is None else self.number_of[branch.parent]
        epochs = [start for start in branch.epochs if start[1] < offset]
        return replace(
            branch,
            number=self.number_of[branch.number],
            parent=parent,
            to_offset=self.end(branch.number),
            last_epoch=epochs[-1][0] if epochs else branch.last_epoch,
            epochs=epochs,
            gaps=[gap for gap in branch.gaps if gap[1] < offset],
        )

    def epochs(self) -> Iterator[BranchEpoch]:
        """The epochs that begin before the cut."""
        for run in self.earlier.epochs:
            offset = self.cut_at.get(run.branch, run.to_offset)
            if run.branch not in self.number_of or run.from_offset >= offset:
                continue
            own = replace(run, branch=self.number_of[run.branch])
            if run.to_offset > offset:
                own.to_offset = self.end(run.branch)
                own.data_from = run.data_from if run.data_from is not None and run.data_from < offset else None
            yield own

    def controls(self) -> list[tuple[int, ControlRecord]]:
        """The control records before the cut."""
        return [
            (self.number_of[branch], control)
            for branch, control in self.earlier.controls
            if branch in self.number_of and (branch not in self.cut_at or control.batch_start < self.cut_at[branch])
        ]

    def unsound_offsets(self) -> list[int]:
        """Those before the cut. Raises NotResumableError where they may be on a log that parted, too."""
        first = min(self.cut_at.values(), default=None)
        late = [offset for offset in self.earlier.unsound_offsets if first is not None and offset >= first]
        if late and any(branch.to_offset > late[0] for branch in self.branches()):
            raise NotResumableError("logs part where control batches cannot be decoded")
        return [offset for offset in self.earlier.unsound_offsets if offset not in late]

    def rejoins(self, place_of: Mapping[int, int]) -> list[Rejoin]:
        """Those before the cut, with replicas by number: `place_of` has it by their place among the kept logs."""
        found = []
        for rejoin in self.earlier.rejoins:
            at = max(self.earlier.branches[branch].to_offset for branch in rejoin.replicas_of)
            if all(branch in self.number_of and at < self.cut_at.get(branch, at + 1) for branch in rejoin.replicas_of):
                holders = {
                    self.number_of[branch]: tuple(place_of[place] for place in places)
                    for branch, places in rejoin.replicas_of.items()
                }
                found.append(Rejoin(self.number_of[rejoin.followed], holders))
        return found
