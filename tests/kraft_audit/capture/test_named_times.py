"""Which names say a time, and when one of two is surely before the other."""

from __future__ import annotations

from datetime import datetime

import pytest

from kraft_audit.capture.named_times import NamedTime, named_time

DAY_S, MINUTE_S = 86_400, 60


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("name", "from_utc", "length_s", "is_local"),
    [
        ("2026-11-28", "2026-11-28T00:00Z", DAY_S, True),
        ("kraft_2026.11.28", "2026-11-28T00:00Z", DAY_S, True),
        ("20261128-node1", "2026-11-28T00:00Z", DAY_S, True),
        ("2026-11-28-3", "2026-11-28T00:00Z", DAY_S, True),  # the third copy of a day
        ("20261128T0312", "2026-11-28T03:12Z", MINUTE_S, True),
        ("2026-11-28_03-12", "2026-11-28T03:12Z", MINUTE_S, True),
        ("20261128031205", "2026-11-28T03:12:05Z", 1, True),
        ("2025-02-16T132301-099c26ca", "2025-02-16T13:23:01Z", 1, True),
        ("2026-11-28T03:12:05Z", "2026-11-28T03:12:05Z", 1, False),
        ("2026-11-28T03:12:05.250Z.tgz", "2026-11-28T03:12:05Z", 1, False),
        ("2026-11-28T0312+0200", "2026-11-28T01:12Z", MINUTE_S, False),
        ("copy-1764155000", "2025-11-26T11:03:20Z", 1, False),
        ("1764155000123", "2025-11-26T11:03:20.123Z", 0.001, False),
        ("2026-11-28/2026-11-28T0312", "2026-11-28T03:12Z", MINUTE_S, True),  # they agree
    ],
)
def test_a_name_says_a_time(name: str, from_utc: str, length_s: float, is_local: bool) -> None:
    from_ms = ms(from_utc)
    assert named_time(name) == NamedTime(from_ms, from_ms + round(length_s * 1_000), is_local)


@pytest.mark.parametrize(
    "name",
    [
        *("", "a", "28-11", "29-stopped", "node-3", "friday", "2026", "2026-11", "2026-13-01", "20260230"),
        *("120261128", "2026112", "2026-11.28", "99999999999", "1299999999", "4102444800", "x1764155000"),
        "2026-11-27/2026-11-28",  # which of them?
        "2026-11-28 1764155000",
    ],
)
def test_a_name_says_none(name: str) -> None:
    assert named_time(name) is None


@pytest.mark.parametrize(
    ("first", "second", "is_before"),
    [
        ("2026-11-27", "2026-11-28", True),
        ("2026-11-28", "2026-11-28", False),
        ("2026-11-28", "2026-11-28T2359", False),  # of one day, and nothing says more
        ("2026-11-27", "2026-11-28T0000", True),
        ("20261128T0312", "20261128T0313", True),
        ("20261128T0313", "20261128T0312", False),
        ("1764155000", "1764155001", True),
        # One is of some time zone, the other one in UTC: 14 hours may lie between.
        ("2026-11-28T0312", "2026-11-28T17:12Z", False),
        ("2026-11-28T0312", "2026-11-28T17:13Z", True),
        ("2026-11-28T03:12Z", "2026-11-28T1712", False),
        ("2026-11-28T03:12Z", "2026-11-28T1713", True),
    ],
)
def test_one_is_before_the_other(first: str, second: str, is_before: bool) -> None:
    times = named_time(first), named_time(second)
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].is_before(times[1]) is is_before
