"""Which branches are the canonical log, and which pieces of logs came before it where no disk holds what lies between.

Nodes delete segments that a snapshot covers. So the canonical log may begin where earlier captures of it have ended,
and the logs of these may have parted: one of them went on to the canonical log, the others were truncated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kraft_audit.capture.branches import LogEnd
from kraft_audit.capture.plan import SilverPosition
from kraft_audit.capture.survey import BranchEpoch, Survey
from kraft_audit.quorum.rounds import ProvenRound, newest_canonical

RecordId = tuple[int, int]
"""(offset, epoch) of a record: they identify it (log matching, Raft section 5.3)."""
_NO_OFFSET = 1 << 63


@dataclass(frozen=True, slots=True)
class CanonicalBranches:
    """The canonical log as branches: `path` up to `end_offset` without a gap, and the pieces of logs before it.

    `path` is empty without a canonical log. `ends`: of each branch on it, or on a piece, the offset up to which it is
    canonical.
    """

    survey: Survey
    path: tuple[int, ...]
    end_offset: int
    ends: Mapping[int, int]

    @classmethod
    def of(
        cls, survey: Survey, rounds: Sequence[ProvenRound], replayed: SilverPosition | None = None
    ) -> CanonicalBranches:
        """Those of the newest canonical log; its pieces are known by what rounds prove committed.

        Where no round has one, it is the log that earlier plans replayed (`replayed`).
        """
        newest = newest_canonical(rounds)
        canonical = None if newest is None else newest.interval.canonical
        lows = [(captured.interval.low - 1, captured.interval.low_epoch) for captured in rounds]
        if canonical is not None:
            return cls.ending_at(survey, canonical.number, canonical.end[1], lows)
        if replayed is None:
            return cls(survey, (), 0, {})
        return cls.ending_at(survey, _branch_with_end(survey, replayed), replayed.to_offset, lows)

    @classmethod
    def ending_at(
        cls, survey: Survey, branch: int | None, end_offset: int, committed: Iterable[RecordId]
    ) -> CanonicalBranches:
        """Those of a canonical log with its end on a branch, where these records are known to be committed."""
        path = survey.path(branch)
        if not path:
            return cls(survey, (), 0, {})
        ends = {number: survey.branches[number].to_offset for number in path}
        if survey.branches[path[0]].from_offset > 0:
            ends |= _piece_ends(survey, path, _canonical_records(survey, path, end_offset, committed))
        return cls(survey, tuple(path), end_offset, ends)

    @property
    def epochs(self) -> list[BranchEpoch]:
        """The epochs of the canonical log and, before them, those of its pieces; ascending by offset."""
        pieces = [
            epoch.up_to(self.ends[epoch.branch])
            for epoch in self.survey.epochs
            if epoch.branch in self.ends
            and epoch.branch not in self.path
            and epoch.from_offset < self.ends[epoch.branch]
        ]
        own = self.survey.epochs_to(self.path[-1], self.end_offset) if self.path else []
        return [*sorted(pieces, key=lambda epoch: epoch.from_offset), *own]

    def is_piece(self, end: LogEnd) -> bool:
        """Whether a log begins with a piece of the canonical log that lies before a gap."""
        own = self.survey.path(end.branch)
        return bool(own) and own[0] != self.path[0] and own[0] in self.ends if self.path else False

    def leaves_at(self, end: LogEnd) -> int | None:
        """The offset at which a log leaves the canonical one; None where it is on it up to its end."""
        for number in self.survey.path(end.branch):
            branch = self.survey.branches[number]
            canonical_to = self.ends.get(number, branch.from_offset)
            if canonical_to < (end.end_offset if number == end.branch else branch.to_offset):
                return canonical_to
        return None


def _branch_with_end(survey: Survey, replayed: SilverPosition) -> int | None:
    """The branch that holds the last record that was replayed."""
    last, epoch = replayed.to_offset - 1, replayed.epochs[-1][0] if replayed.epochs else replayed.low_epoch
    runs = (run for run in survey.epochs if run.epoch == epoch and run.from_offset <= last < run.to_offset)
    return next((run.branch for run in runs), None)


def tips(survey: Survey, path: Sequence[int]) -> list[LogEnd]:
    """The furthest log end of each branch that ends somewhere, that of the canonical log (`path`) first."""
    furthest: dict[int, LogEnd] = {}
    for number, end in enumerate(survey.ends):
        if end.branch is not None and survey.replicas[number].is_accepted:
            known = furthest.get(end.branch)
            if known is None or known.end_offset < end.end_offset:
                furthest[end.branch] = end
    inner = {n for branch in furthest for n in survey.path(branch)[:-1]}
    ends = [end for branch, end in furthest.items() if branch not in inner or (path and branch == path[-1])]
    return sorted(ends, key=lambda end: (not path or end.branch != path[-1], end.branch))


def _canonical_records(
    survey: Survey, path: Sequence[int], end_offset: int, committed: Iterable[RecordId]
) -> list[RecordId]:
    """Records that the canonical log has, those among them that it no longer holds.

    An earlier reading may have seen them. A snapshot ends with a committed record. What the canonical log itself
    contradicts is of another log.
    """
    records = _first_and_last(survey.epochs_to(path[-1], end_offset))
    snapshots = ((each.end_offset - 1, each.epoch) for each in survey.complete_snapshots)
    first_offset, first_epoch = records[0] if records else (0, 0)
    gone = {(offset, epoch) for offset, epoch in (*snapshots, *committed) if 0 <= offset < first_offset}
    gone = {(offset, epoch) for offset, epoch in gone if epoch <= first_epoch}
    return [*records, *gone, *_first_and_last(survey.earlier_log(path[-1]).epochs)]


def _first_and_last(runs: Iterable[BranchEpoch]) -> list[RecordId]:
    return [(offset, run.epoch) for run in runs for offset in (run.from_offset, run.to_offset - 1)]


def _piece_ends(survey: Survey, path: Sequence[int], records: list[RecordId]) -> dict[int, int]:
    """By branch of a piece before the path, the offset up to which it is canonical."""
    start = survey.branches[path[0]].from_offset
    logs: dict[int, list[LogEnd]] = defaultdict(list)
    for end in tips(survey, path):
        root = survey.path(end.branch)[0]
        if root != path[0] and survey.branches[root].from_offset < start:
            logs[root].append(end)
    ends: dict[int, int] = {}
    for root in sorted(logs, key=lambda number: survey.branches[number].from_offset, reverse=True):
        known = _KnownRecords(records)
        judged = [_judged(survey, end, known, start) for end in logs[root]]
        best = max(judged, key=lambda piece: (piece.last_epoch, piece.to_offset))
        for number in survey.path(best.end.branch):
            branch = survey.branches[number]
            if branch.from_offset < best.to_offset:
                ends[number] = min(branch.to_offset, best.to_offset)
                start = min(start, branch.from_offset)
        records += [(min(run.to_offset, best.certain_to) - 1, run.epoch) for run in best.runs_to(best.certain_to)]
    return ends


@dataclass(frozen=True, slots=True)
class _Piece:
    """A log that begins before the canonical one, as far as it is canonical: surely, and where nothing contradicts."""

    end: LogEnd
    runs: Sequence[BranchEpoch]
    certain_to: int
    to_offset: int

    def runs_to(self, offset: int) -> list[BranchEpoch]:
        return [run for run in self.runs if run.from_offset < offset]

    @property
    def last_epoch(self) -> int:
        """Its last epoch that is canonical. Of pieces that parted the latest one counts, as among logs."""
        return max((run.epoch for run in self.runs_to(self.to_offset)), default=-1)


def _judged(survey: Survey, end: LogEnd, known: _KnownRecords, start: int) -> _Piece:
    """How far a log is canonical, at most up to `start`, beside the records that the canonical log is known to have.

    Where one contradicts it before `start`, only what another one confirms counts: nothing says where it left the
    canonical log.
    """
    runs = survey.epochs_to(end.branch, end.end_offset)
    limit = min(start, end.end_offset)
    certain = max((known.confirmed_to(run) for run in runs), default=0)
    contradicted = min((known.contradicted_from(run) for run in runs), default=0)
    return _Piece(end, runs, min(certain, limit), limit if contradicted >= limit else min(certain, limit))


class _KnownRecords:
    """Records that are known to be on the canonical log, and what they say of other logs."""

    def __init__(self, records: Iterable[RecordId]) -> None:
        by_epoch = sorted((epoch, offset) for offset, epoch in records)
        self._epochs = [epoch for epoch, _ in by_epoch]
        self._offsets = [offset for _, offset in by_epoch]
        self._last_before = list(accumulate(self._offsets, max, initial=-1))
        self._first_after = list(accumulate(reversed(self._offsets), min, initial=_NO_OFFSET))[::-1]

    def confirmed_to(self, run: BranchEpoch) -> int:
        """The offset up to which a run of one epoch is on the canonical log, 0 where no record of that epoch says so.

        An epoch has one leader, which only appends: what it wrote before a canonical record of its own is canonical.
        """
        place = bisect_right(self._epochs, run.epoch) - 1
        if place < 0 or self._epochs[place] != run.epoch or self._offsets[place] < run.from_offset:
            return 0
        return min(run.to_offset, self._offsets[place] + 1)

    def contradicted_from(self, run: BranchEpoch) -> int:
        """The first offset of a run where the canonical log has another epoch: epochs never decrease along a log."""
        if self._last_before[bisect_left(self._epochs, run.epoch)] >= run.from_offset:
            return run.from_offset
        following = self._first_after[bisect_right(self._epochs, run.epoch)]
        return max(run.from_offset, following) if following < run.to_offset else _NO_OFFSET
