"""The only source of randomness of a run: every draw goes through `random()`, whose values Python keeps from release to
release.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

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
