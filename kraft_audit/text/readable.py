"""Times, lengths and names as people read them: the one place that makes a date of a log's milliseconds.

A batch's timestamp is whatever its writer's clock said, any 64 bits. A number outside of `is_time` is not a date to
anything that shows dates (Python's end with the year 9999), so it is shown as a number.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
LAST_TIME_MS: Final = 253_402_300_800_000
"""The first millisecond of the year 10000."""
LISTED_MAX: Final = 32
"""Of more things than these a sentence names the first LISTED_FIRST."""
LISTED_FIRST: Final = 12
RUN_MIN: Final = 8
"""So many ids in a row stay as they are."""
NO_CLUSTER_ID: Final = "(no cluster id)"
_DIGITS: Final = re.compile("([0-9]+)")


def is_time(time_ms: int) -> bool:
    """Whether these milliseconds are a time of this era."""
    return 0 <= time_ms < LAST_TIME_MS


def moment_of(time_ms: int) -> datetime | None:
    """The second of a time, UTC; None for a number that is not a time."""
    return datetime.fromtimestamp(time_ms // 1000, UTC) if is_time(time_ms) else None


def time_ms_of(text: str) -> int:
    """Milliseconds since the epoch of a time in ISO 8601, UTC where it names no zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def when(time_ms: int, since_ms: int | None = None) -> str:
    """A time as people read it: with its day, or without where it is the day of `since_ms`."""
    moment = moment_of(time_ms)
    if moment is None:
        return f"{time_ms} ms"
    since = None if since_ms is None else moment_of(since_ms)
    if since is not None and since.date() == moment.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def utc_time(time_ms: int) -> str:
    """A time as commands and files take it: 2026-11-21T01:34:25Z, to the second."""
    moment = moment_of(time_ms)
    return str(time_ms) if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def time_text(time_ms: int | None) -> str:
    """A time for people: UTC, to the millisecond; any other number as it is."""
    if time_ms is None:
        return ""
    moment = moment_of(time_ms)
    return str(time_ms) if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


def timestamp_us(time_ms: int | None) -> int | None:
    """A time as columns of the type TIMESTAMP hold it; None for a number that is not a time."""
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


def shown_cluster_id(cluster_id: str | None) -> str:
    """The id, or words where there is none: replicas without meta.properties have no other name."""
    return cluster_id or NO_CLUSTER_ID


def plural(count: int, noun: str) -> str:
    """A number of things: `1 cluster`, `1,204 clusters`, `2 entries`."""
    plural_noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural_noun}"


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A sort key that puts topic-2 before topic-10. Only 0 to 9 are digits; a run of them may be of any length."""
    key = []
    for place, piece in enumerate(_DIGITS.split(name)):
        digits = piece.lstrip("0")
        key.append((len(digits), digits) if place % 2 else (-1, piece))
    return key, name


def any_of(items: Sequence[object]) -> str:
    """Things any of which is enough: `11, 12 or 13`; of very many the first ones."""
    *most, last = _first_of(items)
    return f"{', '.join(most)} or {last}" if most else last


def listed(items: Sequence[object]) -> str:
    """All of some things in words: `11, 12 and 13`; `none` where there is none, of very many the first ones."""
    *most, last = _first_of(items) if items else ("none",)
    return f"{', '.join(most)} and {last}" if most else last


def _first_of(items: Sequence[object]) -> list[str]:
    """All of them, or the first ones and how many more there are."""
    if len(items) <= LISTED_MAX:
        return [str(item) for item in items]
    return [*map(str, items[:LISTED_FIRST]), f"{len(items) - LISTED_FIRST} more"]


def pasted_ids(ids: Iterable[int]) -> str:
    """Node ids as options take them: `1,2,3`, a long run of them as `4-20000`."""
    runs: list[list[int]] = []
    for each in sorted(ids):
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > RUN_MIN else ",".join(map(str, run)) for run in runs)


def cause_text(cause: str | None, possible: Sequence[str] | None) -> str:
    """A cause, or where the log leaves it open what it may be: `fenced`, `either fenced or isr_shrunk`."""
    if cause is not None:
        return cause
    if not possible:
        return "unknown"
    *most, last = possible
    return f"either {', '.join(most)} or {last}"


def capitalized(text: str) -> str:
    """A text whose first letter is large; `str.capitalize` would make all others small."""
    return f"{text[:1].upper()}{text[1:]}"


def and_more(count: int) -> str:
    """What stands after the things that are named: ` and 3 more`; nothing where all of them are."""
    return f" and {count} more" if count > 0 else ""


def nouns(noun: str, items: Sequence[object]) -> str:
    """All of some things after their noun: `node 11`, `nodes 11 and 12`."""
    return f"{noun}{'s' * (len(items) != 1)} {listed(items)}"


def offset_span(from_offset: int, to_offset: int) -> str:
    """The offsets [from_offset, to_offset) in words: `offset 47`, `offsets 39–47`."""
    last = to_offset - 1
    return f"offset {last}" if from_offset == last else f"offsets {from_offset}–{last}"


def committed_text(low: int, high: int | None) -> str:
    """How far a log is committed, of the bounds of its committed interval, which are exclusive ends of offsets."""
    text = f"committed through offset {low - 1}" if low else "nothing is proven committed"
    if high is not None and high <= low:
        return text
    return f"{text}, upper bound unknown" if high is None else f"{text}, at most {high - 1}"


def is_local(host: str) -> bool:
    """Whether a host, a name or an address, is the machine itself to whoever reads it."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified
