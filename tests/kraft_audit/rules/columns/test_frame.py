"""Lists compared in columns give what the same lists give one by one; equal rows get equal numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.columns import frame
from kraft_audit.rules.columns.frame import (
    NodeLists,
    differs,
    differs_from_before,
    exceeds,
    holders,
    numbered,
    shares,
    union_sizes,
)

NODES = st.lists(st.integers(0, 5), max_size=4, unique=True) | st.none()


def columns(rows: list[list[int] | None], cut: int = 0) -> NodeLists:
    """The lists in two chunks, as they come from a log."""
    type_ = pa.list_(pa.int32())
    return NodeLists(pa.chunked_array([pa.array(rows[:cut], type_), pa.array(rows[cut:], type_)], type_))


@pytest.mark.parametrize("compared", [0, 64])
@given(st.lists(st.tuples(NODES, NODES), max_size=12), st.integers(0, 12))
def test_two_lists_of_a_row(compared: int, rows: list[tuple[list[int] | None, list[int] | None]], cut: int) -> None:
    reported = [(left or [], right or []) for left, right in rows]
    left, right = columns([left for left, _ in rows], cut), columns([right for _, right in rows], cut // 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "_COMPARED_ONE_BY_ONE", compared)
        assert shares(left, right).tolist() == [bool(set(a) & set(b)) for a, b in reported]
        assert exceeds(left, right).tolist() == [bool(set(a) - set(b)) for a, b in reported]
        assert union_sizes(left, right).tolist() == [len(set(a) | set(b)) for a, b in reported]
        assert differs(left, right).tolist() == [set(a) != set(b) for a, b in reported]
    assert holders(left, (1, 3)).tolist() == [bool({1, 3} & set(a)) for a, _ in reported]
    assert left.of_rows(np.arange(len(left))) == [tuple(a) for a, _ in reported]


@given(st.lists(st.tuples(NODES.filter(bool), st.booleans()), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_a_part_of_an_array_whose_nulls_cover_values(
    rows: list[tuple[list[int], bool]], start: int, count: int
) -> None:
    bounds = np.cumsum([0, *(len(nodes) for nodes, _ in rows)])
    whole = pa.ListArray.from_arrays(
        pa.array(bounds, pa.int32()),
        pa.array([node for nodes, _ in rows for node in nodes], pa.int32()),
        mask=pa.array([is_null for _, is_null in rows], pa.bool_()),
    )
    lists = NodeLists(pa.chunked_array([whole.slice(start, count), whole]))
    reported = [[] if is_null else nodes for nodes, is_null in [*rows[start : start + count], *rows]]
    assert lists.of_rows(np.arange(len(lists))) == [tuple(nodes) for nodes in reported]
    assert lists.lengths.tolist() == [len(nodes) for nodes in reported]
    assert lists.values.tolist() == [node for nodes in reported for node in nodes]


@given(st.lists(st.tuples(NODES, st.booleans()), min_size=1, max_size=12), st.data())
def test_a_list_and_the_one_before(rows: list[tuple[list[int] | None, bool]], data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    is_first = np.array([first for _, first in rows], bool)
    is_first[0] = True
    lists = [nodes or [] for nodes, _ in rows]
    wanted = [not is_first[place] and lists[order[place]] != lists[order[place - 1]] for place in range(len(rows))]
    assert differs_from_before(columns([nodes for nodes, _ in rows]), order, is_first).tolist() == wanted


LARGE_NUMBERS = st.sampled_from([-(1 << 62), -1, 0, 1, 7, 1 << 32, 1 << 62])


@given(st.lists(st.tuples(LARGE_NUMBERS, LARGE_NUMBERS, LARGE_NUMBERS), max_size=30))
def test_equal_numbers_are_equal_rows(rows: list[tuple[int, int, int]]) -> None:
    array = np.array(rows, np.int64).reshape(-1, 3)
    number = numbered(*array.T).tolist()
    assert all((number[i] == number[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(len(rows)))
