"""Every state of every partition in columns, in the order (partition, offset), and the episodes of a condition in them.

Two million partitions must take seconds: conditions are computed for all rows at once, and only the rows where an
episode begins or ends become values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kraft_audit.rules.history import PARTITION_STATES, ClusterHistory
from kraft_audit.rules.node_lists import SPREAD, Mask, Numbers, Rows
from kraft_audit.rules.told_partitions import ToldPartitions, told_partitions

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Episode:
    """A condition that held for one partition from one row to another; `end` is None while it lasts."""

    start: int
    end: int | None


@dataclass(frozen=True, slots=True, eq=False)
class PartitionStates:
    """Rows of `partition_changes` sorted by partition and offset; all arrays go by that order, but for those in `told`.

    `told` are the rows as they came, `order` the row there of each row here. A column is put in order when a rule asks
    for it, and texts never are, as that would cost more than the rules do.
    """

    told: ToldPartitions
    order: Rows
    is_first: Mask
    is_last: Mask
    last_rows: Rows
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def from_offset(self) -> Rows:
        return self._numbers("from_offset")

    @property
    def timestamp_ms(self) -> Rows:
        return self._numbers("timestamp_ms")

    @property
    def partition(self) -> Rows:
        return self._numbers("partition")

    @property
    def leader(self) -> Rows:
        return self._numbers("leader")

    @property
    def leader_epoch(self) -> Rows:
        return self._numbers("leader_epoch")

    @property
    def effective_min_isr(self) -> Rows:
        return self._numbers("effective_min_isr")

    @property
    def exists(self) -> Mask:
        return self._once("exists", lambda: self.told.exists[self.order])

    @property
    def recovering(self) -> Mask:
        return self._once("recovering", lambda: self.in_order(self.told.recovering))

    @property
    def topic_codes(self) -> Rows:
        """The place of each row's topic in `topic_names`."""
        return self._once("topic codes", lambda: self._topics()[0][self.order])

    @property
    def topic_names(self) -> list[str]:
        return self._topics()[1]

    @property
    def partition_numbers(self) -> Numbers:
        """The same number for all rows of one partition, ascending."""
        return self._once("partition numbers", lambda: np.cumsum(self.is_first, dtype=np.int32))

    @property
    def next_offset(self) -> Rows:
        """From where on a row no longer holds; the largest int64 for the newest."""
        following = np.append(self.from_offset[1:], 0) if len(self) else self.from_offset
        return np.where(self.is_last, np.iinfo(np.int64).max, following)

    def in_order(self, told: Mask) -> Mask:
        """A condition on the rows as they were told, in this order."""
        found: Mask = told[self.order] if told.any() else np.zeros(len(self), bool)
        return found

    def rows_of(self, told: Mask) -> Rows:
        """The rows for which a condition on the rows as they were told holds, ascending."""
        return np.flatnonzero(self.in_order(told))

    def row_of_told(self) -> Rows:
        """The row here of each row as it was told."""
        rows = np.empty(len(self), np.int64)
        rows[self.order] = np.arange(len(self))
        return rows

    def newest_row(self, row: int) -> int:
        """The newest row of the partition of `row`."""
        return int(self.last_rows[np.searchsorted(self.last_rows, row)])

    def newest_rows(self, rows: Rows) -> Rows:
        """The newest row of the partition of each row."""
        newest: Rows = self.last_rows[np.searchsorted(self.last_rows, rows)]
        return newest

    def size(self, name: str) -> Numbers:
        return self._once(f"size {name}", lambda: self.told.size(name)[self.order])

    def size_of(self, name: str, row: int) -> int:
        return int(self.told.size(name)[self.order[row]])

    def nodes(self, name: str, row: int) -> list[int]:
        """The list of a row."""
        return self.told.lists[name].of(int(self.order[row]))

    def previous(self, row: int) -> int | None:
        return None if self.is_first[row] else row - 1

    def value(self, name: str, row: int) -> Any:
        return self.told.table[name][int(self.order[row])].as_py()

    def rows_where(self, mask: Mask) -> pa.Table:
        """The rows of the table, in this order."""
        return self.told.table.take(pa.array(self.order[mask]))

    def name(self, row: int) -> str:
        return f"{self.topic(row)}-{int(self.partition[row])}"

    def topic(self, row: int) -> str:
        return str(self.value("topic", row))

    def topics(self, rows: Rows) -> list[str]:
        """The names of the topics of some rows."""
        if not len(rows):
            return []
        encoded = self.told.table["topic"].take(pa.array(self.order[rows])).combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return [names[code] for code in encoded.indices.to_pylist()]

    def names(self, rows: Rows) -> list[str]:
        """The names of the partitions of some rows."""
        partitions = self.partition[rows].tolist()
        return [f"{topic}-{partition}" for topic, partition in zip(self.topics(rows), partitions, strict=True)]

    def cause(self, row: int) -> str:
        return str(self.value("cause", row))

    def describe(self, row: int) -> str:
        """A state as people read it."""
        isr, elr, last_known, replicas = (
            self.nodes(name, row) for name in ("isr", "elr", "last_known_elr", "replicas")
        )
        shown = [f"ISR {_ids(isr)}", f"ELR {_ids(elr)}"]
        if last_known:
            shown.append(f"last known {_ids(last_known)}")
        leader = int(self.told.leader[self.order[row]])
        return f"{'  '.join(shown)}  of replicas {_ids(replicas)}, leader {leader}"

    def episodes(self, condition: Mask) -> list[Episode]:
        """Runs of neighbouring rows of one partition in which the condition holds."""
        if not len(self):
            return []
        before = np.append(False, condition[:-1]) & ~self.is_first
        starts = np.flatnonzero(condition & ~before)
        after = np.append(condition[1:], False) & ~self.is_last
        ends = np.flatnonzero(condition & ~after)
        open_ended = self.is_last[ends]
        return [
            Episode(start, None if is_open else end + 1)
            for start, end, is_open in zip(starts.tolist(), ends.tolist(), open_ended.tolist(), strict=True)
        ]

    def _numbers(self, name: str) -> Rows:
        return self._once(name, lambda: self.told.numbers(name)[self.order])

    def _topics(self) -> tuple[Rows, list[str]]:
        return self._once("topics", lambda: _coded(self.told.table["topic"]))

    def _once(self, name: str, make: Callable[[], _Value]) -> _Value:
        if name not in self._known:
            self._known[name] = make()
        value: _Value = self._known[name]
        return value


def _ids(nodes: Sequence[int]) -> str:
    return _ids_text(tuple(nodes))


@lru_cache(maxsize=4096)
def _ids_text(nodes: tuple[int, ...]) -> str:
    """The same few sets of nodes are told again and again."""
    return "[" + " ".join(map(str, nodes)) + "]"


def partition_states(history: ClusterHistory) -> PartitionStates:
    """The states of this cluster's partitions; made once."""
    return history.known(PARTITION_STATES, lambda: _partition_states(history))


def _partition_states(history: ClusterHistory) -> PartitionStates:
    table = history.as_told("partition_changes")
    topic, _ = _coded(table["topic_id"])
    partition = table["partition"].to_numpy().astype(np.int64)
    group = topic * SPREAD + partition
    order = _order(topic, partition, table["from_offset"].to_numpy())
    group = group[order]
    is_first = np.ones(len(group), bool)
    is_first[1:] = group[1:] != group[:-1]
    is_last = np.append(is_first[1:], True) if len(group) else is_first
    return PartitionStates(told_partitions(table), order, is_first, is_last, np.flatnonzero(is_last))


def _order(topic: Rows, partition: Rows, offset: Rows) -> Rows:
    """The rows by topic, partition and offset; rows of one offset stay as they came.

    A log is told in the order of its offsets, so that a row's number stands for its offset: key and number together are
    one number, and distinct numbers sort many times as fast as rows do.
    """
    count = len(offset)
    numbers = np.arange(count)
    if count and (offset[1:] >= offset[:-1]).all():
        first, last = int(partition.min()), int(partition.max())
        if (int(topic.max()) + 1) * (last - first + 1) < SPREAD >> 1 and count < SPREAD:
            key = topic * (last - first + 1) + (partition - first)
            return np.sort(key * SPREAD + numbers) & (SPREAD - 1)
    order: Rows = np.lexsort((numbers, offset, partition, topic))
    return order


def _coded(column: pa.ChunkedArray) -> tuple[Rows, list[str]]:
    """A text column as numbers and the texts that they stand for; -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    if not len(encoded):
        return np.zeros(0, np.int64), []
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()
