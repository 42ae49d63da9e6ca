"""The partitions at risk, and how each came there: every change of leader, ISR and ELR with its cause."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.exposure import alone, exposed, offline, under_min_isr
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.node_lists import Mask, Rows
from kraft_audit.rules.partition_states import PartitionStates, partition_states

PartitionKey = tuple[str, int]
"""Topic id and number."""
PARTITIONS_SHOWN: Final = 24
CHANGES_SHOWN: Final = 24


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A state of a partition and what brought it about; `changed` names the columns that are not as before."""

    offset: int
    timestamp_ms: int
    cause: str
    broker_id: int | None
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    min_isr: int
    exists: bool
    is_exposed: bool
    changed: frozenset[str]


@dataclass(frozen=True, slots=True)
class PartitionLedger:
    """One partition: why it is listed, whether that lasts, and its newest changes, `left_out` earlier ones not."""

    name: str
    replicas: tuple[int, ...]
    reasons: tuple[str, ...]
    is_over: bool
    since_ms: int
    rows: tuple[LedgerRow, ...]
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
    ended = np.unique(np.asarray([states.newest_row(one.start) for one in states.episodes(any_risk)], np.int64))
    chosen = now if len(now) else _latest_first(states, ended)
    masks = {"no leader": offline(states), "one replica alone": alone(states), "under min ISR": under_min_isr(states)}
    last = states.last_rows
    count = int(states.exists[last].sum()) if len(last) else 0
    ledgers = [
        _ledger(states, int(row), any_risk, [name for name, mask in masks.items() if mask[row]], is_over=not len(now))
        for row in chosen[:PARTITIONS_SHOWN]
    ]
    return tuple(ledgers), len(now), count


def partitions_shown(newest: ClusterHistory, once_exposed: Set[PartitionKey]) -> list[PartitionKey]:
    """The partitions of which `partitions_at_risk` tells the changes, from the newest row of each partition alone.

    `once_exposed`: those that ever were; they are looked at where none is now.
    """
    states = partition_states(newest)
    chosen = _at_risk_now(states)
    if not len(chosen) and once_exposed:
        keys = (_key(states, int(row)) for row in states.last_rows)
        ended = [row for row, key in zip(states.last_rows, keys, strict=True) if key in once_exposed]
        chosen = _latest_first(states, np.asarray(ended, np.int64))
    return [_key(states, int(row)) for row in chosen[:PARTITIONS_SHOWN]]


def _key(states: PartitionStates, row: int) -> PartitionKey:
    return states.value("topic_id", row), int(states.partition[row])


def _at_risk_now(states: PartitionStates) -> Rows:
    """The newest rows of partitions that are exposed, the worst first."""
    last = states.last_rows
    now = last[exposed(states)[last]] if len(last) else last
    masks = (offline(states), alone(states), under_min_isr(states))
    weight = sum(mask[now].astype(np.int64) << (2 - place) for place, mask in enumerate(masks))
    return _in_order(states, now, -np.asarray(weight), states.timestamp_ms[now])


def _latest_first(states: PartitionStates, rows: Rows) -> Rows:
    return _in_order(states, rows, -states.timestamp_ms[rows])


def _in_order(states: PartitionStates, rows: Rows, *keys: Rows) -> Rows:
    """Rows by the keys, the first one first, then by topic name and number: the same in every run."""
    if not len(rows):
        return rows
    rank = np.argsort(np.argsort(np.asarray(states.topic_names)))
    found: Rows = rows[np.lexsort((states.partition[rows], rank[states.topic_codes[rows]], *reversed(keys)))]
    return found


def _ledger(
    states: PartitionStates, last: int, any_risk: Mask, reasons: list[str], *, is_over: bool
) -> PartitionLedger:
    first = last
    while not states.is_first[first]:
        first -= 1
    since = last
    while since > first and any_risk[since - 1]:
        since -= 1
    shown = range(max(first, last - CHANGES_SHOWN + 1), last + 1)
    return PartitionLedger(
        states.name(last),
        tuple(states.nodes("replicas", last)),
        tuple(reasons),
        is_over,
        int(states.timestamp_ms[since]),
        tuple(_row(states, row, bool(any_risk[row])) for row in shown),
        shown.start - first,
    )


def _row(states: PartitionStates, row: int, is_exposed: bool) -> LedgerRow:
    before = states.previous(row)
    changed = set()
    if before is not None:
        for name in ("isr", "elr", "last_known_elr"):
            if states.nodes(name, row) != states.nodes(name, before):
                changed.add(name)
        for name in ("leader", "leader_epoch", "effective_min_isr"):
            if getattr(states, name)[row] != getattr(states, name)[before]:
                changed.add(name)
    return LedgerRow(
        int(states.from_offset[row]),
        int(states.timestamp_ms[row]),
        states.cause(row),
        states.value("cause_broker_id", row),
        int(states.leader[row]),
        int(states.leader_epoch[row]),
        tuple(states.nodes("isr", row)),
        tuple(states.nodes("elr", row)),
        tuple(states.nodes("last_known_elr", row)),
        int(states.effective_min_isr[row]),
        bool(states.exists[row]),
        is_exposed,
        frozenset(changed),
    )
