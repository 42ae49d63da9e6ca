"""How brokers came back: each new registration, and whether the stop before it was clean.

A clean stop keeps everything that was acknowledged; a crash may have lost what was not flushed. With the ELR on the
controller decides it, by the broker epoch that the broker wrote when it stopped (KIP-966): an ELR that still names the
broker after it registered says that the stop was clean, a record of that operation that drops it says that it was not.
Otherwise a stop is clean, as far as the log knows, where the broker was fenced in controlled shutdown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.nodes import broker_states, changed_within
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.tables.silver import SNAPSHOT
from kraft_codec.schemas.releases import (
    ELR_FEATURE,
    FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN,
    METADATA_VERSION_FEATURE,
)


@dataclass(frozen=True, slots=True)
class BrokerReturn:
    """A registration of a new incarnation; `is_clean`: the stop before it was, as far as the log knows."""

    broker_id: int
    offset: int
    timestamp_ms: int
    is_clean: bool


@dataclass(frozen=True, slots=True)
class LevelsInTime:
    """The levels of one feature by offset; 0 before the first one that is known."""

    offsets: Sequence[int]
    levels: Sequence[int]

    def at(self, offset: int) -> int:
        """The level after the record at `offset`."""
        place = bisect_right(self.offsets, offset) - 1
        return self.levels[place] if place >= 0 else 0


def feature_levels(history: ClusterHistory, name: str) -> LevelsInTime:
    """The levels that a feature had, in the order of the log."""

    def find() -> LevelsInTime:
        rows = [row for row in history.rows_by_offset("feature_changes") if row["name"] == name]
        levels = [int(row["feature_level"]) if row["exists"] else 0 for row in rows]
        return LevelsInTime([row["from_offset"] for row in rows], levels)

    return history.known(f"levels of {name}", find)


def is_stopped_cleanly(history: ClusterHistory, row: Mapping[str, Any]) -> bool:
    """Whether the state of a broker says that it stopped in order: fenced in controlled shutdown.

    Before metadata.version 3.3-IV3 no record says so, and nothing is known.
    """
    level = feature_levels(history, METADATA_VERSION_FEATURE).at(row["from_offset"])
    return bool(row["fenced"] and row["in_controlled_shutdown"]) and level >= FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN


@once_per_history
def broker_returns(history: ClusterHistory) -> list[BrokerReturn]:
    """Every registration of a new incarnation, in the order of the log."""
    return sorted(_broker_returns(history), key=attrgetter("offset"))


def _broker_returns(history: ClusterHistory) -> Iterator[BrokerReturn]:
    elr = feature_levels(history, ELR_FEATURE)
    for broker, states in broker_states(history).items():
        # A broker that the snapshot at the log's beginning lacks may have been unregistered before.
        first = (None,) if history.states_from else ()
        for before, row in zip((*first, *states.rows), states.rows[1 - len(first) :], strict=False):
            is_new = row["exists"] and (before is None or row["incarnation_id"] != before["incarnation_id"])
            if not is_new or row["cause"] == SNAPSHOT:
                continue
            offset = row["from_offset"]
            # Of a broker that was unregistered the controller does not know how it stopped.
            is_clean = before is not None and before["exists"] and is_stopped_cleanly(history, before)
            if elr.at(offset) > 0:
                eligible, dropped = still_eligible(history)[0], _dropped(history)
                if (broker, offset) in eligible:
                    is_clean = True
                elif (broker, offset) in dropped:
                    is_clean = False
            yield BrokerReturn(broker, offset, row["timestamp_ms"], is_clean)


@once_per_history
def _dropped(history: ClusterHistory) -> Set[tuple[int, int]]:
    """(broker, offset of its registration) where that operation took it out of an ISR or ELR for an unclean stop."""
    return set(_find_dropped(history))


def _find_dropped(history: ClusterHistory) -> Iterator[tuple[int, int]]:
    states = partition_states(history)
    fallen = states.rows_of(states.changes.is_cause("unclean_shutdown"))
    offsets = states.from_offset[fallen]
    for row, offset, end in zip(
        fallen.tolist(), offsets.tolist(), operation_ends(history, offsets).tolist(), strict=True
    ):
        broker = states.value("cause_broker_id", row)
        registered = changed_within(history, broker, offset, end)
        if registered is not None:
            yield broker, registered


@once_per_history
def still_eligible(history: ClusterHistory) -> tuple[Set[tuple[int, int]], Rows]:
    """(broker, offset of a change of it) where it is in some ELR before and after; and a row of each that shows it.

    An unclean registration takes a broker out of every ELR (ReplicationControlManager.handleUncleanBrokerShutdown,
    Kafka 4.3.0): where it stays in one, what it left was another operation in that batch. A row counts where no other
    change of its partition can have been left out after it.
    """
    states = partition_states(history)
    elr, epoch = states.changes.lists["elr"], states.partition_epoch
    rows = states.row_of_change()[elr.row_of_value]
    is_whole = states.exists & (states.is_last | (np.append(epoch[1:], 0) <= epoch + 1))
    until = states.next_offset
    eligible: set[tuple[int, int]] = set()
    shown: set[int] = set()
    for broker, known in broker_states(history).items():
        own = np.sort(rows[(elr.values == broker) & is_whole[rows]])
        first = np.searchsorted(known.offsets, states.from_offset[own], side="right")
        last = np.searchsorted(known.offsets, until[own], side="left")
        reached = 0
        for place in np.lexsort((-last, first)).tolist():
            if last[place] > max(reached, int(first[place])):
                changes = known.offsets[max(reached, int(first[place])) : last[place]]
                eligible.update((broker, offset) for offset in changes.tolist())
                shown.add(int(own[place]))
                reached = int(last[place])
    return eligible, np.array(sorted(shown), np.int64)


RESERVED_DIRECTORIES: Final = "A" * 20
"""What directory ids begin with that stand for no directory: unassigned, lost, migrating (DirectoryId, Kafka 4.3)."""


def is_reserved(directory: str) -> bool:
    """Whether a directory id stands for no directory."""
    return directory.startswith(RESERVED_DIRECTORIES)
