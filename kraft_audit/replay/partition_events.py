"""The order of a window's events, and what the rare ones mean for partitions.

Topics, min.insync.replicas, features, controllers and broker records are few beside partition records: they are looked
at one by one here and become events with two small operands, which the kernel meets in log order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from kraft_audit.replay import causes
from kraft_audit.replay.interning import TextTable, UuidNumbers
from kraft_audit.replay.kernels import layout
from kraft_audit.replay.kernels.native import kernel
from kraft_audit.replay.partition_inputs import PartitionInputs
from kraft_audit.replay.records import RecordColumns

MIN_ISR: Final = "min.insync.replicas"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
FIRST_WITHOUT_DIRECTORY_BUG: Final = 30
"""metadata.version 4.3-IV0: a controller that supports it was released with the fix of KAFKA-19840 (PR 20716)."""
FIRST_WITH_ELR: Final = 23

_INT32_MAX: Final = 2**31 - 1
_RARE: Final = {
    "TopicRecord": ("name", "topic_id"),
    "RemoveTopicRecord": ("topic_id",),
    "ClearElrRecord": ("topic_name",),
    "ConfigRecord": ("resource_type", "resource_name", "name", "value"),
    "FeatureLevelRecord": ("name", "feature_level"),
    "LeaderChangeMessage": ("leader_id",),
    "RegisterControllerRecord": ("controller_id", "features"),
    "RegisterBrokerRecord": ("broker_id",),
    "UnregisterBrokerRecord": ("broker_id",),
    "FenceBrokerRecord": ("id",),
    "UnfenceBrokerRecord": ("id",),
    "BrokerRegistrationChangeRecord": ("broker_id", "fenced", "in_controlled_shutdown", "log_dirs"),
}

Event = tuple[int, int, int, int, int, int]
"""offset, leader epoch, time, kind, first operand, second operand"""


@dataclass(slots=True)
class PartitionContext:
    """What decides about partitions without being part of them; `default_min_isr` is the static one of fleet.yaml."""

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
        """min.insync.replicas of a topic without its own: KafkaConfigSchema asks the active controller's own node."""
        if self.controller_id in self.node_min_isr:
            return self.node_min_isr[self.controller_id]
        return self.default_min_isr if self.cluster_min_isr is None else self.cluster_min_isr

    def directory_wipes_elr(self) -> int:
        """1 where the active controller's release wipes the ELR with a directory assignment (4.0.0 to 4.2.0)."""
        newest = self.controller_metadata_version.get(self.controller_id, FIRST_WITHOUT_DIRECTORY_BUG)
        return int(FIRST_WITH_ELR <= newest < FIRST_WITHOUT_DIRECTORY_BUG)


def rare_events(context: PartitionContext, records: RecordColumns) -> Iterator[Event]:
    """The window's rare events in log order; brings the context up to its end."""
    rows: list[tuple[int, int, int, str, tuple[Any, ...]]] = []
    for name, columns in _RARE.items():
        batch = records.get(name)
        if batch is not None and name == "ConfigRecord":
            batch = batch.filter(pc.equal(batch.column("name"), MIN_ISR))
        if batch is not None and batch.num_rows:
            envelope = [batch.column(column).to_pylist() for column in ("offset", "leader_epoch", "timestamp_ms")]
            values = zip(*(batch.column(column).to_pylist() for column in columns), strict=True)
            rows.extend(
                (offset, epoch, time, name, row) for offset, epoch, time, row in zip(*envelope, values, strict=True)
            )
    rows.sort(key=lambda row: row[0])
    for offset, epoch, time, name, values_of_row in rows:
        for kind, first, second in _MEANING[name](context, offset, *values_of_row):
            yield offset, epoch, time, kind, first, second


Meaning = Iterator[tuple[int, int, int]]


def _topic(context: PartitionContext, _: int, name: str, topic_id: bytes) -> Meaning:
    number = context.topics.number(topic_id)
    context.topic_names.set(number, name)
    context.topic_numbers[name] = number
    return iter(())


def _topic_removed(context: PartitionContext, offset: int, topic_id: bytes) -> Meaning:
    number = context.topics.number(topic_id)
    name = context.topic_names.text(number)
    if context.topic_numbers.get(name) == number:
        del context.topic_numbers[name]
    else:
        context.problems.append((offset, causes.PROBLEMS[causes.UNKNOWN_TOPIC]))
    yield layout.TOPIC_REMOVED_EVENT, number, 0


def _clear_elr(context: PartitionContext, offset: int, topic_name: str) -> Meaning:
    if not topic_name:
        yield layout.CLEAR_ELR_EVENT, -1, 0
    elif topic_name in context.topic_numbers:
        yield layout.CLEAR_ELR_EVENT, context.topic_numbers[topic_name], 0
    else:
        context.problems.append((offset, causes.PROBLEMS[causes.UNKNOWN_TOPIC]))


def _min_isr(context: PartitionContext, _: int, type_: int, resource: str, __: str, value: str | None) -> Meaning:
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
    yield layout.DEFAULT_MIN_ISR_EVENT, causes.MIN_ISR_EDITED, context.current_default()


def _feature(_: PartitionContext, __: int, name: str, level: int) -> Meaning:
    if name == ELR_FEATURE:
        yield layout.ELR_FEATURE_EVENT, 0, level


def _leader(context: PartitionContext, _: int, leader_id: int) -> Meaning:
    context.controller_id = leader_id
    yield layout.DEFAULT_MIN_ISR_EVENT, causes.CONTROLLER_CHANGED, context.current_default()
    yield layout.RULES_EVENT, 0, context.directory_wipes_elr()


def _controller(context: PartitionContext, _: int, controller_id: int, features: list[Mapping[str, Any]]) -> Meaning:
    versions = [f["max_supported_version"] for f in features if f["name"] == "metadata.version"]
    if versions:
        context.controller_metadata_version[controller_id] = max(versions)
        yield layout.RULES_EVENT, 0, context.directory_wipes_elr()


def _registered(_: PartitionContext, __: int, broker_id: int) -> Meaning:
    yield layout.MARKER_EVENT, layout.REGISTER_MARKER, broker_id


def _unregistered(_: PartitionContext, __: int, broker_id: int) -> Meaning:
    yield layout.MARKER_EVENT, layout.UNREGISTER_MARKER, broker_id


def _fenced(_: PartitionContext, __: int, broker_id: int) -> Meaning:
    yield layout.MARKER_EVENT, layout.FENCE_MARKER, broker_id


def _unfenced(_: PartitionContext, __: int, broker_id: int) -> Meaning:
    yield layout.MARKER_EVENT, layout.UNFENCE_MARKER, broker_id


def _registration_changed(
    _: PartitionContext, __: int, broker_id: int, fenced: int, in_controlled_shutdown: int, log_dirs: list[bytes]
) -> Meaning:
    marker = layout.NO_MARKER
    if fenced:
        marker = layout.FENCE_MARKER if fenced > 0 else layout.UNFENCE_MARKER
    elif in_controlled_shutdown:
        marker = layout.SHUTDOWN_MARKER
    elif log_dirs:
        marker = layout.LOG_DIRS_MARKER
    yield layout.MARKER_EVENT, marker, broker_id


_MEANING: Final[Mapping[str, Any]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _topic_removed,
    "ClearElrRecord": _clear_elr,
    "ConfigRecord": _min_isr,
    "FeatureLevelRecord": _feature,
    "LeaderChangeMessage": _leader,
    "RegisterControllerRecord": _controller,
    "RegisterBrokerRecord": _registered,
    "UnregisterBrokerRecord": _unregistered,
    "FenceBrokerRecord": _fenced,
    "UnfenceBrokerRecord": _unfenced,
    "BrokerRegistrationChangeRecord": _registration_changed,
}


@dataclass(frozen=True, slots=True)
class Events:
    """All events of a window in log order, as the kernel reads them; `epochs` is for the rows that come out."""

    offsets: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int32]
    times_ms: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]


def merged(inputs: PartitionInputs, rare: list[Event]) -> Events:
    """Merges a window's partition records with its rare events, each in log order."""
    row_count = len(inputs.offsets)
    count = row_count + len(rare)
    events = Events(
        np.empty(count, np.int64),
        np.empty(count, np.int32),
        np.empty(count, np.int64),
        *(np.empty(count, np.int32) for _ in range(3)),
    )
    extra = np.array(rare, np.int64).reshape(-1, layout.RARE_BYTES // 8)
    table = np.zeros(layout.MERGE_SLOTS, np.int64)
    table[layout.MERGE_OFFSETS] = inputs.offsets.ctypes.data
    table[layout.MERGE_EPOCHS] = inputs.leader_epochs.ctypes.data
    table[layout.MERGE_TIMES] = inputs.times_ms.ctypes.data
    table[layout.MERGE_CREATED] = inputs.created_count
    table[layout.MERGE_COUNT] = row_count
    table[layout.MERGE_RARE] = extra.ctypes.data
    table[layout.MERGE_RARE_COUNT] = len(rare)
    table[layout.MERGED_OFFSETS] = events.offsets.ctypes.data
    table[layout.MERGED_EPOCHS] = events.epochs.ctypes.data
    table[layout.MERGED_TIMES] = events.times_ms.ctypes.data
    table[layout.MERGED_KINDS] = events.kinds.ctypes.data
    table[layout.MERGED_FIRST] = events.first.ctypes.data
    table[layout.MERGED_SECOND] = events.second.ctypes.data
    if kernel("merge_events")(table.ctypes.data) != count:  # pragma: no cover - a kernel that counts wrongly
        raise RuntimeError("the merge of events lost some")
    return events
