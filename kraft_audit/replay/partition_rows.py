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
from kraft_codec.columns_memory import Pieces
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
_LIST_PLACES: Final = range(layout.OUT_LISTS, layout.OUT_COLUMNS, 2)
"""Where each list's offsets stand; its values follow."""
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
        events: Events,
        topic_names: TextTable,
        topics: UuidNumbers,
        directories: UuidNumbers,
    ) -> pa.RecordBatch:
        """The output rows that the control block counts, by the events they are of."""
        count = int(block[layout.OUTPUT_COUNT])
        sources = _sources(events, topic_names, topics, directories)
        made = _Buffers(count, count * topic_names.longest, block[layout.OUTPUT_LENGTHS :].tolist())
        kernel("fill_output")(block.ctypes.data, sources.ctypes.data, made.table.ctypes.data)
        columns = made.columns()
        columns["cluster_id"] = self._cluster_ids.slice(0, count)
        columns["plan"] = self._plans.slice(0, count)
        columns["topic_id"] = self._uuids(made, layout.OUT_TOPIC_ID, count)
        directory_count = made.end_of_list(layout.DIRECTORIES)
        texts = self._uuids(made, layout.OUT_DIRECTORY_TEXT, directory_count)
        columns["directories"] = made.list_array("directories", layout.DIRECTORIES, texts)
        return build_batch(PARTITION_CHANGES, columns, count)

    def _uuids(self, made: _Buffers, place: int, count: int) -> pa.Array:
        if count >= len(self._uuid_offsets):
            self._uuid_offsets = _uuid_offsets(2 * count)
        characters = made.pieces.buffer(place, UUID_TEXT_CHARACTERS * count)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(self._uuid_offsets), characters])


class _Buffers:
    """Room for every column, in one piece of memory each; `table` is what the kernel gets.

    `list_lengths`: the most values that each list column gets.
    """

    def __init__(self, count: int, topic_bytes: int, list_lengths: Sequence[int]) -> None:
        self.count = count
        sizes = [0] * layout.OUT_COLUMNS
        for place, type_ in _NUMBERS.values():
            sizes[place] = np.dtype(type_).itemsize * count
        for place in layout.OUT_FLAGS:
            sizes[place] = count
        sizes[layout.OUT_TOPIC_ID] = UUID_TEXT_CHARACTERS * count + layout.SLACK_BYTES
        directory_bytes = UUID_TEXT_CHARACTERS * list_lengths[layout.DIRECTORIES]
        sizes[layout.OUT_DIRECTORY_TEXT] = directory_bytes + layout.SLACK_BYTES
        text_bytes = [topic_bytes, *(count * texts.longest for texts in (_CAUSES, _ELECTIONS, _RECOVERY_STATES))]
        for place, most_bytes in zip(layout.OUT_TEXTS, text_bytes, strict=True):
            sizes[place], sizes[place + 1] = 4 * (count + 1), most_bytes + layout.SLACK_BYTES
        for place, length in zip(_LIST_PLACES, list_lengths, strict=True):
            sizes[place], sizes[place + 1] = 4 * (count + 1), 4 * length + layout.SLACK_BYTES
        self.pieces = Pieces(sizes)
        self.table = self.pieces.table
        for place in (*layout.OUT_TEXTS, *_LIST_PLACES):
            self.pieces.array(place, np.int32, 1)[0] = 0

    def columns(self) -> dict[str, Any]:
        """The columns by name, but for uuids and what is the same in all rows."""
        found: dict[str, Any] = {
            "exists": self._bits(layout.OUT_EXISTS),
            "high_watermark_can_advance": self._bits(layout.OUT_CAN_ADVANCE),
        }
        for name, (place, type_) in _NUMBERS.items():
            values = self.pieces.buffer(place, np.dtype(type_).itemsize * self.count)
            found[name] = pa.Array.from_buffers(_TYPES[name], self.count, [self._validity(name), values])
        for name, place in _TEXTS.items():
            characters = self.pieces.buffer(place + 1, self._end(place))
            buffers = [self._validity(name), self._offsets(place), characters]
            found[name] = pa.Array.from_buffers(_TYPES[name], self.count, buffers)
        for name, number in _LISTS.items():
            count = self.end_of_list(number)
            values = self.pieces.buffer(_LIST_PLACES[number] + 1, 4 * count)
            found[name] = self.list_array(name, number, pa.Array.from_buffers(pa.int32(), count, [None, values]))
        return found

    def list_array(self, name: str, number: int, values: pa.Array) -> pa.Array:
        """A column of lists whose values are there."""
        buffers = [self._validity(name), self._offsets(_LIST_PLACES[number])]
        return pa.Array.from_buffers(_TYPES[name], self.count, buffers, children=[values])

    def end_of_list(self, number: int) -> int:
        """How many values all lists of a column hold."""
        return self._end(_LIST_PLACES[number])

    def _offsets(self, place: int) -> pa.Buffer:
        return self.pieces.buffer(place, 4 * (self.count + 1))

    def _end(self, place: int) -> int:
        return int(self.pieces.array(place, np.int32, self.count + 1)[-1])

    def _validity(self, name: str) -> pa.Buffer | None:
        if name not in _NULLABLE:
            return None
        flags = self.pieces.array(_NULLABLE[name], np.uint8, self.count)
        return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))

    def _bits(self, place: int) -> pa.Array:
        bits = np.packbits(self.pieces.array(place, np.uint8, self.count), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), self.count, [None, pa.py_buffer(bits)])


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
