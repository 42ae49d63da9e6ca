"""From when on rows are kept for what is counted within an hour."""

from __future__ import annotations

import numpy as np
import pytest

from kraft_audit.rules.columns.open_episodes import look_back_ms, storms
from kraft_audit.text.readable import HOUR_MS
from tests.builders.unsafe_times import NO_TIMES


@pytest.mark.parametrize("as_of_ms", [*NO_TIMES, None, 0])
@pytest.mark.parametrize("is_open", [True, False])
def test_every_time_that_a_record_may_claim_can_be_looked_back_from(as_of_ms: int | None, is_open: bool) -> None:
    since_ms = look_back_ms(as_of_ms, is_open=is_open)
    assert as_of_ms is None or since_ms <= as_of_ms
    times_ms = np.array([-(2**63), 0, 2**63 - 1])
    found = times_ms >= since_ms
    # Python's own integers have no end.
    wanted = [
        as_of_ms is None or time_ms >= as_of_ms - (2 if is_open else 1) * HOUR_MS for time_ms in times_ms.tolist()
    ]
    assert found.tolist() == wanted


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
