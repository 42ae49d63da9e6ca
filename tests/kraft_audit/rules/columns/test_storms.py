"""Which changes within an hour are a storm."""

from __future__ import annotations

import numpy as np
import pytest

from kraft_audit.rules.columns.storms import storms
from kraft_audit.text.readable import HOUR_MS


@pytest.mark.parametrize(
    ("minutes", "groups", "expected"),
    [
        ([], [], []),
        ([0, 60], [0, 0], []),
        ([0, 30, 60], [0, 0, 0], [(0, 2)]),
        ([0, 30, 61], [0, 0, 0], []),
        ([0, 30, 60, 90, 120], [0] * 5, [(0, 4)]),
        ([0, 30, 60, 300, 330, 360], [0] * 6, [(0, 2), (3, 5)]),
        ([0, 30, 60, 61, 300, 330, 360], [0] * 7, [(0, 3), (4, 6)]),
        ([0, 30, 60, 60, 90], [0, 0, 0, 1, 1], [(0, 2)]),
        ([0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1], [(0, 2), (3, 5)]),
    ],
)
def test_more_than_two_changes_of_a_group_within_an_hour_are_a_storm(
    minutes: list[int], groups: list[int], expected: list[tuple[int, int]]
) -> None:
    times_ms = np.array(minutes, np.int64) * (HOUR_MS // 60)
    assert storms(times_ms, np.array(groups, np.int64), 2) == expected
