"""Lists of node ids, one a row, in columns; how they compare is asked of all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
SPREAD: Final = 1 << 32
_COMPARED_ONE_BY_ONE: Final = 64
"""Up to this many pairs, as of two lists of eight, each member is compared with each; longer lists are sorted first."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, eq=False)
class NodeLists:
    """A list column: row r holds values[starts[r]:starts[r] + lengths[r]], and a null is an empty list."""

    column: pa.ChunkedArray
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.column)

    @property
    def values(self) -> Numbers:
        return self._once("values", lambda: _numbers(pc.list_flatten(self.column)))

    @property
    def lengths(self) -> Numbers:
        return self._once("lengths", lambda: np.diff(self._bounds).astype(np.int32))

    @property
    def starts(self) -> Rows:
        return self._bounds[:-1]

    @property
    def row_of_value(self) -> Rows:
        return self._once("rows", lambda: np.repeat(np.arange(len(self)), self.lengths))

    def of(self, row: int) -> list[int]:
        found: list[int] = self.values[self._bounds[row] : self._bounds[row + 1]].tolist()
        return found

    def keys(self, places: Rows) -> Rows:
        """(row, node) of the values at some places as one number: equal numbers are the same node in the same row."""
        return self.row_of_value[places] * SPREAD + (self.values[places].astype(np.int64) & (SPREAD - 1))

    @property
    def _bounds(self) -> Rows:
        """Where each list begins among the values, and where the last one ends."""
        return self._once("bounds", self._make_bounds)

    def _make_bounds(self) -> Rows:
        if not len(self.values):
            return np.zeros(len(self) + 1, np.int64)
        bounds, end = np.empty(len(self) + 1, np.int64), 0
        bounds[0], row = 0, 0
        for chunk in self.column.chunks:
            # Arrow's own offsets, which count from the beginning of the whole array that a chunk may be a part of.
            offsets = chunk.offsets.to_numpy()
            np.add(offsets[1:], end - int(offsets[0]), out=bounds[row + 1 : row + 1 + len(chunk)])
            row, end = row + len(chunk), int(bounds[row + len(chunk)])
        if end == len(self.values):
            return bounds
        # A null may cover values that are no list's.
        np.cumsum(pc.fill_null(pc.list_value_length(self.column), 0).to_numpy(), out=bounds[1:])
        return bounds

    def _once(self, name: str, make: Callable[[], _Value]) -> _Value:
        if name not in self._known:
            self._known[name] = make()
        value: _Value = self._known[name]
        return value


def _numbers(column: pa.ChunkedArray) -> Numbers:
    numbers: Numbers = column.to_numpy()
    return numbers


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
    """Whether the lists of some rows hold one node each."""
    found = np.zeros(len(rows), bool)
    lengths, starts = lists.lengths[rows], lists.starts[rows]
    for place in range(int(lengths.max())):
        at = np.flatnonzero(lengths > place)
        found[at] |= lists.values[starts[at] + place] == nodes[at]
    return found


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
    """Rows whose lists are not equal, order included."""
    result: Mask = left.lengths != right.lengths
    rows = np.flatnonzero(~result & (left.lengths > 0))
    result[rows] = _differ(left, rows, right, rows)
    return result


def differs_from_before(lists: NodeLists, rows: Rows, is_first: Mask) -> Mask:
    """Which of some rows have another list than the one before them there; those that are first never."""
    lengths = lists.lengths[rows]
    result = np.append(False, lengths[1:] != lengths[:-1])[: len(rows)]
    # Most that come or go show in the length: only the rest is looked at.
    same = np.flatnonzero(~result & ~is_first & (lengths > 0))
    result[same] = _differ(lists, rows[same - 1], lists, rows[same])
    return result & ~is_first


def holders(lists: NodeLists, nodes: npt.ArrayLike) -> Mask:
    """Rows whose list has one of the nodes."""
    places = np.flatnonzero(np.isin(lists.values, nodes))
    return rows_with(len(lists), lists.row_of_value[places] if len(places) else places)


def _differ(left: NodeLists, of_left: Rows, right: NodeLists, of_right: Rows) -> Mask:
    """Where the lists of some rows differ from those of others, which are as long."""
    result = np.zeros(len(of_left), bool)
    lengths = left.lengths[of_left]
    for place in range(int(lengths.max()) if len(lengths) else 0):
        at = np.flatnonzero(lengths > place)
        mine = left.values[left.starts[of_left[at]] + place]
        result[at] |= mine != right.values[right.starts[of_right[at]] + place]
    return result
