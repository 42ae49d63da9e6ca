"""The exact test for disjoint majorities against brute force, and against its closed form."""

from __future__ import annotations

from itertools import combinations

import pytest

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.columns.voter_sets import disjoint_majorities, kafka_overlap_verdict


def _brute_force(before: frozenset[tuple[int]], after: frozenset[tuple[int]]) -> bool:
    """Whether some majority of one shares no member with some majority of the other."""
    firsts = [frozenset(c) for c in combinations(before, majority(len(before)))]
    seconds = [frozenset(c) for c in combinations(after, majority(len(after)))]
    return any(not first & second for first in firsts for second in seconds)


@pytest.mark.parametrize("before_count", range(1, 8))
@pytest.mark.parametrize("after_count", range(1, 8))
def test_equals_brute_force_for_every_overlap(before_count: int, after_count: int) -> None:
    """Only sizes and the size of the intersection matter, so every pair of sets of 1 to 7 voters is covered."""
    for common in range(min(before_count, after_count) + 1):
        before = frozenset((n,) for n in range(before_count))
        after = frozenset((n,) for n in range(common)) | frozenset((100 + n,) for n in range(after_count - common))
        expected = _brute_force(before, after)
        pair = disjoint_majorities(before, after)
        assert (pair is not None) == expected
        need = max(0, majority(before_count) - len(before - after)) + max(
            0, majority(after_count) - len(after - before)
        )
        assert (need > common) == (not expected)
        if pair is not None:
            first, second = pair
            assert first <= before
            assert second <= after
            assert not first & second
            assert len(first) == majority(before_count)
            assert len(second) == majority(after_count)


def test_kafkas_verdict_passes_a_swap_that_is_not_safe() -> None:
    """Seen in Kafka's own unit run: {1,2,3} → {1,2,4} passes its test, though {1,3} and {2,4} are disjoint."""
    before, after = frozenset({(1,), (2,), (3,)}), frozenset({(1,), (2,), (4,)})
    assert kafka_overlap_verdict(before, after)
    assert disjoint_majorities(before, after) is not None
    assert not kafka_overlap_verdict(before, frozenset({(1,), (4,), (5,)}))
    more = before | {(4,), (5,)}
    assert not kafka_overlap_verdict(before, more)
    assert not kafka_overlap_verdict(more, before)


def test_single_changes_always_overlap() -> None:
    for count in range(1, 8):
        before = frozenset((n,) for n in range(count))
        assert disjoint_majorities(before, before | {(99,)}) is None
