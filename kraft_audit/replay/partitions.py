"""Partitions: the full registration after every change, its cause, and the ELR that the shipped rules give.

PartitionRegistration, ReplicationControlManager and PartitionChangeBuilder of Kafka 4.3.0. Nothing on this path is a
Python object per record: windows of typed columns go in, batches of the table `partition_changes` come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay import causes
from kraft_audit.replay.interning import UuidNumbers
from kraft_audit.replay.kernels import layout
from kraft_audit.replay.kernels.native import kernel
from kraft_audit.replay.partition_events import Events, PartitionContext, merged, rare_events
from kraft_audit.replay.partition_inputs import partition_inputs
from kraft_audit.replay.records import RecordColumns
from kraft_audit.replay.tables import PARTITION_CHANGES
from kraft_codec.tables import MAX_BATCH_ROWS, build_batch
from kraft_codec.uuids import uuid_bytes

MIGRATING: Final = uuid_bytes("AAAAAAAAAAAAAAAAAAAAAA")
_ARENA_SLACK: Final = 1 << 20
_RECOVERY_STATES: Final = pa.array(["RECOVERED", "RECOVERING"])
_CAUSES: Final = pa.array(causes.CAUSES)
_ELECTIONS: Final = pa.array(causes.ELECTIONS)
_LIST_COLUMNS: Final = {
    "replicas": layout.REPLICAS,
    "isr": layout.ISR,
    "elr": layout.ELR,
    "last_known_elr": layout.LAST_KNOWN_ELR,
    "adding_replicas": layout.ADDING_REPLICAS,
    "removing_replicas": layout.REMOVING_REPLICAS,
}


PROBLEMS_REMEMBERED: Final = 10_000
"""A log that contradicts itself more often than this is told by the first ones."""


@dataclass(frozen=True, slots=True)
class ReplayProblem:
    """A record that contradicts the log before it (or whose beginning the log no longer has)."""

    offset: int
    problem: str


class PartitionReplay:
    """The state of every partition, brought forward window by window."""

    def __init__(self, *, cluster_id: str, plan: int = 0, default_min_isr: int = 1, emit_from_offset: int = 0) -> None:
        self.cluster_id = cluster_id
        self.plan = plan
        self._default_min_isr = default_min_isr
        self._emit_from_offset = emit_from_offset
        self.problems: list[ReplayProblem] = []
        self._reset()

    def reset(self) -> None:
        """Forgets everything, before a snapshot is loaded, but who the active controller is."""
        controller_id = self._context.controller_id
        self._reset()
        self._context.controller_id = controller_id

    def absorb(self, records: RecordColumns) -> None:
        """Applies records of a snapshot: their offsets count inside it, and the state is that of its end."""
        self._block[layout.EMIT_FROM_OFFSET] = np.iinfo(np.int64).max
        for _ in self.replay(records):
            raise AssertionError("a row below the offset to emit from")
        self._block[layout.EMIT_FROM_OFFSET] = self._emit_from_offset

    def _reset(self) -> None:
        self._topics = UuidNumbers()
        self._directories = UuidNumbers()
        self._directories.number(MIGRATING)
        self._context = PartitionContext(self._topics, self._default_min_isr)
        self._block = np.zeros(layout.SLOT_COUNT, np.int64)
        self._partitions = np.zeros((0, layout.PARTITION_CELLS), np.int32)
        self._topic_rows = np.zeros((0, layout.TOPIC_CELLS), np.int32)
        self._keys = np.full(1, -1, np.int64)
        self._values = np.zeros(1, np.int32)
        self._arena = np.zeros(0, np.int32)
        self._compacted_size = 0
        self._output = np.zeros((MAX_BATCH_ROWS + 1, layout.OUTPUT_CELLS), np.int32)
        self._block[layout.DEFAULT_MIN_ISR] = self._default_min_isr
        self._block[layout.EMIT_FROM_OFFSET] = self._emit_from_offset

    @property
    def partition_count(self) -> int:
        """How many partitions were ever seen, removed ones included."""
        return int(self._block[layout.PARTITION_COUNT])

    def load_snapshot(
        self, windows: Iterable[RecordColumns], *, end_offset: int, epoch: int, timestamp_ms: int
    ) -> Iterator[pa.RecordBatch]:
        """Replaces all state by a snapshot's, and gives it as rows at `end_offset` - 1 if those are to be emitted."""
        self.reset()
        for records in windows:
            self.absorb(records)
        if end_offset - 1 >= self._emit_from_offset:
            yield from self.state(end_offset - 1, epoch, timestamp_ms)

    def replay(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Applies the records of one window; batches of `partition_changes`, in log order."""
        inputs = partition_inputs(records, self._topics, self._directories)
        events = merged(inputs, list(rare_events(self._context, records)))
        event_count = len(events.offsets)
        if event_count == 0:
            return
        self._make_room(inputs.created_count, len(inputs.values))
        used = int(self._block[layout.ARENA_USED])
        self._arena[used : used + len(inputs.values)] = inputs.values
        self._block[layout.ARENA_USED] = used + len(inputs.values)
        rows = inputs.rows
        rows[:, layout.INPUT_LISTS :: 2] += used
        lengths = rows[:, layout.INPUT_LISTS + 1 :: 2]
        longest = int(lengths.max()) if len(rows) else 0
        self._block[layout.LONGEST_LIST] = max(int(self._block[layout.LONGEST_LIST]), longest)
        contexts = np.empty(event_count * layout.CONTEXT_BYTES // 4, np.int32)
        problems = np.empty((event_count, 2), np.int32)
        scratch = np.empty(layout.PARTITION_CELLS, np.int32)
        self._point(rows, events, contexts, problems, scratch)
        status = -1
        while status != layout.DONE:
            self._block[layout.OUTPUT_COUNT] = 0
            status = kernel("replay_events")(self._block.ctypes.data)
            if self._block[layout.OUTPUT_COUNT]:
                yield self._batch(events)
            if status == layout.ARENA_FULL:
                self._grow_arena(2 * len(self._arena))
        self._note_problems(problems, events)

    def state(self, offset: int, epoch: int, timestamp_ms: int) -> Iterator[pa.RecordBatch]:
        """The partitions that exist now as rows at `offset`, with cause "snapshot"."""
        count = self.partition_count
        existing = np.flatnonzero(self._partitions[:count, layout.EXISTS])
        events = Events(
            np.array([offset], np.int64),
            np.array([epoch], np.int32),
            np.array([timestamp_ms], np.int64),
            *(np.zeros(1, np.int32) for _ in range(3)),
        )
        for start in range(0, len(existing), MAX_BATCH_ROWS):
            chosen = self._partitions[existing[start : start + MAX_BATCH_ROWS]]
            output = self._output[: len(chosen)]
            output[:, : layout.PARTITION_CELLS] = chosen
            # partition 0 may come after its siblings in a snapshot: the minimum is settled only now
            output[:, layout.EFFECTIVE_MIN_ISR] = self._effective_min_isr(chosen)
            self._partitions[existing[start : start + MAX_BATCH_ROWS], layout.EFFECTIVE_MIN_ISR] = output[
                :, layout.EFFECTIVE_MIN_ISR
            ]
            output[:, layout.EVENT] = 0
            output[:, layout.CAUSE] = causes.SNAPSHOT
            output[:, layout.CAUSE_BROKER] = -1
            output[:, layout.ELECTION] = causes.NO_ELECTION
            output[:, layout.EXPECTED_ELR + 1] = -1
            self._point_output(len(chosen))
            yield self._batch(events)

    def _effective_min_isr(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        topics = self._topic_rows[rows[:, layout.TOPIC]]
        wanted = np.where(
            topics[:, layout.TOPIC_MIN_ISR] < 0, self._block[layout.DEFAULT_MIN_ISR], topics[:, layout.TOPIC_MIN_ISR]
        )
        first = topics[:, layout.PARTITION_0]
        replica_count = self._partitions[first, layout.LISTS + 2 * layout.REPLICAS + 1]
        return np.where((first >= 0) & (replica_count < wanted), replica_count, wanted).astype(np.int32)

    def _note_problems(self, problems: npt.NDArray[np.int32], events: Events) -> None:
        room = max(0, PROBLEMS_REMEMBERED - len(self.problems))
        for event, number in problems[: min(room, int(self._block[layout.PROBLEM_COUNT]))]:
            self.problems.append(ReplayProblem(int(events.offsets[event]), causes.PROBLEMS[number]))
        context = self._context.problems[: max(0, PROBLEMS_REMEMBERED - len(self.problems))]
        self.problems.extend(ReplayProblem(offset, problem) for offset, problem in context)
        self._context.problems.clear()

    def _make_room(self, created_count: int, value_count: int) -> None:
        """Sees to it that the window's partitions, topics and lists fit; throws unused list values away."""
        count = self.partition_count
        if count + created_count > len(self._partitions):
            self._partitions = _larger(self._partitions, max(2 * len(self._partitions), count + created_count))
        if self._topics.count > len(self._topic_rows):
            known = len(self._topic_rows)
            self._topic_rows = _larger(self._topic_rows, max(2 * known, self._topics.count))
            self._topic_rows[known:] = -1
        if 2 * (count + created_count) > len(self._keys):
            slots = 1 << (4 * (count + created_count) - 1).bit_length()
            self._keys = np.full(slots, -1, np.int64)
            self._values = np.zeros(slots, np.int32)
            self._point_tables()
            kernel("rehash")(self._block.ctypes.data)
        used = int(self._block[layout.ARENA_USED])
        if used > 2 * self._compacted_size + 4 * _ARENA_SLACK:
            self._compact()
            used = self._compacted_size
        longest = int(self._block[layout.LONGEST_LIST])
        self._grow_arena(used + value_count + 2 * layout.LONG_LIST + longest + _ARENA_SLACK)

    def _grow_arena(self, size: int) -> None:
        if size > len(self._arena):
            self._arena = _larger(self._arena, max(size, 3 * len(self._arena) // 2))
        self._point_tables()

    def _compact(self) -> None:
        target = np.empty(len(self._arena), np.int32)
        self._point_tables()
        self._compacted_size = kernel("compact_arena")(self._block.ctypes.data, target.ctypes.data)
        self._arena = target
        self._block[layout.ARENA_USED] = self._compacted_size

    def _point_tables(self) -> None:
        block = self._block
        block[layout.PARTITIONS_AT] = self._partitions.ctypes.data
        block[layout.TOPICS_AT] = self._topic_rows.ctypes.data
        block[layout.KEYS_AT] = self._keys.ctypes.data
        block[layout.VALUES_AT] = self._values.ctypes.data
        block[layout.KEY_MASK] = len(self._keys) - 1
        block[layout.ARENA_AT] = self._arena.ctypes.data
        block[layout.ARENA_CAPACITY] = len(self._arena)

    def _point_output(self, count: int) -> None:
        self._point_tables()
        self._block[layout.OUTPUT_AT] = self._output.ctypes.data
        self._block[layout.OUTPUT_CAPACITY] = MAX_BATCH_ROWS
        self._block[layout.OUTPUT_COUNT] = count

    def _point(self, rows: Any, events: Events, contexts: Any, problems: Any, scratch: Any) -> None:
        self._point_output(0)
        block = self._block
        block[layout.INPUTS_AT] = rows.ctypes.data
        block[layout.OFFSETS_AT] = events.offsets.ctypes.data
        block[layout.TIMES_AT] = events.times_ms.ctypes.data
        block[layout.KINDS_AT] = events.kinds.ctypes.data
        block[layout.FIRST_OPERANDS_AT] = events.first.ctypes.data
        block[layout.SECOND_OPERANDS_AT] = events.second.ctypes.data
        block[layout.CONTEXTS_AT] = contexts.ctypes.data
        block[layout.PROBLEMS_AT] = problems.ctypes.data
        block[layout.SCRATCH_AT] = scratch.ctypes.data
        block[layout.EVENT_COUNT] = len(events.offsets)
        block[layout.NEXT_EVENT] = block[layout.IS_RESUMED] = block[layout.PROBLEM_COUNT] = 0

    def _batch(self, events: Events) -> pa.RecordBatch:
        """The output rows as a batch of the table."""
        count = int(self._block[layout.OUTPUT_COUNT])
        cells = self._output[:count]
        names = self._context.topic_names
        names.extend("" for _ in range(len(names), self._topics.count))
        event = cells[:, layout.EVENT]
        broker = cells[:, layout.CAUSE_BROKER]
        topic = pa.array(cells[:, layout.TOPIC])
        columns: dict[str, Any] = {
            "cluster_id": self.cluster_id,
            "plan": self.plan,
            "from_offset": events.offsets[event],
            "from_epoch": events.epochs[event],
            "timestamp_ms": events.times_ms[event],
            "topic_id": self._topics.texts(cells[:, layout.TOPIC]),
            "partition": cells[:, layout.PARTITION],
            "cause": _CAUSES.take(pa.array(cells[:, layout.CAUSE])),
            "topic": pa.array(names).take(topic),
            "cause_broker_id": pa.array(broker, mask=broker < 0),
            "election": _ELECTIONS.take(pa.array(cells[:, layout.ELECTION])),
            "exists": cells[:, layout.EXISTS] != 0,
            "leader": cells[:, layout.LEADER],
            "leader_recovery_state": _RECOVERY_STATES.take(pa.array(cells[:, layout.RECOVERY_STATE] != 0).cast("int8")),
            "leader_epoch": cells[:, layout.LEADER_EPOCH],
            "partition_epoch": cells[:, layout.PARTITION_EPOCH],
            "effective_min_isr": cells[:, layout.EFFECTIVE_MIN_ISR],
            "high_watermark_can_advance": _can_advance(cells),
            "expected_elr": self._lists(layout.EXPECTED_ELR, count, cells[:, layout.EXPECTED_ELR + 1] < 0),
        }
        for name, number in _LIST_COLUMNS.items():
            columns[name] = self._lists(layout.LISTS + 2 * number, count)
        directories = self._lists(layout.LISTS + 2 * layout.DIRECTORIES, count)
        texts = self._directories.texts(directories.values.to_numpy())
        columns["directories"] = pa.ListArray.from_arrays(directories.offsets, texts)
        return build_batch(PARTITION_CHANGES, columns, count)

    def _lists(self, cell: int, count: int, nulls: npt.NDArray[np.bool_] | None = None) -> pa.ListArray:
        offsets = np.empty(count + 1, np.int32)
        block = self._block.ctypes.data
        size = kernel("gather_list")(block, cell, offsets.ctypes.data, 0)
        values = np.empty(size, np.int32)
        kernel("gather_list")(block, cell, offsets.ctypes.data, values.ctypes.data)
        mask = None if nulls is None else pa.array(nulls)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=mask)


def _can_advance(cells: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Whether a write with acks=all can be committed: enough replicas in sync, and a leader among them."""
    in_sync = cells[:, layout.LISTS + 2 * layout.ISR + 1]
    ready = (in_sync >= cells[:, layout.EFFECTIVE_MIN_ISR]) & (cells[:, layout.LEADER] >= 0)
    return np.asarray(ready & (cells[:, layout.EXISTS] != 0))


def _larger(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    larger = np.zeros((rows, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
