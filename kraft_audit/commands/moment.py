"""One cluster at one moment: the capture that was asked for, its canonical log, how far that is proven."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.ending import EXIT_UNREADABLE, UsageError, complain, remark
from kraft_audit.commands.reading import Input, redactor
from kraft_audit.times import is_time, time_text
from kraft_codec.errors import ChoiceError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kraft_audit.replay.plan import ClusterPlan
    from kraft_audit.replay.rounds import RoundInterval
    from kraft_audit.replay.state import ClusterState, Sources

COMMITTED: Final = "committed"
SURELY_A_TIME: Final = 10**12
"""An offset of so many digits is milliseconds since 1970, of 2001 or later, pasted from a column of times."""
_OFFSET: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster as of a capture. `end_offset` is the end of its canonical log, `low` how far that is proven."""

    plan: ClusterPlan
    sources: Sources
    capture: str
    other_captures: tuple[str, ...]
    end_offset: int
    low: int
    low_epoch: int

    def proof_text(self, offset: int) -> str:
        """How far the state as after `offset` is proven, in one line."""
        upto = f"proven to offset {self.low} of {self.end_offset}"
        if offset < self.low:
            return upto
        return f"{upto}: what records {self.low} to {offset} say is not proven committed"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a log: after a record, at a time, or neither: the end."""

    offset: int | None = None
    time_ms: int | None = None
    is_committed: bool = False


def place(option: str, text: str | None) -> Place:
    """An offset, a time (ISO 8601, UTC where it names no zone), `committed`, or None for the end. Raises UsageError."""
    if text is None:
        return Place()
    if text == COMMITTED:
        return Place(is_committed=True)
    if _OFFSET.fullmatch(text):
        if int(text) < 0:
            raise UsageError(f"{option}: {text}: expected an offset of 0 or more")
        return Place(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = f"an offset, a time such as 2026-11-21T03:00:00Z, or {COMMITTED}"
        raise UsageError(f"{option}: {text!r}: expected {expected}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Place(time_ms=int(moment.timestamp() * 1000))


class NoLogError(InputError):
    """A cluster without a canonical log: there is no moment of it."""


class Moments:
    """The clusters below PATH that can be told, each at the newest capture or the one of that name.

    One without a canonical log does not stop the others: when these have been told, it is named in a line on stderr,
    and `exit_code` says so. Raises InputError where none can be told.
    """

    def __init__(self, found: Input, key: bytes, capture: str | None, tables: frozenset[str]) -> None:
        self._found = found
        self._key = key
        self._capture = capture
        self._tables = tables
        self.exit_code = 0

    def __iter__(self) -> Iterator[Moment]:
        untold: list[NoLogError] = []
        is_any_told = False
        for plan in self._found.plans_with(self._capture):
            try:
                moment = moment_of(self._found, plan, self._key, self._capture, self._tables)
            except NoLogError as problem:
                untold.append(problem)
                continue
            is_any_told = True
            yield moment
        if untold and not is_any_told:
            raise untold[0]
        for one in untold:
            complain(str(one))
            self.exit_code = EXIT_UNREADABLE


def moment_of(found: Input, plan: ClusterPlan, key: bytes, capture: str | None, tables: frozenset[str]) -> Moment:
    """The newest capture of a cluster, or the one of that name. Raises NoLogError where it has no canonical log."""
    from kraft_audit.replay.planning import capture_named, captures_text
    from kraft_audit.replay.rounds import committed_intervals
    from kraft_audit.replay.state import Sources
    from kraft_audit.replay.survey import survey

    shape = survey(plan, open_storage=found.open_storage, redactor=redactor(key))
    intervals = committed_intervals(shape, plan)
    chosen = _chosen(intervals, None if capture is None else capture_named(capture, plan.replicas))
    if chosen is None:
        there = captures_text(plan.replicas)
        raise ChoiceError(found.root, f"no capture {capture!r} of cluster {shown_cluster_id(plan.cluster_id)}: {there}")
    canonical = chosen.interval.canonical
    if canonical is None:
        why = chosen.interval.undecided or "its logs contradict each other"
        raise NoLogError(found.root, f"cluster {shown_cluster_id(plan.cluster_id)} has no canonical log: {why}")
    return Moment(
        plan,
        Sources(plan, shape, canonical.number, found.open_storage, redactor(key), tables),
        chosen.round.capture,
        tuple(one.round.capture for one in intervals if one is not chosen),
        canonical.end[1],
        chosen.interval.low,
        chosen.interval.low_epoch,
    )


def state_at_place(moment: Moment, where: Place, option: str = "--at") -> ClusterState:
    """The state there; beyond the end of the capture's log, the state at its end. Says on stderr what lies beyond."""
    _remark_on_time(moment, where, option)
    told = _state_at_place(moment, where)
    last = moment.end_offset - 1
    if where.offset is not None and where.offset > last:
        remark(f"{option} {where.offset}: the log ends with offset {last}, this is the state there")
    elif told.offset < 0 and (where.offset is not None or where.time_ms is not None):
        remark(f"{option}: nothing is known of before the log's first record")
    return told


def _state_at_place(moment: Moment, where: Place) -> ClusterState:
    from kraft_audit.replay.state import state_at

    last = moment.end_offset - 1
    if where.is_committed:
        return state_at(moment.sources, offset=min(moment.low - 1, last))
    if where.time_ms is None:
        return state_at(moment.sources, offset=last if where.offset is None else min(where.offset, last))
    found = state_at(moment.sources, time_ms=where.time_ms)
    return found if found.offset <= last else state_at(moment.sources, offset=last)


def _remark_on_time(moment: Moment, where: Place, option: str) -> None:
    """Says on stderr that a time lies behind the log, or how to write a time that was given as an offset."""
    if where.offset is not None:
        if max(moment.end_offset, SURELY_A_TIME) <= where.offset and is_time(where.offset):
            written = time_text(where.offset).replace(" ", "T")
            remark(f"{option} {where.offset}: a plain number is an offset; that time is written {written}Z")
        return
    last_ms = _last_ms(moment)
    if where.time_ms is not None and last_ms is not None and where.time_ms > last_ms:
        last = moment.end_offset - 1
        remark(f"{option}: the log ends at {time_text(last_ms)} UTC with offset {last}, this is the state there")


def _last_ms(moment: Moment) -> int | None:
    """When the last batch of the canonical log was appended; None where no replica has that batch any more."""
    shape = moment.sources.survey
    epochs = shape.epochs_to(moment.sources.branch)
    end = (epochs[-1].epoch, moment.end_offset) if epochs else None
    logs = [replica.log for replica in shape.replicas if replica.log is not None]
    return next((log.last_timestamp_ms for log in logs if (log.last_epoch, log.end_offset) == end), None)


def _chosen(intervals: list[RoundInterval], capture: str | None) -> RoundInterval | None:
    named = [one for one in intervals if capture in (None, one.round.capture)]
    return named[-1] if named else None
