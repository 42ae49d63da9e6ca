"""Row numbers against Python's own equality of tuples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.numbering import numbered

_BIG = st.sampled_from([-(1 << 62), -1, 0, 1, 7, 1 << 32, 1 << 62])


@given(st.lists(st.tuples(_BIG, _BIG, _BIG), max_size=30))
def test_equal_numbers_are_equal_rows(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    number = numbered(*columns.T).tolist()
    assert all((number[i] == number[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(len(rows)))
