"""Where a plan goes on with the silver tables: what closed plans told, and how much of it still holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kraft_audit.replay.evidence import majority
from kraft_audit.replay.plan import ClusterPlan, SilverPosition
from kraft_audit.replay.rounds import RoundInterval
from kraft_audit.replay.survey import Survey, SurveyedSnapshot

Epochs = Sequence[tuple[int, int]]
NOTHING = SilverPosition(0, 0, 0, -1, 0)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay starts and where the canonical log ends. `log_start` is the first offset that a log holds."""

    from_offset: int
    end_offset: int
    log_start: int
    path: tuple[int, ...]
    snapshot: SurveyedSnapshot | None

    @property
    def is_complete(self) -> bool:
        return self.snapshot is not None or self.log_start == 0

    def holes(self, shape: Survey, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """The offsets in [from_offset, to_offset) that the replay passes and nobody holds, as [from, to)."""
        return shape.holes_to(self.path[-1] if self.path else None, from_offset, to_offset)


@dataclass(frozen=True, slots=True)
class Resume:
    """What one plan tells: rows from `from_offset` on, up to `limit` or what is settled there.

    `limit` is None, and `why_nothing` says why, where there is no canonical log. `epochs` are (epoch, end offset) of
    the log that is replayed, from `low` on. `contradicted_from` is where it parts from the one of earlier plans.
    `is_anew`: all that the disks still tell is told again, from their first state on.
    """

    before: SilverPosition | None
    from_offset: int
    limit: int | None
    low: int
    low_epoch: int
    goes_beyond_low: bool
    epochs: tuple[tuple[int, int], ...]
    contradicted_from: int | None
    why_nothing: str | None
    is_anew: bool = False

    @property
    def tells(self) -> bool:
        return self.limit is not None

    def row(self, start: Start, settled: int, gaps: Sequence[tuple[int, int]], *, is_whole: bool) -> dict[str, Any]:
        """The row of `replays`. `settled`: everything below has been told for good. `is_whole`: none is missing.

        `gaps` [from, to) are those behind which the replay went on from a snapshot.
        """
        before = self.before or NOTHING
        if self.limit is None:
            settled, to_offset, from_offset = before.settled_offset, before.to_offset, before.to_offset
        else:
            to_offset = self.limit if self.goes_beyond_low else settled
            settled = min(settled, to_offset)
            from_offset = min(self.from_offset, settled)
        passed = [gap for gap in gaps if self.from_offset < gap[1] <= to_offset and self.limit is not None]
        is_behind = self.before is not None and self.limit is not None and start.from_offset > self.from_offset
        if is_behind and not self.is_anew:
            passed.insert(0, (self.from_offset, start.from_offset))
        # What was known before ends where everything is told again last.
        gap_from, gap_to = passed[-1] if passed else (None, None)
        return {
            "from_offset": from_offset,
            "settled_offset": settled,
            "to_offset": to_offset,
            "low": self.low,
            "low_epoch": self.low_epoch,
            "goes_beyond_low": self.goes_beyond_low,
            "began_at": start.from_offset if self.before is None else min(before.began_at, start.from_offset),
            "started_at": start.from_offset,
            "log_start_offset": start.log_start,
            "snapshot": None if start.snapshot is None else start.snapshot.source,
            "is_complete": start.is_complete and is_whole,
            "gap_from_offset": gap_from,
            "gap_to_offset": gap_to,
            "contradicted_from": self.contradicted_from,
            "why_nothing": self.why_nothing,
            "epochs": [{"epoch": epoch, "to_offset": end} for epoch, end in self.epochs],
        }


def resume_of(plan: ClusterPlan, shape: Survey, newest: RoundInterval | None) -> Resume:
    """Compares what the captures show now with what closed plans told."""
    before = plan.silver
    known = before or NOTHING
    if newest is None or newest.interval.canonical is None:
        return _without_canonical(shape, before)
    interval = newest.interval
    canonical, voters = newest.interval.canonical, interval.voters
    end = canonical.end[1]
    is_majority = voters is not None and len(interval.captured_voters) >= majority(len(voters.voters))
    low, low_epoch = max((interval.low, interval.low_epoch), (known.low, known.low_epoch))
    runs = shape.epochs_to(canonical.number)
    held = [(one.epoch, one.to_offset) for one in runs]
    log_start = runs[0].from_offset if runs else 0
    limit = min(interval.low, end) if is_majority else end
    parted = _parting(known, held, log_start)
    from_offset = min(known.settled_offset, parted if parted is not None else known.settled_offset)
    anew_from = _anew_from(plan, shape, log_start) if limit >= known.settled_offset else None
    if is_late := before is not None and log_start < before.began_at:
        from_offset = 0  # a disk that arrived late holds what nobody held before
    elif anew_from is not None:
        from_offset = min(from_offset, anew_from)
    return Resume(
        before,
        from_offset,
        limit,
        low,
        low_epoch,
        not is_majority,
        tuple(_between(held, low, limit)),
        parted,
        None,
        not is_late and from_offset == anew_from,
    )


def _anew_from(plan: ClusterPlan, shape: Survey, log_start: int) -> int | None:
    """Where the first state stands that the disks tell, if partitions were told of with another default min ISR.

    What exposes a partition is told where it begins and where it ends: one default must tell both.
    """
    if plan.silver is None or plan.silver.default_min_isr in (None, plan.default_min_isr):
        return None
    if log_start == 0:
        return 0
    first = first_snapshot(shape, log_start, has_log=True)
    return None if first is None else first.end_offset - 1


def first_snapshot(shape: Survey, log_start: int, *, has_log: bool) -> SurveyedSnapshot | None:
    """The snapshot that the log goes on from; without a log the newest one there is. A part of a state is no state."""
    real = [snapshot for snapshot in shape.snapshots if snapshot.end_offset > 0 and snapshot.replicas]
    if not has_log:
        return max(real, key=lambda one: (one.end_offset, one.epoch), default=None)
    if log_start == 0:
        return None
    return min((one for one in real if one.end_offset >= log_start), key=lambda one: one.end_offset, default=None)


def _without_canonical(shape: Survey, before: SilverPosition | None) -> Resume:
    known = before or NOTHING
    low = max(((one.end_offset, one.epoch) for one in shape.snapshots if one.replicas), default=(0, -1))
    if not shape.branches and low[0] > known.settled_offset:
        # Snapshots alone: what they contain is committed.
        return Resume(before, known.settled_offset, low[0], *low, False, (), None, None)
    nothing = "neither a log nor a complete snapshot behind what was told was captured"
    why = nothing if not shape.branches else "the logs that were captured contradict each other"
    return Resume(before, known.to_offset, None, known.low, known.low_epoch, False, known.epochs, None, why)


def _between(held: Epochs, low: int, limit: int) -> Iterator[tuple[int, int]]:
    """The epochs that reach past `low`, cut at `limit`."""
    start = 0
    for epoch, to_offset in held:
        if min(to_offset, limit) > max(start, low):
            yield epoch, min(to_offset, limit)
        start = to_offset


def _parting(known: SilverPosition, held: Epochs, log_start: int) -> int | None:
    """The first told offset at which the log is of another epoch than it was; None where nobody says otherwise.

    Equal epochs at an offset are equal records (Raft's log matching).
    """
    start = known.low
    for epoch, to_offset in known.epochs:
        offset = max(start, log_start)
        while offset < min(to_offset, known.to_offset):
            now = next(((e, stop) for e, stop in held if stop > offset), None)
            if now is None or now[0] != epoch:
                return offset if now is not None else None
            offset = now[1]
        start = to_offset
    return None
