"""Racks over time: since when some brokers have been in one rack, while others were in another."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import broker_states

_BEGINNING: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class RackHistory:
    """`offsets[n]`: from where on the racks are those of moment n. `of_broker`: (moment, rack) of each change.

    Where an earlier judgement was carried on, the moments before its end are one.
    """

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


def rack_history(history: ClusterHistory) -> RackHistory:
    return history.known("rack history", lambda: _rack_history(history))


def _rack_history(history: ClusterHistory) -> RackHistory:
    known_from = _BEGINNING if history.carried is None else history.carried.to_offset
    changes: list[tuple[int, int, int, str | None]] = []
    for broker, states in broker_states(history).items():
        rack: str | None = None
        for row in states.rows:
            now = row["rack"] if row["exists"] else None
            if now != rack:
                offset = row["from_offset"] if row["from_offset"] >= known_from else _BEGINNING
                changes.append((offset, row["timestamp_ms"], broker, now))
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
