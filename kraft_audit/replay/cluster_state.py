"""The state of a cluster at a place in its log, and which log is shown as of a capture.

A state is the newest usable snapshot at or below the place, then the log. The log is the canonical one, the snapshot
beyond a log, or a branch that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.decoded_records import RecordWindow, between
from kraft_audit.capture.survey import Survey, SurveyedSnapshot
from kraft_audit.quorum.divergence import replicas_on
from kraft_audit.quorum.quorum_tables import voter_set_rows
from kraft_audit.quorum.rounds import ProvenRound, branch_voters, epoch_runs
from kraft_audit.quorum.static_voters import static_voters
from kraft_audit.quorum.voter_history import in_effect
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.cluster_replay import ClusterReplay, drain
from kraft_audit.replay.driver import BranchLog, UndecodedRecords, snapshot_beyond
from kraft_audit.text.readable import listed, nouns, when

COMMITTED: Final = "committed"
_OFFSET: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a log: after the record at an offset, at a time, at the committed offset; none of them: at the end."""

    offset: int | None = None
    time_ms: int | None = None
    is_committed: bool = False

    @classmethod
    def parse(cls, text: str | None) -> Place:
        """An offset, a time (ISO 8601, UTC where it names no zone), `committed`, or None for the end.

        Raises ValueError, which says what was expected.
        """
        if text is None:
            return cls()
        if text == COMMITTED:
            return cls(is_committed=True)
        if _OFFSET.fullmatch(text):
            if int(text) < 0:
                raise ValueError(f"{text}: expected an offset of 0 or more")
            return cls(offset=int(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            expected = f"an offset, a time such as 2026-11-21T03:00:00Z, or {COMMITTED}"
            raise ValueError(f"{text!r}: expected {expected}") from None
        return cls.at(moment)

    @classmethod
    def at(cls, moment: datetime) -> Place:
        """A time, UTC where it names no zone."""
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return cls(time_ms=int(moment.timestamp() * 1000))


@dataclass(frozen=True)
class ClusterState:
    """The state of everything after the record at `offset` (-1: before the first record).

    `tables`: rows of each `*_changes` table. `voter_set`: the row of `voter_sets` in effect. `has_beginning` is False
    where the log begins after offset 0 and no snapshot was usable. `gaps`: the offsets [from, to) on the replayed path
    that no replica holds.
    """

    cluster_id: str
    offset: int
    has_beginning: bool
    tables: dict[str, pa.Table]
    voter_set: dict[str, Any] | None
    problems: tuple[str, ...] = ()
    undecoded: UndecodedRecords = field(default_factory=UndecodedRecords)
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every record up to the offset is part of the state."""
        return self.has_beginning and not self.undecoded and not self.gaps

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of one table as plain values."""
        rows = self.tables.get(table)
        return [] if rows is None else list(rows.to_pylist())

    def existing(self, table: str) -> list[dict[str, Any]]:
        """The rows of one table, without those of what was removed."""
        return [row for row in self.rows(table) if row["exists"]]


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster as of a capture. `end_offset` is the end of its canonical log; below `low` it is proven committed.

    `why_not_canonical`: what is shown instead, where there is no canonical log.
    """

    log: BranchLog
    capture: str
    end_offset: int
    low: int
    low_epoch: int
    why_not_canonical: str | None = None

    @property
    def cluster_id(self) -> str:
        return self.log.plan.cluster_id

    def proof_text(self, offset: int) -> str:
        """How far the state as after `offset` is proven, in one line."""
        proven = f"committed through offset {self.low - 1}" if self.low else "nothing is proven committed"
        if self.why_not_canonical is not None:
            return f"{self.why_not_canonical}; {proven}"
        text = f"{proven}, log end offset {self.end_offset}"
        return text if offset < self.low else f"{text}: records {self.low} to {offset} are not proven committed"

    def state(self, place: Place) -> ClusterState:
        """The state there; after the end of the capture's log, the state at its end."""
        last = self.end_offset - 1
        if place.is_committed:
            return state_at(self.log, offset=min(self.low - 1, last))
        if place.time_ms is None:
            return state_at(self.log, offset=last if place.offset is None else min(place.offset, last))
        state = state_at(self.log, time_ms=place.time_ms)
        return state if state.offset <= last else state_at(self.log, offset=last)

    def last_ms(self) -> int | None:
        """When the last batch of the canonical log was appended; None where no replica has that batch any more."""
        survey = self.log.survey
        epochs = self.log.epochs
        end = (epochs[-1].epoch, self.end_offset) if epochs else None
        logs = [replica.log for replica in survey.replicas if replica.log is not None]
        return next((log.last_timestamp_ms for log in logs if (log.last_epoch, log.end_offset) == end), None)


def round_of_capture(rounds: Sequence[ProvenRound], capture: str | None) -> ProvenRound | None:
    """The newest round of that capture, or of any where it is None; None where there is none."""
    return next((captured for captured in reversed(rounds) if capture in (None, captured.capture)), None)


def state_at(log: BranchLog, *, offset: int | None = None, time_ms: int | None = None) -> ClusterState:
    """The state as after the record at `offset`, or after the last record appended at or before `time_ms`.

    Without either: at the end of the branch. A transaction that is open there had no effect yet.
    """
    epochs, end = log.epochs, log.end_offset
    start = epochs[0].from_offset if epochs else end
    to_offset = end if offset is None else min(offset + 1, end)
    replay = log.new_replay(emit_from_offset=to_offset)
    undecoded = UndecodedRecords()
    reached = from_offset = start
    usable = log.usable_snapshots(to_offset, time_ms)
    if usable:
        snapshot = usable[-1]
        reached = from_offset = snapshot.end_offset
        records = log.snapshot_records(snapshot, undecoded)
        drain(replay.load_snapshot(records, end_offset=from_offset, epoch=snapshot.epoch, timestamp_ms=0))
    for window in _windows_to(log.windows(from_offset, to_offset), to_offset, time_ms):
        undecoded.add(window.undecoded)
        drain(replay.replay(window.records, window.to_offset))
        reached = window.to_offset
    drain(replay.finish())
    at = (to_offset if time_ms is None and log.beyond is None else reached) - 1
    return ClusterState(
        cluster_id=log.plan.cluster_id,
        offset=at,
        has_beginning=start == 0 or bool(usable),
        tables=_state_tables(replay, at),
        voter_set=_voter_set(log, at),
        problems=tuple(f"{problem.problem} at {problem.offset}" for problem in replay.problems),
        undecoded=undecoded,
        gaps=tuple(log.gaps(from_offset, at + 1)),
    )


def _windows_to(windows: Iterable[RecordWindow], to_offset: int, time_ms: int | None) -> Iterator[RecordWindow]:
    """The windows with only what lies below an offset and was appended up to a time.

    A batch may cross a window's end: it belongs to that window as a whole.
    """
    for window in windows:
        cut = to_offset
        for batch in window.records.values() if time_ms is not None else ():
            late = batch.column("offset").filter(pc.greater(batch.column("timestamp_ms"), time_ms))
            cut = cut if len(late) == 0 else min(cut, pc.min(late).as_py())
        is_last = cut < to_offset or cut <= window.to_offset
        end = cut if is_last else window.to_offset
        undecoded = window.undecoded[window.undecoded < end]
        yield RecordWindow(window.from_offset, end, between(window.records, None, cut), undecoded)
        if is_last:
            return


def _state_tables(replay: ClusterReplay, offset: int) -> dict[str, pa.Table]:
    batches_of: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in replay.state(offset, -1, 0):
        batches_of.setdefault(name, []).append(batch)
    return {name: pa.Table.from_batches(batches) for name, batches in batches_of.items()}


def _voter_set(log: BranchLog, offset: int) -> dict[str, Any] | None:
    survey, plan = log.survey, log.plan
    is_beyond = log.beyond is not None and offset >= log.beyond.end_offset - 1
    controls, epochs = (survey.controls_to(log.branch), epoch_runs(log.epochs)) if not is_beyond else ([], ())
    history = branch_voters(survey, plan, controls, epochs, static_voters(survey, plan))
    current = in_effect(history, offset)
    return None if current is None else voter_set_rows(history)[history.index(current)]


def missing_text(gaps: Sequence[tuple[int, int]]) -> str:
    """A sentence about the records missing in at least one gap [from, to), and what that means."""
    return f"{missing_records(gaps)}: what follows may be wrong"


def missing_records(gaps: Sequence[tuple[int, int]]) -> str:
    """How many records are missing in at least one gap [from, to) of a log, and where."""
    count = sum(end - start for start, end in gaps)
    records, are = ("record", "is") if count == 1 else ("records", "are")
    if len(gaps) == 1:
        return f"{count} {records} from offset {gaps[0][0]} on {are} missing"
    return f"{count} {records} are missing in {len(gaps)} places, the first at offset {gaps[0][0]}"


_BRANCH: Final = re.compile(r"([0-9]{1,10})@([0-9]{1,19})(?::([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class BranchName:
    """A branch as `quorum --diverge` shows it: epoch and offset of its first record or of its end, and a node."""

    epoch: int
    offset: int
    node_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> BranchName:
        """EPOCH@OFFSET, or EPOCH@OFFSET:NODE where several branches begin there. Raises ValueError."""
        match = _BRANCH.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r}: expected EPOCH@OFFSET as `quorum --diverge` shows them, or EPOCH@OFFSET:NODE")
        epoch, offset, node_id = match.groups()
        return cls(int(epoch), int(offset), None if node_id is None else int(node_id))

    def __str__(self) -> str:
        return f"{self.epoch}@{self.offset}" + ("" if self.node_id is None else f":{self.node_id}")


@dataclass(frozen=True, slots=True)
class HeldBranch:
    """A branch with the nodes that hold it: the way to its furthest end goes over branch `tip`."""

    number: int
    tip: int
    end_offset: int
    node_ids: tuple[int, ...]


def moment_of(
    reading: ClusterReading,
    chosen: ProvenRound,
    tables: frozenset[str],
    branch: BranchName | None = None,
) -> Moment | None:
    """The moment of one round; None where its logs contradict each other and no branch is named.

    Raises ValueError where none, or more than one, has that name.
    """
    survey, interval = reading.survey, chosen.interval
    why: str | None = None
    if branch is not None:
        held = held_branch(survey, chosen, branch)
        log, end_offset = BranchLog(reading, held.tip, tables), held.end_offset
        why = f"branch {branch}, held by {nouns('node', held.node_ids)}, log end offset {end_offset}"
    elif interval.canonical is not None:
        log, end_offset = BranchLog(reading, interval.canonical.number, tables), interval.canonical.end[1]
    elif (snapshot := snapshot_beyond(survey, chosen.replicas)) is not None:
        furthest = max(chosen.replicas, key=lambda number: survey.ends[number].end_offset)
        log = BranchLog(reading, survey.ends[furthest].branch, tables, snapshot)
        end_offset, why = snapshot.end_offset, _beyond_text(survey, furthest, snapshot)
    else:
        return None
    return Moment(log, chosen.capture, end_offset, interval.low, interval.low_epoch, why)


def branch_names(survey: Survey, chosen: ProvenRound) -> list[str]:
    """The names of the branches between which the logs of a round differ, each exact."""
    names = []
    for held in branches_apart(survey, chosen):
        branch = survey.branches[held.number]
        names.append(str(BranchName(branch.epochs[0][0], branch.from_offset, held.node_ids[0])))
    return names


def branches_apart(survey: Survey, chosen: ProvenRound) -> list[HeldBranch]:
    """The branches between which the logs of a round differ, each with its holders there."""
    numbers = (branch.number for branch in survey.branches if len(_siblings(survey, branch.number)) > 1)
    found = (_held(survey, chosen, number) for number in numbers)
    return [held for held in found if held.node_ids]


def _siblings(survey: Survey, number: int) -> list[int]:
    parent = survey.branches[number].parent
    return [branch.number for branch in survey.branches if branch.parent == parent]


def held_branch(survey: Survey, chosen: ProvenRound, name: BranchName) -> HeldBranch:
    """The branch of that name in a round. Raises ValueError where none, or more than one, has it."""
    ends = {survey.ends[number] for number in chosen.replicas}
    numbers = {end.branch for end in ends if (end.last_epoch, end.end_offset) == (name.epoch, name.offset)}
    numbers |= {
        branch.number
        for branch in survey.branches
        if branch.from_offset == name.offset and branch.epochs[0][0] == name.epoch
    }
    branches = [_held(survey, chosen, number) for number in sorted(each for each in numbers if each is not None)]
    branches = [held for held in branches if held.node_ids and name.node_id in (None, *held.node_ids)]
    if len(branches) == 1:
        return branches[0]
    if branches:
        exact = listed([f"{name}:{held.node_ids[0]} (held by {nouns('node', held.node_ids)})" for held in branches])
        raise ValueError(f"{name}: several branches begin or end there: {exact}")
    there = branch_names(survey, chosen)
    raise ValueError(f"no captured log has a branch {name}; {f'there are {listed(there)}' if there else 'none differ'}")


def _held(survey: Survey, chosen: ProvenRound, number: int) -> HeldBranch:
    """The holders of a branch in a round. A version that only some hold of altered offsets ends where it is left."""
    replicas = [each for each in replicas_on(survey, survey.branches[number]) if each in chosen.replicas]
    node_ids = sorted({plan_id for each in replicas if (plan_id := survey.replicas[each].plan.node_id) is not None})
    ends = [survey.ends[each] for each in replicas]
    along = [end for end in ends if number in survey.path(end.branch)]
    best = max(along, key=lambda end: (end.last_epoch, end.end_offset), default=None)
    if best is None or best.branch is None:
        return HeldBranch(number, number, survey.branches[number].to_offset, tuple(node_ids))
    return HeldBranch(number, best.branch, best.end_offset, tuple(node_ids))


def _beyond_text(survey: Survey, furthest: int, snapshot: SurveyedSnapshot) -> str:
    """What a copy holds instead of a log that reaches its snapshot, and from when either is."""
    log = survey.replicas[furthest].log
    taken = "" if snapshot.timestamp_ms is None else f" ({when(snapshot.timestamp_ms)} UTC)"
    newest = f"the newest state is that of snapshot {snapshot.end_offset}{taken}"
    if survey.ends[furthest].branch is None or log is None or log.end_offset is None:
        return f"no segment was captured: {newest}"
    written = "" if log.last_timestamp_ms is None else f" ({when(log.last_timestamp_ms)} UTC)"
    return f"the log ends at {log.end_offset}{written}, before its own snapshot: {newest}"
