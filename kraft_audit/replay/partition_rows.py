"""The rows of `partition_changes` as Arrow columns: one kernel writes all their buffers in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay import causes
from kraft_audit.replay.interning import TextTable, UuidNumbers
from kraft_audit.replay.kernels import layout
from kraft_audit.replay.kernels.native import kernel
from kraft_audit.replay.partition_events import Events
from kraft_audit.replay.tables import PARTITION_CHANGES
from kraft_codec.tables import MAX_BATCH_ROWS, build_batch
from kraft_codec.uuids import UUID_TEXT_CHARACTERS

_CAUSES: Final = TextTable(causes.CAUSES)
_ELECTIONS: Final = TextTable(name or "" for name in causes.ELECTIONS)
_RECOVERY_STATES: Final = TextTable(("RECOVERED", "RECOVERING"))
_NUMBERS: Final = {
    "from_offset": (layout.OUT_FROM_OFFSET, np.int64),
    "from_epoch": (layout.OUT_FROM_EPOCH, np.int32),
    "timestamp_ms": (layout.OUT_TIMESTAMP, np.int64),
    "partition": (layout.OUT_PARTITION, np.int32),
    "leader": (layout.OUT_LEADER, np.int32),
    "leader_epoch": (layout.OUT_LEADER_EPOCH, np.int32),
    "partition_epoch": (layout.OUT_PARTITION_EPOCH, np.int32),
    "effective_min_isr": (layout.OUT_MIN_ISR, np.int32),
    "cause_broker_id": (layout.OUT_BROKER, np.int32),
}
_TEXTS: Final = {
    "topic": layout.OUT_TOPIC,
    "cause": layout.OUT_CAUSE,
    "election": layout.OUT_ELECTION,
    "leader_recovery_state": layout.OUT_RECOVERY_STATE,
}
_NULLABLE: Final = {
    "cause_broker_id": layout.OUT_HAS_BROKER,
    "election": layout.OUT_HAS_ELECTION,
    "expected_elr": layout.OUT_HAS_EXPECTED_ELR,
}
_LISTS: Final = {
    "replicas": layout.REPLICAS,
    "isr": layout.ISR,
    "elr": layout.ELR,
    "last_known_elr": layout.LAST_KNOWN_ELR,
    "adding_replicas": layout.ADDING_REPLICAS,
    "removing_replicas": layout.REMOVING_REPLICAS,
    "expected_elr": layout.LIST_COUNT,
}
_TYPES: Final = {name: PARTITION_CHANGES.schema.field(name).type for name in PARTITION_CHANGES.column_names}

Addresses = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


class PartitionRows:
    """Makes batches of one cluster's and plan's rows."""

    def __init__(self, cluster_id: str, plan: int) -> None:
        self._cluster_ids = pa.repeat(pa.scalar(cluster_id, pa.string()), MAX_BATCH_ROWS)
        self._plans = pa.repeat(pa.scalar(plan, pa.int64()), MAX_BATCH_ROWS)
        self._uuid_offsets = _uuid_offsets(MAX_BATCH_ROWS)

    def batch(
        self,
        block: Addresses,
        output: Numbers,
        events: Events,
        topic_names: TextTable,
        topics: UuidNumbers,
        directories: UuidNumbers,
    ) -> pa.RecordBatch:
        """The output rows that the control block counts, by the events they are of."""
        count = int(block[layout.OUTPUT_COUNT])
        sources = _sources(events, topic_names, topics, directories)
        topic_bytes = int(topic_names.places[output[:count, layout.TOPIC], 1].sum())
        made = _Buffers(count, topic_bytes, block[layout.OUTPUT_LENGTHS :].tolist())
        kernel("fill_output")(block.ctypes.data, sources.ctypes.data, made.table.ctypes.data)
        directory_offsets = made.numbers[layout.OUT_LISTS + 2 * layout.DIRECTORIES]
        columns = made.columns()
        columns["cluster_id"] = self._cluster_ids.slice(0, count)
        columns["plan"] = self._plans.slice(0, count)
        columns["topic_id"] = self._uuids(made.numbers[layout.OUT_TOPIC_ID], count)
        texts = self._uuids(made.numbers[layout.OUT_DIRECTORY_TEXT], int(directory_offsets[count]))
        columns["directories"] = _array(_TYPES["directories"], count, [None, directory_offsets], [texts])
        return build_batch(PARTITION_CHANGES, columns, count)

    def _uuids(self, characters: Numbers, count: int) -> pa.Array:
        if count >= len(self._uuid_offsets):
            self._uuid_offsets = _uuid_offsets(2 * count)
        return _array(pa.string(), count, [None, self._uuid_offsets, characters])


class _Buffers:
    """Room for every column: `numbers` by their place in the table of addresses that the kernel gets."""

    def __init__(self, count: int, topic_bytes: int, list_lengths: Sequence[int]) -> None:
        self.count = count
        self.numbers: dict[int, Numbers] = {}
        for place, type_ in _NUMBERS.values():
            self.numbers[place] = np.empty(count, type_)
        for place in layout.OUT_FLAGS:
            self.numbers[place] = np.empty(count, np.uint8)
        uuids = {layout.OUT_TOPIC_ID: count, layout.OUT_DIRECTORY_TEXT: list_lengths[layout.DIRECTORIES]}
        for place, uuid_count in uuids.items():
            self.numbers[place] = np.empty(UUID_TEXT_CHARACTERS * uuid_count + layout.SLACK_BYTES, np.uint8)
        characters = (topic_bytes, *(count * texts.longest for texts in (_CAUSES, _ELECTIONS, _RECOVERY_STATES)))
        for place, most_bytes in zip(layout.OUT_TEXTS, characters, strict=True):
            self.numbers[place] = np.empty(count + 1, np.int32)
            self.numbers[place + 1] = np.empty(most_bytes + layout.SLACK_BYTES, np.uint8)
        for number in range(layout.OUT_LIST_COUNT):
            place = layout.OUT_LISTS + 2 * number
            self.numbers[place] = np.empty(count + 1, np.int32)
            self.numbers[place + 1] = np.empty(list_lengths[number] + layout.SLACK_BYTES // 4, np.int32)
        for place in (*layout.OUT_TEXTS, *range(layout.OUT_LISTS, layout.OUT_COLUMNS, 2)):
            self.numbers[place][0] = 0
        self.table = np.zeros(layout.OUT_COLUMNS, np.int64)
        for place, array in self.numbers.items():
            self.table[place] = array.ctypes.data

    def columns(self) -> dict[str, Any]:
        """The columns by name, but for uuids and what is the same in all rows."""
        found: dict[str, Any] = {
            "exists": self._bits(layout.OUT_EXISTS, pa.bool_()),
            "high_watermark_can_advance": self._bits(layout.OUT_CAN_ADVANCE, pa.bool_()),
        }
        for name, (place, _) in _NUMBERS.items():
            found[name] = _array(_TYPES[name], self.count, [self._validity(name), self.numbers[place]])
        for name, place in _TEXTS.items():
            buffers = [self._validity(name), self.numbers[place], self.numbers[place + 1]]
            found[name] = _array(_TYPES[name], self.count, buffers)
        for name, number in _LISTS.items():
            place = layout.OUT_LISTS + 2 * number
            value_count = int(self.numbers[place][self.count])
            values = _array(pa.int32(), value_count, [None, self.numbers[place + 1]])
            found[name] = _array(_TYPES[name], self.count, [self._validity(name), self.numbers[place]], [values])
        return found

    def _validity(self, name: str) -> Numbers | None:
        if name not in _NULLABLE:
            return None
        flags = self.numbers[_NULLABLE[name]]
        return None if flags.all() else np.packbits(flags, bitorder="little")

    def _bits(self, place: int, type_: pa.DataType) -> pa.Array:
        return _array(type_, self.count, [None, np.packbits(self.numbers[place], bitorder="little")])


def _sources(events: Events, topic_names: TextTable, topics: UuidNumbers, directories: UuidNumbers) -> Addresses:
    """The table of addresses from which the kernel copies texts. What they point to outlives the call."""
    table = np.zeros(layout.FROM_COUNT, np.int64)
    for number, texts in enumerate((topic_names, _CAUSES, _ELECTIONS, _RECOVERY_STATES)):
        table[layout.FROM_TEXTS + 2 * number] = texts.places.ctypes.data
        table[layout.FROM_TEXTS + 2 * number + 1] = texts.characters.ctypes.data
    table[layout.FROM_TOPIC_IDS] = topics.texts().ctypes.data
    table[layout.FROM_DIRECTORIES] = directories.texts().ctypes.data
    table[layout.FROM_OFFSETS] = events.offsets.ctypes.data
    table[layout.FROM_EPOCHS] = events.epochs.ctypes.data
    table[layout.FROM_TIMES] = events.times_ms.ctypes.data
    return table


def _uuid_offsets(count: int) -> Numbers:
    return np.arange(0, UUID_TEXT_CHARACTERS * count + 1, UUID_TEXT_CHARACTERS, dtype=np.int32)


def _array(
    type_: pa.DataType, length: int, buffers: list[Numbers | None], children: list[pa.Array] | None = None
) -> pa.Array:
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, length, held, children=children or [])
