"""How often a rule has reported an episode, where a history is judged by parts: of millions 16 bytes each are held."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from typing import Final

EpisodeKey = tuple[str, int | None]
"""What a finding is known by, and the offset or the time where the episode began."""
_SLOTS_MIN: Final = 1 << 12


class EpisodeCounts(dict[EpisodeKey, int]):
    """How often each episode was reported, of as many as fit into memory as they are: a third of the time."""

    def add(self, episode: EpisodeKey) -> int:
        """Counts an episode: 1 where it is new."""
        count = self[episode] = self.get(episode, 0) + 1
        return count


class JudgedEpisodes:
    """How often each episode was reported.

    Nearly all come once, and of those 64 bits of a digest are held, which tell a hundred million apart. Those that come
    again are counted.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _SLOTS_MIN))
        self._used = 0
        self._repeated: Counter[EpisodeKey] = Counter()

    def __len__(self) -> int:
        return self._used

    @property
    def size_bytes(self) -> int:
        """What the numbers take."""
        return self._slots.itemsize * len(self._slots)

    def __contains__(self, episode: EpisodeKey) -> bool:
        return bool(self._slots[self._slot(_number_of(episode))])

    def add(self, episode: EpisodeKey) -> int:
        """Counts an episode: 1 where it is new."""
        number = _number_of(episode)
        slot = self._slot(number)
        if self._slots[slot]:
            self._repeated[episode] += 1
            return self._repeated[episode] + 1
        self._slots[slot] = number
        self._used += 1
        if 2 * self._used > len(self._slots):
            self._grow()
        return 1

    def _slot(self, number: int) -> int:
        """Where a number is, or would be: the next free place after the one that it gives."""
        slots = self._slots
        last = len(slots) - 1
        slot = number & last
        while (there := slots[slot]) and there != number:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        earlier, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        for number in earlier:
            if number:
                self._slots[self._slot(number)] = number


def _number_of(episode: EpisodeKey) -> int:
    """64 bits of an episode, never 0."""
    digest = hashlib.blake2b("\0".join(map(str, episode)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
