"""The network between nodes: delay, loss, duplication, reordering, slow links, partitions of one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraft_engine.world.world import MS, World

Deliver = Callable[[int, tuple[int, int, Any]], None]


class Network:
    """Carries (source, correlation, body) between slots.

    A message is delayed by `delay_us` and a jitter of up to `jitter_us`: with a jitter above zero messages overtake
    each other. Blocked links drop what is sent while they are blocked; what is in flight arrives.
    """

    __slots__ = (
        "_blocked",
        "_deliver",
        "_world",
        "delay_us",
        "delivered_count",
        "dropped_count",
        "duplicate_probability",
        "jitter_us",
        "loss_probability",
        "slow_links",
    )

    def __init__(self, world: World, deliver: Deliver) -> None:
        self._world = world
        self._deliver = deliver
        self._blocked: set[tuple[int, int]] = set()
        self.slow_links: dict[tuple[int, int], int] = {}
        self.delay_us = 1 * MS
        self.jitter_us = 2 * MS
        self.loss_probability = 0.0
        self.duplicate_probability = 0.0
        self.delivered_count = 0
        self.dropped_count = 0

    def send(self, source: int, destination: int, correlation: int, body: Any) -> None:
        link = (source, destination)
        if self._blocked and link in self._blocked:
            self.dropped_count += 1
            return
        world = self._world
        random = world.chance.random
        if self.loss_probability and random() < self.loss_probability:
            self.dropped_count += 1
            return
        delay_us = self.delay_us + int(random() * self.jitter_us)
        if self.slow_links:
            delay_us += self.slow_links.get(link, 0)
        envelope = (source, correlation, body)
        world.after(delay_us, self._deliver, destination, envelope)
        if self.duplicate_probability and random() < self.duplicate_probability:
            world.after(delay_us + int(random() * 5 * self.jitter_us), self._deliver, destination, envelope)

    def block(self, source: int, destination: int) -> None:
        """Drops everything from `source` to `destination`, and nothing in the opposite direction."""
        self._blocked.add((source, destination))

    def split(self, groups: Iterable[Iterable[int]]) -> None:
        """Cuts every link between members of different groups, both ways; slots in no group keep all their links."""
        sides = [list(group) for group in groups]
        for side in sides:
            for opposite in sides:
                if side is not opposite:
                    for source in side:
                        for destination in opposite:
                            self._blocked.add((source, destination))

    def heal(self) -> None:
        """All links carry again at normal speed, without loss or duplication."""
        self._blocked.clear()
        self.slow_links.clear()
        self.loss_probability = 0.0
        self.duplicate_probability = 0.0
