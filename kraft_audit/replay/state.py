"""The state of a cluster at an offset or a time: from the newest usable snapshot at or below it, then the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.records import RecordColumns, between
from kraft_audit.replay.replay import REPLAY_TABLES, ClusterReplay, drain
from kraft_audit.replay.rounds import branch_voters, epoch_runs, static_voters
from kraft_audit.replay.survey import (
    RecordWindow,
    Survey,
    SurveyedSnapshot,
    canonical_windows,
    snapshot_windows,
)
from kraft_audit.replay.voters import in_effect, voter_set_rows
from kraft_codec.redaction import Redactor


@dataclass(slots=True)
class Undecoded:
    """Records, and whole batches, on the way of a replay that could not be decoded: the first one, and how many."""

    first_offset: int | None = None
    count: int = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            first = int(offsets.min())
            self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
            self.count += len(offsets)


def missing_text(holes: Sequence[tuple[int, int]]) -> str:
    """What is missing in the holes [from, to) of a log, of which there is at least one, and what that means."""
    return f"{missing_records(holes)}: what follows may be wrong"


def missing_records(holes: Sequence[tuple[int, int]]) -> str:
    """What is missing in the holes [from, to) of a log, of which there is at least one."""
    count = sum(end - start for start, end in holes)
    records, are = ("record", "is") if count == 1 else ("records", "are")
    if len(holes) == 1:
        return f"{count} {records} from offset {holes[0][0]} on {are} missing"
    return f"{count} {records} are missing in {len(holes)} places, the first at offset {holes[0][0]}"


@dataclass(frozen=True)
class ClusterState:
    """Everything as after the record at `offset` (-1: before the first).

    `tables`: rows of each `*_changes` table. `voter_set`: the row of `voter_sets` in effect. `has_beginning` is
    False where the log begins after offset 0 and no snapshot stands at or below its start. `holes` are the offsets
    [from, to) on the way to it that nobody holds.
    """

    cluster_id: str
    offset: int
    has_beginning: bool
    tables: dict[str, pa.Table]
    voter_set: dict[str, Any] | None
    problems: tuple[str, ...] = ()
    undecoded: Undecoded = field(default_factory=Undecoded)
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything that the log said until then is in it."""
        return self.has_beginning and not self.undecoded and not self.holes

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of one table as plain values."""
        found = self.tables.get(table)
        return [] if found is None else list(found.to_pylist())


@dataclass(frozen=True)
class Sources:
    """Where the state is read from: a surveyed plan and the branch (`Survey.path` of its tip) to be replayed."""

    plan: ClusterPlan
    survey: Survey
    branch: int | None
    open_storage: OpenStorage
    redactor: Redactor
    tables: frozenset[str] = field(default=REPLAY_TABLES)


def state_at(sources: Sources, *, offset: int | None = None, time_ms: int | None = None) -> ClusterState:
    """The state as after the record at `offset`, or after the last record appended at or before `time_ms`.

    Neither: at the branch's end. A transaction that is open there has not happened.
    """
    epochs = sources.survey.epochs_to(sources.branch)
    end = epochs[-1].to_offset if epochs else 0
    to_offset = end if offset is None else min(offset + 1, end)
    replay = ClusterReplay(
        cluster_id=sources.plan.cluster_id,
        plan=sources.plan.number,
        tables=sources.tables,
        defaults=dict(sources.plan.defaults),
        emit_from_offset=to_offset,
    )
    start = epochs[0].from_offset if epochs else 0
    snapshot = _newest_usable(sources, to_offset, time_ms)
    undecoded = Undecoded()
    from_offset = start
    if snapshot is not None:
        from_offset = snapshot.end_offset
        windows = snapshot_batches(sources, snapshot, undecoded)
        drain(replay.load_snapshot(windows, end_offset=from_offset, epoch=snapshot.epoch, timestamp_ms=0))
    reached = from_offset
    for window in log_windows(sources, from_offset, to_offset):
        records, reached, is_last = _up_to(window, to_offset, time_ms)
        undecoded.add(window.undecoded[window.undecoded < reached])
        drain(replay.replay(records, reached))
        if is_last:
            break
    drain(replay.finish(at_end=True))
    at = (to_offset if time_ms is None else reached) - 1
    return ClusterState(
        cluster_id=sources.plan.cluster_id,
        offset=at,
        has_beginning=start == 0 or snapshot is not None,
        tables=_tables(replay, at),
        voter_set=_voter_set(sources, at),
        problems=tuple(f"{problem.problem} at {problem.offset}" for problem in replay.problems),
        undecoded=undecoded,
        holes=tuple(sources.survey.holes_to(sources.branch, from_offset, at + 1)),
    )


def replay_branch(sources: Sources, *, to_offset: int | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of every wanted `*_changes` table along one branch.

    It begins with the log, and where that begins after offset 0 at the earliest snapshot that it goes on from. Cleaning
    deletes whole segments below that (KafkaRaftLog, Kafka 4.3.0), so the log mostly has records below its end.
    """
    replay = ClusterReplay(
        cluster_id=sources.plan.cluster_id,
        plan=sources.plan.number,
        tables=sources.tables,
        defaults=dict(sources.plan.defaults),
    )
    for stretch in stretches(sources, *_beginning(sources), to_offset=to_offset):
        if stretch.snapshot is not None:
            yield from replay.load_snapshot(
                snapshot_batches(sources, stretch.snapshot),
                end_offset=stretch.from_offset,
                epoch=stretch.snapshot.epoch,
                timestamp_ms=stretch.snapshot.timestamp_ms or 0,
                is_every_exposure=stretch.hole_start is not None,
                is_behind_hole=stretch.hole_start is not None,
            )
            yield from replay.take_gone()
        for window in log_windows(sources, stretch.from_offset, stretch.to_offset):
            yield from replay.replay(stretch.told(window.records), window.to_offset)
        yield from replay.finish(at_end=True)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [from_offset, to_offset) of a branch that are replayed at a stretch, from a snapshot where one is given.

    `to_offset` is None where it goes on to the branch's end. `hole_start` is where records are missing before it.
    `tells_to`: what the next stretch begins with tells of the record there.
    """

    from_offset: int
    to_offset: int | None
    snapshot: SurveyedSnapshot | None
    hole_start: int | None = None
    tells_to: int | None = None

    def ends_by(self, offset: int) -> bool:
        """Whether a snapshot goes on at this offset or before it: what that tells belongs to what lies below."""
        return self.to_offset is not None and self.to_offset <= offset

    def told(self, records: RecordColumns) -> RecordColumns:
        """The records of one of its windows that are replayed."""
        return records if self.tells_to is None else between(records, None, self.tells_to)


def stretches(
    sources: Sources, from_offset: int, snapshot: SurveyedSnapshot | None, *, to_offset: int | None = None
) -> list[Stretch]:
    """What a replay of the branch from `from_offset` on, which `snapshot` ends at, tells one after the other.

    Behind a hole it goes on with what it has, as the missing records may matter little, to the next snapshot, which
    says how things are.
    """
    epochs = sources.survey.epochs_to(sources.branch)
    end = epochs[-1].to_offset if epochs else from_offset
    end = end if to_offset is None else min(end, to_offset)
    holes = sources.survey.holes_to(sources.branch, from_offset, end)
    usable = usable_snapshots(sources, end) if holes else []
    found = [Stretch(from_offset, to_offset, snapshot)]
    for hole_start, hole_end in holes:
        again = next((one for one in usable if one.end_offset >= hole_end), None)
        if again is not None and found[-1].from_offset < again.end_offset:
            found[-1] = replace(found[-1], to_offset=again.end_offset, tells_to=again.end_offset - 1)
            found.append(Stretch(again.end_offset, to_offset, again, hole_start))
    return found


def branch_holes(sources: Sources, to_offset: int) -> list[tuple[int, int]]:
    """The offsets below `to_offset` that `replay_branch` passes and nobody holds, as [from, to)."""
    return sources.survey.holes_to(sources.branch, _beginning(sources)[0], to_offset)


def _beginning(sources: Sources) -> tuple[int, SurveyedSnapshot | None]:
    """Where a whole branch's replay begins: the log's start, or the end of the snapshot that it goes on from."""
    epochs = sources.survey.epochs_to(sources.branch)
    from_offset, end = (epochs[0].from_offset, epochs[-1].to_offset) if epochs else (0, 0)
    usable = usable_snapshots(sources, end if from_offset else 0)
    snapshot = next((one for one in usable if one.end_offset >= from_offset), None)
    return (from_offset, None) if snapshot is None else (snapshot.end_offset, snapshot)


def usable_snapshots(sources: Sources, to_offset: int, time_ms: int | None = None) -> list[SurveyedSnapshot]:
    """The complete snapshots of the branch that end at or below an offset (and were taken by a time), ascending."""
    epochs = sources.survey.epochs_to(sources.branch)
    usable = [
        one
        for one in sources.survey.snapshots
        if 0 < one.end_offset <= to_offset and one.replicas and _is_on_branch(one, epochs) and _is_by(one, time_ms)
    ]
    return sorted(usable, key=lambda one: (one.end_offset, one.epoch, one.source))


def _newest_usable(sources: Sources, to_offset: int, time_ms: int | None) -> SurveyedSnapshot | None:
    usable = usable_snapshots(sources, to_offset, time_ms)
    return usable[-1] if usable else None


def _is_on_branch(snapshot: SurveyedSnapshot, epochs: list[Any]) -> bool:
    last = snapshot.end_offset - 1
    known = [one.epoch for one in epochs if one.from_offset <= last < one.to_offset]
    if known or not epochs or last < epochs[0].from_offset:
        return snapshot.epoch in known if known else True
    before = [one.epoch for one in epochs if one.to_offset <= last]
    behind = [one.epoch for one in epochs if one.from_offset > last]
    return bool(behind) and max(before) <= snapshot.epoch <= min(behind)  # its last record is in a hole


def _is_by(snapshot: SurveyedSnapshot, time_ms: int | None) -> bool:
    if time_ms is None:
        return True
    return snapshot.timestamp_ms is not None and snapshot.timestamp_ms <= time_ms


def snapshot_batches(
    sources: Sources, snapshot: SurveyedSnapshot, undecoded: Undecoded | None = None
) -> Iterator[RecordColumns]:
    """The records of a snapshot, window by window; what cannot be decoded is noted as of the snapshot's end."""
    for window in snapshot_windows(
        sources.plan, snapshot.source, open_storage=sources.open_storage, redactor=sources.redactor
    ):
        if undecoded is not None:
            undecoded.add(np.full(len(window.undecoded), snapshot.end_offset - 1))
        yield window.records


def log_windows(sources: Sources, from_offset: int, to_offset: int | None) -> Iterator[RecordWindow]:
    """The records of the branch, window by window."""
    return canonical_windows(
        sources.plan,
        sources.survey.path(sources.branch),
        open_storage=sources.open_storage,
        redactor=sources.redactor,
        shape=sources.survey,
        from_offset=from_offset,
        to_offset=to_offset,
    )


def _up_to(window: RecordWindow, to_offset: int, time_ms: int | None) -> tuple[RecordColumns, int, bool]:
    """A window's records below an offset and up to a time; where that ends, and whether it is the last of them.

    A batch may cross the window's end: it is kept whole, the next window goes on behind it.
    """
    cut = to_offset
    if time_ms is not None:
        for batch in window.records.values():
            late = batch.column("offset").filter(pc.greater(batch.column("timestamp_ms"), time_ms))
            if len(late):
                cut = min(cut, int(pc.min(late).as_py()))
    kept = {name: batch.filter(pc.less(batch.column("offset"), cut)) for name, batch in window.records.items()}
    is_last = cut < to_offset or cut <= window.to_offset
    return kept, cut if is_last else window.to_offset, is_last


def _tables(replay: ClusterReplay, offset: int) -> dict[str, pa.Table]:
    found: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in replay.state(offset, -1, 0):
        found.setdefault(name, []).append(batch)
    return {name: pa.Table.from_batches(batches) for name, batches in found.items()}


def _voter_set(sources: Sources, offset: int) -> dict[str, Any] | None:
    survey, plan = sources.survey, sources.plan
    epochs = epoch_runs(survey.epochs_to(sources.branch))
    controls = survey.controls_to(sources.branch)
    history = branch_voters(survey, plan, controls, epochs, static_voters(survey, plan))
    current = in_effect(history, offset)
    return None if current is None else voter_set_rows(history)[history.index(current)]
