"""The silver tables of one plan: what the canonical log tells from where earlier plans left off.

Where a majority of the voters was captured, rows go to what is settled below `low`: whole transactions, whole
operations. Elsewhere they go to the end of the canonical log, unproven. A later plan whose canonical log is another one
from some offset on tells that suffix anew; its row of `replays` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.records import RecordColumns, between, end_of
from kraft_audit.replay.replay import REPLAY_TABLES, ClusterReplay
from kraft_audit.replay.resume import Resume, Start, first_snapshot, resume_of
from kraft_audit.replay.rounds import RoundInterval, committed_intervals, quorum_rows
from kraft_audit.replay.state import Sources, Stretch, Undecoded, snapshot_batches, stretches, usable_snapshots
from kraft_audit.replay.survey import (
    RecordWindow,
    Survey,
    SurveyedSnapshot,
    canonical_windows,
    survey,
)
from kraft_audit.replay.tables import REPLAYS, SILVER, silver_batch
from kraft_codec.redaction import Redactor

TableRows = tuple[str, pa.RecordBatch]
SILVER_TABLES: Final = frozenset(SILVER)


class Observer(Protocol):
    """Sees the whole replay, from the earliest record that is held to the end of the canonical log."""

    def surveyed(self, shape: Survey, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """The shape of the log, and the rows of `watermarks`, `voter_sets` and `leader_epochs`."""

    def begins(self, start: Start, windows: Sequence[RecordColumns], shape: Survey) -> None:
        """Where the replay starts; the records of the snapshot that it starts from."""

    def told(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows of a `*_changes` table."""

    def replayed(self, window: RecordWindow) -> None:
        """A window of the canonical log, its rows told before."""

    def ended(self, replay: ClusterReplay) -> None:
        """The end of the canonical log."""


def silver(
    plan: ClusterPlan,
    tables: frozenset[str] = SILVER_TABLES,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    observer: Observer | None = None,
    shape: Survey | None = None,
) -> Iterator[TableRows]:
    """The rows of the silver tables in `tables` that `plan` adds to what plans before it told.

    With an observer the replay starts at the earliest record there is, else at the newest usable snapshot at or below
    `plan.silver`; the rows are the same. `shape` is the survey of
    the whole plan, where that has been made. Raises InputError where a storage can no longer be opened.
    """
    reading = _Silver(plan, tables, open_storage, redactor, observer, shape)
    yield from reading.rows()


class _Silver:
    def __init__(
        self,
        plan: ClusterPlan,
        tables: frozenset[str],
        open_storage: OpenStorage,
        redactor: Redactor,
        observer: Observer | None,
        shape: Survey | None,
    ) -> None:
        self.news = plan
        self.plan = plan.whole()
        self.tables = tables
        self.open_storage = open_storage
        self.redactor = redactor
        self.observer = observer
        self.shape = shape or survey(self.plan, open_storage=open_storage, redactor=redactor)
        self.intervals = _intervals(self.shape, self.plan)
        self.newest = newest_canonical(self.intervals)
        self.undecoded = Undecoded()

    def rows(self) -> Iterator[TableRows]:
        small = quorum_rows(self.shape, self.plan, self.intervals)
        if self.observer is not None:
            self.observer.surveyed(self.shape, small)
        resume = resume_of(self.plan, self.shape, self.newest)
        wanted = self.tables & (REPLAY_TABLES | {REPLAYS.name})
        if wanted or self.observer is not None:
            yield from self._replay(resume)
        yield from self._small(small)

    def _small(self, small: Mapping[str, list[dict[str, Any]]]) -> Iterator[TableRows]:
        """Rounds with news; epochs and voter sets as they are seen now, all of them."""
        news = {(replica.capture_number, replica.capture) for replica in self.news.replicas}
        kept = {**small, "watermarks": [one for one in small["watermarks"] if _round_of(one) in news]}
        for name, rows in kept.items():
            if name in self.tables and rows:
                yield name, silver_batch(SILVER[name], self.plan.cluster_id, self.plan.number, rows)

    def _replay(self, resume: Resume) -> Iterator[TableRows]:
        start = self._start(resume)
        replay = ClusterReplay(
            cluster_id=self.plan.cluster_id,
            plan=self.plan.number,
            tables=None if self.observer is not None else self.tables & REPLAY_TABLES,
            defaults=dict(self.plan.defaults),
        )
        limit = resume.limit if resume.limit is not None else start.from_offset
        ways = self._ways(start)
        settled: int | None = None
        for batches, is_beyond in self._told(replay, start, ways, limit, resume):
            if is_beyond and settled is None:
                settled = replay.settled_offset
            to_offset = limit if resume.goes_beyond_low else settled
            for name, batch in batches:
                if self.observer is not None:
                    self.observer.told(name, batch)
                kept = _rows_between(batch, resume.from_offset, to_offset) if resume.tells else batch.slice(0, 0)
                if kept.num_rows and name in self.tables:
                    yield name, kept
            if self.observer is not None:
                # In the tables what was there before a gap ends with the gap, whichever plan told of it.
                for name, batch in replay.take_gone():
                    self.observer.told(name, batch)
        if self.observer is not None:
            self.observer.ended(replay)
        if REPLAYS.name in self.tables:
            settled_offset = replay.settled_offset if settled is None else settled
            news_from = max(start.from_offset, resume.from_offset)
            is_whole = not self.undecoded and not start.holes(self.shape, news_from, limit)
            gaps = [
                (way.hole_start, way.from_offset)
                for way in ways
                if way.hole_start is not None and way.from_offset <= limit
            ]
            row = resume.row(start, settled_offset, gaps, is_whole=is_whole)
            yield REPLAYS.name, silver_batch(REPLAYS, self.plan.cluster_id, self.plan.number, [row])

    def _ways(self, start: Start) -> list[Stretch]:
        """What is replayed one after the other: behind records that nobody holds it goes on from a snapshot."""
        if not start.path:
            return [Stretch(start.from_offset, start.end_offset, start.snapshot)]
        branch = Sources(self.plan, self.shape, start.path[-1], self.open_storage, self.redactor)
        return stretches(branch, start.from_offset, start.snapshot)

    def _told(
        self, replay: ClusterReplay, start: Start, ways: Sequence[Stretch], limit: int, resume: Resume
    ) -> Iterator[tuple[Iterator[TableRows], bool]]:
        """What each part of the replay tells, and whether that part lies at or behind `limit`."""
        if start.snapshot is None and self.observer is not None:
            self.observer.begins(start, [], self.shape)
        passed = start.from_offset >= limit
        for way in ways:
            if way.snapshot is not None:
                is_first = way is ways[0]
                passed = passed or (not is_first and way.from_offset > limit)
                yield self._loaded(replay, start, way, way.snapshot, resume), passed and not is_first
            for window in self._windows(start, way):
                end = end_of(window.records, window.to_offset)
                is_news = (window.undecoded >= resume.from_offset) & (window.undecoded < limit)
                self.undecoded.add(window.undecoded[is_news])
                records = way.told(window.records)
                if not passed and end >= limit and not way.ends_by(limit):
                    yield replay.replay(between(records, None, limit), limit), False
                    records, passed = between(records, limit, None), True
                if end > limit or not passed:
                    yield replay.replay(records, end), passed
                if self.observer is not None:
                    self.observer.replayed(window)
                elif passed and not resume.goes_beyond_low:
                    return
            yield replay.finish(at_end=True), passed or way is ways[-1]

    def _loaded(
        self, replay: ClusterReplay, start: Start, way: Stretch, snapshot: SurveyedSnapshot, resume: Resume
    ) -> Iterator[TableRows]:
        """The state of the snapshot that the replay begins with, or goes on from."""
        branch = Sources(self.plan, self.shape, None, self.open_storage, self.redactor)
        is_news = way.from_offset > resume.from_offset
        windows: Any = snapshot_batches(branch, snapshot, self.undecoded if is_news else None)
        if self.observer is not None and way.hole_start is None:
            windows = list(windows)
            self.observer.begins(start, windows, self.shape)
        return replay.load_snapshot(
            windows,
            end_offset=way.from_offset,
            epoch=snapshot.epoch,
            timestamp_ms=snapshot.timestamp_ms or 0,
            is_behind_hole=way.hole_start is not None and self.observer is not None,
            is_every_exposure=way.hole_start is not None or 0 < resume.from_offset < way.from_offset,
        )

    def _windows(self, start: Start, way: Stretch) -> Iterator[RecordWindow]:
        if not start.path:
            return iter(())
        return canonical_windows(
            self.plan,
            start.path,
            open_storage=self.open_storage,
            redactor=self.redactor,
            shape=self.shape,
            from_offset=way.from_offset,
            to_offset=way.to_offset,
        )

    def _start(self, resume: Resume) -> Start:
        canonical = None if self.newest is None else self.newest.interval.canonical
        path = () if canonical is None else tuple(self.shape.path(canonical.number))
        log_start = self.shape.branches[path[0]].from_offset if path else 0
        end = 0 if canonical is None else canonical.end[1]
        snapshot = first_snapshot(self.shape, log_start, has_log=bool(path))
        if self.observer is None and canonical is not None and not resume.is_anew:
            branch = Sources(self.plan, self.shape, canonical.number, self.open_storage, self.redactor)
            usable = usable_snapshots(branch, resume.from_offset)
            snapshot = usable[-1] if usable else snapshot
        from_offset = log_start if snapshot is None else snapshot.end_offset
        return Start(from_offset, end, log_start, path, snapshot)


def newest_canonical(intervals: Sequence[RoundInterval]) -> RoundInterval | None:
    """The newest round that shows a canonical log."""
    return next((one for one in reversed(intervals) if one.interval.canonical), None)


def _intervals(shape: Survey, plan: ClusterPlan) -> list[RoundInterval]:
    """The intervals of the rounds; what earlier plans proved is evidence where the disks prove less by now."""
    intervals = committed_intervals(shape, plan)
    known = plan.silver
    if known is None or not intervals or max(one.interval.low for one in intervals) >= known.low:
        return intervals
    return committed_intervals(shape, plan, earlier_low=(known.low, known.low_epoch))


def _round_of(watermark: Mapping[str, Any]) -> tuple[int, str]:
    return watermark["capture_number"], watermark["capture"]


def _rows_between(batch: pa.RecordBatch, from_offset: int, to_offset: int | None) -> pa.RecordBatch:
    offsets = batch.column("from_offset")
    kept = pc.greater_equal(offsets, from_offset)
    if to_offset is not None:
        kept = pc.and_(kept, pc.less(offsets, to_offset))
    return batch if pc.all(kept).as_py() else batch.filter(kept)
