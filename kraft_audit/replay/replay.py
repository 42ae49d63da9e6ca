"""The replay of one cluster: windows of its canonical log in, rows of every `*_changes` table out.

Memory: the cluster's state, one window, and what waits for the end of its transaction or operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.brokers import BrokerHistory, ControllerHistory
from kraft_audit.replay.configs import ConfigHistory, FeatureHistory
from kraft_audit.replay.history import History
from kraft_audit.replay.partitions import PartitionReplay, ReplayProblem
from kraft_audit.replay.plan import default_min_isr
from kraft_audit.replay.records import RecordColumns
from kraft_audit.replay.security import SecurityHistory
from kraft_audit.replay.tables import EXPOSURE_CHANGES, PARTITION_CHANGES, SILVER
from kraft_audit.replay.topics import TopicHistory
from kraft_audit.replay.transactions import Settler

HISTORIES: Final[tuple[type[History], ...]] = (
    TopicHistory,
    BrokerHistory,
    ControllerHistory,
    ConfigHistory,
    FeatureHistory,
    SecurityHistory,
)
_OF_PARTITIONS: Final = frozenset({PARTITION_CHANGES.name, EXPOSURE_CHANGES.name})
REPLAY_TABLES: Final = frozenset({*_OF_PARTITIONS, *(history.table.name for history in HISTORIES)})
"""The tables that `ClusterReplay` fills."""

TableBatch = tuple[str, pa.RecordBatch]


def drain(rows: Iterator[TableBatch]) -> None:
    """Runs a part of a replay for the state that it leads to: nobody wants its rows."""
    deque(rows, maxlen=0)


def _gone(before: Iterable[TableBatch], after: Iterable[TableBatch]) -> Iterator[TableBatch]:
    """The rows of a state whose subjects are not in a later one, as rows that say so."""
    there = {(name, subject) for name, rows in after for subject in _subjects(name, rows)}
    for name, rows in before:
        is_gone = pa.array([(name, subject) not in there for subject in _subjects(name, rows)], pa.bool_())
        gone = rows.filter(is_gone)
        if gone.num_rows == 0 or name == EXPOSURE_CHANGES.name:
            continue
        gone = _with(gone, "exists", pa.repeat(pa.scalar(False), gone.num_rows))
        if name == ConfigHistory.table.name:
            gone = _with(gone, "value", pa.nulls(gone.num_rows, pa.string()))
        yield name, gone


def _subjects(name: str, rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """What each row is about: its key but for the offset."""
    columns = (rows[column].to_pylist() for column in SILVER[name].key if column != "from_offset")
    return zip(*columns, strict=True)


def _with(rows: pa.RecordBatch, column: str, values: pa.Array) -> pa.RecordBatch:
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), values)


class ClusterReplay:
    """All state machines of a cluster's metadata.

    `tables`: which of `REPLAY_TABLES` are wanted, None for all. `defaults`: static configs that the log cannot know
    (min.insync.replicas). Rows below `emit_from_offset` are not given.
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
        self._gone: list[TableBatch] = []
        self._emit_from_offset = emit_from_offset
        self.histories: dict[str, History] = {
            history.table.name: history(cluster_id=cluster_id, plan=plan, emit_from_offset=emit_from_offset)
            for history in HISTORIES
            if history.table.name in wanted
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
        """Rows of all records below this offset have been given."""
        return self._settler.settled_offset

    @property
    def problems(self) -> list[ReplayProblem]:
        """Records that contradict the log before them, by offset."""
        found = [] if self.partitions is None else list(self.partitions.problems)
        for history in self.histories.values():
            found.extend(ReplayProblem(offset, problem) for offset, problem in history.problems)
        return sorted(set(found), key=lambda problem: (problem.offset, problem.problem))

    def load_snapshot(
        self,
        windows: Iterable[RecordColumns],
        *,
        end_offset: int,
        epoch: int,
        timestamp_ms: int,
        is_every_exposure: bool = False,
        is_behind_hole: bool = False,
    ) -> Iterator[TableBatch]:
        """Replaces all state by a snapshot's; its rows stand at `end_offset` - 1 with cause "snapshot".

        The next window must begin at `end_offset`. `is_every_exposure`: earlier plans told of partitions that were
        exposed before it, so that every partition is told of in `exposure_changes`, whatever it is now.
        `is_behind_hole`: missing records may have removed what was there before; `take_gone` has it then.
        """
        told_at = (end_offset - 1, epoch, timestamp_ms)
        before = list(self.state(*told_at)) if is_behind_hole else []
        machines: list[History | PartitionReplay] = list(self.histories.values())
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
            told = self._state(*told_at, is_every_exposure)
            if is_behind_hole:
                told = iter(after := list(told))
                self._gone = list(_gone(before, after))
            yield from told

    def take_gone(self) -> list[TableBatch]:
        """Rows of what was there before a hole and is not in the snapshot behind it, where that was loaded last."""
        gone, self._gone = self._gone, []
        return gone

    def replay(self, records: RecordColumns, to_offset: int) -> Iterator[TableBatch]:
        """Applies the next window, which ends at `to_offset`; gives the rows of what is settled by then."""
        yield from self._apply(self._settler.feed(records, to_offset))

    def finish(self, *, at_end: bool) -> Iterator[TableBatch]:
        """The end of what can be read. `at_end`: also the rows of an operation whose last record may be missing."""
        if at_end:
            yield from self._apply(self._settler.rest())

    def state(self, offset: int, epoch: int, timestamp_ms: int) -> Iterator[TableBatch]:
        """The state of everything now, as rows at `offset` with cause "snapshot"."""
        yield from self._state(offset, epoch, timestamp_ms, is_every_exposure=False)

    def _state(self, offset: int, epoch: int, timestamp_ms: int, is_every_exposure: bool) -> Iterator[TableBatch]:
        for name, history in self.histories.items():
            for batch in history.rows(offset, epoch, timestamp_ms):
                yield name, batch
        if self.partitions is not None:
            for batch in self.partitions.state(offset, epoch, timestamp_ms):
                yield from self._partition_rows(self.partitions, batch, is_every_exposure)

    def _apply(self, records: RecordColumns) -> Iterator[TableBatch]:
        for name, history in self.histories.items():
            for batch in history.replay(records):
                yield name, batch
        if self.partitions is not None:
            for batch in self.partitions.replay(records):
                yield from self._partition_rows(self.partitions, batch)

    def _partition_rows(
        self, partitions: PartitionReplay, changes: pa.RecordBatch, is_every_exposure: bool = False
    ) -> Iterator[TableBatch]:
        """The wanted rows that `partitions` gave last."""
        if PARTITION_CHANGES.name in self._of_partitions:
            yield PARTITION_CHANGES.name, changes
        if EXPOSURE_CHANGES.name in self._of_partitions:
            exposures = partitions.exposures(changes, is_every=is_every_exposure)
            if exposures.num_rows:
                yield EXPOSURE_CHANGES.name, exposures
