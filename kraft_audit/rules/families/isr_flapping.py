"""The rule about ISRs that change too often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.carried_partitions import (
    as_table_rows,
    key_of_row,
    partition_mask,
    row_at,
    up_to_newest,
    with_previous,
)
from kraft_audit.rules.columns.frame import Mask, Rows, differs_from_before, distinct
from kraft_audit.rules.columns.open_episodes import began_at, look_back_ms
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_case, partition_states
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Finding, RowNumbers, Scope, Thresholds, threshold
from kraft_audit.text.readable import HOUR_MS

TIME_MAX_MS: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class IsrFlappingLimits(Thresholds):
    max_changes_an_hour: int = threshold(12, "ISR changes of one partition within any hour")


def _changes_of_an_hour(history: ClusterHistory, open_findings: Sequence[Finding]) -> Iterator[RowNumbers]:
    """The changes of the last hour with the row before them; of an open storm those of two hours."""
    states = partition_states(history)
    if not len(states):
        return
    is_stormy = partition_mask(history, open_findings)
    since = np.where(is_stormy, *(look_back_ms(history.end_ms, is_open=is_open) for is_open in (True, False)))
    yield as_table_rows(states, with_previous(states, up_to_newest(states, states.timestamp_ms >= since)))


@rule(
    "KP012",
    control="durability",
    needs=("partition_changes",),
    thresholds=IsrFlappingLimits,
    carries=_changes_of_an_hour,
    begins_late=True,
)
def kp012(history: ClusterHistory, limits: IsrFlappingLimits) -> Iterator[Case]:
    """A storm is over an hour of log time after its last change, or with its topic."""
    states = partition_states(history)
    limit = limits.max_changes_an_hour
    is_other = differs_from_before(states.changes.lists["isr"], states.order, states.is_first)
    rows = np.flatnonzero(is_other & states.exists)
    if history.carried is not None:
        rows = rows[_is_whole(history, states, rows)]
    if len(rows) <= limit:
        return
    # Records may claim any time that 64 bits hold: the time between two of them must fit as well.
    group, times_ms = np.cumsum(states.is_first)[rows], states.timestamp_ms[rows].clip(-TIME_MAX_MS, TIME_MAX_MS)
    # A change and the one `limit` changes before it, where both are of one partition.
    later, earlier = slice(limit, None), slice(len(rows) - limit)
    is_storm = (group[later] == group[earlier]) & (times_ms[later] - times_ms[earlier] <= HOUR_MS)
    hits = np.flatnonzero(is_storm)
    if not len(hits):
        return
    # The same storm goes on while the changes of an excess are among those of the one before.
    is_new = np.append(True, (np.diff(group[hits]) > 0) | (np.diff(hits) > limit))
    starts, ends = np.flatnonzero(is_new), np.append(np.flatnonzero(is_new)[1:], len(hits)) - 1
    storms = [
        _Storm(int(rows[hits[first]]), int(rows[hits[last] + limit]))
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    for storm in storms:
        yield _storm_case(history, states, storm, limit)


@dataclass(frozen=True, slots=True)
class _Storm:
    """The rows of the first and of the last change of a storm."""

    first: int
    last: int


def _is_whole(history: ClusterHistory, states: PartitionStates, rows: Rows) -> Mask:
    """Which changes are new, or from the time before that is carried whole."""
    carried = history.carried
    if carried is None:
        return np.ones(len(rows), bool)
    is_new = states.from_offset[rows] >= carried.to_offset
    recent: Mask = states.timestamp_ms[rows] >= look_back_ms(carried.to_ms)
    is_older = states.timestamp_ms[rows] >= look_back_ms(carried.to_ms, is_open=True)
    old = np.flatnonzero(~is_new & ~recent & is_older)
    newest = states.newest_rows(rows[old])
    stormy = [
        row for row in distinct(newest).tolist() if began_at(history, "KP012", Scope.PARTITION, key_of_row(states, row))
    ]
    recent[old] = np.isin(newest, np.array(stormy, np.int64))
    return is_new | recent


def _storm_case(history: ClusterHistory, states: PartitionStates, storm: _Storm, limit: int) -> Case:
    newest = states.newest_row(storm.last)
    last_ms = int(states.timestamp_ms[storm.last])
    episode = Episode(_first_row(history, states, storm), None if states.exists[newest] else newest)
    case = partition_case(states, episode, f"more than {limit} ISR changes within an hour")
    if episode.end is None and (history.end_ms or last_ms) - last_ms > HOUR_MS:
        return case._replace(is_over=True, to_ms=last_ms + HOUR_MS)
    return case


def _first_row(history: ClusterHistory, states: PartitionStates, storm: _Storm) -> int:
    """The first change of a storm; of one that was open where an earlier judgement stopped, its first change then."""
    if history.carried is None or states.from_offset[storm.first] >= history.carried.to_offset:
        return storm.first
    begins = began_at(history, "KP012", Scope.PARTITION, key_of_row(states, storm.first))
    return row_at(states, storm.first, max(begins)) if begins else storm.first
