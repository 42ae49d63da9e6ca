"""The world that a run lives in: one seed, one clock, one queue of events, one source of randomness.

Time is logical and counted in microseconds; wall clocks of nodes are derived from it. An event is a call; events of one
instant happen in the order in which they were scheduled, so that a run depends on nothing but its seed. Every draw goes
through `random()`, whose values Python keeps from release to release.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: what a node without skew reads at the start of a run
MS = 1_000
HOUR_US = 3_600_000 * MS
DAY_US = 24 * HOUR_US

Action = Callable[[Any, Any], None]
_T = TypeVar("_T")


class Chance:
    """Seeded draws. Integers are made from `random()` alone, because `randrange` and `shuffle` changed between
    releases.
    """

    __slots__ = ("_source", "random")

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)  # noqa: S311 - a simulation must be repeatable, not secret
        self.random = self._source.random

    def below(self, limit: int) -> int:
        """An integer in [0, limit)."""
        return int(self.random() * limit)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high)."""
        return low + int(self.random() * (high - low))

    def happens(self, probability: float) -> bool:
        return self.random() < probability

    def choose(self, items: Sequence[_T]) -> _T:
        return items[int(self.random() * len(items))]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        rest = list(items)
        for index in range(len(rest) - 1, 0, -1):
            swapped = int(self.random() * (index + 1))
            rest[index], rest[swapped] = rest[swapped], rest[index]
        return rest

    def octets(self, count: int) -> bytes:
        return bytes(int(self.random() * 256) for _ in range(count))

    def uuid(self) -> bytes:
        """A directory, topic or incarnation id: random (version 4), never a reserved one, never printed with a
        leading dash.
        """
        octets = bytearray(self.octets(16))
        octets[6] = (octets[6] & 0x0F) | 0x40
        octets[8] = (octets[8] & 0x3F) | 0x80
        if octets[0] >> 2 == 62:  # URL-safe base64 of 62 is the dash
            octets[0] &= 0x7F
        return bytes(octets)


class World:
    """The clock, the queue and the chance that everything in a run shares.

    `after_event` is called after every event with the world; it may raise to stop the run at that event.
    """

    __slots__ = ("_queue", "_sequence", "after_event", "chance", "event_count", "now_us", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Chance(seed)
        self.now_us = 0
        self.event_count = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Action, Any, Any]] = []
        self.after_event: Callable[[], None] | None = None

    def at(self, time_us: int, action: Action, first: Any = None, second: Any = None) -> None:
        """Schedules `action(first, second)`; a time already passed means now."""
        self._sequence += 1
        heappush(self._queue, (max(time_us, self.now_us), self._sequence, action, first, second))

    def after(self, delay_us: int, action: Action, first: Any = None, second: Any = None) -> None:
        self._sequence += 1
        heappush(self._queue, (self.now_us + delay_us, self._sequence, action, first, second))

    def leap(self, duration_us: int) -> None:
        """The clock leaps ahead, as when every machine was suspended: what was scheduled comes that much later."""
        self.now_us += duration_us
        self._queue = [(time_us + duration_us, *rest) for time_us, *rest in self._queue]

    def step(self) -> bool:
        """Runs the next event; false where none is left."""
        if not self._queue:
            return False
        self.now_us, _, action, first, second = heappop(self._queue)
        self.event_count += 1
        action(first, second)
        if self.after_event is not None:
            self.after_event()
        return True

    def run(self, *, events: int | None = None, until_us: int | None = None) -> int:
        """Runs until `events` more have happened or the clock has reached `until_us`; returns how many events ran."""
        first_event = self.event_count
        last_event = first_event + events if events is not None else None
        queue = self._queue
        while queue and (last_event is None or self.event_count < last_event):
            if until_us is not None and queue[0][0] > until_us:
                break
            self.step()
        if until_us is not None and (last_event is None or self.event_count < last_event):
            self.now_us = max(self.now_us, until_us)
        return self.event_count - first_event

    def run_until(self, condition: Callable[[], bool], *, limit_us: int) -> bool:
        """Runs until `condition()` holds; false where it did not within `limit_us` of logical time."""
        deadline_us = self.now_us + limit_us
        while not condition():
            if not self._queue or self._queue[0][0] > deadline_us:
                return False
            self.step()
        return True

    def wall_ms(self, skew_ms: int = 0) -> int:
        return EPOCH_MS + self.now_us // MS + skew_ms
