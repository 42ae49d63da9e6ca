"""Stops that came too early in a roll: a broker was stopped in order while partitions still lacked the one before it.

Kafka grants a controlled shutdown without asking whether the ISR is whole (BrokerHeartbeatManager, Kafka 4.3.0). That a
broker came back just before, and that a partition lacked it when the next one left, decides: why it had been away is
another incident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import BrokerStop, Stop
from kraft_audit.rules.columns.frame import rows_with
from kraft_audit.rules.columns.nodes import Absence, absences, broker_states
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.tables.number_arrays import Mask, Rows

ROLL_STEP_MS: Final = 3_600_000
"""A broker that came back longer ago belongs to no roll that goes on: whoever rolled waited."""


class Back(NamedTuple):
    """Where and when a broker had come back."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """A broker that was stopped in order in [from_offset, to_offset), soon after others had come back.

    `back` says when each of those had. Which partitions lacked them still, `lacked` says.
    """

    broker_id: int
    from_offset: int
    to_offset: int | None
    back: Mapping[int, Back]


def early_stops(history: ClusterHistory, group: Sequence[BrokerStop]) -> tuple[EarlyStop, ...]:
    """The stops of a group of absences that may have come too early; none where the whole cluster was stopped."""
    stops = []
    for absence in (stop.absence for stop in group if stop.stop in (Stop.CONTROLLED, Stop.IDLE)):
        back = {} if _all_were_away(history, absence) else _back_before(history, absence)
        if back:
            stops.append(EarlyStop(absence.broker_id, absence.from_offset, absence.to_offset, back))
    return tuple(stops)


def _all_were_away(history: ClusterHistory, absence: Absence) -> bool:
    """Whether no broker was active at some moment of an absence: then somebody stopped the cluster, and rolled nothing.

    The moments asked about are those at which a broker left.
    """
    left = [each.from_offset for each in absences(history) if absence.from_offset <= each.from_offset]
    if absence.to_offset is not None:
        left = [offset for offset in left if offset < absence.to_offset]
    known = broker_states(history).values()
    return any(not any(states.is_active_at(offset) for states in known) for offset in left)


def _back_before(history: ClusterHistory, absence: Absence) -> dict[int, Back]:
    """The brokers that had come back not long before another one left."""
    back = {}
    for broker, states in broker_states(history).items():
        rows = () if broker == absence.broker_id else states.back_rows(absence.from_offset - 1)
        if rows and absence.from_ms - rows[-1]["timestamp_ms"] <= ROLL_STEP_MS:
            back[broker] = Back(rows[-1]["from_offset"], rows[-1]["timestamp_ms"])
    return back


def lacked(part: ClusterHistory, stop: EarlyStop) -> Iterator[tuple[int, list[str]]]:
    """Each broker that had come back, and the partitions of a history's part that lacked it ever since it had left,
    when the stopped one left them.

    The last member of an ISR stays in it, and leads no more.
    """
    states = partition_states(part)
    within = (states.from_offset >= stop.from_offset) & states.exists & ~states.is_first
    if stop.to_offset is not None:
        within &= states.from_offset < stop.to_offset
    rows = np.flatnonzero(within)
    in_isr = _holding(states, "isr", stop.broker_id)
    is_offline = (states.leader[rows] < 0) & (states.leader[rows - 1] >= 0)
    rows = rows[in_isr[rows - 1] & (~in_isr[rows] | is_offline)]
    for broker, back in stop.back.items():
        in_isr = _holding(states, "isr", broker)
        is_out = _holding(states, "replicas", broker) & ~_holding(states, "adding_replicas", broker) & ~in_isr
        left_at = states.from_offset[_first_without(states, in_isr)]
        yield broker, states.names(rows[is_out[rows - 1] & (left_at[rows - 1] <= back.offset)])


def _first_without(states: PartitionStates, in_isr: Mask) -> Rows:
    """For each row the first one of its partition since which a broker has not been in the ISR."""
    is_begin = states.is_first | np.append(False, in_isr[:-1])
    return np.maximum.accumulate(np.where(is_begin, np.arange(len(states)), 0))


def _holding(states: PartitionStates, name: str, broker: int) -> Mask:
    """The rows in which a broker stands in a list."""
    lists = states.changes.lists[name]
    return rows_with(len(states), states.row_of_change()[lists.row_of_value[lists.values == broker]])
