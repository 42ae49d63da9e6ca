"""How long partitions stood exposed: in partition-minutes, by day or hour.

A partition is exposed while it has no leader, while one replica alone is in ISR and ELR though more are assigned, or
while its ISR is below the effective min ISR. Each of its minutes counts once. What lasts counts to the log's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.report.source import ClusterInput
from kraft_audit.rules.exposure import exposed
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.partition_states import partition_states
from kraft_audit.times import LAST_TIME_MS

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans of time [start, end) in ms."""

    start_ms: Times
    end_ms: Times

    def within(self, edges: Sequence[int]) -> list[float]:
        """The minutes of all spans together between each edge and the next."""
        at = np.asarray(edges, np.int64)
        elapsed = _before(self.start_ms, at) - _before(self.end_ms, at)
        return [float(value) / MINUTE_MS for value in np.diff(elapsed)]

    def open_at(self, moments: Sequence[int]) -> list[int]:
        """How many spans are open at each moment."""
        at = np.asarray(moments, np.int64)
        begun = np.searchsorted(np.sort(self.start_ms), at, side="right")
        ended = np.searchsorted(np.sort(self.end_ms), at, side="right")
        return [int(count) for count in begun - ended]


def _before(times: Times, at: Times) -> Times:
    """For each moment the sum of what has passed since each time before it."""
    ordered = np.sort(times)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(ordered)])
    count = np.searchsorted(ordered, at, side="right")
    passed: Times = count * at - sums[count]
    return passed


def spans(start_ms: Sequence[int] | Times, end_ms: Sequence[int] | Times) -> Spans:
    """Spans of real times; what ends before it begins, or lies outside any calendar, is left out."""
    starts, ends = np.asarray(start_ms, np.int64), np.asarray(end_ms, np.int64)
    keep = (starts >= 0) & (ends >= starts) & (ends < LAST_TIME_MS)
    return Spans(starts[keep], ends[keep])


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """The exposure of one cluster between the first and the last time that its log tells of."""

    from_ms: int | None
    to_ms: int | None
    spans: Spans | None = None
    by_day: Mapping[int, float] | None = None

    def within(self, edges: Sequence[int]) -> list[float | None]:
        """Partition-minutes between edges; None where the log does not tell of that time at all."""
        if self.from_ms is None or self.to_ms is None:
            return [None] * (len(edges) - 1)
        if self.by_day is not None:
            known = [
                sum(minutes for day, minutes in self.by_day.items() if start <= day < end)
                for start, end in pairwise(edges)
            ]
        else:
            known = self.spans.within(edges) if self.spans is not None else [0.0] * (len(edges) - 1)
        return [
            value if start <= self.to_ms and end > self.from_ms else None
            for value, (start, end) in zip(known, pairwise(edges), strict=True)
        ]


def partition_minutes(minutes: float) -> str:
    """An amount of exposure as people read it: whole from 10 on, less to two digits, so that little is never 0."""
    amount = f"{minutes:,.0f}" if minutes >= 10 else f"{Decimal(f'{minutes:.2g}'):f}"
    return f"{amount} partition-minute{'' if amount == '1' else 's'}"


def log_span(history: ClusterHistory, first_change_ms: int | None = None) -> tuple[int | None, int | None]:
    """The first and the last append time that is known; a time after the capture is no time to go by."""
    times = [history.begin_ms, first_change_ms, *(row["timestamp_ms"] for row in history.rows("leader_epochs"))]
    known = [time for time in times if time is not None and 0 < time < LAST_TIME_MS]
    end = history.end_ms
    if end is None or not 0 < end < LAST_TIME_MS:
        return (min(known, default=None), max(known, default=None))
    seen = history.seen_ms
    end = end if seen is None or seen <= 0 else min(end, seen)
    return min([*known, end]), end


def cluster_exposure(given: ClusterInput) -> Exposure:
    """What the source keeps of it, else what its history tells."""
    history = given.history
    from_ms, to_ms = log_span(history, given.first_change_ms)
    if given.exposed_minutes is not None:
        return Exposure(from_ms, to_ms, by_day=given.exposed_minutes)
    end_ms = to_ms or 0
    if given.exposed_spans is not None:
        starts, ends = given.exposed_spans["from_ms"], given.exposed_spans["to_ms"].fill_null(end_ms)
        return Exposure(from_ms, to_ms, spans(starts.to_numpy(), ends.to_numpy()))
    if not history.has("partition_changes"):
        return Exposure(None, None)
    states = partition_states(history)
    found = states.episodes(exposed(states))
    return Exposure(
        from_ms,
        to_ms,
        spans(
            [int(states.timestamp_ms[episode.start]) for episode in found],
            [end_ms if episode.end is None else int(states.timestamp_ms[episode.end]) for episode in found],
        ),
    )
