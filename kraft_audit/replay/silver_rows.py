"""The silver tables of one plan: what the canonical log says from where earlier plans left off.

Where a majority of the voters was captured, rows go to what is settled below `low`: whole transactions, whole
operations. Elsewhere they go to the end of the canonical log, unproven. A later plan whose canonical log is another one
from some offset on replaces that suffix; its row of `replays` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.quorum.rounds import ProvenRound
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.cluster_replay import REPLAY_TABLES, TableBatch
from kraft_audit.replay.driver import (
    CapturedRounds,
    ReplayBeginning,
    ReplayDriver,
    ReplayFold,
    UndecodedRecords,
    first_snapshot,
)
from kraft_audit.tables.contract import silver_batch
from kraft_audit.tables.silver import REPLAYS, SILVER, WATERMARKS

SILVER_TABLES: Final = frozenset(SILVER)
NO_POSITION: Final = SilverPosition(0, 0, 0, -1, 0)
Epochs = Sequence[tuple[int, int]]


def silver(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str] = SILVER_TABLES,
    *,
    fold: ReplayFold | None = None,
    lists_all: bool = True,
) -> Iterator[TableBatch]:
    """The rows of the silver tables in `tables` that `plan` adds to those of earlier plans.

    `reading` is that of the whole plan. With a fold the replay starts at the earliest record there is, else at the
    newest usable snapshot at or below `plan.silver`; the rows are the same. Epochs and voter sets are as they are seen
    now, all of them; none where `lists_all` is false, and `replays` says so.
    """
    canonical = CapturedRounds.of(reading, REPLAY_TABLES if fold is not None else tables & REPLAY_TABLES)
    small = canonical.quorum_rows()
    if fold is not None:
        fold.surveyed(reading.survey, small)
    if fold is not None or tables & (REPLAY_TABLES | {REPLAYS.name}):
        yield from _replayed(canonical, tables, fold, lists_all=lists_all)
    # Rounds that the plan adds.
    added = {(replica.capture_number, replica.capture) for replica in plan.replicas}
    small["watermarks"] = [row for row in small["watermarks"] if (row["capture_number"], row["capture"]) in added]
    listed = tables if lists_all else tables & {WATERMARKS.name}
    for name, rows in small.items():
        if name in listed and rows:
            yield name, silver_batch(SILVER[name], reading.plan.cluster_id, reading.plan.number, rows)


def _replayed(
    canonical: CapturedRounds, tables: frozenset[str], fold: ReplayFold | None, *, lists_all: bool
) -> Iterator[TableBatch]:
    log = canonical.log
    resume = resume_point(log.plan, log.survey, canonical.newest)
    start = canonical.start()
    if fold is None and log.branch is not None and not resume.is_restart:
        usable = log.usable_snapshots(resume.from_offset)
        start = start if not usable else replace(start, from_offset=usable[-1].end_offset, snapshot=usable[-1])
    begun = start.beginning
    limit = start.from_offset if resume.limit is None else resume.limit
    undecoded = UndecodedRecords(resume.from_offset, max(limit, start.from_offset))
    driver = ReplayDriver(
        log,
        start,
        to_offset=canonical.to_offset,
        fold=fold,
        split_at=limit,
        emitted_to=resume.from_offset,
        undecoded=undecoded,
    )
    settled: int | None = None
    for rows, is_after_limit in driver.steps():
        if is_after_limit and settled is None:
            settled = driver.replay.settled_offset
        if is_after_limit and fold is None and not resume.goes_beyond_low:
            break
        to_offset = limit if resume.goes_beyond_low else settled
        for name, batch in rows:
            if name in tables and resume.limit is not None:
                added = _rows_between(batch, resume.from_offset, to_offset)
                if added.num_rows:
                    yield name, added
    if REPLAYS.name in tables:
        settled = driver.replay.settled_offset if settled is None else settled
        is_whole = not undecoded and not log.gaps(max(begun.started_at, resume.from_offset), limit)
        gaps = [
            (s.gap_start, s.from_offset) for s in driver.spans if s.gap_start is not None and s.from_offset <= limit
        ]
        row = {**resume.row(begun, settled, gaps, is_whole=is_whole), "lists_all": lists_all}
        yield REPLAYS.name, silver_batch(REPLAYS, log.plan.cluster_id, log.plan.number, [row])


def _rows_between(batch: pa.RecordBatch, from_offset: int, to_offset: int | None) -> pa.RecordBatch:
    offsets = batch.column("from_offset")
    is_between = pc.greater_equal(offsets, from_offset)
    if to_offset is not None:
        is_between = pc.and_(is_between, pc.less(offsets, to_offset))
    return batch if pc.all(is_between).as_py() else batch.filter(is_between)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Which rows a plan writes: from `from_offset` on, up to `limit` or to what is settled there.

    `limit` is None, and `why_nothing` says why, where there is no canonical log. `epochs` are (epoch, end offset) of
    the replayed log from `low` on. `contradicted_from`: the first offset at which it differs from the log that earlier
    plans replayed. `is_restart`: all rows are written again, from the first state that the disks still have.
    """

    before: SilverPosition | None
    from_offset: int
    limit: int | None
    low: int
    low_epoch: int
    goes_beyond_low: bool
    epochs: tuple[tuple[int, int], ...]
    contradicted_from: int | None = None
    why_nothing: str | None = None
    is_restart: bool = False

    def row(
        self, begun: ReplayBeginning, settled: int, gaps: Sequence[tuple[int, int]], *, is_whole: bool
    ) -> dict[str, Any]:
        """The row of `replays`.

        `settled`: rows below are final. `is_whole`: no record was missing or undecodable. `gaps` [from, to) are those
        after which the replay continued from a snapshot.
        """
        before = self.before or NO_POSITION
        if self.limit is None:
            settled, to_offset, from_offset = before.settled_offset, before.to_offset, before.to_offset
        else:
            to_offset = self.limit if self.goes_beyond_low else settled
            settled = min(settled, to_offset)
            from_offset = min(self.from_offset, settled)
        passed = [gap for gap in gaps if self.from_offset < gap[1] <= to_offset and self.limit is not None]
        is_cut_off = self.before is not None and self.limit is not None and begun.started_at > self.from_offset
        if is_cut_off and not self.is_restart:
            passed = [gap for gap in passed if gap[1] > begun.started_at]
            passed.insert(0, (self.from_offset, begun.started_at))
        # Subjects of earlier rows end at the last gap: after it a snapshot gives the state of everything.
        gap_from, gap_to = passed[-1] if passed else (None, None)
        return {
            "from_offset": from_offset,
            "settled_offset": settled,
            "to_offset": to_offset,
            "low": self.low,
            "low_epoch": self.low_epoch,
            "goes_beyond_low": self.goes_beyond_low,
            "began_at": begun.started_at if self.before is None else min(before.began_at, begun.started_at),
            "started_at": begun.started_at,
            "log_start_offset": begun.log_start,
            "snapshot": begun.snapshot,
            "is_complete": begun.is_complete and is_whole,
            "gap_from_offset": gap_from,
            "gap_to_offset": gap_to,
            "contradicted_from": self.contradicted_from,
            "why_nothing": self.why_nothing,
            "epochs": [{"epoch": epoch, "to_offset": end} for epoch, end in self.epochs],
        }


def resume_point(plan: ClusterPlan, survey: Survey, newest: ProvenRound | None) -> ResumePoint:
    """Compares what the captures show now with what closed plans wrote.

    `newest` is the newest round with a canonical log, None where there is none.
    """
    before = plan.silver
    known = before or NO_POSITION
    if newest is None or newest.interval.canonical is None:
        return _without_canonical(survey, before)
    interval, canonical, voters = newest.interval, newest.interval.canonical, newest.interval.voters
    end = canonical.end[1]
    is_majority = voters is not None and len(interval.captured_voters) >= majority(len(voters.voters))
    # What later plans hold the disks to had reached disks, and not a page cache alone.
    low, low_epoch = max((interval.held_low, interval.held_low_epoch), (known.low, known.low_epoch))
    runs = survey.epochs_to(canonical.number)
    held = [(run.epoch, run.to_offset) for run in runs]
    log_start = runs[0].from_offset if runs else 0
    limit = min(interval.low, end) if is_majority else end
    parted = _parting_offset(known, held, log_start)
    from_offset = min(known.settled_offset, parted if parted is not None else known.settled_offset)
    restart_from = _restart_offset(plan, survey, log_start) if limit >= known.settled_offset else None
    if is_late := before is not None and log_start < before.began_at:
        from_offset = 0  # a disk that arrived late holds records that no replica held before
    elif restart_from is not None:
        from_offset = min(from_offset, restart_from)
    return ResumePoint(
        before=before,
        from_offset=from_offset,
        limit=limit,
        low=low,
        low_epoch=low_epoch,
        goes_beyond_low=not is_majority,
        epochs=tuple(_clipped_epochs(held, low, limit)),
        contradicted_from=parted,
        is_restart=not is_late and from_offset == restart_from,
    )


def _restart_offset(plan: ClusterPlan, survey: Survey, log_start: int) -> int | None:
    """The offset of the first state on the disks, where earlier rows used another default of min.insync.replicas.

    A partition's exposure has a row where it begins and one where it ends: both need the same default.
    """
    if plan.silver is None or plan.silver.default_min_isr in (None, plan.default_min_isr):
        return None
    if log_start == 0:
        return 0
    first = first_snapshot(survey, log_start, has_log=True)
    return None if first is None else first.end_offset - 1


def _without_canonical(survey: Survey, before: SilverPosition | None) -> ResumePoint:
    known = before or NO_POSITION
    low = max(((snapshot.end_offset, snapshot.epoch) for snapshot in survey.complete_snapshots), default=(0, -1))
    if not survey.branches and low[0] > known.settled_offset:
        # Only snapshots were captured: what they contain is committed.
        return ResumePoint(before, known.settled_offset, low[0], *low, goes_beyond_low=False, epochs=())
    nothing = "no log was captured, and no complete snapshot of more than the rows that are there"
    why = nothing if not survey.branches else "the logs that were captured contradict each other"
    return ResumePoint(
        before,
        known.to_offset,
        None,
        known.low,
        known.low_epoch,
        goes_beyond_low=False,
        epochs=known.epochs,
        why_nothing=why,
    )


def _clipped_epochs(held: Epochs, low: int, limit: int) -> Iterator[tuple[int, int]]:
    """The epochs that reach past `low`, cut at `limit`."""
    start = 0
    for epoch, to_offset in held:
        if min(to_offset, limit) > max(start, low):
            yield epoch, min(to_offset, limit)
        start = to_offset


def _parting_offset(known: SilverPosition, held: Epochs, log_start: int) -> int | None:
    """The first offset at which the log has another epoch than the log of earlier plans; None where it has none.

    Equal epochs at an offset mean equal records (log matching, Raft section 5.3).
    """
    start = known.low
    for epoch, to_offset in known.epochs:
        offset = max(start, log_start)
        while offset < min(to_offset, known.to_offset):
            now = next(((held_epoch, end) for held_epoch, end in held if end > offset), None)
            if now is None or now[0] != epoch:
                return offset if now is not None else None
            offset = now[1]
        start = to_offset
    return None
