"""Brokers and controllers as rules ask about them: who could lead or be in sync at which offset, when one was away and
why, who is registered, in which rack, and what its software supports.

A broker is active while it is registered, not fenced and not in controlled shutdown (BrokerRegistration of Kafka 4.3).
A registration says up to which metadata.version the node's software goes. That is the release line (3.9), not the
release (3.9.1).
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.schemas.releases import (
    FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION,
    LINE_OF_LEVEL,
    METADATA_VERSION_FEATURE,
    Release,
)

RESTART_WITHIN_MS: Final = 5_000
"""Absences that begin so soon after all were back belong to the same incident: brokers restarted in turn."""
SESSION_TIMEOUT_MS: Final = 9_000
"""broker.session.timeout.ms as shipped (KRaftConfigs of Kafka 4.3)."""
UP: Final = "up"
STATUSES: Final = ("unknown", "unregistered", "fenced", "shutting down", UP)
"""What a broker's registration says of it, as texts say it; unknown before the first one."""


@dataclass(frozen=True, slots=True, eq=False)
class BrokerStates:
    """One broker's states: `is_active[n]` holds from `offsets[n]` on (registered, not fenced, not shutting down)."""

    rows: tuple[dict[str, Any], ...]
    offsets: Rows
    is_active: Mask

    def at(self, offset: int) -> dict[str, Any] | None:
        """The registration after the record at `offset`; None before the first that is known."""
        place = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return self.rows[place] if place >= 0 else None

    def statuses_at(self, offsets: Rows) -> Rows:
        """Its status after the record at each offset, as a place in STATUSES."""
        by_row = np.array([STATUSES.index(_status(row)) for row in (None, *self.rows)], np.int64)
        statuses: Rows = by_row[np.searchsorted(self.offsets, offsets, side="right")]
        return statuses

    def is_active_at(self, offset: int) -> bool:
        """Whether it could lead or be in an ISR after the record at `offset`."""
        place = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return place >= 0 and bool(self.is_active[place])

    def back_rows(self, offset: int) -> tuple[dict[str, Any], ...]:
        """From the row of the process before to that with which the one came back that runs after the record at
        `offset`: unfenced since, or registered again and not unfenced yet. Empty where it is away, where it was never
        in service before, or where that is not known."""
        place = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        if place < 0 or not self.rows[place]["exists"]:
            return ()
        first = place
        while first and self.is_active[first - 1] == self.is_active[place] and self._is_same_process(first):
            first -= 1
        served = np.flatnonzero(self.is_active[:first])
        if not len(served) or (not self.is_active[place] and self._is_same_process(first)):
            return ()  # the second: it left, and did not register again
        return self.rows[int(served[-1]) : first + 1]

    def _is_same_process(self, place: int) -> bool:
        return bool(self.rows[place]["incarnation_id"] == self.rows[place - 1]["incarnation_id"])

    def inactive_spans(self) -> tuple[Rows, Rows]:
        """From which offsets on it was not active, and until which ones; the largest int64 where it still is not."""
        before = np.append(True, self.is_active[:-1])
        began, ended = self.offsets[before & ~self.is_active], self.offsets[~before & self.is_active]
        return began, ended if len(ended) == len(began) else np.append(ended, np.iinfo(np.int64).max)

    @property
    def newest(self) -> dict[str, Any]:
        return self.rows[-1]


def is_active(row: dict[str, Any] | None) -> bool:
    """Whether a broker may lead or be in an ISR (BrokerRegistration, LeaderAcceptor)."""
    return row is not None and row["exists"] and not row["fenced"] and not row["in_controlled_shutdown"]


@once_per_history
def broker_states(history: ClusterHistory) -> dict[int, BrokerStates]:
    """The states of every broker that the log ever registered."""
    by_broker: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in history.rows_by_offset("broker_changes"):
        by_broker[row["broker_id"]].append(row)
    return {
        broker: BrokerStates(
            tuple(rows),
            np.array([row["from_offset"] for row in rows], np.int64),
            np.array([is_active(row) for row in rows], bool),
        )
        for broker, rows in sorted(by_broker.items())
    }


def changed_within(history: ClusterHistory, broker: int, offset: int, end: int) -> int | None:
    """The offset of a broker's first change in the operation [offset, end)."""
    known = broker_states(history).get(broker)
    if known is None:
        return None
    place = int(np.searchsorted(known.offsets, offset))
    return int(known.offsets[place]) if place < len(known.offsets) and known.offsets[place] < end else None


def is_up(history: ClusterHistory, broker: int) -> bool:
    """Whether a broker may lead at the end of the log; one that is not registered may not (LeaderAcceptor)."""
    states = broker_states(history).get(broker)
    return states is not None and is_active(states.newest)


def status_text(history: ClusterHistory, broker: int, offset: int | None = None) -> str:
    """A broker's state in words ("broker 12 fenced"), at the end of the log or after the record at `offset`."""
    states = broker_states(history).get(broker)
    row = None if states is None else states.newest if offset is None else states.at(offset)
    return f"broker {broker} {_status(row)}"


def _status(row: dict[str, Any] | None) -> str:
    if row is None:
        return "unknown"
    if not row["exists"]:
        return "unregistered"
    if row["fenced"]:
        return "fenced"
    return "shutting down" if row["in_controlled_shutdown"] else UP


def racks(history: ClusterHistory) -> dict[int, str]:
    """The rack of each registered broker that has one."""
    newest = ((broker, states.newest) for broker, states in broker_states(history).items())
    return {broker: row["rack"] for broker, row in newest if row["exists"] and row["rack"]}


class Departure(enum.StrEnum):
    """How a broker left."""

    CONTROLLED_SHUTDOWN = "controlled shutdown"
    FENCED = "fenced"
    RESTARTED = "restarted without a controlled shutdown"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True)
class Absence:
    """One time away: [from_offset, to_offset), which is None while it lasts; times are log append times."""

    broker_id: int
    departure: Departure
    from_offset: int
    from_ms: int
    to_offset: int | None
    to_ms: int | None

    @property
    def is_clean(self) -> bool:
        return self.departure in (Departure.CONTROLLED_SHUTDOWN, Departure.UNREGISTERED)

    @property
    def is_quick_restart(self) -> bool:
        """Whether it registered again before its session ended: the controller moved its replicas only then."""
        if self.departure is not Departure.RESTARTED or self.to_ms is None:
            return False
        return self.to_ms - self.from_ms <= SESSION_TIMEOUT_MS

    def may_be_quick(self, as_of_ms: int | None) -> bool:
        """Whether its session has not ended yet: it may still register again in time."""
        is_away = self.departure is Departure.RESTARTED and self.to_ms is None
        return is_away and as_of_ms is not None and as_of_ms - self.from_ms <= SESSION_TIMEOUT_MS


@once_per_history
def absences(history: ClusterHistory) -> list[Absence]:
    """Every absence of every broker, in the order in which they began."""
    return sorted(_absences(history), key=attrgetter("from_offset", "broker_id"))


def _absences(history: ClusterHistory) -> Iterator[Absence]:
    for broker_id, states in broker_states(history).items():
        yield from _absences_of(broker_id, states)


def _absences_of(broker_id: int, states: BrokerStates) -> Iterator[Absence]:
    active = states.is_active.tolist()
    for number in range(1, len(active)):
        if active[number] or not active[number - 1]:
            continue
        before, row = states.rows[number - 1], states.rows[number]
        back = next((states.rows[later] for later in range(number, len(active)) if active[later]), None)
        to_offset, to_ms = (None, None) if back is None else (back["from_offset"], back["timestamp_ms"])
        departure = _departure(before, row)
        yield Absence(broker_id, departure, row["from_offset"], row["timestamp_ms"], to_offset, to_ms)


def _departure(before: dict[str, Any], row: dict[str, Any]) -> Departure:
    if not row["exists"]:
        return Departure.UNREGISTERED
    if row["incarnation_id"] != before["incarnation_id"]:
        return Departure.RESTARTED
    return Departure.CONTROLLED_SHUTDOWN if row["in_controlled_shutdown"] else Departure.FENCED


def in_groups(in_order: Sequence[Absence]) -> Iterator[list[Absence]]:
    """Absences that overlap, or follow one another within RESTART_WITHIN_MS: one cause, one story."""
    group: list[Absence] = []
    group_end_ms = 0
    for absence in in_order:
        if group and absence.from_ms > group_end_ms + RESTART_WITHIN_MS:
            yield group
            group = []
        end_ms = absence.to_ms if absence.to_ms is not None else 1 << 62
        group_end_ms = max(group_end_ms, end_ms) if group else end_ms
        group.append(absence)
    if group:
        yield group


class RegisteredNode(NamedTuple):
    """A registered node with the metadata.version levels that its software supports.

    `row` is the first registration that shows them. A ghost is registered and no longer part of the cluster: a
    controller that is no voter and was not captured, or a broker that is fenced. `line` is None where no production
    release known here supports that level.
    """

    kind: str
    node_id: int
    lowest_level: int
    level: int
    row: TableRow
    is_ghost: bool

    @property
    def name(self) -> str:
        return f"{self.kind} {self.node_id}"

    @property
    def line(self) -> Release | None:
        return LINE_OF_LEVEL.get(self.level)


@once_per_history
def registered_nodes(history: ClusterHistory) -> list[RegisteredNode]:
    """Every node that is registered at the end of the log and says which metadata.version it supports."""
    return list(_registered_nodes(history))


def raises_kraft_version(history: ClusterHistory) -> bool:
    """Whether the software of every node that is registered, and no ghost, can raise kraft.version (Kafka 4.1)."""
    known = [node.level for node in registered_nodes(history) if not node.is_ghost]
    return bool(known) and min(known) >= FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION


def _registered_nodes(history: ClusterHistory) -> Iterator[RegisteredNode]:
    for (kind, node_id), rows in registrations(history).items():
        levels = supported_levels(rows[-1], METADATA_VERSION_FEATURE)
        if levels is not None:
            is_ghost = rows[-1]["fenced"] if kind == "broker" else is_ghost_controller(history, node_id)
            since = supported_since(rows, METADATA_VERSION_FEATURE)
            yield RegisteredNode(kind, node_id, *levels, since, is_ghost)


def is_ghost_controller(history: ClusterHistory, controller_id: int) -> bool:
    """Whether a registered controller is no voter, and none of the captured nodes."""
    voters = voter_ids(current_set(history))
    return controller_id not in voters and all(row["node_id"] != controller_id for row in history.rows("captures"))


@once_per_history
def registrations(history: ClusterHistory) -> dict[tuple[str, int], Sequence[TableRow]]:
    """The states of every broker and controller that is registered at the end of the log, oldest first."""
    states: dict[tuple[str, int], list[TableRow]] = defaultdict(list)
    for kind in ("broker", "controller"):
        for row in history.rows_by_offset(f"{kind}_changes"):
            states[kind, row[f"{kind}_id"]].append(row)
    return {node: rows for node, rows in states.items() if rows[-1]["exists"]}


def supported_levels(row: Mapping[str, Any], feature: str) -> tuple[int, int] | None:
    """The lowest and highest level of a feature that a registration supports; None where it names none."""
    for supported in row["features"] if row["exists"] else ():
        if supported["name"] == feature:
            return int(supported["min_supported_version"]), int(supported["max_supported_version"])
    return None


def supported_since(rows: Sequence[TableRow], feature: str) -> TableRow:
    """The first registration of the last ones in a row that support the same levels: a restart registers again."""
    _, same = next(groupby(reversed(rows), key=lambda row: supported_levels(row, feature)))
    return list(same)[-1]


_BEGINNING: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class RackHistory:
    """`offsets[n]`: from where on the racks are those of moment n. `of_broker`: (moment, rack) of each change."""

    offsets: list[int]
    times_ms: list[int | None]
    is_divided: list[bool]
    of_broker: dict[int, tuple[list[int], list[str | None]]]

    @property
    def newest_change(self) -> int:
        return self.offsets[-1]

    def time_at(self, offset: int) -> int | None:
        """When the racks changed at an offset."""
        return self.times_ms[bisect_right(self.offsets, offset) - 1]

    def rack_at(self, broker: int, moment: int) -> str | None:
        moments, known = self.of_broker.get(broker, ([], []))
        place = bisect_right(moments, moment) - 1
        return known[place] if place >= 0 else None

    def since(self, brokers: tuple[int, ...], offset: int, not_before: int) -> int | None:
        """From where on some brokers were in one rack up to `offset`, at the earliest from `not_before`; None where
        they were not. A single broker is not in one rack with anybody.
        """
        moment = bisect_right(self.offsets, offset) - 1
        if not self._is_one(brokers, moment):
            return None
        while self.offsets[moment] > not_before and self._is_one(brokers, moment - 1):
            moment -= 1
        return max(self.offsets[moment], not_before)

    def _is_one(self, brokers: tuple[int, ...], moment: int) -> bool:
        if len(brokers) < 2 or not self.is_divided[moment]:
            return False
        first = self.rack_at(brokers[0], moment)
        return first is not None and all(self.rack_at(broker, moment) == first for broker in brokers[1:])


@once_per_history
def rack_history(history: ClusterHistory) -> RackHistory:
    changes: list[tuple[int, int, int, str | None]] = []
    for broker, states in broker_states(history).items():
        rack: str | None = None
        for row in states.rows:
            now = row["rack"] if row["exists"] else None
            if now != rack:
                changes.append((row["from_offset"], row["timestamp_ms"], broker, now))
                rack = now
    offsets, times_ms, is_divided = [_BEGINNING], list[int | None]([None]), [False]
    of_broker: dict[int, tuple[list[int], list[str | None]]] = {}
    rack_of: dict[int, str] = {}
    for offset, time_ms, broker, rack in sorted(changes, key=lambda change: change[0]):
        if offset != offsets[-1]:
            offsets.append(offset)
            times_ms.append(time_ms)
            is_divided.append(False)
        moments, known = of_broker.setdefault(broker, ([], []))
        moments.append(len(offsets) - 1)
        known.append(rack)
        rack_of.pop(broker, None)
        if rack is not None:
            rack_of[broker] = rack
        is_divided[-1] = len(Counter(rack_of.values())) > 1
    return RackHistory(offsets, times_ms, is_divided, of_broker)
