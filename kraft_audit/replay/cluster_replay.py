"""The replay of one cluster: windows of its canonical log in, rows of every `*_changes` table out.

Records are replayed once they are settled: whole metadata transactions and whole controller operations. Records between
Begin and Abort never took effect, and those after an open Begin have not yet (MetadataBatchLoader,
OffsetControlManager, Kafka 4.3.0); control records between them are not part of the transaction. A broker's partition
changes stand before the record that fences, registers or removes it: a run of changes at the end of what was read waits
for the record after it, so that its cause is complete.

Memory: the cluster's state, one window, and the records that wait for the end of their transaction or operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordColumns, batches_of, between, end_of
from kraft_audit.capture.plan import default_min_isr
from kraft_audit.replay.kernels.layout import FULL_BATCH_RECORDS
from kraft_audit.replay.partitions.partition_replay import PartitionReplay, ReplayProblem
from kraft_audit.replay.partitions.window_events import CHANGE_RECORD, PARTITION_RECORD
from kraft_audit.replay.state_machines import (
    BrokerStateMachine,
    ConfigStateMachine,
    ControllerStateMachine,
    FeatureStateMachine,
    SecurityStateMachine,
    StateMachine,
    TopicStateMachine,
)
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES, SILVER
from kraft_codec.schemas import CONTROL_TYPES, Dialect

STATE_MACHINES: Final[tuple[type[StateMachine], ...]] = (
    TopicStateMachine,
    BrokerStateMachine,
    ControllerStateMachine,
    ConfigStateMachine,
    FeatureStateMachine,
    SecurityStateMachine,
)
_OF_PARTITIONS: Final = frozenset({PARTITION_CHANGES.name, EXPOSURE_CHANGES.name})
REPLAY_TABLES: Final = frozenset({*_OF_PARTITIONS, *(state_machine.table.name for state_machine in STATE_MACHINES)})
"""The tables that `ClusterReplay` fills."""

_PARTITION_RECORDS: Final = frozenset({PARTITION_RECORD, CHANGE_RECORD})
"""Of these there may be too many to copy them."""
MAX_WAITING_CHANGES: Final = 100_000
"""How many changes wait for the rest of their operation at most.

No operation writes more, so a longer run is settled.
"""
_CONTROL_MESSAGES: Final = frozenset(
    control.message.name for dialect in Dialect for control in CONTROL_TYPES[dialect].values()
)
_MARKS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")

TableBatch = tuple[str, pa.RecordBatch]


def drain(rows: Iterator[TableBatch]) -> None:
    """Runs a part of a replay for its final state; the rows are dropped."""
    deque(rows, maxlen=0)


def _removed_rows(before: Iterable[TableBatch], after: Iterable[TableBatch]) -> Iterator[TableBatch]:
    """The rows of a state whose subjects are missing in a later state, marked as removed.

    `exposure_changes` have no such rows: what is removed is not exposed.
    """
    existing = {(name, subject) for name, rows in after for subject in _subjects(name, rows)}
    for name, rows in before:
        is_removed = pa.array([(name, subject) not in existing for subject in _subjects(name, rows)], pa.bool_())
        removed = rows.filter(is_removed)
        if removed.num_rows == 0 or name == EXPOSURE_CHANGES.name:
            continue
        removed = with_column(removed, "exists", pa.repeat(pa.scalar(False), removed.num_rows))
        if name == ConfigStateMachine.table.name:
            removed = with_column(removed, "value", pa.nulls(removed.num_rows, pa.string()))
        yield name, removed


def _subjects(name: str, rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The subject of each row: its key without the offset."""
    columns = (rows[column].to_pylist() for column in SILVER[name].key if column != "from_offset")
    return zip(*columns, strict=True)


class ClusterReplay:
    """All state machines of a cluster's metadata.

    `tables`: which of `REPLAY_TABLES` to fill, None for all. `defaults`: static configs that the log does not hold
    (min.insync.replicas). Records below `emit_from_offset` change the state and give no rows.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        plan: int = 0,
        tables: frozenset[str] | None = None,
        defaults: Mapping[str, str] | None = None,
        emit_from_offset: int = 0,
    ) -> None:
        wanted = REPLAY_TABLES if tables is None else tables
        self._settler = Settler()
        self._removed: list[TableBatch] = []
        self._emit_from_offset = emit_from_offset
        self.state_machines: dict[str, StateMachine] = {
            state_machine.table.name: state_machine(cluster_id=cluster_id, plan=plan, emit_from_offset=emit_from_offset)
            for state_machine in STATE_MACHINES
            if state_machine.table.name in wanted
        }
        self.partitions: PartitionReplay | None = None
        self._of_partitions = wanted & _OF_PARTITIONS
        if self._of_partitions:
            self.partitions = PartitionReplay(
                cluster_id=cluster_id,
                plan=plan,
                default_min_isr=default_min_isr(defaults or {}),
                emit_from_offset=emit_from_offset,
            )

    @property
    def settled_offset(self) -> int:
        """The rows of all records below this offset have been given."""
        return self._settler.settled_offset

    @property
    def problems(self) -> list[ReplayProblem]:
        """Records that contradict the log before them, by offset."""
        problems = [] if self.partitions is None else list(self.partitions.problems)
        for state_machine in self.state_machines.values():
            problems.extend(ReplayProblem(offset, problem) for offset, problem in state_machine.problems)
        return sorted(set(problems), key=lambda problem: (problem.offset, problem.problem))

    def load_snapshot(
        self,
        windows: Iterable[RecordColumns],
        *,
        end_offset: int,
        epoch: int,
        timestamp_ms: int,
        is_every_exposure: bool = False,
        is_after_gap: bool = False,
    ) -> Iterator[TableBatch]:
        """Replaces all state by a snapshot's; its rows stand at `end_offset` - 1 with cause "snapshot".

        The next window has to begin at `end_offset`. `is_every_exposure`: `exposure_changes` get a row of every
        partition, exposed or not, because a partition may have been exposed before and have a row of an earlier plan.
        `is_after_gap`: missing records may have removed subjects; `take_removed` returns their rows afterwards.
        """
        position = (end_offset - 1, epoch, timestamp_ms)
        before = list(self.state(*position)) if is_after_gap else []
        machines: list[StateMachine | PartitionReplay] = list(self.state_machines.values())
        if self.partitions is not None:
            machines.append(self.partitions)
        for machine in machines:
            machine.reset()
        for records in windows:
            for machine in machines:
                machine.absorb(records)
        self._settler = Settler()
        self._settler.settled_offset = end_offset
        if end_offset - 1 >= self._emit_from_offset:
            rows = self.state(*position, is_every_exposure=is_every_exposure)
            if is_after_gap:
                rows = iter(after := list(rows))
                self._removed = list(_removed_rows(before, after))
            yield from rows

    def take_removed(self) -> list[TableBatch]:
        """Rows of subjects that existed before a gap and not in the snapshot after it, which was loaded last."""
        removed, self._removed = self._removed, []
        return removed

    def replay(self, records: RecordColumns, to_offset: int) -> Iterator[TableBatch]:
        """Applies the next window, which ends at `to_offset`; yields the rows of the records that are settled then."""
        yield from self._apply(self._settler.feed(records, to_offset))

    def finish(self) -> Iterator[TableBatch]:
        """Ends the replay: applies also an operation whose last record may be missing."""
        yield from self._apply(self._settler.rest())

    def state(
        self, offset: int, epoch: int, timestamp_ms: int, *, is_every_exposure: bool = False
    ) -> Iterator[TableBatch]:
        """The current state of everything, as rows at `offset` with cause "snapshot"."""
        for name, state_machine in self.state_machines.items():
            for batch in state_machine.rows(offset, epoch, timestamp_ms):
                yield name, batch
        if self.partitions is not None:
            for batch in self.partitions.state(offset, epoch, timestamp_ms):
                yield from self._partition_rows(self.partitions, batch, is_every_exposure)

    def _apply(self, records: RecordColumns) -> Iterator[TableBatch]:
        for name, state_machine in self.state_machines.items():
            for batch in state_machine.replay(records):
                yield name, batch
        if self.partitions is not None:
            for batch in self.partitions.replay(records):
                yield from self._partition_rows(self.partitions, batch)

    def _partition_rows(
        self, partitions: PartitionReplay, changes: pa.RecordBatch, is_every_exposure: bool = False
    ) -> Iterator[TableBatch]:
        """The rows of the wanted partition tables, from the batch that `partitions` yielded last."""
        if PARTITION_CHANGES.name in self._of_partitions:
            yield PARTITION_CHANGES.name, changes
        if EXPOSURE_CHANGES.name in self._of_partitions:
            exposures = partitions.exposures(changes, is_every=is_every_exposure)
            if exposures.num_rows:
                yield EXPOSURE_CHANGES.name, exposures


class Settler:
    """Takes the windows of a log in order and returns their records once they are settled."""

    def __init__(self) -> None:
        self._waiting: list[RecordColumns] = []
        self._begin_offset: int | None = None
        self._aborted: list[tuple[int, int]] = []
        self._run: _OperationRun | None = None
        self._fed_to = 0
        self.settled_offset = 0
        """All records below have been returned: the end of what was fed, or the start of an unfinished transaction or
        operation."""

    def feed(self, records: RecordColumns, to_offset: int) -> RecordColumns:
        """Adds the records of a window that ends at `to_offset`; returns the records that are settled now.

        A batch may cross `to_offset`: its records belong to this window, and the next one begins after them.
        """
        before = self._fed_to
        self._fed_to = max(before, end_of(records, to_offset))
        self._follow_transactions(records)
        self._run = _last_run(records, before, self._fed_to, self._run)
        settled = self._fed_to if self._run is None else self._run.from_offset
        if self._begin_offset is not None:
            settled = self._begin_offset
        self._waiting.append(records)
        return self._release(settled)

    def rest(self) -> RecordColumns:
        """The remaining records: an operation whose last record may be missing, but never an open transaction."""
        return self._release(self._fed_to if self._begin_offset is None else self._begin_offset)

    def _release(self, settled: int) -> RecordColumns:
        if settled == self.settled_offset:
            return {}  # nothing more is settled, so what waits is not joined
        joined = _joined_windows(self._waiting)
        for begin, end in self._aborted:
            joined = _without(joined, begin, end)
        self._aborted = []
        self.settled_offset = settled
        self._waiting = [between(joined, settled, None)]
        return between(joined, None, settled)

    def _follow_transactions(self, records: RecordColumns) -> None:
        """Follows Begin, End and Abort; remembers the offsets [begin, abort] of what was aborted."""
        marks = [
            (offset, name)
            for name in _MARKS
            if (batch := records.get(name)) is not None
            for offset in batch.column("offset").to_pylist()
        ]
        for offset, name in sorted(marks):
            if name == "BeginTransactionRecord":
                self._begin_offset = offset
            else:
                if name == "AbortTransactionRecord" and self._begin_offset is not None:
                    self._aborted.append((self._begin_offset, offset))
                self._begin_offset = None


@dataclass(frozen=True, slots=True)
class _OperationRun:
    """Adjacent changes of what may be one operation, which reach the end of what was read."""

    from_offset: int
    count: int
    base_offset: int


def _last_run(
    records: RecordColumns, from_offset: int, to_offset: int, before: _OperationRun | None
) -> _OperationRun | None:
    """The run at the end of a window. `before` is the run at the end of the window before, which it may continue."""
    batch = records.get(CHANGE_RECORD)
    if batch is None or batch.num_rows == 0:
        return None
    offsets = batch.column("offset").to_numpy()
    base_offsets = batch.column("base_offset").to_numpy()
    if offsets[-1] != to_offset - 1:
        return None
    gaps = np.flatnonzero((np.diff(offsets) != 1) | ~_may_go_on(np.diff(base_offsets)))
    first = int(gaps[-1]) + 1 if len(gaps) else 0
    start, count = int(offsets[first]), len(offsets) - first
    is_continued = first == 0 and before is not None and start == from_offset
    if before is not None and is_continued and _may_go_on(base_offsets[:1] - before.base_offset).all():
        start, count = before.from_offset, before.count + count
    return None if count > MAX_WAITING_CHANGES else _OperationRun(start, count, int(base_offsets[-1]))


def _may_go_on(batch_records: npt.NDArray[np.int64]) -> Mask:
    """Whether an operation may go on: in its own batch (0 records before the next), or after one that is full."""
    goes_on: Mask = (batch_records == 0) | (batch_records >= FULL_BATCH_RECORDS)
    return goes_on


def _joined_windows(windows: Sequence[RecordColumns]) -> RecordColumns:
    """The records of windows that follow each other."""
    if len(windows) == 1:
        return windows[0]
    joined: dict[str, pa.RecordBatch | pa.Table] = {}
    for name in dict.fromkeys(name for window in windows for name in window):
        batches = [batch for window in windows for batch in batches_of(window, name)]
        if len(batches) == 1:
            joined[name] = batches[0]
        elif batches:
            join = pa.Table.from_batches if name in _PARTITION_RECORDS else pa.concat_batches
            joined[name] = join(batches)
    return joined


def _without(records: RecordColumns, begin: int, end: int) -> RecordColumns:
    """The records without the metadata records in [begin, end]; control records there stay."""
    remaining = dict(records)
    for name in records.keys() - _CONTROL_MESSAGES:
        offsets = records[name].column("offset").to_numpy()
        outside = (offsets < begin) | (offsets > end)
        if not outside.all():
            remaining[name] = records[name].filter(pa.array(outside))
    return remaining
