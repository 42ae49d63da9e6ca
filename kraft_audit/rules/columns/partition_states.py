"""Every state of every partition in columns, sorted by partition and offset, and episodes of a condition.

Two million partitions must take seconds: conditions are computed for all rows at once, and only the rows where an
episode begins or ends become values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.kernels.codes import is_last_replica, is_offline, is_under_min_isr
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.frame import SPREAD, Columns, NodeLists, Numbers, coded, union_sizes
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_audit.text.readable import cause_text

_NO_ROWS: Final = np.zeros(0, np.int64)
DESCRIBED_LISTS: Final = ("isr", "elr", "last_known_elr", "replicas")
LIST_COLUMNS: Final = (*DESCRIBED_LISTS, "adding_replicas", "removing_replicas", "expected_elr")


@dataclass(frozen=True, eq=False)
class PartitionChanges(Columns):
    """Rows of `partition_changes` in the order of the log, as the columns that conditions are made of.

    Most conditions look at one row alone, and most hold nowhere: they are asked here, before anything is sorted.
    """

    table: pa.Table
    lists: Mapping[str, NodeLists]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def exists(self) -> Mask:
        return self.column("exists")

    @property
    def leader(self) -> Numbers:
        return self.column("leader")

    @property
    def effective_min_isr(self) -> Numbers:
        return self.column("effective_min_isr")

    @property
    def recovering(self) -> Mask:
        return self._is_text("leader_recovery_state", ("RECOVERING",))

    @cached_property
    def has_expected(self) -> Mask:
        """Whether the shipped rules give an ELR."""
        mask: Mask = pc.is_valid(self.table["expected_elr"]).to_numpy()
        return mask

    @cached_property
    def topics(self) -> tuple[Rows, list[str]]:
        """A number for each row's topic, and the names that the numbers stand for."""
        return coded(self.table["topic"])

    @cached_property
    def causes(self) -> tuple[Rows, list[str]]:
        """A number for each row's cause, -1 where it is open, and the texts that the numbers stand for."""
        return coded(self.table["cause"])

    def size(self, name: str) -> Numbers:
        return self.lists[name].lengths

    def is_cause(self, *causes: str) -> Mask:
        """Rows whose cause is stated, and one of these."""
        return self._is_text("cause", causes)

    def may_be_cause(self, *causes: str) -> Mask:
        """Rows whose cause is one of these, or may be as the log leaves it open."""
        mask = self._is_text("cause", causes)
        rows, possible = self._open_causes
        mask[rows] |= np.fromiter((not possible_here.isdisjoint(causes) for possible_here in possible), bool, len(rows))
        return mask

    @cached_property
    def _open_causes(self) -> tuple[Rows, list[frozenset[str]]]:
        """The rows whose cause is open, and what each may be: they are few."""
        column = self.table["possible_causes"]
        rows = np.flatnonzero(pc.is_valid(column).to_numpy()) if column.null_count < len(column) else _NO_ROWS
        return rows, [frozenset(causes) for causes in column.take(pa.array(rows)).to_pylist()]

    def is_election(self, *kinds: str) -> Mask:
        return self._is_text("election", kinds)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers or flags."""
        return self.once(name, lambda: self.table[name].to_numpy())

    def _is_text(self, name: str, wanted: tuple[str, ...]) -> Mask:
        """Rows whose text is one of those wanted: to compare each is cheaper than to number them all."""
        mask = np.zeros(len(self), bool)
        for text in wanted:
            mask |= self.once(f"{name} {text}", partial(_equals_text, self.table[name], text))
        return mask


def _equals_text(column: pa.ChunkedArray, text: str) -> Mask:
    flags: Mask = pc.fill_null(pc.equal(column, text), False).to_numpy()
    return flags


class Episode(NamedTuple):
    """A condition that held for one partition from one row to another; `end` is None while it lasts."""

    start: int
    end: int | None


@dataclass(frozen=True, eq=False)
class PartitionStates(Columns):
    """Rows of `partition_changes` sorted by partition and offset; all arrays but those in `changes` are in that order.

    `changes` are the rows in the order of the log, `order` the row there of each row here. A column is sorted when a
    rule asks for it, and texts never are, as that would cost more than the rules do.
    """

    changes: PartitionChanges
    order: Rows
    is_first: Mask
    is_last: Mask
    last_rows: Rows

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def from_offset(self) -> Rows:
        return self._sorted("from_offset")

    @cached_property
    def timestamp_ms(self) -> Rows:
        return self._sorted("timestamp_ms")

    @cached_property
    def partition_epoch(self) -> Rows:
        return self._sorted("partition_epoch")

    @cached_property
    def partition(self) -> Rows:
        return self._sorted("partition")

    @cached_property
    def leader(self) -> Rows:
        return self._sorted("leader")

    @cached_property
    def leader_epoch(self) -> Rows:
        return self._sorted("leader_epoch")

    @cached_property
    def effective_min_isr(self) -> Rows:
        return self._sorted("effective_min_isr")

    @cached_property
    def exists(self) -> Mask:
        return self.changes.exists[self.order]

    @cached_property
    def recovering(self) -> Mask:
        return self.in_order(self.changes.recovering)

    @cached_property
    def topic_codes(self) -> Rows:
        """The place of each row's topic in `topic_names`."""
        return self.changes.topics[0][self.order]

    @property
    def topic_names(self) -> list[str]:
        return self.changes.topics[1]

    @cached_property
    def next_offset(self) -> Rows:
        """From where on a row no longer holds; the largest int64 for the newest."""
        following = np.append(self.from_offset[1:], 0) if len(self) else self.from_offset
        return np.where(self.is_last, np.iinfo(np.int64).max, following)

    def in_order(self, condition: Mask) -> Mask:
        """A condition on `changes`, in this order."""
        mask: Mask = condition[self.order] if condition.any() else np.zeros(len(self), bool)
        return mask

    def rows_of(self, condition: Mask) -> Rows:
        """The rows for which a condition on `changes` holds, ascending."""
        return np.flatnonzero(self.in_order(condition))

    def row_of_change(self) -> Rows:
        """The row here of each row of `changes`."""
        rows = np.empty(len(self), np.int64)
        rows[self.order] = np.arange(len(self))
        return rows

    def first_row(self, row: int) -> int:
        """The oldest row of the partition of `row`."""
        place = int(np.searchsorted(self.last_rows, row))
        return int(self.last_rows[place - 1]) + 1 if place else 0

    def newest_row(self, row: int) -> int:
        """The newest row of the partition of `row`."""
        return int(self.last_rows[np.searchsorted(self.last_rows, row)])

    def newest_rows(self, rows: Rows) -> Rows:
        """The newest row of the partition of each row."""
        newest: Rows = self.last_rows[np.searchsorted(self.last_rows, rows)]
        return newest

    def size(self, name: str) -> Numbers:
        return self.once(f"size {name}", lambda: self.changes.size(name)[self.order])

    def size_of(self, name: str, row: int) -> int:
        return int(self.changes.size(name)[self.order[row]])

    def nodes(self, name: str, row: int) -> list[int]:
        """The list of a row."""
        lists, place = self.changes.lists[name], int(self.order[row])
        nodes: list[int] = lists.values[lists.bounds[place] : lists.bounds[place + 1]].tolist()
        return nodes

    def previous(self, row: int) -> int | None:
        return None if self.is_first[row] else row - 1

    def value(self, name: str, row: int) -> Any:
        return self.changes.table[name][int(self.order[row])].as_py()

    def name(self, row: int) -> str:
        return f"{self.topic(row)}-{int(self.partition[row])}"

    def topic(self, row: int) -> str:
        return str(self.value("topic", row))

    def topics(self, rows: Rows) -> list[str]:
        """The names of the rows' topics."""
        if len(rows) < 2:
            return [self.topic(row) for row in rows.tolist()]
        encoded = self.changes.table["topic"].take(pa.array(self.order[rows])).combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return [names[code] for code in encoded.indices.to_pylist()]

    def names(self, rows: Rows) -> list[str]:
        """The names of the rows' partitions."""
        partitions = self.partition[rows].tolist()
        return [f"{topic}-{partition}" for topic, partition in zip(self.topics(rows), partitions, strict=True)]

    def cause(self, row: int) -> str:
        """The cause as texts say it: "fenced", or "either fenced or isr_shrunk"."""
        return cause_text(self.value("cause", row), self.value("possible_causes", row))

    def causes(self, rows: Rows) -> list[str]:
        """The causes of many rows as texts say them."""
        of_table = self.order[rows]
        codes, names = self.changes.causes
        possible = self.changes.table["possible_causes"]
        # Hardly any cause is open, and to take rows of lists is dear.
        is_stated = possible.null_count == len(possible)
        may_be = [None] * len(rows) if is_stated else possible.take(pa.array(of_table)).to_pylist()
        return [
            cause_text(None if code < 0 else names[code], either)
            for code, either in zip(codes[of_table].tolist(), may_be, strict=True)
        ]

    def describe(self, row: int) -> str:
        """A state as people read it."""
        lists = (tuple(self.nodes(name, row)) for name in DESCRIBED_LISTS)
        return _state_text(int(self.changes.leader[self.order[row]]), *lists)

    def descriptions(self, rows: Rows) -> list[str]:
        """The states of many rows as people read them."""
        of_table = self.order[rows]
        lists = (self.changes.lists[name].of_rows(of_table) for name in DESCRIBED_LISTS)
        return list(map(_state_text, self.changes.leader[of_table].tolist(), *lists))

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

    def _sorted(self, name: str) -> npt.NDArray[Any]:
        return self.changes.column(name)[self.order]


def _state_text(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...], last_known: tuple[int, ...], replicas: tuple[int, ...]
) -> str:
    last = f"  last known {ids_text(last_known)}" if last_known else ""
    return f"ISR {ids_text(isr)}  ELR {ids_text(elr)}{last}  of replicas {ids_text(replicas)}, leader {leader}"


@lru_cache(maxsize=4096)
def ids_text(nodes: tuple[int, ...]) -> str:
    """The same few sets of nodes come again and again."""
    return "[" + " ".join(map(str, nodes)) + "]"


@once_per_history
def partition_states(history: ClusterHistory) -> PartitionStates:
    """The states of this cluster's partitions; made once."""
    table = history.chunked_table("partition_changes")
    topic, _ = coded(table["topic_id"])
    partition = table["partition"].to_numpy().astype(np.int64)
    group = topic * SPREAD + partition
    order = _sorted_rows(topic, partition, table["from_offset"].to_numpy())
    group = group[order]
    is_first = np.ones(len(group), bool)
    is_first[1:] = group[1:] != group[:-1]
    is_last = np.append(is_first[1:], True) if len(group) else is_first
    return PartitionStates(
        PartitionChanges(table, {name: NodeLists(table[name]) for name in LIST_COLUMNS}),
        order,
        is_first,
        is_last,
        np.flatnonzero(is_last),
    )


def _sorted_rows(topic: Rows, partition: Rows, offset: Rows) -> Rows:
    """The rows by topic, partition and offset; rows of one offset stay as they came.

    Rows come in the order of their offsets, so that a row's number stands for its offset: key and number together are
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


def alone(states: PartitionStates) -> Mask:
    """One replica alone in ISR and ELR together though more are assigned: KP001."""

    def find() -> Mask:
        changes = states.changes
        has_one_holder = union_sizes(changes.lists["isr"], changes.lists["elr"]) == 1
        return states.in_order(is_last_replica(changes.exists, changes.size("replicas"), has_one_holder))

    return states.once("alone", find)


def offline(states: PartitionStates) -> Mask:
    """No leader: KP002."""
    return states.once("offline", lambda: states.in_order(is_offline(states.changes.exists, states.changes.leader)))


def under_min_isr(states: PartitionStates) -> Mask:
    """ISR below the effective min ISR: KP005."""

    def find() -> Mask:
        changes = states.changes
        return states.in_order(is_under_min_isr(changes.exists, changes.size("isr"), changes.effective_min_isr))

    return states.once("under min ISR", find)


def exposed(states: PartitionStates) -> Mask:
    """Alone in the ISR, offline or under min ISR: what KP001, KP002 and KP005 raise."""
    return alone(states) | offline(states) | under_min_isr(states)


class PartitionCounts(NamedTuple):
    """Partitions at the end of the log: all, those without a leader, those at one replica in ISR and ELR though more
    are assigned, and those with a leader and fewer replicas in the ISR than min ISR."""

    partitions: int = 0
    leaderless: int = 0
    at_one_replica: int = 0
    blocked: int = 0


def partition_counts(history: ClusterHistory) -> PartitionCounts:
    """What the partitions are at the end of the log; zeros where nothing is known of partitions."""
    if not history.has("partition_changes"):
        return PartitionCounts()
    states = partition_states(history)
    now = states.is_last & states.exists
    is_offline = offline(states)
    masks = (now, now & is_offline, now & alone(states), now & under_min_isr(states) & ~is_offline)
    return PartitionCounts(*(int(mask.sum()) for mask in masks))
