"""Which partitions are or were exposed: for how many partition-minutes, and how each got there.

A partition is exposed while it has no leader, while one replica alone is in ISR and ELR though more are assigned, or
while its ISR is below the effective min ISR. Each of its minutes counts once. Exposure that lasts counts to the end of
the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.report.report_source import ClusterInput
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.partition_states import (
    PartitionStates,
    alone,
    exposed,
    offline,
    partition_states,
    under_min_isr,
)
from kraft_audit.tables.number_arrays import Mask, Rows, Times
from kraft_audit.text.readable import LAST_TIME_MS, MINUTE_MS, cause_text

LEDGERS_SHOWN: Final = 24
CHANGES_SHOWN: Final = 24
REASONS: Final = {"no leader": offline, "one replica alone": alone, "under min ISR": under_min_isr}
"""What exposes a partition, the worst first."""
LEDGER_COMPARED: Final = ("leader", "leader_epoch", "isr", "elr", "last_known_elr", "effective_min_isr")
LEDGER_COLUMNS: Final = (
    *("from_offset", "timestamp_ms", "cause", "possible_causes", "cause_broker_id", "exists"),
    *LEDGER_COMPARED,
)

PartitionKey = tuple[str, int]
"""Topic id and number."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans of time [start, end) in ms."""

    start_ms: Times
    end_ms: Times

    def within(self, edges: Sequence[int]) -> list[float]:
        """The minutes of all spans together between each edge and the next."""
        at = np.asarray(edges, np.int64)
        elapsed = _elapsed(self.start_ms, at) - _elapsed(self.end_ms, at)
        return [float(value) / MINUTE_MS for value in np.diff(elapsed)]

    def open_at(self, moments: Sequence[int]) -> list[int]:
        """How many spans are open at each moment."""
        at = np.asarray(moments, np.int64)
        begun = np.searchsorted(np.sort(self.start_ms), at, side="right")
        ended = np.searchsorted(np.sort(self.end_ms), at, side="right")
        return [int(count) for count in begun - ended]


def _elapsed(times: Times, at: Times) -> Times:
    """For each moment, the time since each earlier one of `times`, summed."""
    ordered = np.sort(times)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(ordered)])
    count = np.searchsorted(ordered, at, side="right")
    elapsed: Times = count * at - sums[count]
    return elapsed


def spans(start_ms: Sequence[int] | Times, end_ms: Sequence[int] | Times) -> Spans:
    """Spans of real times; a span that ends before it begins, or lies outside the calendar, is left out."""
    starts, ends = np.asarray(start_ms, np.int64), np.asarray(end_ms, np.int64)
    is_real = (starts >= 0) & (ends >= starts) & (ends < LAST_TIME_MS)
    return Spans(starts[is_real], ends[is_real])


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """The exposure of one cluster between the first and the last time of its log, as spans or as minutes by day."""

    from_ms: int | None
    to_ms: int | None
    spans: Spans
    by_day: Mapping[int, float] | None = None

    @property
    def covered(self) -> tuple[int, int] | None:
        """The first and the last time of the log; None where it has none."""
        return None if self.from_ms is None or self.to_ms is None else (self.from_ms, self.to_ms)

    def within(self, edges: Sequence[int]) -> list[float | None]:
        """Partition-minutes between edges; None where the log does not cover that time."""
        from_ms, to_ms = self.from_ms, self.to_ms
        if from_ms is None or to_ms is None:
            return [None] * (len(edges) - 1)
        if self.by_day is None:
            minutes = self.spans.within(edges)
        else:
            days = self.by_day.items()
            minutes = [sum(value for day, value in days if start <= day < end) for start, end in pairwise(edges)]
        return [
            value if start <= to_ms and end > from_ms else None
            for value, (start, end) in zip(minutes, pairwise(edges), strict=True)
        ]


def cluster_exposure(given: ClusterInput) -> Exposure:
    """The exposure that the source has, else computed from the cluster's history."""
    history = given.history
    from_ms, to_ms = _log_span(history, given.first_change_ms)
    end_ms = to_ms or 0
    if given.exposed_minutes is not None:
        return Exposure(from_ms, to_ms, spans([], []), given.exposed_minutes)
    if given.exposed_spans is not None:
        starts, ends = given.exposed_spans["from_ms"], given.exposed_spans["to_ms"].fill_null(end_ms)
        return Exposure(from_ms, to_ms, spans(starts.to_numpy(), ends.to_numpy()))
    if not history.has("partition_changes"):
        return Exposure(None, None, spans([], []))
    states = partition_states(history)
    episodes = states.episodes(exposed(states))
    begun = [int(states.timestamp_ms[episode.start]) for episode in episodes]
    ended = [end_ms if episode.end is None else int(states.timestamp_ms[episode.end]) for episode in episodes]
    return Exposure(from_ms, to_ms, spans(begun, ended))


def partition_minutes(minutes: float) -> str:
    """An amount of exposure as people read it: whole from 10 on, below that two digits, so that a little is never 0."""
    amount = f"{minutes:,.0f}" if minutes >= 10 else f"{Decimal(f'{minutes:.2g}'):f}"
    return f"{amount} partition-minute{'' if amount == '1' else 's'}"


def _log_span(history: ClusterHistory, first_change_ms: int | None) -> tuple[int | None, int | None]:
    """The first and the last append time that are known; times after the capture are not trusted."""
    times = [history.begin_ms, first_change_ms, *(row["timestamp_ms"] for row in history.rows("leader_epochs"))]
    known = [time for time in times if time is not None and 0 < time < LAST_TIME_MS]
    end, seen = history.end_ms, history.seen_ms
    if end is None or not 0 < end < LAST_TIME_MS:
        return (min(known, default=None), max(known, default=None))
    end = end if seen is None or seen <= 0 else min(end, seen)
    return min([*known, end]), end


@dataclass(frozen=True, slots=True)
class PartitionLedger:
    """One partition: why it is listed, if that is resolved, and its newest changes; `left_out` counts earlier ones.

    A row has LEDGER_COLUMNS, `is_exposed`, and in `changed` the columns that differ from the state before.
    """

    name: str
    replicas: tuple[int, ...]
    reasons: tuple[str, ...]
    is_resolved: bool
    since_ms: int
    rows: tuple[TableRow, ...]
    left_out: int


def partitions_at_risk(history: ClusterHistory) -> tuple[tuple[PartitionLedger, ...], int, int | None]:
    """Ledgers (those at risk now, else those that were), how many are at risk now, and how many partitions there are.

    The worst come first: no leader, one replica alone, too few in sync; then the oldest.
    """
    if not history.is_read or not history.has("partition_changes"):
        return (), 0, None
    states = partition_states(history)
    any_risk = exposed(states)
    now = _at_risk_now(states)
    ended = np.unique(np.asarray([states.newest_row(episode.start) for episode in states.episodes(any_risk)], np.int64))
    listed = now if len(now) else _latest_first(states, ended)
    masks = {reason: condition(states) for reason, condition in REASONS.items()}
    ledgers = tuple(
        _ledger(states, row, any_risk, tuple(reason for reason, mask in masks.items() if mask[row]), not len(now))
        for row in listed[:LEDGERS_SHOWN].tolist()
    )
    return ledgers, len(now), int(states.exists[states.last_rows].sum())


def partitions_shown(newest: ClusterHistory, once_exposed: Set[PartitionKey]) -> list[PartitionKey]:
    """The partitions that `partitions_at_risk` lists, decided from the newest row of each partition alone.

    `once_exposed` are the partitions that were ever exposed; they count if none is exposed now.
    """
    states = partition_states(newest)
    listed = _at_risk_now(states)
    if not len(listed) and once_exposed:
        ended = [row for row in states.last_rows.tolist() if _key(states, row) in once_exposed]
        listed = _latest_first(states, np.asarray(ended, np.int64))
    return [_key(states, row) for row in listed[:LEDGERS_SHOWN].tolist()]


def _key(states: PartitionStates, row: int) -> PartitionKey:
    return states.value("topic_id", row), int(states.partition[row])


def _at_risk_now(states: PartitionStates) -> Rows:
    """The newest rows of partitions that are exposed, the worst first."""
    now = states.last_rows[exposed(states)[states.last_rows]]
    return _in_order(
        states, now, *(~condition(states)[now] for condition in REASONS.values()), states.timestamp_ms[now]
    )


def _latest_first(states: PartitionStates, rows: Rows) -> Rows:
    return _in_order(states, rows, -states.timestamp_ms[rows])


def _in_order(states: PartitionStates, rows: Rows, *keys: Rows | Mask) -> Rows:
    """Rows sorted by the keys, the most significant first, then by topic name and number: the same in every run."""
    if not len(rows):
        return rows
    rank = np.argsort(np.argsort(np.asarray(states.topic_names)))
    ordered: Rows = rows[np.lexsort((states.partition[rows], rank[states.topic_codes[rows]], *reversed(keys)))]
    return ordered


def _ledger(
    states: PartitionStates, last: int, any_risk: Mask, reasons: tuple[str, ...], is_resolved: bool
) -> PartitionLedger:
    first = since = last
    while not states.is_first[first]:
        first -= 1
    while since > first and any_risk[since - 1]:
        since -= 1
    shown = max(first, last - CHANGES_SHOWN + 1)
    before = max(first, shown - 1)
    table = states.changes.table.select(LEDGER_COLUMNS).take(pa.array(states.order[before : last + 1]))
    rows = table.to_pylist()
    for row, is_exposed in zip(rows, any_risk[before : last + 1].tolist(), strict=True):
        cause = cause_text(row["cause"], row["possible_causes"])
        row |= {"is_exposed": is_exposed, "changed": frozenset(), "cause": cause}
    for previous, row in pairwise(rows):
        row["changed"] = frozenset(name for name in LEDGER_COMPARED if row[name] != previous[name])
    return PartitionLedger(
        states.name(last),
        tuple(states.nodes("replicas", last)),
        reasons,
        is_resolved,
        int(states.timestamp_ms[since]),
        tuple(rows[shown - before :]),
        shown - first,
    )
