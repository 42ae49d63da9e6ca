"""The rows of `partition_changes` and `exposure_changes` as Arrow columns.

One kernel writes all buffers of a batch of `partition_changes`. `exposure_changes` are those rows of them in which a
partition is exposed, in fewer columns: few partitions are ever exposed, and what asks for these alone need not read
every change of every partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.kernels import codes, kernel, layout
from kraft_audit.replay.partitions.interning import TextTable, UuidNumbers
from kraft_audit.replay.partitions.window_events import WindowEvents
from kraft_audit.tables.contract import MAX_BATCH_ROWS, TEXTS, build_batch
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES
from kraft_codec.columns.buffers import Pieces, addresses
from kraft_codec.text.java_text import UUID_TEXT_CHARACTERS

_CAUSES: Final = TextTable(map(codes.cause_text, range(codes.CAUSE_CODES)))
_POSSIBLE_CAUSES: Final = pa.array(map(codes.possible_causes, range(codes.CAUSE_CODES)), TEXTS)
"""By the code that the kernel writes; null where it is a cause."""
_ELECTIONS: Final = TextTable(name or "" for name in codes.ELECTIONS)
_RECOVERY_STATES: Final = TextTable(("RECOVERED", "RECOVERING"))
_NUMBER_COLUMNS: Final = {
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
_TEXT_COLUMNS: Final = {
    "topic": layout.OUT_TOPIC,
    "cause": layout.OUT_CAUSE,
    "election": layout.OUT_ELECTION,
    "leader_recovery_state": layout.OUT_RECOVERY_STATE,
}
_VALIDITY_FLAGS: Final = {
    "cause_broker_id": layout.OUT_HAS_BROKER,
    "cause": layout.OUT_OPEN_CAUSE,
    "election": layout.OUT_HAS_ELECTION,
    "expected_elr": layout.OUT_HAS_EXPECTED_ELR,
}
_LIST_COLUMNS: Final = {
    "replicas": layout.REPLICAS,
    "isr": layout.ISR,
    "elr": layout.ELR,
    "last_known_elr": layout.LAST_KNOWN_ELR,
    "adding_replicas": layout.ADDING_REPLICAS,
    "removing_replicas": layout.REMOVING_REPLICAS,
    "expected_elr": layout.LIST_COUNT,
}
_LIST_PLACES: Final = range(layout.OUT_LISTS, layout.OUT_COLUMNS, 2)
"""The place of the offsets of each list column; that of its values follows."""
_COLUMN_TYPES: Final = {name: PARTITION_CHANGES.schema.field(name).type for name in PARTITION_CHANGES.column_names}

_COPIED_COLUMNS: Final = [name for name in EXPOSURE_CHANGES.column_names if name in PARTITION_CHANGES.column_names]
Addresses = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]


class PartitionRows:
    """Builds batches of `partition_changes` for one cluster and plan."""

    def __init__(self, cluster_id: str, plan: int) -> None:
        self._cluster_ids = pa.repeat(pa.scalar(cluster_id, pa.string()), MAX_BATCH_ROWS)
        self._plans = pa.repeat(pa.scalar(plan, pa.int64()), MAX_BATCH_ROWS)
        self._uuid_offsets = _uuid_offsets(MAX_BATCH_ROWS)

    def batch(
        self,
        block: Addresses,
        events: WindowEvents,
        topic_names: TextTable,
        topics: UuidNumbers,
        directories: UuidNumbers,
    ) -> pa.RecordBatch:
        """The rows that the kernel left in its output; `events` give their offsets, epochs and times.

        `block` is the kernel's control block: it counts the output rows and the values of their lists.
        """
        count = int(block[layout.OUTPUT_COUNT])
        sources = _sources(events, topic_names, topics, directories)
        buffers = _Buffers(count, count * topic_names.longest, block[layout.OUTPUT_LENGTHS :].tolist())
        kernel("fill_output")(block.ctypes.data, sources.ctypes.data, buffers.table.ctypes.data)
        columns = buffers.columns()
        columns["cluster_id"] = self._cluster_ids.slice(0, count)
        columns["plan"] = self._plans.slice(0, count)
        columns["topic_id"] = self._uuids(buffers, layout.OUT_TOPIC_ID, count)
        directory_count = buffers.end_of_list(layout.DIRECTORIES)
        texts = self._uuids(buffers, layout.OUT_DIRECTORY_TEXT, directory_count)
        columns["directories"] = buffers.list_array("directories", layout.DIRECTORIES, texts)
        return build_batch(PARTITION_CHANGES, columns, count)

    def _uuids(self, buffers: _Buffers, place: int, count: int) -> pa.Array:
        if count >= len(self._uuid_offsets):
            self._uuid_offsets = _uuid_offsets(2 * count)
        characters = buffers.pieces.buffer(place, UUID_TEXT_CHARACTERS * count)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(self._uuid_offsets), characters])


class _Buffers:
    """Memory for every column of `count` rows; `table` holds the addresses for the kernel.

    `list_lengths`: an upper bound of the values in each list column.
    """

    def __init__(self, count: int, topic_bytes: int, list_lengths: Sequence[int]) -> None:
        self.count = count
        sizes = [0] * layout.OUT_COLUMNS
        for place, type_ in _NUMBER_COLUMNS.values():
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
        """The columns by name, without uuids and columns that have one value in all rows."""
        columns: dict[str, Any] = {
            "exists": self._bits(layout.OUT_EXISTS),
            "high_watermark_can_advance": self._bits(layout.OUT_CAN_ADVANCE),
        }
        open_causes = self.pieces.array(layout.OUT_OPEN_CAUSE, np.uint8, self.count)
        columns["possible_causes"] = (
            _POSSIBLE_CAUSES.take(pa.array(open_causes)) if open_causes.any() else pa.nulls(self.count, TEXTS)
        )
        for name, (place, type_) in _NUMBER_COLUMNS.items():
            values = self.pieces.buffer(place, np.dtype(type_).itemsize * self.count)
            columns[name] = pa.Array.from_buffers(_COLUMN_TYPES[name], self.count, [self._validity(name), values])
        for name, place in _TEXT_COLUMNS.items():
            characters = self.pieces.buffer(place + 1, self._end(place))
            buffers = [self._validity(name), self._offsets(place), characters]
            columns[name] = pa.Array.from_buffers(_COLUMN_TYPES[name], self.count, buffers)
        for name, number in _LIST_COLUMNS.items():
            count = self.end_of_list(number)
            values = self.pieces.buffer(_LIST_PLACES[number] + 1, 4 * count)
            columns[name] = self.list_array(name, number, pa.Array.from_buffers(pa.int32(), count, [None, values]))
        return columns

    def list_array(self, name: str, number: int, values: pa.Array) -> pa.Array:
        """A list column around its values."""
        buffers = [self._validity(name), self._offsets(_LIST_PLACES[number])]
        return pa.Array.from_buffers(_COLUMN_TYPES[name], self.count, buffers, children=[values])

    def end_of_list(self, number: int) -> int:
        """The number of values in all lists of a column."""
        return self._end(_LIST_PLACES[number])

    def _offsets(self, place: int) -> pa.Buffer:
        return self.pieces.buffer(place, 4 * (self.count + 1))

    def _end(self, place: int) -> int:
        return int(self.pieces.array(place, np.int32, self.count + 1)[-1])

    def _validity(self, name: str) -> pa.Buffer | None:
        if name not in _VALIDITY_FLAGS:
            return None
        flags = self.pieces.array(_VALIDITY_FLAGS[name], np.uint8, self.count)
        flags = flags == 0 if name == "cause" else flags
        return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))

    def _bits(self, place: int) -> pa.Array:
        bits = np.packbits(self.pieces.array(place, np.uint8, self.count), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), self.count, [None, pa.py_buffer(bits)])


def _sources(events: WindowEvents, topic_names: TextTable, topics: UuidNumbers, directories: UuidNumbers) -> Addresses:
    """The addresses from which the kernel copies texts. The arrays behind them outlive the call."""
    texts = (topic_names, _CAUSES, _ELECTIONS, _RECOVERY_STATES)
    # In the order of the FROM places.
    return addresses(
        [
            *(array for text in texts for array in (text.places, text.characters)),
            *(topics.texts(), directories.texts()),
            *(events.offsets, events.epochs, events.times_ms),
        ]
    )


def _uuid_offsets(count: int) -> Cells:
    return np.arange(0, UUID_TEXT_CHARACTERS * count + 1, UUID_TEXT_CHARACTERS, dtype=np.int32)


def exposure_rows(changes: pa.RecordBatch, output: Cells, arena: Cells, *, is_every: bool) -> pa.RecordBatch:
    """A batch of `exposure_changes`: changes before or after which the partition is exposed, or all with `is_every`.

    `output`: the kernel rows that `changes` were built from, shape (rows, OUTPUT_CELLS), with their lists in `arena`.
    """
    chosen = np.arange(len(output)) if is_every else np.flatnonzero(output[:, layout.EXPOSURE])
    copied = changes.select(_COPIED_COLUMNS).take(pa.array(chosen))
    columns: dict[str, Any] = {name: copied.column(name) for name in _COPIED_COLUMNS}
    exposure = output[chosen, layout.EXPOSURE]
    for name, flag in codes.EXPOSURE_FLAGS.items():
        columns[name] = pa.array((exposure & flag) != 0)
    keepers = _keepers(output[chosen], arena)
    columns["keeper_id"] = pa.array(keepers, pa.int32(), mask=keepers < 0)
    return build_batch(EXPOSURE_CHANGES, columns, len(chosen))


def _keepers(output: Cells, arena: Cells) -> Cells:
    """The broker that keeps the data: the leader, else the first of the ISR, else of the ELR; negative for none."""
    keepers = output[:, layout.LEADER].copy()
    for number in (layout.ISR, layout.ELR):
        cells = output[:, layout.LISTS + 2 * number : layout.LISTS + 2 * number + 2]
        lacking = np.flatnonzero((keepers < 0) & (cells[:, 1] > 0))
        keepers[lacking] = arena[cells[lacking, 0]]
    return keepers
