"""Columns that rules compute with: made once, lists of node ids compared for all rows at once, rows numbered.

A history may hold two million rows of partitions. What is asked of each row in Python takes minutes; here it takes
a few passes over arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.tables.number_arrays import Mask, Rows

Numbers = npt.NDArray[np.int32]
SPREAD: Final = 1 << 32
"""A row times this plus a node is both in one number; so is a topic with a partition."""
_COMPARED_ONE_BY_ONE: Final = 64
"""Up to this many pairs, as of two lists of eight, each member is compared with each; longer lists are sorted first."""
_Derived = TypeVar("_Derived")
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns that are each made when they are first asked for."""

    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, make: Callable[[], _Derived]) -> _Derived:
        """A value that is made once."""
        if name not in self._known:
            self._known[name] = make()
        value: _Derived = self._known[name]
        return value


@dataclass(frozen=True, eq=False)
class NodeLists:
    """A list column: row r holds values[starts[r]:starts[r] + lengths[r]], and a null is an empty list."""

    column: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.column)

    @cached_property
    def values(self) -> Numbers:
        values: Numbers = pc.list_flatten(self.column).to_numpy()
        return values

    @cached_property
    def lengths(self) -> Numbers:
        lengths: Numbers = pc.fill_null(pc.list_value_length(self.column), 0).to_numpy()
        return lengths

    @property
    def starts(self) -> Rows:
        return self.bounds[:-1]

    @cached_property
    def row_of_value(self) -> Rows:
        return np.repeat(np.arange(len(self)), self.lengths)

    def of_rows(self, rows: Rows) -> list[tuple[int, ...]]:
        """The lists of many rows."""
        counts = self.lengths[rows].astype(np.int64)
        values = self.values[ranges(self.starts[rows], counts)].tolist()
        ends = np.cumsum(counts, dtype=np.int64)
        bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return [tuple(values[start:end]) for start, end in bounds]

    def keys(self, places: Rows) -> Rows:
        """(row, node) of the values at some places as one number: equal numbers are the same node in the same row."""
        return self.row_of_value[places] * SPREAD + (self.values[places].astype(np.int64) & (SPREAD - 1))

    @cached_property
    def bounds(self) -> Rows:
        """Where each list begins among the values, and where the last one ends."""
        return np.append(0, np.cumsum(self.lengths, dtype=np.int64))


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
    if not len(left.values) or not len(right.values):
        return mask
    used = (left.lengths > 0) & (right.lengths > 0)
    if not used.any():
        return mask
    rows = np.flatnonzero(used)
    if int(left.lengths[rows].max()) * int(right.lengths[rows].max()) > _COMPARED_ONE_BY_ONE:
        mine = np.flatnonzero(used[left.row_of_value])
        theirs = np.flatnonzero(used[right.row_of_value])
        mask[mine] = np.isin(left.keys(mine), right.keys(theirs))
        return mask
    for place in range(int(left.lengths[rows].max())):
        rows = rows[left.lengths[rows] > place]
        mine = left.starts[rows] + place
        mask[mine] = _holds(right, rows, left.values[mine])
    return mask


def _holds(lists: NodeLists, rows: Rows, nodes: Numbers) -> Mask:
    """Whether the list of each row holds the node of the same place."""
    mask = np.zeros(len(rows), bool)
    lengths, starts = lists.lengths[rows], lists.starts[rows]
    for place in range(int(lengths.max())):
        at = np.flatnonzero(lengths > place)
        mask[at] |= lists.values[starts[at] + place] == nodes[at]
    return mask


def union_sizes(left: NodeLists, right: NodeLists) -> Numbers:
    """How many nodes are in either of two lists, each of which has a node once."""
    if not len(right.values):
        return left.lengths
    sizes = left.lengths + right.lengths
    common = in_both(left, right)
    if common.any():
        sizes -= np.bincount(left.row_of_value[common], minlength=len(left)).astype(np.int32)
    return sizes


def shares(left: NodeLists, right: NodeLists) -> Mask:
    """Rows in which two lists have a node in common."""
    common = in_both(left, right)
    return rows_with(len(left), left.row_of_value[common]) if common.any() else np.zeros(len(left), bool)


def exceeds(left: NodeLists, right: NodeLists) -> Mask:
    """Rows in which the left list has a node that the right one lacks."""
    if not len(left.values):
        return np.zeros(len(left), bool)
    return rows_with(len(left), left.row_of_value[~in_both(left, right)])


def differs(left: NodeLists, right: NodeLists) -> Mask:
    """Rows where one list has a node that the other lacks: Kafka writes a set in the order of a Java HashSet."""
    return exceeds(left, right) | exceeds(right, left)


def differs_from_before(lists: NodeLists, rows: Rows, is_first: Mask) -> Mask:
    """Which of `rows` have another list than the row before them; rows that are first never do."""
    lengths = lists.lengths[rows]
    result = np.append(False, lengths[1:] != lengths[:-1])[: len(rows)]
    # Most changes show in the length: only lists of equal length are compared.
    same = np.flatnonzero(~result & ~is_first & (lengths > 0))
    result[same] = _differ(lists, rows[same - 1], lists, rows[same])
    return result & ~is_first


def holders(lists: NodeLists, nodes: npt.ArrayLike) -> Mask:
    """Rows whose list has one of the nodes."""
    places = np.flatnonzero(np.isin(lists.values, nodes))
    return rows_with(len(lists), lists.row_of_value[places] if len(places) else places)


def _differ(left: NodeLists, of_left: Rows, right: NodeLists, of_right: Rows) -> Mask:
    """Where the lists of two sets of rows, of equal lengths, differ."""
    result = np.zeros(len(of_left), bool)
    lengths = left.lengths[of_left]
    for place in range(int(lengths.max()) if len(lengths) else 0):
        at = np.flatnonzero(lengths > place)
        mine = left.values[left.starts[of_left[at]] + place]
        result[at] |= mine != right.values[right.starts[of_right[at]] + place]
    return result


def distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The distinct values of a column, ascending. numpy's own counts them in a hash table first, which takes up to
    sixty times as long (2.4)."""
    ordered = np.sort(values, axis=None)
    once: npt.NDArray[_Number] = ordered[run_begins(ordered)]
    return once


def numbered(*columns: Rows) -> Rows:
    """A number for each row; rows are equal exactly if their numbers are. Numbers are below the count of rows, and
    ascend as the rows do. Places are searched for, as numpy's own inverse takes five times the memory."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = distinct(column)
        number *= max(len(values), 1)
        number += np.searchsorted(values, column)
        number = np.searchsorted(distinct(number), number).astype(np.int64, copy=False)
    return number


def coded(column: pa.ChunkedArray) -> tuple[Rows, list[str]]:
    """A text column as numbers and the texts that they stand for; -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    codes: Rows = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def ranges(starts: Rows, counts: Rows) -> Rows:
    """The numbers from each start on, as many as are counted, one range after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
