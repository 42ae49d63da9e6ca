"""The state of every partition as columns that are kept between plans, and back.

Kept is what exists. Removed partitions and topics leave nothing: Kafka draws a new id for a topic that is created again
(ReplicationControlManager.createTopic, Kafka 4.3.0). Numbers of topics and directories, the chains of a topic's
partitions and the places in the arena are private to one replay, so they are made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.continuity import run_begins
from kraft_audit.replay.kernels import layout

_UUID: Final = pa.binary(16)
_LISTS: Final = {
    layout.REPLICAS: "replicas",
    layout.ISR: "isr",
    layout.ELR: "elr",
    layout.LAST_KNOWN_ELR: "last_known_elr",
    layout.ADDING_REPLICAS: "adding_replicas",
    layout.REMOVING_REPLICAS: "removing_replicas",
    layout.DIRECTORIES: "directories",
}
_CELLS: Final = {
    layout.PARTITION: "partition",
    layout.LEADER: "leader",
    layout.RECOVERY_STATE: "recovery_state",
    layout.LEADER_EPOCH: "leader_epoch",
    layout.PARTITION_EPOCH: "partition_epoch",
    layout.EFFECTIVE_MIN_ISR: "effective_min_isr",
    layout.EXPOSURE: "exposure",
}
SLOTS: Final = {
    layout.DEFAULT_MIN_ISR: "default_min_isr",
    layout.ELR_LEVEL: "elr_level",
    layout.DIRECTORY_WIPES_ELR: "directory_wipes_elr",
    layout.LONGEST_LIST: "longest_list",
    layout.LAST_OFFSET: "last_offset",
    layout.LAST_BATCH: "last_batch",
    layout.LAST_MARKER: "last_marker",
    layout.LAST_BROKER: "last_broker",
}
"""Slots of the control block whose values the next window needs, by the column that keeps each.

IS_PROVEN is none of them: it holds inside one operation, which is never replayed in parts."""
PARTITIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.int32(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in _CELLS.values()),
        *(pa.field(name, pa.list_(pa.int32()), nullable=False) for name in _LISTS.values()),
    ]
)
"""`topic` and the values of `directories` are rows of the parts `topics` and `directories`."""
TOPICS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic_id", _UUID, nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("is_named", pa.bool_(), nullable=False),
        pa.field("min_isr", pa.int32(), nullable=False),
    ]
)
"""`is_named`: the name now stands for this topic. `min_isr` is -1 where the topic sets none."""
DIRECTORIES_SCHEMA: Final = pa.schema([pa.field("directory_id", _UUID, nullable=False)])
CONTEXT_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in SLOTS.values()),
        pa.field("cluster_min_isr", pa.int32(), nullable=True),
        pa.field("controller_id", pa.int32(), nullable=False),
    ]
)
NODES_SCHEMA: Final = pa.schema(
    [
        pa.field("node_id", pa.int64(), nullable=False),
        pa.field("min_isr", pa.int32(), nullable=True),
        pa.field("metadata_version", pa.int32(), nullable=True),
    ]
)
"""`min_isr` is what the node's own config sets, `metadata_version` the highest that it supports as a controller."""
PARTITION_PARTS: Final = {
    "partitions": PARTITIONS_SCHEMA,
    "topics": TOPICS_SCHEMA,
    "directories": DIRECTORIES_SCHEMA,
    "context": CONTEXT_SCHEMA,
    "nodes": NODES_SCHEMA,
}
Cells = npt.NDArray[np.int32]


def partition_columns(rows: Cells, arena: Cells, topic_place: Cells, directory_place: Cells) -> pa.RecordBatch:
    """Partitions as columns of `PARTITIONS_SCHEMA`.

    `rows`: shape (partitions, PARTITION_CELLS), lists in `arena`. `topic_place` and `directory_place` are, by number,
    the rows that stand for them in their parts.
    """
    columns: dict[str, Any] = {"topic": pa.array(topic_place[rows[:, layout.TOPIC]], pa.int32())}
    for cell, name in _CELLS.items():
        columns[name] = pa.array(np.ascontiguousarray(rows[:, cell]), pa.int32())
    for number, name in _LISTS.items():
        offsets, values = list_values(rows, arena, number)
        values = directory_place[values] if number == layout.DIRECTORIES else values
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int32()))
    return pa.RecordBatch.from_arrays([columns[name] for name in PARTITIONS_SCHEMA.names], schema=PARTITIONS_SCHEMA)


def list_values(rows: Cells, arena: Cells, number: int) -> tuple[npt.NDArray[np.int64], Cells]:
    """One list of all partitions: where each begins, one more at the end, and all values in a row."""
    start = rows[:, layout.LISTS + 2 * number].astype(np.int64)
    length = np.maximum(rows[:, layout.LISTS + 2 * number + 1], 0).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(length)))
    places = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], length)
    return offsets, arena[places]


@dataclass(frozen=True, slots=True)
class PartitionTables:
    """Partitions as the kernels hold them: rows of partitions and topics, and the arena of their lists."""

    partitions: Cells
    topics: Cells
    arena: Cells

    @classmethod
    def of(cls, columns: pa.RecordBatch, topic_min_isr: Cells) -> PartitionTables:
        """From columns of `PARTITIONS_SCHEMA`; `topic_min_isr` has a value for each topic. Raises ValueError."""
        count = columns.num_rows
        topic = columns.column("topic").to_numpy()
        if count and (topic.min() < 0 or topic.max() >= len(topic_min_isr)):
            raise ValueError("a partition of a topic that is not there")
        partitions = np.zeros((count, layout.PARTITION_CELLS), np.int32)
        partitions[:, layout.TOPIC] = topic
        partitions[:, layout.EXISTS] = 1
        for cell, name in _CELLS.items():
            partitions[:, cell] = columns.column(name).to_numpy()
        arena: list[Cells] = []
        used = 0
        for number, name in _LISTS.items():
            lists = columns.column(name)
            offsets, values = lists.offsets.to_numpy(), lists.values.to_numpy()
            length = np.diff(offsets)
            partitions[:, layout.LISTS + 2 * number] = np.where(length > 0, offsets[:-1] + used, 0)
            partitions[:, layout.LISTS + 2 * number + 1] = length
            arena.append(values.astype(np.int32))
            used += len(values)
        topics = np.full((len(topic_min_isr), layout.TOPIC_CELLS), -1, np.int32)
        topics[:, layout.TOPIC_MIN_ISR] = topic_min_isr
        _chain(partitions, topics)
        return cls(partitions, topics, np.concatenate(arena))


def _chain(partitions: Cells, topics: Cells) -> None:
    """Links the partitions of each topic, the last one first, as they are linked where they are created."""
    order = np.argsort(partitions[:, layout.TOPIC], kind="stable")
    topic = partitions[order, layout.TOPIC]
    is_first = run_begins(topic)
    before = np.append(-1, order)[:-1]
    partitions[order, layout.NEXT_OF_TOPIC] = np.where(is_first, -1, before)
    # Of several values for one place the last one stays: the last partition of the topic.
    topics[topic, layout.FIRST_PARTITION] = order
    zeros = np.flatnonzero(partitions[:, layout.PARTITION] == 0)
    topics[partitions[zeros, layout.TOPIC], layout.PARTITION_0] = zeros
