"""The replay of partitions: the full registration after every change, its cause, and the ELR that Kafka's rules give.

PartitionRegistration, ReplicationControlManager and PartitionChangeBuilder of Kafka 4.3.0. No record becomes a Python
object: windows of typed columns go in, batches of the table `partition_changes` come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordColumns
from kraft_audit.replay.kernels import codes, kernel, layout
from kraft_audit.replay.kernels.codes import Cause
from kraft_audit.replay.partitions.interning import UuidNumbers, larger
from kraft_audit.replay.partitions.partition_rows import PartitionRows, exposure_rows
from kraft_audit.replay.partitions.window_events import (
    PartitionContext,
    WindowEvents,
    merged_events,
    partition_inputs,
    rare_events,
)
from kraft_audit.tables.contract import MAX_BATCH_ROWS
from kraft_codec.text.java_text import uuid_bytes

MIGRATING_DIRECTORY: Final = uuid_bytes("AAAAAAAAAAAAAAAAAAAAAA")
_ARENA_SLACK: Final = 1 << 20
_GROWTH: Final = 8
"""The factor by which a full table grows. A large one is cheap: pages that were never written take no memory, but each
growth copies all rows to new pages."""
PROBLEMS_REMEMBERED: Final = 10_000
"""How many problems of a log are recorded; later ones are dropped."""


@dataclass(frozen=True, slots=True)
class ReplayProblem:
    """A record that contradicts the log before it, or that refers to a record which the log no longer has."""

    offset: int
    problem: str


class PartitionReplay:
    """The state of every partition, replayed window by window."""

    def __init__(
        self,
        *,
        cluster_id: str,
        plan: int = 0,
        default_min_isr: int = 1,
        emit_from_offset: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self.plan = plan
        self._default_min_isr = default_min_isr
        self._emit_from_offset = emit_from_offset
        self._rows = PartitionRows(cluster_id, plan)
        self.problems: list[ReplayProblem] = []
        self._reset()

    def reset(self) -> None:
        """Clears all state before a snapshot is loaded, except for the id of the active controller."""
        controller_id = self._context.controller_id
        self._reset()
        self._context.controller_id = controller_id

    def absorb(self, records: RecordColumns) -> None:
        """Applies records of a snapshot and yields no rows: their offsets are positions inside the snapshot."""
        self._block[layout.EMIT_FROM_OFFSET] = np.iinfo(np.int64).max
        for _ in self.replay(records):  # pragma: no branch - none is emitted there
            raise AssertionError("a row below the offset to emit from")  # pragma: no cover - none is emitted there
        self._block[layout.EMIT_FROM_OFFSET] = self._emit_from_offset

    def _reset(self) -> None:
        self._topics = UuidNumbers()
        self._directories = UuidNumbers()
        self._directories.number(MIGRATING_DIRECTORY)
        self._context = PartitionContext(self._topics, self._default_min_isr)
        self._block = np.zeros(layout.SLOT_COUNT, np.int64)
        self._partitions = np.zeros((0, layout.PARTITION_CELLS), np.int32)
        self._topic_rows = np.zeros((0, layout.TOPIC_CELLS), np.int32)
        self._topic_count = 0
        self._slots = np.full(1, -1, np.int32)
        self._arena = np.zeros(0, np.int32)
        self._compacted_size = 0
        self._rooms: dict[str, npt.NDArray[np.int32]] = {}
        self._output = np.zeros((MAX_BATCH_ROWS + 1, layout.OUTPUT_CELLS), np.int32)
        self._block[layout.DEFAULT_MIN_ISR] = self._default_min_isr
        self._block[layout.EMIT_FROM_OFFSET] = self._emit_from_offset

    @property
    def partition_count(self) -> int:
        """How many partitions there were so far, removed ones included."""
        return int(self._block[layout.PARTITION_COUNT])

    def replay(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Applies the records of one window; yields batches of `partition_changes` in log order."""
        inputs = partition_inputs(records, self._topics, self._directories)
        events = merged_events(inputs, list(rare_events(self._context, records)))
        event_count = len(events.offsets)
        if event_count == 0:
            return
        self._make_room(inputs.created_count, inputs.value_count)
        used = int(self._block[layout.ARENA_USED])
        rows = self._room("rows", event_count * layout.INPUT_CELLS)
        longest = inputs.fill(rows, self._arena, used)
        self._block[layout.ARENA_USED] = used + inputs.value_count
        self._block[layout.LONGEST_LIST] = max(int(self._block[layout.LONGEST_LIST]), longest)
        contexts = self._room("contexts", event_count * layout.CONTEXT_CELLS)
        contexts.fill(layout.NO_MARKER)
        problems = self._room("problems", event_count * 2)
        self._point(rows, events, contexts, problems)
        status = -1
        while status != layout.DONE:
            self._block[layout.OUTPUT_COUNT] = self._block[layout.OUTPUT_VALUES] = 0
            self._block[layout.OUTPUT_LENGTHS :] = 0
            status = kernel("replay_events")(self._block.ctypes.data)
            if self._block[layout.OUTPUT_COUNT]:
                yield self._batch(events)
            if status == layout.ARENA_FULL:
                self._grow_arena(2 * len(self._arena))
        self._note_problems(problems.reshape(-1, 2), events)

    def state(self, offset: int, epoch: int, timestamp_ms: int) -> Iterator[pa.RecordBatch]:
        """The partitions that exist now as rows at `offset`, with cause "snapshot"."""
        count = self.partition_count
        existing = np.flatnonzero(self._partitions[:count, layout.EXISTS])
        events = WindowEvents.zeros(1)
        events.offsets[0], events.epochs[0], events.times_ms[0] = offset, epoch, timestamp_ms
        for start in range(0, len(existing), MAX_BATCH_ROWS):
            chosen = self._partitions[existing[start : start + MAX_BATCH_ROWS]]
            output = self._output[: len(chosen)]
            output[:, : layout.PARTITION_CELLS] = chosen
            # The replica count of partition 0 limits the minimum, and a snapshot may have it after the other
            # partitions.
            output[:, layout.EFFECTIVE_MIN_ISR] = self._effective_min_isr(chosen)
            self._partitions[existing[start : start + MAX_BATCH_ROWS], layout.EFFECTIVE_MIN_ISR] = output[
                :, layout.EFFECTIVE_MIN_ISR
            ]
            output[:, layout.EVENT] = 0
            output[:, layout.CAUSE] = Cause.SNAPSHOT
            output[:, layout.CAUSE_BROKER] = -1
            output[:, layout.ELECTION] = codes.NO_ELECTION
            output[:, layout.EXPECTED_ELR + 1] = -1
            self._point_output(len(chosen))
            kernel("expose_output")(self._block.ctypes.data)
            self._partitions[existing[start : start + MAX_BATCH_ROWS], layout.EXPOSURE] = output[:, layout.EXPOSURE]
            self._block[layout.OUTPUT_LENGTHS : layout.SLOT_COUNT - 1] = chosen[:, layout.LISTS + 1 :: 2].sum(axis=0)
            self._block[layout.SLOT_COUNT - 1] = 0
            yield self._batch(events)

    def exposures(self, changes: pa.RecordBatch, *, is_every: bool = False) -> pa.RecordBatch:
        """The rows of `exposure_changes` for the batch that was yielded last; `is_every`: one for every row of it."""
        return exposure_rows(changes, self._output[: changes.num_rows], self._arena, is_every=is_every)

    def _effective_min_isr(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        topics = self._topic_rows[rows[:, layout.TOPIC]]
        wanted = np.where(
            topics[:, layout.TOPIC_MIN_ISR] < 0, self._block[layout.DEFAULT_MIN_ISR], topics[:, layout.TOPIC_MIN_ISR]
        )
        first = topics[:, layout.PARTITION_0]
        replica_count = self._partitions[first, layout.LISTS + 2 * layout.REPLICAS + 1]
        return np.where((first >= 0) & (replica_count < wanted), replica_count, wanted).astype(np.int32)

    def _note_problems(self, problems: npt.NDArray[np.int32], events: WindowEvents) -> None:
        room = max(0, PROBLEMS_REMEMBERED - len(self.problems))
        for event, number in problems[: min(room, int(self._block[layout.PROBLEM_COUNT]))]:
            self.problems.append(ReplayProblem(int(events.offsets[event]), codes.PROBLEMS[number]))
        context = self._context.problems[: max(0, PROBLEMS_REMEMBERED - len(self.problems))]
        self.problems.extend(ReplayProblem(offset, problem) for offset, problem in context)
        self._context.problems.clear()

    def _room(self, use: str, count: int) -> npt.NDArray[np.int32]:
        """Memory for one window, reused from earlier windows where it is large enough: fresh pages cost more."""
        known = self._rooms.get(use)
        if known is None or len(known) < count:
            known = self._rooms[use] = np.empty(2 * count, np.int32)
        return known[:count]

    def _make_room(self, created_count: int, value_count: int) -> None:
        """Makes room for the window's partitions, topics and lists; drops unused list values where there are many."""
        count = self.partition_count
        if count + created_count > len(self._partitions):
            room = max(_GROWTH * len(self._partitions), count + created_count)
            self._partitions = larger(self._partitions, room, count)
        if self._topics.count > len(self._topic_rows):
            room = max(_GROWTH * len(self._topic_rows), self._topics.count)
            self._topic_rows = larger(self._topic_rows, room, self._topic_count)
        self._topic_rows[self._topic_count : self._topics.count] = -1
        self._topic_count = self._topics.count
        if 2 * (count + created_count) > len(self._slots):
            slots = 1 << (4 * (count + created_count) - 1).bit_length()
            self._slots = np.full(slots, -1, np.int32)
            self._point_tables()
            kernel("rehash")(self._block.ctypes.data)
        used = int(self._block[layout.ARENA_USED])
        if used > 2 * self._compacted_size + _ARENA_SLACK:
            self._compact()
            used = self._compacted_size
        longest = int(self._block[layout.LONGEST_LIST])
        self._grow_arena(used + value_count + 2 * layout.LONG_LIST + longest + _ARENA_SLACK)

    def _grow_arena(self, size: int) -> None:
        if size > len(self._arena):
            used = int(self._block[layout.ARENA_USED])
            self._arena = larger(self._arena, max(size, _GROWTH * len(self._arena)), used)
        self._point_tables()

    def _compact(self) -> None:
        target = np.empty(int(self._block[layout.ARENA_USED]), np.int32)
        self._point_tables()
        self._compacted_size = kernel("compact_arena")(self._block.ctypes.data, target.ctypes.data)
        # Copied back: the pages of a new arena would all have to be touched for the first time.
        self._arena[: self._compacted_size] = target[: self._compacted_size]
        self._block[layout.ARENA_USED] = self._compacted_size

    def _point_tables(self) -> None:
        block = self._block
        block[layout.PARTITIONS_AT] = self._partitions.ctypes.data
        block[layout.TOPICS_AT] = self._topic_rows.ctypes.data
        block[layout.SLOTS_AT] = self._slots.ctypes.data
        block[layout.SLOT_MASK] = len(self._slots) - 1
        block[layout.ARENA_AT] = self._arena.ctypes.data
        block[layout.ARENA_CAPACITY] = len(self._arena)

    def _point_output(self, count: int) -> None:
        self._point_tables()
        self._block[layout.OUTPUT_AT] = self._output.ctypes.data
        self._block[layout.OUTPUT_CAPACITY] = MAX_BATCH_ROWS
        self._block[layout.OUTPUT_COUNT] = count

    def _point(self, rows: Any, events: WindowEvents, contexts: Any, problems: Any) -> None:
        self._point_output(0)
        block = self._block
        block[layout.INPUTS_AT] = rows.ctypes.data
        block[layout.OFFSETS_AT] = events.offsets.ctypes.data
        block[layout.BATCHES_AT] = events.base_offsets.ctypes.data
        block[layout.KINDS_AT] = events.kinds.ctypes.data
        block[layout.FIRST_OPERANDS_AT] = events.first.ctypes.data
        block[layout.SECOND_OPERANDS_AT] = events.second.ctypes.data
        block[layout.CONTEXTS_AT] = contexts.ctypes.data
        block[layout.PROBLEMS_AT] = problems.ctypes.data
        block[layout.EVENT_COUNT] = len(events.offsets)
        block[layout.NEXT_EVENT] = block[layout.IS_RESUMED] = block[layout.PROBLEM_COUNT] = 0

    def _batch(self, events: WindowEvents) -> pa.RecordBatch:
        """The output rows as a batch of the table."""
        self._context.topic_names.reach(self._topics.count)
        return self._rows.batch(self._block, events, self._context.topic_names, self._topics, self._directories)
