"""Every state of every partition in columns, in the order (partition, offset), and the episodes of a condition in them.

Two million partitions must take seconds: conditions are computed for all rows at once, and only the rows where an
episode begins or ends become values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.history import PARTITION_STATES, ClusterHistory

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LISTS: Final = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
_SPREAD: Final = 1 << 32


@dataclass(frozen=True, slots=True, eq=False)
class NodeLists:
    """A list column as offsets and values: row r holds values[offsets[r]:offsets[r + 1]]."""

    offsets: Rows
    values: Rows
    _known: dict[str, Rows] = field(default_factory=dict, repr=False)

    @property
    def lengths(self) -> Rows:
        if "lengths" not in self._known:
            self._known["lengths"] = np.diff(self.offsets)
        return self._known["lengths"]

    def of(self, row: int) -> list[int]:
        found: list[int] = self.values[self.offsets[row] : self.offsets[row + 1]].tolist()
        return found

    @property
    def row_of_value(self) -> Rows:
        if "rows" not in self._known:
            self._known["rows"] = np.repeat(np.arange(len(self.offsets) - 1), self.lengths)
        return self._known["rows"]

    def keys(self, places: Rows) -> Rows:
        """(row, node) of the values at some places as one number: equal numbers are the same node in the same row."""
        return self.row_of_value[places] * _SPREAD + (self.values[places] & (_SPREAD - 1))


@dataclass(frozen=True, slots=True)
class Episode:
    """A condition that held for one partition from one row to another; `end` is None while it lasts."""

    start: int
    end: int | None


@dataclass(frozen=True, slots=True, eq=False)
class PartitionStates:
    """Rows of `partition_changes` sorted by partition and offset; all arrays go by that order.

    `source` is the table as it came, `order` its row for each row here: to sort all its texts would cost more than the
    rules do.
    """

    source: pa.Table
    order: Rows
    from_offset: Rows
    timestamp_ms: Rows
    partition: Rows
    leader: Rows
    leader_epoch: Rows
    topic_codes: Rows
    topic_names: list[str]
    cause_codes: Rows
    cause_names: list[str]
    election_codes: Rows
    election_names: list[str]
    effective_min_isr: Rows
    exists: Mask
    recovering: Mask
    is_first: Mask
    is_last: Mask
    last_rows: Rows
    lists: dict[str, NodeLists]
    has_expected: Mask
    expected_elr: NodeLists

    def __len__(self) -> int:
        return len(self.from_offset)

    def newest_row(self, row: int) -> int:
        """The newest row of the partition of `row`."""
        return int(self.last_rows[np.searchsorted(self.last_rows, row)])

    @property
    def next_offset(self) -> Rows:
        """From where on a row no longer holds; the largest int64 for the newest."""
        following = np.append(self.from_offset[1:], 0) if len(self) else self.from_offset
        return np.where(self.is_last, np.iinfo(np.int64).max, following)

    def size(self, name: str) -> Rows:
        return self.lists[name].lengths

    def size_of(self, name: str, row: int) -> int:
        offsets = self.lists[name].offsets
        return int(offsets[row + 1] - offsets[row])

    def previous(self, row: int) -> int | None:
        return None if self.is_first[row] else row - 1

    def value(self, name: str, row: int) -> Any:
        return self.source[name][int(self.order[row])].as_py()

    def rows_where(self, mask: Mask) -> pa.Table:
        """The rows of the table, in this order."""
        return self.source.take(pa.array(self.order[mask]))

    def is_cause(self, *causes: str) -> Mask:
        return _is_coded(self.cause_codes, self.cause_names, causes)

    def is_election(self, *kinds: str) -> Mask:
        return _is_coded(self.election_codes, self.election_names, kinds)

    def name(self, row: int) -> str:
        return f"{self.topic(row)}-{int(self.partition[row])}"

    def topic(self, row: int) -> str:
        return self.topic_names[int(self.topic_codes[row])]

    def cause(self, row: int) -> str:
        return self.cause_names[int(self.cause_codes[row])]

    def describe(self, row: int) -> str:
        """A state as people read it."""
        shown = [f"ISR {_ids(self.lists['isr'].of(row))}", f"ELR {_ids(self.lists['elr'].of(row))}"]
        if self.lists["last_known_elr"].of(row):
            shown.append(f"last known {_ids(self.lists['last_known_elr'].of(row))}")
        return f"{'  '.join(shown)}  of replicas {_ids(self.lists['replicas'].of(row))}, leader {int(self.leader[row])}"

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


def _ids(nodes: Sequence[int]) -> str:
    return _ids_text(tuple(nodes))


@lru_cache(maxsize=4096)
def _ids_text(nodes: tuple[int, ...]) -> str:
    """The same few sets of nodes are told again and again."""
    return "[" + " ".join(map(str, nodes)) + "]"


def _is_coded(codes: Rows, names: Sequence[str], wanted: Sequence[str]) -> Mask:
    is_wanted = np.array([name in wanted for name in names] + [False], bool)
    found: Mask = is_wanted[codes]
    return found


def partition_states(history: ClusterHistory) -> PartitionStates:
    """The states of this cluster's partitions; made once."""
    return history.known(PARTITION_STATES, lambda: _partition_states(history))


def _partition_states(history: ClusterHistory) -> PartitionStates:
    table = history.as_told("partition_changes")
    topic, _ = _coded(table["topic_id"])
    partition = table["partition"].to_numpy().astype(np.int64)
    offset = table["from_offset"].to_numpy()
    order = _order(topic, partition, offset)
    group = topic[order] * _SPREAD + partition[order]
    is_first = np.ones(len(group), bool)
    is_first[1:] = group[1:] != group[:-1]
    is_last = np.append(is_first[1:], True) if len(group) else is_first
    topic_codes, topic_names = _coded(table["topic"])
    cause_codes, cause_names = _coded(table["cause"])
    election_codes, election_names = _coded(table["election"])
    state_codes, state_names = _coded(table["leader_recovery_state"])
    expected = table["expected_elr"]
    return PartitionStates(
        source=table,
        order=order,
        from_offset=offset[order],
        timestamp_ms=table["timestamp_ms"].to_numpy()[order],
        partition=partition[order],
        leader=table["leader"].to_numpy()[order].astype(np.int64),
        leader_epoch=table["leader_epoch"].to_numpy()[order].astype(np.int64),
        topic_codes=topic_codes[order],
        topic_names=topic_names,
        cause_codes=cause_codes[order],
        cause_names=cause_names,
        election_codes=election_codes[order],
        election_names=election_names,
        effective_min_isr=table["effective_min_isr"].to_numpy()[order].astype(np.int64),
        exists=table["exists"].to_numpy()[order].astype(bool),
        recovering=_is_coded(state_codes[order], state_names, ("RECOVERING",)),
        is_first=is_first,
        is_last=is_last,
        last_rows=np.flatnonzero(is_last),
        lists={name: _lists(table[name], order) for name in LISTS},
        has_expected=pc.is_valid(expected).to_numpy()[order].astype(bool),
        expected_elr=_lists(expected, order),
    )


def _order(topic: Rows, partition: Rows, offset: Rows) -> Rows:
    """The rows by topic, partition and offset; rows of one offset stay as they came.

    A log is told in the order of its offsets, so that a row's number stands for its offset: key and number together are
    one number, and distinct numbers sort many times as fast as rows do.
    """
    count = len(offset)
    numbers = np.arange(count)
    if count and (offset[1:] >= offset[:-1]).all():
        first, last = int(partition.min()), int(partition.max())
        if (int(topic.max()) + 1) * (last - first + 1) < _SPREAD >> 1 and count < _SPREAD:
            key = topic * (last - first + 1) + (partition - first)
            return np.sort(key * _SPREAD + numbers) & (_SPREAD - 1)
    order: Rows = np.lexsort((numbers, offset, partition, topic))
    return order


def _coded(column: pa.ChunkedArray) -> tuple[Rows, list[str]]:
    """A text column as numbers and the texts that they stand for; -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    if not len(encoded):
        return np.zeros(0, np.int64), []
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _lists(column: pa.ChunkedArray, order: Rows) -> NodeLists:
    """A list column in another order; a null is an empty list."""
    values = pc.list_flatten(column).to_numpy()
    if not len(values):
        return NodeLists(np.zeros(len(order) + 1, np.int64), np.zeros(0, np.int64))
    came = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    starts = np.cumsum(came) - came
    lengths = came[order]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts[order] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return NodeLists(offsets, values[places].astype(np.int64))


def rows_with(row_count: int, rows: Rows) -> Mask:
    """A mask over `row_count` rows."""
    mask = np.zeros(row_count, bool)
    mask[rows] = True
    return mask


def in_both(left: NodeLists, right: NodeLists) -> Mask:
    """The values of the left lists that are in the right list of the same row.

    Most rows have one of the two empty, so that only a few are compared.
    """
    mask = np.zeros(len(left.values), bool)
    used = (left.lengths > 0) & (right.lengths > 0)
    if not used.any():
        return mask
    mine = np.flatnonzero(used[left.row_of_value])
    theirs = np.flatnonzero(used[right.row_of_value])
    mask[mine] = np.isin(left.keys(mine), right.keys(theirs))
    return mask


def shares(left: NodeLists, right: NodeLists) -> Mask:
    """Rows in which two lists have a node in common."""
    return rows_with(len(left.offsets) - 1, left.row_of_value[in_both(left, right)])


def exceeds(left: NodeLists, right: NodeLists) -> Mask:
    """Rows in which the left list has a node that the right one lacks."""
    return rows_with(len(left.offsets) - 1, left.row_of_value[~in_both(left, right)])


def differs(left: NodeLists, right: NodeLists) -> Mask:
    """Rows whose lists are not equal, order included."""
    result: Mask = left.lengths != right.lengths
    same = np.flatnonzero(~result & (left.lengths > 0))
    if len(same):
        widest = int(left.lengths[same].max())
        for place in range(widest):
            rows = same[left.lengths[same] > place]
            result[rows] |= left.values[left.offsets[rows] + place] != right.values[right.offsets[rows] + place]
    return result


def changed(lists: NodeLists, is_first: Mask) -> Mask:
    """Rows whose list differs from the row before, of the same partition."""
    if len(is_first) < 2:
        return np.zeros(len(is_first), bool)
    starts, lengths = lists.offsets[:-1], lists.lengths
    before = NodeListsView(starts[:-1], lengths[:-1], lists.values)
    after = NodeListsView(starts[1:], lengths[1:], lists.values)
    return np.append(False, _views_differ(before, after)) & ~is_first


@dataclass(frozen=True, slots=True, eq=False)
class NodeListsView:
    """Lists anywhere in one value array."""

    starts: Rows
    lengths: Rows
    values: Rows


def _views_differ(left: NodeListsView, right: NodeListsView) -> Mask:
    result: Mask = left.lengths != right.lengths
    same = np.flatnonzero(~result & (left.lengths > 0))
    if len(same):
        for place in range(int(left.lengths[same].max())):
            rows = same[left.lengths[same] > place]
            result[rows] |= left.values[left.starts[rows] + place] != right.values[right.starts[rows] + place]
    return result
