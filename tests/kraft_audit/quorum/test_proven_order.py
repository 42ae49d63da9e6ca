"""Which captures are proven to be earlier: by an epoch or snapshot of one disk, or by what was committed."""

from __future__ import annotations

import pytest

from kraft_audit.capture.capture_order import in_time
from kraft_audit.quorum.proven_order import CaptureSigns, proven_earlier

NODE = (1, "AAAAAAAAAAAAAAAAAAAAAQ", "")
OTHER = (2, "AAAAAAAAAAAAAAAAAAAAAg", "")


def signs(
    low: int, high: int | None, *, epoch: int = 3, snapshot: int = 0, node: tuple[int, str, str] = NODE
) -> CaptureSigns:
    return CaptureSigns(low, high, {node: (epoch, (snapshot, epoch))})


@pytest.mark.parametrize(
    ("first", "second", "earlier"),
    [
        (signs(10, 10), signs(15, 15), [set(), {0}]),  # more was committed than can have been
        (signs(15, 15), signs(10, 10), [{1}, set()]),
        (signs(10, None), signs(15, None), [set(), set()]),  # one more disk may have been read, and no time passed
        (signs(10, 12), signs(12, 14), [set(), set()]),
        (signs(10, None, epoch=4), signs(10, None, epoch=3), [{1}, set()]),  # a disk's epoch never goes back
        (signs(10, None, epoch=4), signs(10, None, epoch=3, node=OTHER), [set(), set()]),
        (signs(10, None, snapshot=5), signs(10, None, snapshot=9), [set(), {0}]),
        (signs(15, 15, epoch=3), signs(10, 10, epoch=4), [set(), set()]),  # a disk was put back: nothing is proven
    ],
)
def test_what_puts_two_captures_in_time(first: CaptureSigns, second: CaptureSigns, earlier: list[set[int]]) -> None:
    found = proven_earlier({0: first, 1: second}, {})
    assert [set(found[number]) for number in (0, 1)] == earlier


def test_what_is_proven_of_neighbours_holds_for_all_that_follow() -> None:
    last = CaptureSigns(0, None, {OTHER: (6, (0, 0))})
    middle = CaptureSigns(0, None, {NODE: (4, (0, 0)), OTHER: (5, (0, 0))})
    first = CaptureSigns(0, None, {NODE: (3, (0, 0))})
    found = proven_earlier({0: last, 1: middle, 2: first}, {})
    assert found == {0: {1, 2}, 1: {2}, 2: frozenset()}
    assert in_time([0, 1, 2], found) == [2, 1, 0]


def test_captures_without_an_order_stand_as_they_came() -> None:
    assert in_time([2, 0, 1], {number: frozenset() for number in range(3)}) == [2, 0, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signs(10, None, epoch=4), signs(10, None, epoch=3)),  # the disk went back
        (signs(15, 15), signs(10, 10)),  # a majority of them did
        (signs(10, None), signs(10, None)),
    ],
)
def test_what_is_stated_outweighs_content(first: CaptureSigns, second: CaptureSigns) -> None:
    stated = {0: frozenset[int](), 1: frozenset({0})}
    assert proven_earlier({0: first, 1: second}, stated) == stated


def test_content_orders_what_is_not_stated_as_far_as_it_contradicts_nothing() -> None:
    """Capture 2 has no date. By content it is before 0 and after 1; of 0 and 1 dates say the contrary."""
    captures = {number: signs(10, None, epoch=epoch) for number, epoch in ((0, 5), (1, 3), (2, 4))}
    found = proven_earlier(captures, {1: frozenset({0})})
    assert found[1] >= {0}
    assert in_time(captures, found).index(0) < in_time(captures, found).index(1)
    assert found == {0: {2}, 1: {0, 2}, 2: frozenset()}
