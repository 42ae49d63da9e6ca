"""Milliseconds of a log as times and lengths that people read: the one place that makes a date of them.

A batch's timestamp is whatever its writer's clock said, any 64 bits. What lies outside of `is_time` is no date to
anything that shows dates (Python's end with the year 9999), so that it is shown as the number that it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

LAST_TIME_MS: Final = 253_402_300_800_000
"""The first millisecond of the year 10000."""


def is_time(time_ms: int) -> bool:
    """Whether these milliseconds are a time of this era."""
    return 0 <= time_ms < LAST_TIME_MS


def moment_of(time_ms: int) -> datetime | None:
    """The second of a time, UTC; None for what is none."""
    return datetime.fromtimestamp(time_ms // 1000, UTC) if is_time(time_ms) else None


def when(time_ms: int, since_ms: int | None = None) -> str:
    """A time as people read it: with its day, or without where it is the day of `since_ms`."""
    moment = moment_of(time_ms)
    if moment is None:
        return f"{time_ms} ms"
    since = None if since_ms is None else moment_of(since_ms)
    if since is not None and since.date() == moment.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def time_text(time_ms: int | None) -> str:
    """A time for people: UTC, to the millisecond; a number that is no time of this era as it is."""
    if time_ms is None:
        return ""
    moment = moment_of(time_ms)
    return str(time_ms) if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


def timestamp_us(time_ms: int | None) -> int | None:
    """A time as columns of the type TIMESTAMP hold it; None for what is none."""
    return None if time_ms is None or not is_time(time_ms) else time_ms * 1000


def duration(length_ms: int) -> str:
    """A length as people read it: 4 min 12 s."""
    seconds = max(0, length_ms) // 1000
    if length_ms < 10_000:
        return f"{max(0, length_ms) / 1000:.1f} s"
    for size, unit, smaller, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit} {rest} {small_unit}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"
