"""Who made a change: Kafka's authorizer log joined to the changes of the metadata log by resource and time.

Neither log names the other's entries, and a request may be allowed and then fail, or change nothing. So a change's
*candidates* are all requests that may have made it: allowed for such a change, of its resource or of the whole cluster,
at most WAIT_MS before its record. A batch bears the time at which its first record was appended, so the request of that
record was authorized before; later records may have joined it up to the time of the next batch. (Of 809 changes of a
real cluster, 797 that began a batch were authorized 0 to 15 ms before it, 12 others from 2 ms before to 12 ms after.)

A request is no candidate any more
- once another change took it: a request writes its records at once, under one timestamp;
- once a later request is known to have been served: the controller serves requests in the order in which they come
  (QuorumController's event queue), and they come within QUEUED_MS of being authorized.

Only where every candidate is the same user's is the change that user's. Where several users remain it is undecided, and
where none remains it stays unnamed.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kraft_audit.findings.admin_changes import AdminChange
from kraft_audit.findings.authorizer_log import AllowedRequest
from kraft_audit.rules.columns.log_batches import BatchColumns
from kraft_audit.text.readable import any_of

AUTHORIZER_LOG_CLUSTER: Final = "Cluster"
"""The cluster as the authorizer log names the type of a resource."""

WAIT_MS: Final = 5_000
"""So long may a request wait in the controller's queue."""
LINGER_MS: Final = 100
"""So long after the time of the log's last batch may a record have joined it; of others the next batch says."""
QUEUED_MS: Final = 100
"""So long a thread may take between authorizing a request and putting it into the queue, beside other threads."""

QUARTER_MS: Final = 900_000
QUARTERS_MAX: Final = 14 * 4


class Confidence(enum.StrEnum):
    """How sure it is whose change it was.

    HIGH: only this user was allowed it near that time, by the name of its resource. LIKELY: the log names the cluster
    alone, or others were ruled out by order. UNDECIDED: several users were allowed it. NONE: no user was.
    """

    HIGH = "high"
    LIKELY = "likely"
    UNDECIDED = "undecided"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Author:
    """Whose change it was: `principal` is None where that is not known, and `candidates` has all that remain."""

    principal: str | None
    confidence: Confidence
    candidates: tuple[str, ...] = ()
    host: str | None = None
    authorized_ms: int | None = None


UNNAMED: Final = Author(None, Confidence.NONE)


@dataclass(frozen=True, slots=True)
class AuthoredChange:
    """A change and its author; None where no authorizer log was read."""

    change: AdminChange
    author: Author | None = None


@dataclass(slots=True, eq=False)
class _Line:
    """A line of the log. `taken_ms` is the timestamp of the batch whose change took it."""

    said: AllowedRequest
    taken_ms: int | None = None


@dataclass(slots=True)
class _Lines:
    """Lines of one kind in the order of time."""

    times: list[int] = field(default_factory=list)
    lines: list[_Line] = field(default_factory=list)

    def between(self, from_ms: int, to_ms: int) -> Sequence[_Line]:
        return self.lines[bisect_left(self.times, from_ms) : bisect_right(self.times, to_ms)]


class _Log:
    """The lines by what they can explain: (request, operation, resource type, name), of the cluster without a name."""

    def __init__(self, requests: Iterable[AllowedRequest]) -> None:
        self._lines: dict[tuple[str, str, str, str], _Lines] = defaultdict(_Lines)
        self._spread_ms = 1
        for said in requests:
            is_of_cluster = said.resource_type == AUTHORIZER_LOG_CLUSTER
            if is_of_cluster and said.request == "CreateTopics" and said.is_super_user:
                continue  # it may show the configs of every topic: lines with the name follow
            self._spread_ms = max(self._spread_ms, said.spread_ms)
            name = "" if is_of_cluster else said.resource_name
            lines = self._lines[said.request, said.operation, said.resource_type, name]
            lines.times.append(said.time_ms)
            lines.lines.append(_Line(said))

    def candidates(self, change: AdminChange, latest_ms: int) -> list[_Line]:
        """All lines of such requests that are near enough, in the order of time."""
        from_ms, asked = change.timestamp_ms - WAIT_MS - self._spread_ms, change.asked
        keys = []
        for request in asked.requests:
            if change.resource is not None:
                keys += [(request, operation, *change.resource) for operation in asked.operations]
            if asked.cluster_operation is not None:
                keys.append((request, asked.cluster_operation, AUTHORIZER_LOG_CLUSTER, ""))
        lines = [line for key in keys if key in self._lines for line in self._lines[key].between(from_ms, latest_ms)]
        return sorted(lines, key=lambda line: line.said.time_ms)


def authors_of(
    changes: Sequence[AdminChange], requests: Sequence[AllowedRequest], batches: BatchColumns
) -> list[Author]:
    """The author of each change, in their order, which is that of offsets. `batches` are those of the canonical log."""
    log = _Log(requests)
    candidates = [log.candidates(change, latest) for change, latest in _with_latest(changes, batches)]
    first = [list(lines) for lines in candidates]
    named: list[_Line | None] = [None] * len(changes)
    is_new = True
    while is_new:
        is_new = False
        served_to_ms = -1
        for number, change in enumerate(changes):
            line = named[number]
            if line is None:
                lines = [each for each in candidates[number] if _is_open(each, change, served_to_ms)]
                candidates[number] = lines
                if len({each.said.principal for each in lines}) == 1:
                    named[number] = line = _take(lines, change)
                    is_new = True
            if line is not None:
                served_to_ms = max(served_to_ms, line.said.time_ms)
    return [_author(*each) for each in zip(named, candidates, first, strict=True)]


def _with_latest(changes: Sequence[AdminChange], batches: BatchColumns) -> Iterator[tuple[AdminChange, int]]:
    """Each change with the latest time at which its request can have been authorized."""
    bases, times = batches.base_offset, batches.timestamp_ms
    offsets = np.array([change.offset for change in changes], np.int64)
    rows = np.searchsorted(bases, offsets, side="right")
    for change, following in zip(changes, rows.tolist(), strict=True):
        if following and bases[following - 1] == change.offset:
            yield change, change.timestamp_ms
        elif following < len(bases):
            yield change, max(change.timestamp_ms, int(times[following]))
        else:
            yield change, change.timestamp_ms + LINGER_MS


def _is_open(line: _Line, change: AdminChange, served_to_ms: int) -> bool:
    is_free = line.taken_ms is None or line.taken_ms == change.timestamp_ms
    return is_free and line.said.time_ms + line.said.spread_ms + QUEUED_MS > served_to_ms


def _take(lines: Sequence[_Line], change: AdminChange) -> _Line:
    """The earliest of one user's requests that may have made a change. A request that stands alone made no other."""
    if len(lines) == 1:
        lines[0].taken_ms = change.timestamp_ms
    return lines[0]


def _author(line: _Line | None, lines: Sequence[_Line], first: Sequence[_Line]) -> Author:
    users = tuple(sorted({each.said.principal for each in lines}))
    if line is None:
        return Author(None, Confidence.UNDECIDED, users) if users else UNNAMED
    is_alone = len({each.said.principal for each in first}) == 1
    is_by_name = any(each.said.resource_type != AUTHORIZER_LOG_CLUSTER for each in lines)
    said = line.said
    confidence = Confidence.HIGH if is_alone and is_by_name else Confidence.LIKELY
    return Author(said.principal, confidence, users, said.host, said.time_ms)


def author_text(author: Author) -> str:
    """By whom a change was made, in words; empty where it is unnamed."""
    if author.confidence is Confidence.UNDECIDED:
        return f"by {any_of(author.candidates)} (undecided)"
    if author.principal is None:
        return ""
    return f"{'' if author.confidence is Confidence.HIGH else 'probably '}by {author.principal}"


def change_row(each: AuthoredChange) -> dict[str, Any]:
    """A change and its author as a row for programs."""
    change, author = each.change, each.author
    return {
        "offset": change.offset,
        "epoch": change.epoch,
        "timestamp_ms": change.timestamp_ms,
        "kind": change.kind,
        "subject": change.subject,
        "change": change.text,
        "who": None if author is None else author.principal,
        "confidence": None if author is None else author.confidence.value,
        "candidates": [] if author is None else list(author.candidates),
        "host": None if author is None else author.host,
        "authorized_ms": None if author is None else author.authorized_ms,
    }


def other_zone_minutes(changes: Sequence[AdminChange], requests: Sequence[AllowedRequest]) -> int | None:
    """By how many minutes the times of the log are later than those of the changes, where they are hours apart.

    None where they are not, or nothing names a resource of both. Zones differ by whole quarters of an hour.
    """
    requested: dict[tuple[str, str, str], int] = {}
    for said in requests:
        requested.setdefault((said.request, said.resource_type, said.resource_name), said.time_ms)
    counts: Counter[int] = Counter()
    for change in changes:
        for request in change.asked.requests if change.resource is not None else ():
            time_ms = requested.get((request, *(change.resource or ("", ""))))
            if time_ms is not None:
                quarters, rest_ms = divmod(time_ms - change.timestamp_ms + WAIT_MS, QUARTER_MS)
                if rest_ms < 2 * WAIT_MS and abs(quarters) <= QUARTERS_MAX:
                    counts[quarters] += 1
    quarters = max(counts, key=lambda each: (counts[each], -abs(each)), default=0)
    return 15 * quarters or None
