"""The driver of a replay: snapshots and windows of one branch of the log go in, rows come out step by step.

A replay begins with the log, or at the end of the snapshot that the log continues from. After records that no replica
holds it goes on with the state it has, as they may matter little, up to the next snapshot: a new span begins there.
Whoever wants to see everything, as rules do, is a `ReplayFold` that the driver feeds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordColumns, RecordWindow, between, end_of
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import BranchEpoch, Survey, SurveyedSnapshot
from kraft_audit.quorum.quorum_tables import quorum_rows
from kraft_audit.quorum.rounds import ProvenRound, newest_canonical, proven_rounds
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.cluster_replay import REPLAY_TABLES, ClusterReplay, TableBatch, drain
from kraft_audit.text.watched_work import doing

END: Final = sys.maxsize
"""An offset after every log's end."""


@dataclass(slots=True)
class UndecodedRecords:
    """How many of the replayed records in [from_offset, to_offset) could not be decoded, and where the first is.

    A batch that cannot be decoded as a whole counts once.
    """

    from_offset: int = 0
    to_offset: int = END
    first_offset: int | None = None
    count: int = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Counts those of some offsets that lie in the range."""
        offsets = offsets[(offsets >= self.from_offset) & (offsets < self.to_offset)]
        if len(offsets):
            first = int(offsets.min())
            self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
            self.count += len(offsets)


@dataclass(frozen=True)
class BranchLog:
    """The log along the path to a branch (`Survey.path`), None for an empty one. `tables` are those to replay.

    `beyond`: the snapshot that a copy holds after the end of its log, or instead of a log.
    """

    reading: ClusterReading
    branch: int | None
    tables: frozenset[str] = field(default=REPLAY_TABLES)
    beyond: SurveyedSnapshot | None = None

    @property
    def plan(self) -> ClusterPlan:
        return self.reading.plan

    @property
    def survey(self) -> Survey:
        return self.reading.survey

    @property
    def epochs(self) -> list[BranchEpoch]:
        return self.survey.epochs_to(self.branch)

    @property
    def log_start(self) -> int:
        """The first offset that a log holds; 0 where none holds any."""
        epochs = self.epochs
        return epochs[0].from_offset if epochs else 0

    @property
    def end_offset(self) -> int:
        """Where the log ends, or the snapshot that stands beyond its end."""
        ends = [epoch.to_offset for epoch in self.epochs[-1:]]
        return max([0, *ends, *([] if self.beyond is None else [self.beyond.end_offset])])

    def gaps(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """The offsets in [from_offset, to_offset) that no replica holds, as [from, to)."""
        gaps = self.survey.gaps_to(self.branch, from_offset, to_offset)
        if self.beyond is not None and self.branch is not None:
            gap = max(self.epochs[-1].to_offset, from_offset), min(self.beyond.end_offset, to_offset)
            gaps += [gap] if gap[0] < gap[1] else []
        return gaps

    def windows(self, from_offset: int, to_offset: int | None) -> Iterator[RecordWindow]:
        """The records, window by window."""
        return self.reading.windows(self.survey.path(self.branch), from_offset, to_offset)

    def snapshot_records(self, snapshot: SurveyedSnapshot, undecoded: UndecodedRecords) -> Iterator[RecordColumns]:
        """The records of a snapshot by windows; those that cannot be decoded count as of its last offset."""
        for window in self.reading.snapshot(snapshot.source):
            undecoded.add(np.full(len(window.undecoded), snapshot.end_offset - 1))
            yield window.records

    def usable_snapshots(self, to_offset: int, time_ms: int | None = None) -> list[SurveyedSnapshot]:
        """The complete snapshots that end at or below an offset and were taken by a time, ascending."""
        epochs = self.epochs
        usable = [
            snapshot
            for snapshot in self.survey.complete_snapshots
            if snapshot.end_offset <= to_offset
            and (snapshot is self.beyond or _is_on_branch(snapshot, epochs))
            and (time_ms is None or (snapshot.timestamp_ms is not None and snapshot.timestamp_ms <= time_ms))
        ]
        return sorted(usable, key=lambda snapshot: (snapshot.end_offset, snapshot.epoch, snapshot.source))

    def new_replay(self, *, emit_from_offset: int = 0) -> ClusterReplay:
        """A replay that has seen nothing yet."""
        plan = self.plan
        return ClusterReplay(
            cluster_id=plan.cluster_id,
            plan=plan.number,
            tables=self.tables,
            defaults=dict(plan.defaults),
            emit_from_offset=emit_from_offset,
        )


def _is_on_branch(snapshot: SurveyedSnapshot, epochs: Sequence[BranchEpoch]) -> bool:
    last = snapshot.end_offset - 1
    known = [run.epoch for run in epochs if run.from_offset <= last < run.to_offset]
    if known or not epochs or last < epochs[0].from_offset:
        return snapshot.epoch in known if known else True
    # The last record of the snapshot lies in a gap.
    before = [run.epoch for run in epochs if run.to_offset <= last]
    after = [run.epoch for run in epochs if run.from_offset > last]
    return bool(after) and max(before) <= snapshot.epoch <= min(after)


@dataclass(frozen=True, slots=True)
class ReplayBeginning:
    """Where a replay began: as the columns of `replays` say it."""

    started_at: int
    log_start: int
    snapshot: str | None
    is_complete: bool


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """Where a replay starts and where the log ends.

    `log_start`: the first offset that a log holds. `snapshot`: the snapshot that the replay starts from, None for the
    log's start; it may end before the log starts, where no snapshot reaches it.
    """

    from_offset: int
    end_offset: int
    log_start: int
    snapshot: SurveyedSnapshot | None

    @property
    def beginning(self) -> ReplayBeginning:
        """The same as the columns of `replays` say it."""
        source = None if self.snapshot is None else self.snapshot.source
        return ReplayBeginning(self.from_offset, self.log_start, source, self.is_complete)

    @property
    def is_complete(self) -> bool:
        return self.log_start == 0 or (self.snapshot is not None and self.snapshot.end_offset >= self.log_start)


def first_snapshot(survey: Survey, log_start: int, *, has_log: bool) -> SurveyedSnapshot | None:
    """The complete snapshot that the log continues from; the newest where there is none, or no log."""
    if has_log and log_start == 0:
        return None
    usable = [snapshot for snapshot in survey.complete_snapshots if snapshot.end_offset >= log_start]
    if has_log and usable:
        return min(usable, key=lambda snapshot: snapshot.end_offset)
    return max(survey.complete_snapshots, key=lambda snapshot: (snapshot.end_offset, snapshot.epoch), default=None)


def snapshot_beyond(survey: Survey, replicas: Iterable[int]) -> SurveyedSnapshot | None:
    """The newest snapshot of some replicas, where none of their logs reaches it: Kafka would start from it.

    So it is where segments are missing, or log and snapshot were copied at two moments.
    """
    mine = set(replicas)
    held = [known for known in survey.complete_snapshots if mine.intersection(known.replicas)]
    newest = max(held, key=lambda snapshot: (snapshot.end_offset, snapshot.epoch), default=None)
    ends = [survey.ends[number] for number in mine]
    if newest is None or any(end.end_offset >= newest.end_offset or end.last_epoch > newest.epoch for end in ends):
        return None
    return newest


def branch_start(log: BranchLog) -> ReplayStart:
    """Where the replay of a whole branch begins: the log's start, or the end of the snapshot that it continues from.

    Cleaning deletes whole segments (KafkaRaftLog, Kafka 4.3.0), so a cleaned log mostly begins below that end.
    """
    epochs, end = log.epochs, log.end_offset
    if not epochs:
        return ReplayStart(end, end, 0, log.beyond)
    log_start = epochs[0].from_offset
    usable = log.usable_snapshots(end if log_start else 0)
    newest = usable[-1] if usable else None
    snapshot = next((known for known in usable if known.end_offset >= log_start), newest)
    return ReplayStart(log_start if snapshot is None else snapshot.end_offset, end, log_start, snapshot)


@dataclass(frozen=True, slots=True)
class ReplaySpan:
    """Offsets [from_offset, to_offset) of a branch that are replayed in one go, from `snapshot` where there is one.

    `to_offset` is None where it reaches the branch's end. `gap_start`: where the gap before the span begins.
    `emits_to`: records at this offset and after are left to the next span, whose snapshot stands there.
    """

    from_offset: int
    to_offset: int | None
    snapshot: SurveyedSnapshot | None
    gap_start: int | None = None
    emits_to: int | None = None


def replay_spans(log: BranchLog, start: ReplayStart, to_offset: int | None) -> list[ReplaySpan]:
    """The spans of a replay from its start on, in order."""
    end = log.end_offset or start.from_offset
    end = end if to_offset is None else min(end, to_offset)
    gaps = log.gaps(start.from_offset, end)
    usable = log.usable_snapshots(end) if gaps else []
    spans = [ReplaySpan(start.from_offset, to_offset, start.snapshot)]
    for gap_start, gap_end in gaps:
        following = next((later for later in usable if later.end_offset >= gap_end), None)
        if following is not None and spans[-1].from_offset < following.end_offset:
            spans[-1] = replace(spans[-1], to_offset=following.end_offset, emits_to=following.end_offset - 1)
            spans.append(ReplaySpan(following.end_offset, to_offset, following, gap_start))
    return spans


class ReplayFold(Protocol):
    """Sees a whole replay, from the earliest record that is held to the end of the canonical log."""

    def surveyed(self, survey: Survey, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """The survey, and the rows of `watermarks`, `voter_sets` and `leader_epochs`."""

    def begins(self, log: BranchLog, start: ReplayStart, windows: Sequence[RecordColumns]) -> None:
        """The canonical log, where its replay starts, and the records of the snapshot that it starts from."""

    def take_rows(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows of a `*_changes` table."""

    def replayed(self, window: RecordWindow) -> None:
        """A window of the canonical log, its rows given before."""

    def ended(self, replay: ClusterReplay) -> None:
        """The end of the canonical log."""


class ReplayDriver:
    """One replay of a log from a start; `fold` sees all of it.

    `split_at`: the replay has got all records before this offset when it gets the first one after it. `emitted_to`:
    rows before this offset are those of earlier plans. `undecoded` counts what cannot be decoded.
    """

    def __init__(
        self,
        log: BranchLog,
        start: ReplayStart,
        *,
        to_offset: int | None = None,
        fold: ReplayFold | None = None,
        split_at: int = END,
        emitted_to: int = 0,
        undecoded: UndecodedRecords | None = None,
    ) -> None:
        self.spans = replay_spans(log, start, to_offset)
        self.replay = log.new_replay()
        self._log = log
        self._start = start
        self._fold = fold
        self._split_at = split_at
        self._emitted_to = emitted_to
        self._undecoded = UndecodedRecords() if undecoded is None else undecoded

    def steps(self) -> Iterator[tuple[Iterator[TableBatch], bool]]:
        """The rows of each step, to be taken before the next one, and whether they come after the split.

        The rows of the last step are those of an operation whose last record may be missing: they do, too.
        """
        if self._fold is not None and self._start.snapshot is None:
            self._fold.begins(self._log, self._start, [])
        for rows, is_after_split in self._steps():
            yield rows if self._fold is None else self._shown(rows, self._fold), is_after_split
        if self._fold is not None:
            self._fold.ended(self.replay)

    def _shown(self, rows: Iterator[TableBatch], fold: ReplayFold) -> Iterator[TableBatch]:
        for name, batch in rows:
            fold.take_rows(name, batch)
            yield name, batch
        # Only the fold gets these: in the tables what was there before a gap ends with it, whichever plan had it.
        for name, batch in self.replay.take_removed():
            fold.take_rows(name, batch)

    def _steps(self) -> Iterator[tuple[Iterator[TableBatch], bool]]:
        split_at = self._split_at
        is_split = self._start.from_offset >= split_at
        for number, span in enumerate(self.spans):
            if span.snapshot is not None:
                is_split = is_split or (number > 0 and span.from_offset > split_at)
                yield self._loaded(span, span.snapshot), is_split and number > 0
            for window in self._log.windows(span.from_offset, span.to_offset):
                doing(f"replaying offset {window.from_offset} of {self._start.end_offset}")
                self._undecoded.add(window.undecoded)
                records, end = between(window.records, None, span.emits_to), end_of(window.records, window.to_offset)
                # A next span that begins at the split or before has its snapshot's rows below it.
                reaches_split = end >= split_at and (span.to_offset is None or span.to_offset > split_at)
                if reaches_split and not is_split:
                    yield self.replay.replay(between(records, None, split_at), split_at), False
                    records, is_split = between(records, split_at, None), True
                yield self.replay.replay(records, end), is_split
                if self._fold is not None:
                    self._fold.replayed(window)
            yield self.replay.finish(), is_split or span is self.spans[-1]

    def _loaded(self, span: ReplaySpan, snapshot: SurveyedSnapshot) -> Iterator[TableBatch]:
        """The state of the snapshot that the replay begins with, or goes on from after a gap."""
        windows: Iterable[RecordColumns] = self._log.snapshot_records(snapshot, self._undecoded)
        is_after_gap = span.gap_start is not None
        if self._fold is not None and not is_after_gap:
            windows = list(windows)
            self._fold.begins(self._log, self._start, windows)
        return self.replay.load_snapshot(
            windows,
            end_offset=span.from_offset,
            epoch=snapshot.epoch,
            timestamp_ms=snapshot.timestamp_ms or 0,
            is_after_gap=is_after_gap,
            is_every_exposure=is_after_gap or 0 < self._emitted_to < span.from_offset,
        )


def replay_branch(log: BranchLog, *, to_offset: int | None = None) -> Iterator[TableBatch]:
    """The rows of every wanted `*_changes` table along a branch."""
    driver = ReplayDriver(log, branch_start(log), to_offset=to_offset)
    for rows, _ in driver.steps():
        yield from rows
        yield from driver.replay.take_removed()


@dataclass(frozen=True, slots=True)
class CapturedRounds:
    """What the captures of a whole plan show: `rounds` in time, and the newest of them that has a canonical log."""

    rounds: Sequence[ProvenRound]
    newest: ProvenRound | None
    log: BranchLog

    @classmethod
    def of(cls, reading: ClusterReading, tables: frozenset[str] = REPLAY_TABLES) -> Self:
        """What earlier plans proved is evidence where the disks prove less by now."""
        survey, plan = reading.survey, reading.plan
        rounds, known = proven_rounds(survey, plan), plan.silver
        if known is not None and rounds and max(bounds.interval.low for bounds in rounds) < known.low:
            rounds = proven_rounds(survey, plan, earlier_low=(known.low, known.low_epoch))
        newest = newest_canonical(rounds)
        canonical = None if newest is None else newest.interval.canonical
        return cls(rounds, newest, BranchLog(reading, None if canonical is None else canonical.number, tables))

    def quorum_rows(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of `watermarks`, `voter_sets` and `leader_epochs`."""
        return quorum_rows(self.log.survey, self.log.plan, self.rounds)

    def start(self) -> ReplayStart:
        """The earliest start that there is."""
        log_start = self.log.log_start
        canonical = None if self.newest is None else self.newest.interval.canonical
        snapshot = first_snapshot(self.log.survey, log_start, has_log=canonical is not None)
        from_offset = log_start if snapshot is None else snapshot.end_offset
        return ReplayStart(from_offset, 0 if canonical is None else canonical.end[1], log_start, snapshot)

    @property
    def to_offset(self) -> int | None:
        """Where a replay ends; None: where the log does.

        What a log of earlier rounds got until the last ones, which have no canonical log, is on none either.
        """
        if self.newest is None or self.newest is self.rounds[-1] or self.newest.interval.canonical is None:
            return None
        return self.newest.interval.canonical.end[1]


def replay_canonical(reading: ClusterReading, fold: ReplayFold) -> None:
    """Shows a fold the canonical log of a whole plan, from the earliest record that is held."""
    canonical = CapturedRounds.of(reading)
    fold.surveyed(reading.survey, canonical.quorum_rows())
    driver = ReplayDriver(canonical.log, canonical.start(), to_offset=canonical.to_offset, fold=fold)
    for rows, _ in driver.steps():
        drain(rows)
