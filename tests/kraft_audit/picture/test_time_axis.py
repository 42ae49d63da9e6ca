"""Time to the right: in order, within its pixels, and to scale but for folds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.picture.time_axis import FOLDS_MAX, TICK_PIXELS, TimeAxis

T0 = 1_795_507_136_034
MOMENTS = st.lists(st.integers(0, 400_000_000), min_size=2, max_size=40, unique=True)


@given(MOMENTS, st.sampled_from([(104.0, 912.0), (104.0, 532.0), (4.0, 318.0)]))
def test_moments_stand_in_their_order_within_the_axis(offsets: list[int], pixels: tuple[float, float]) -> None:
    moments = sorted(T0 + offset for offset in offsets)
    axis = TimeAxis(moments, moments[0], moments[-1], *pixels)
    places = [axis.x(moment) for moment in moments]
    assert all(before <= after for before, after in pairwise(places))
    assert places[0] == pytest.approx(pixels[0])
    assert places[-1] == pytest.approx(pixels[1])
    assert len(axis.folds) <= FOLDS_MAX


@given(MOMENTS)
def test_what_is_drawn_is_to_one_scale_and_a_fold_holds_no_moment(offsets: list[int]) -> None:
    moments = sorted(T0 + offset for offset in offsets)
    axis = TimeAxis(moments, moments[0], moments[-1], 0.0, 1000.0)
    scales = [(s.x1 - s.x0) / (s.to_ms - s.from_ms) for s in axis.stretches if s.to_ms > s.from_ms]
    assert max(scales) == pytest.approx(min(scales))
    for before, after in pairwise(axis.stretches):
        assert not any(before.to_ms < moment < after.from_ms for moment in moments)


@given(MOMENTS)
def test_ticks_do_not_crowd_and_name_their_moment(offsets: list[int]) -> None:
    moments = sorted(T0 + offset for offset in offsets)
    axis = TimeAxis(moments, moments[0], moments[-1], 0.0, 1000.0)
    ticks = axis.ticks()
    assert ticks
    assert ticks[0].day
    assert all(after.x - before.x >= 0.8 * TICK_PIXELS for before, after in pairwise(ticks))


def test_a_night_between_two_incidents_of_seconds_is_folded() -> None:
    second, night = 1_000, 8 * 3_600_000
    first = [T0 + place * second for place in range(20)]
    moments = [*first, *(moment + night for moment in first)]
    axis = TimeAxis(moments, moments[0], moments[-1], 0.0, 1000.0)
    (fold,) = axis.folds
    assert night - 25 * second < fold.length_ms < night
    assert axis.x(first[1]) - axis.x(first[0]) > 10, "a second of an incident can be seen"


def test_an_even_log_is_not_folded() -> None:
    moments = [T0 + place * 3_600_000 for place in range(200)]
    assert TimeAxis(moments, moments[0], moments[-1], 0.0, 1000.0).folds == []
