"""The order in which captures were taken, as far as anything but their content says it.

A disk that was restored from a backup goes back: by content its newest capture looks like an earlier one. So the first
of these that speaks decides about two captures: when kraft-capture says that it read their disks, the times in their
names, the order of the given paths, then when their files were written. Only where none of them speaks may content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Generic, TypeVar

from kraft_audit.capture.named_times import named_time
from kraft_audit.capture.plan import ReplicaPlan

Key = TypeVar("Key", bound=Hashable)
FILE_TIMES_APART_MS: Final = 1_000
"""An archive keeps the seconds of file times alone."""


@dataclass(frozen=True, slots=True)
class DiskTimes:
    """What orders one disk's copies: the time that kraft-capture noted, the place of the given path that holds it, and
    when it was last written, where copying kept the times of its files. None where nothing says it."""

    noted_ms: int | None = None
    path_number: int | None = None
    written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureTimes:
    """What orders a capture: its name, and its disks by node id."""

    name: str
    disks: Mapping[int, DiskTimes]

    @classmethod
    def of(cls, name: str, disks: Iterable[tuple[ReplicaPlan, int | None]]) -> CaptureTimes:
        """Of a capture's disks, each with when it was last written; a node that is there twice says nothing."""
        times: dict[int, list[DiskTimes]] = defaultdict(list)
        for plan, written_ms in disks:
            if plan.node_id is not None:
                times[plan.node_id].append(DiskTimes(plan.noted_ms, plan.path_number, written_ms))
        return cls(name, {node_id: own[0] for node_id, own in times.items() if len(own) == 1})


class CaptureOrder(Generic[Key]):
    """Which captures are earlier than which: what is put in first stays, and what contradicts it is left out."""

    def __init__(self, captures: Iterable[Key]) -> None:
        self._keys = list(captures)
        self._bits = {key: 1 << place for place, key in enumerate(self._keys)}
        self._earlier = dict.fromkeys(self._keys, 0)

    def knows(self, first: Key, second: Key) -> bool:
        """Whether one of two captures is known to be the earlier one."""
        return bool(self._earlier[second] & self._bits[first] or self._earlier[first] & self._bits[second])

    def put(self, before: Key, after: Key) -> None:
        """Notes that a capture is earlier than another one, and than all that follow that one."""
        if before == after or self.knows(before, after):
            return
        first, then = self._bits[before], self._bits[after]
        more = self._earlier[before] | first
        for key in self._keys:
            if key == after or self._earlier[key] & then:
                self._earlier[key] |= more

    def all(self) -> dict[Key, frozenset[Key]]:
        """By capture, all that are earlier."""
        return {
            key: frozenset(other for other in self._keys if self._bits[other] & earlier)
            for key, earlier in self._earlier.items()
        }


def stated_earlier(captures: Mapping[Key, CaptureTimes]) -> dict[Key, frozenset[Key]]:
    """By capture, those of which something other than content says that they are earlier."""
    order = CaptureOrder(captures)
    for speaks, compare in _SPEAKERS:
        speaking = [key for key in captures if speaks(captures[key])]
        # Neighbours first: most often they imply the rest.
        for apart in range(1, len(speaking)):
            for first, second in zip(speaking, speaking[apart:], strict=False):
                if not order.knows(first, second):
                    step = compare(captures[first], captures[second])
                    if step:
                        order.put(*((first, second) if step > 0 else (second, first)))
    return order.all()


def in_time(captures: Iterable[Key], earlier: Mapping[Key, frozenset[Key]]) -> list[Key]:
    """The captures in the given order, changed only so that each stands after those that are earlier."""
    left = list(captures)
    ordered: list[Key] = []
    while left:
        following = next(key for key in left if not earlier[key] & set(left))
        left.remove(following)
        ordered.append(following)
    return ordered


_NOTED: Final = attrgetter("noted_ms")
_PATH: Final = attrgetter("path_number")
_WRITTEN: Final = attrgetter("written_ms")


def _by_notes(first: CaptureTimes, second: CaptureTimes) -> int:
    """Clocks of hosts differ: each disk is compared with itself."""
    return _unanimous(_steps(first, second, _NOTED))


def _by_names(first: CaptureTimes, second: CaptureTimes) -> int:
    times = named_time(first.name), named_time(second.name)
    if times[0] is None or times[1] is None:
        return 0
    return times[0].is_before(times[1]) - times[1].is_before(times[0])


def _by_paths(first: CaptureTimes, second: CaptureTimes) -> int:
    """Paths of different nodes are one moment: their order says nothing."""
    return _unanimous(_steps(first, second, _PATH))


def _by_file_times(first: CaptureTimes, second: CaptureTimes) -> int:
    """A disk that was restored with its file times went back, so more than half of the disks in both must agree."""
    steps = _steps(first, second, _WRITTEN, FILE_TIMES_APART_MS)
    shared = len(first.disks.keys() & second.disks.keys())
    return next((step for step in (1, -1) if 2 * steps.count(step) > shared), 0)


def _says(value: Callable[[DiskTimes], int | None]) -> Callable[[CaptureTimes], bool]:
    return lambda capture: any(value(disk) is not None for disk in capture.disks.values())


_SPEAKERS: Final = (
    (_says(_NOTED), _by_notes),
    (lambda capture: named_time(capture.name) is not None, _by_names),
    (_says(_PATH), _by_paths),
    (_says(_WRITTEN), _by_file_times),
)
"""By precedence: whether a capture says anything; 1 where the first of two captures is the earlier one, -1 where the
second one is, 0 where it cannot be told."""


def _steps(
    first: CaptureTimes, second: CaptureTimes, value: Callable[[DiskTimes], int | None], slack: int = 0
) -> list[int]:
    """For each disk in both captures of which both say a value: 1 where it grows, -1 where it shrinks, else 0."""
    shared = first.disks.keys() & second.disks.keys()
    values = ((value(first.disks[node]), value(second.disks[node])) for node in shared)
    return [
        (later - earlier > slack) - (earlier - later > slack)
        for earlier, later in values
        if earlier is not None and later is not None
    ]


def _unanimous(steps: list[int]) -> int:
    """The direction of all that moved; 0 where none did, or they disagree."""
    moves = set(steps) - {0}
    return moves.pop() if len(moves) == 1 else 0
