"""Brokers as the partition rules ask of them: who could lead or be in sync at which offset, and in which rack."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kraft_audit.rules.history import ClusterHistory

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BrokerStates:
    """One broker's states: `is_active[n]` holds from `offsets[n]` on (registered, not fenced, not shutting down)."""

    rows: tuple[dict[str, Any], ...]
    offsets: Rows
    is_active: npt.NDArray[np.bool_]

    def at(self, offset: int) -> dict[str, Any] | None:
        """The registration after the record at `offset`; None before the first that is known."""
        found = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return self.rows[found] if found >= 0 else None

    def inactive_spans(self) -> tuple[Rows, Rows]:
        """From which offsets on it was not active, and until which ones; the largest int64 where it still is not."""
        before = np.append(True, self.is_active[:-1])
        began, ended = self.offsets[before & ~self.is_active], self.offsets[~before & self.is_active]
        return began, ended if len(ended) == len(began) else np.append(ended, np.iinfo(np.int64).max)

    @property
    def newest(self) -> dict[str, Any]:
        return self.rows[-1]


def is_active(row: dict[str, Any] | None) -> bool:
    """Whether a broker may lead or be in an ISR (facts 5.5)."""
    return row is not None and row["exists"] and not row["fenced"] and not row["in_controlled_shutdown"]


def broker_states(history: ClusterHistory) -> dict[int, BrokerStates]:
    """The states of every broker that the log ever registered."""
    return history.known("broker states", lambda: _broker_states(history))


def is_up(history: ClusterHistory, broker: int) -> bool:
    """Whether a broker may lead at the end of the log; one that is not registered may not (facts 6.2)."""
    states = broker_states(history).get(broker)
    return states is not None and is_active(states.newest)


def _broker_states(history: ClusterHistory) -> dict[int, BrokerStates]:
    by_broker: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(history.rows("broker_changes"), key=lambda row: row["from_offset"]):
        by_broker[row["broker_id"]].append(row)
    return {
        broker: BrokerStates(
            tuple(rows),
            np.array([row["from_offset"] for row in rows], np.int64),
            np.array([is_active(row) for row in rows], bool),
        )
        for broker, rows in sorted(by_broker.items())
    }


def status_text(history: ClusterHistory, broker: int, offset: int | None = None) -> str:
    """A broker as people ask for it: "broker 12 fenced since offset 846"."""
    states = broker_states(history).get(broker)
    row = None if states is None else states.newest if offset is None else states.at(offset)
    if row is None:
        return f"broker {broker} unknown"
    if not row["exists"]:
        return f"broker {broker} unregistered"
    if row["fenced"]:
        return f"broker {broker} fenced"
    return f"broker {broker} shutting down" if row["in_controlled_shutdown"] else f"broker {broker} up"


def racks(history: ClusterHistory) -> dict[int, str]:
    """The rack of each registered broker that has one."""
    newest = ((broker, states.newest) for broker, states in broker_states(history).items())
    return {broker: row["rack"] for broker, row in newest if row["exists"] and row["rack"]}
