"""The time in the name of a capture: ISO-like dates and times, and seconds or milliseconds since 1970.

A counter is no time, nor is a day without its year: only what can hardly be anything else counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

_DAY: Final = r"(?P<year>20[0-9]{2})(?P<dash>[-_.]?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
_MINUTE: Final = r"(?P<hour>[0-9]{2})(?P<colon>[-:_.h]?)(?P<minute>[0-9]{2})(?:(?P=colon)(?P<second>[0-9]{2}))?"
_ZONE: Final = r"(?:[.,][0-9]{1,9})?(?P<zone>Z|\+[0-9]{2}:?[0-9]{2})?"
_DATE: Final = re.compile(rf"(?<![0-9]){_DAY}(?:[T_ -]?{_MINUTE}{_ZONE})?(?![0-9])")
_SINCE_1970: Final = re.compile(r"(?<![0-9A-Za-z])[0-9]{10}(?:[0-9]{3})?(?![0-9A-Za-z])")
_FIRST_S: Final = 1_300_000_000
"""2011: Kafka is not older."""
_LAST_S: Final = 4_102_444_800
"""The year 2100."""
_ZONES_APART_MS: Final = 14 * 3_600_000
"""A time without a zone may be so far from UTC."""


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A name says a time in [from_ms, to_ms); with `is_local` nothing says in which time zone."""

    from_ms: int
    to_ms: int
    is_local: bool

    def is_before(self, other: NamedTime) -> bool:
        """Whether all of it is before the other one. Names without a zone are taken to mean the same one."""
        slack_ms = _ZONES_APART_MS if self.is_local is not other.is_local else 0
        return self.to_ms + slack_ms <= other.from_ms

    def within(self, other: NamedTime) -> bool:
        """Whether it says the same as the other one, or the same more exactly."""
        return self.is_local is other.is_local and other.from_ms <= self.from_ms and self.to_ms <= other.to_ms


@lru_cache(maxsize=4_096)
def named_time(name: str) -> NamedTime | None:
    """The only time in a name, or the most exact of several that agree; None where there is none, or they disagree."""
    found = list(_times(name))
    exact = min(found, key=lambda time: time.to_ms - time.from_ms, default=None)
    return exact if exact is not None and all(exact.within(time) for time in found) else None


def _times(name: str) -> Iterator[NamedTime]:
    for match in _SINCE_1970.finditer(name):
        step_ms = 1 if len(match[0]) > 10 else 1_000
        time_ms = int(match[0]) * step_ms
        if _FIRST_S <= time_ms // 1_000 < _LAST_S:
            yield NamedTime(time_ms, time_ms + step_ms, is_local=False)
    for match in _DATE.finditer(name):
        if (time := _of_date(match)) is not None:
            yield time


def _of_date(match: re.Match[str]) -> NamedTime | None:
    parts = [int(match[name] or 0) for name in ("year", "month", "day", "hour", "minute", "second")]
    zone = match["zone"]
    step = timedelta(days=1) if match["hour"] is None else timedelta(minutes=1)
    step = timedelta(seconds=1) if match["second"] is not None else step
    try:
        start = datetime(*parts[:3], *parts[3:], tzinfo=_zone(zone))  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    from_ms = round(start.timestamp() * 1_000)
    return NamedTime(from_ms, from_ms + round(step.total_seconds() * 1_000), is_local=zone is None)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    return timezone(timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))
