"""Times and lengths as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def when(time_ms: int, since_ms: int | None = None) -> str:
    """A time as people read it: with its day, or without where it is the day of `since_ms`."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    if since_ms is not None and datetime.fromtimestamp(since_ms / 1000, UTC).date() == moment.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


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
