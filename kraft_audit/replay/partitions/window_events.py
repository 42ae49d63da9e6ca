"""The events of a window in log order: partition records, and the rare records that affect partitions.

Partition records become rows of int32, their lists one array of values. Records of topics, min.insync.replicas,
features, controllers and brokers are few beside them: each becomes an event with two int32 operands. The kernel applies
all events in log order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.decoded_records import RecordColumns, batches_of, rows_in_order
from kraft_audit.replay.kernels import codes, kernel, layout
from kraft_audit.replay.kernels.codes import Cause
from kraft_audit.replay.partitions.interning import TextTable, UuidNumbers, uuid_values
from kraft_audit.replay.state_machines import BROKER_RESOURCE, TOPIC_RESOURCE
from kraft_codec.columns.buffers import address
from kraft_codec.schemas.releases import (
    ELR_FEATURE,
    FIRST_LEVEL_WITH_ELR,
    FIRST_LEVEL_WITHOUT_ELR_WIPE,
    METADATA_VERSION_FEATURE,
)

PARTITION_RECORD: Final = "PartitionRecord"
CHANGE_RECORD: Final = "PartitionChangeRecord"
MIN_ISR: Final = "min.insync.replicas"

_INT32_MAX: Final = 2**31 - 1
_INPUT_LISTS: Final = {
    layout.REPLICAS: "replicas",
    layout.ISR: "isr",
    layout.ELR: "eligible_leader_replicas",
    layout.LAST_KNOWN_ELR: "last_known_elr",
    layout.ADDING_REPLICAS: "adding_replicas",
    layout.REMOVING_REPLICAS: "removing_replicas",
    layout.DIRECTORIES: "directories",
}
_INPUT_NUMBERS: Final = {
    layout.IN_LEADER: ("leader", pa.int32(), 4),
    layout.IN_RECOVERY_STATE: ("leader_recovery_state", pa.int8(), 1),
    layout.IN_LEADER_EPOCH: ("record_leader_epoch", pa.int32(), 4),
    layout.IN_PARTITION_EPOCH: ("partition_epoch", pa.int32(), 4),
    layout.IN_PARTITION: ("partition_id", pa.int32(), 4),
}
"""Column name, type and bytes per value. A change record has no epochs: they follow from the state before it."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionInputs:
    """The PartitionRecords of a window, then its PartitionChangeRecords.

    `created_count`: how many PartitionRecords. `value_count`: the number of values in all their lists. Times are in
    milliseconds.
    """

    batches: tuple[_BatchInputs, ...]
    created_count: int
    value_count: int
    offsets: Int64s
    leader_epochs: Int32s
    times_ms: Int64s
    base_offsets: Int64s

    def fill(self, rows: Int32s, arena: Int32s, used: int) -> int:
        """Writes the records as rows of INPUT_CELLS, and their lists into `arena` after its first `used` values.

        Returns the length of the longest list.
        """
        first = longest = 0
        for batch in self.batches:
            for number, (first_offset, values) in batch.values.items():
                arena[used : used + len(values)] = values
                batch.table[_list_slot(number, layout.IN_LIST_ARENA_SHIFT)] = used - first_offset
                used += len(values)
            first_row = address(rows) + layout.INPUT_BYTES * first
            longest = max(longest, kernel("fill_inputs")(address(batch.table), batch.row_count, first_row))
            first += batch.row_count
        return longest


@dataclass(frozen=True, slots=True)
class _BatchInputs:
    """One batch of one record type as the kernel reads it.

    `table`: addresses into the arrays that `arrays` keeps alive. `values`: by list column, the first offset and all
    values, which go into the arena.
    """

    table: Int64s
    row_count: int
    values: dict[int, tuple[int, Int32s]]
    arrays: tuple[Any, ...]


def partition_inputs(records: RecordColumns, topics: UuidNumbers, directories: UuidNumbers) -> PartitionInputs:
    """The partition records of a window; topics and directories seen for the first time get new numbers."""
    created = batches_of(records, PARTITION_RECORD)
    batches = created + batches_of(records, CHANGE_RECORD)
    inputs = tuple(_batch_inputs(batch, topics, directories) for batch in batches)
    return PartitionInputs(
        inputs,
        sum(batch.num_rows for batch in created),
        sum(len(values) for batch in inputs for _, values in batch.values.values()),
        _column(batches, "offset", np.int64),
        _column(batches, "leader_epoch", np.int32),
        _column(batches, "timestamp_ms", np.int64),
        _column(batches, "base_offset", np.int64),
    )


def _column(batches: list[pa.RecordBatch], name: str, type_: Any) -> Any:
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for batch in batches]
    return np.ascontiguousarray(np.concatenate(columns), type_) if columns else np.zeros(0, type_)


def _batch_inputs(batch: pa.RecordBatch, topics: UuidNumbers, directories: UuidNumbers) -> _BatchInputs:
    table = np.zeros(layout.IN_COLUMNS, np.int64)
    topic_numbers = topics.numbers(uuid_values(batch.column("topic_id")))
    table[layout.IN_TOPIC] = address(topic_numbers)
    arrays: list[Any] = [batch, topic_numbers]
    for place, (name, type_, width_bytes) in _INPUT_NUMBERS.items():
        if name in batch.schema.names:
            column = batch.column(name)
            column = column if column.type == type_ else column.cast(type_)
            arrays.append(column)
            table[place] = column.buffers()[1].address + width_bytes * column.offset
    lists: dict[int, tuple[int, Int32s]] = {}
    for number, name in _INPUT_LISTS.items():
        column = batch.column(name)
        validity, offsets, *_ = column.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        first, end = int(bounds[0]), int(bounds[-1])
        values = column.values.slice(first, end - first)
        is_of_ids = number == layout.DIRECTORIES
        lists[number] = first, directories.numbers(uuid_values(values)) if is_of_ids else values.to_numpy()
        table[_list_slot(number, layout.IN_LIST_OFFSETS)] = offsets.address + 4 * column.offset
        table[_list_slot(number, layout.IN_LIST_FIRST_BIT)] = column.offset
        if validity is not None and column.null_count:
            table[_list_slot(number, layout.IN_LIST_VALIDITY)] = validity.address
    return _BatchInputs(table, batch.num_rows, lists, tuple(arrays))


def _list_slot(number: int, place: int) -> int:
    return layout.IN_LISTS + layout.IN_LIST_SLOTS * number + place


RareEvent = tuple[int, int, int, int, int, int, int]
"""Offset, leader epoch, time in ms, base offset of its batch, kind, first operand, second operand."""


@dataclass(slots=True)
class PartitionContext:
    """The state that partitions depend on: topic names, min.insync.replicas, the active controller.

    `default_min_isr` is the static config of fleet.yaml.
    """

    topics: UuidNumbers
    default_min_isr: int = 1
    topic_numbers: dict[str, int] = field(default_factory=dict)
    topic_names: TextTable = field(default_factory=TextTable)
    node_min_isr: dict[int, int] = field(default_factory=dict)
    cluster_min_isr: int | None = None
    controller_id: int = -1
    controller_metadata_version: dict[int, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def current_default(self) -> int:
        """min.insync.replicas of a topic that sets none.

        The config of the active controller's own node, else the cluster's default (KafkaConfigSchema, Kafka 4.3.0).
        """
        if self.controller_id in self.node_min_isr:
            return self.node_min_isr[self.controller_id]
        return self.default_min_isr if self.cluster_min_isr is None else self.cluster_min_isr

    def directory_wipes_elr(self) -> int:
        """1 where a directory assignment wipes the ELR in the active controller's release (4.0.0 to 4.2.0), else 0."""
        newest = self.controller_metadata_version.get(self.controller_id, FIRST_LEVEL_WITHOUT_ELR_WIPE)
        return int(FIRST_LEVEL_WITH_ELR <= newest < FIRST_LEVEL_WITHOUT_ELR_WIPE)

    def add_unknown_topic(self, offset: int) -> None:
        """A record that names a topic which does not exist."""
        self.problems.append((offset, codes.PROBLEMS[codes.UNKNOWN_TOPIC]))


def rare_events(context: PartitionContext, records: RecordColumns) -> Iterator[RareEvent]:
    """The rare events of a window in log order; updates the context to the window's end."""
    rare = {name: records[name] for name in _EVENTS_OF_RECORD if name in records}
    if (configs := rare.get("ConfigRecord")) is not None:
        rare["ConfigRecord"] = configs.filter(pc.equal(configs.column("name"), MIN_ISR))
    for name, row in rows_in_order(rare, rare):
        for kind, first, second in _EVENTS_OF_RECORD[name](context, row):
            envelope = row["offset"], row["leader_epoch"], row["timestamp_ms"], row["base_offset"]
            yield *envelope, kind, first, second


RecordRow = Mapping[str, Any]
EventOperands = Iterator[tuple[int, int, int]]


def _topic_created(context: PartitionContext, row: RecordRow) -> EventOperands:
    number = context.topics.number(row["topic_id"])
    context.topic_names.set(number, row["name"])
    context.topic_numbers[row["name"]] = number
    return iter(())


def _topic_removed(context: PartitionContext, row: RecordRow) -> EventOperands:
    number = context.topics.number(row["topic_id"])
    name = context.topic_names.text(number)
    if context.topic_numbers.get(name) == number:
        del context.topic_numbers[name]
    else:
        context.add_unknown_topic(row["offset"])
    yield layout.TOPIC_REMOVED_EVENT, number, 0


def _elr_cleared(context: PartitionContext, row: RecordRow) -> EventOperands:
    name = row["topic_name"]
    if not name:
        yield layout.CLEAR_ELR_EVENT, -1, 0
    elif name in context.topic_numbers:
        yield layout.CLEAR_ELR_EVENT, context.topic_numbers[name], 0
    else:
        context.add_unknown_topic(row["offset"])


def _min_isr_changed(context: PartitionContext, row: RecordRow) -> EventOperands:
    type_, resource, value = row["resource_type"], row["resource_name"], row["value"]
    number = min(int(value), _INT32_MAX) if value is not None and value.strip().isdecimal() else None
    if type_ == TOPIC_RESOURCE and resource in context.topic_numbers:
        yield layout.TOPIC_MIN_ISR_EVENT, context.topic_numbers[resource], -1 if number is None else number
    if type_ != BROKER_RESOURCE:
        return
    if not resource:
        context.cluster_min_isr = number
    elif resource.isdecimal() and number is not None:
        context.node_min_isr[int(resource)] = number
    elif resource.isdecimal():
        context.node_min_isr.pop(int(resource), None)
    yield layout.DEFAULT_MIN_ISR_EVENT, Cause.MIN_ISR_EDITED, context.current_default()


def _feature_changed(_: PartitionContext, row: RecordRow) -> EventOperands:
    if row["name"] == ELR_FEATURE:
        yield layout.ELR_FEATURE_EVENT, 0, row["feature_level"]


def _leader_changed(context: PartitionContext, row: RecordRow) -> EventOperands:
    context.controller_id = row["leader_id"]
    yield layout.DEFAULT_MIN_ISR_EVENT, Cause.CONTROLLER_CHANGED, context.current_default()
    yield layout.RULES_EVENT, 0, context.directory_wipes_elr()


def _controller_registered(context: PartitionContext, row: RecordRow) -> EventOperands:
    versions = [f["max_supported_version"] for f in row["features"] if f["name"] == METADATA_VERSION_FEATURE]
    if versions:
        context.controller_metadata_version[row["controller_id"]] = max(versions)
        yield layout.RULES_EVENT, 0, context.directory_wipes_elr()


def _marker(marker: int, broker_id: str) -> Callable[[PartitionContext, RecordRow], EventOperands]:
    """An event that marks the changes around a broker's record; `broker_id` is its column."""
    return lambda context, row: iter([(layout.MARKER_EVENT, marker, row[broker_id])])


def _broker_changed(_: PartitionContext, row: RecordRow) -> EventOperands:
    marker = layout.NO_MARKER
    if row["fenced"]:
        marker = layout.FENCE_MARKER if row["fenced"] > 0 else layout.UNFENCE_MARKER
    elif row["in_controlled_shutdown"]:
        marker = layout.SHUTDOWN_MARKER
    elif row["log_dirs"]:
        marker = layout.LOG_DIRS_MARKER
    yield layout.MARKER_EVENT, marker, row["broker_id"]


_EVENTS_OF_RECORD: Final[Mapping[str, Callable[[PartitionContext, RecordRow], EventOperands]]] = {
    "TopicRecord": _topic_created,
    "RemoveTopicRecord": _topic_removed,
    "ClearElrRecord": _elr_cleared,
    "ConfigRecord": _min_isr_changed,
    "FeatureLevelRecord": _feature_changed,
    "LeaderChangeMessage": _leader_changed,
    "RegisterControllerRecord": _controller_registered,
    "RegisterBrokerRecord": _marker(layout.REGISTER_MARKER, "broker_id"),
    "UnregisterBrokerRecord": _marker(layout.UNREGISTER_MARKER, "broker_id"),
    "FenceBrokerRecord": _marker(layout.FENCE_MARKER, "id"),
    "UnfenceBrokerRecord": _marker(layout.UNFENCE_MARKER, "id"),
    "BrokerRegistrationChangeRecord": _broker_changed,
}


@dataclass(frozen=True, slots=True)
class WindowEvents:
    """All events of a window in log order, as the kernel reads them; `epochs` are those of the rows it emits.

    `base_offsets` are those of their batches: what stands in two batches is not one operation, but for full ones.
    """

    offsets: Int64s
    epochs: Int32s
    times_ms: Int64s
    base_offsets: Int64s
    kinds: Int32s
    first: Int32s
    second: Int32s

    @classmethod
    def zeros(cls, count: int) -> Self:
        """Room for that many events."""
        epochs, *operands = (np.zeros(count, np.int32) for _ in range(4))
        offsets, times_ms, base_offsets = (np.zeros(count, np.int64) for _ in range(3))
        return cls(offsets, epochs, times_ms, base_offsets, *operands)


def merged_events(inputs: PartitionInputs, rare: list[RareEvent]) -> WindowEvents:
    """The partition records and rare events of a window, both in log order, as one sequence."""
    row_count = len(inputs.offsets)
    events = WindowEvents.zeros(row_count + len(rare))
    rare_rows = np.array(rare, np.int64).reshape(-1, layout.RARE_BYTES // 8)
    # In the order of the MERGE slots.
    table = np.array(
        [
            *(address(column) for column in (inputs.offsets, inputs.leader_epochs, inputs.times_ms)),
            address(inputs.base_offsets),
            *(inputs.created_count, row_count, address(rare_rows), len(rare)),
            *(address(column) for column in (events.offsets, events.epochs, events.times_ms, events.base_offsets)),
            *(address(column) for column in (events.kinds, events.first, events.second)),
        ],
        np.int64,
    )
    if kernel("merge_events")(address(table)) != len(events.offsets):  # pragma: no cover - a kernel that counts wrongly
        raise RuntimeError("the merge of events lost some")
    return events
