"""Which captures are proven to be earlier than which others, by what never goes back.

Folders say what people called them, and copying changes the times of files: neither proves an order. Captures are taken
one after another; so one sign on one disk, or committed offsets that cannot shrink, put two of them in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.replay.replica import Replica

Position = tuple[int, tuple[int, int]]
Numbers = frozenset[int]


@dataclass(frozen=True, slots=True)
class CaptureSigns:
    """What orders a capture: its own committed interval (without earlier captures), and its disks by identity."""

    low: int
    high: int | None
    positions: Mapping[tuple[int, str, str], Position]


def position_of(replica: Replica) -> Position:
    """What of a disk only grows, crashes or not: its epoch, and (end offset, epoch) of its newest snapshot.

    Both are synced before anything depends on them: FileQuorumStateStore, FileRawSnapshotWriter (4.3.0).
    """
    state = replica.quorum_state
    return state.leader_epoch if state else 0, (replica.snapshots.end_offset or 0, replica.snapshots.epoch or 0)


def proven_earlier(signs: Mapping[int, CaptureSigns]) -> dict[int, Numbers]:
    """By number of each capture: the captures that were taken before it, as disks or committed offsets prove.

    What was committed when one began lies at or below its `high`; a `low` above that belongs to a later capture.
    Captures that are proven both ways (a disk was wiped, or put back from a backup) are left without an order.
    """
    direct = {number: {other for other in signs if _is_before(signs[other], signs[number])} for number in signs}
    closed = {number: _reachable(direct, number) for number in signs}
    return {number: frozenset(one for one in closed[number] if number not in closed[one]) for number in signs}


def in_time(numbers: Iterable[int], earlier: Mapping[int, Numbers]) -> list[int]:
    """The captures as they come, but that none stands before one that is proven to be earlier."""
    left = list(numbers)
    ordered: list[int] = []
    while left:
        following = next(number for number in left if not earlier[number] & set(left))
        left.remove(following)
        ordered.append(following)
    return ordered


def _is_before(first: CaptureSigns, second: CaptureSigns) -> bool:
    if first is second:
        return False
    if first.high is not None and second.low > first.high:
        return True
    common = first.positions.keys() & second.positions.keys()
    return any(_any_less(first.positions[one], second.positions[one]) for one in common)


def _any_less(before: Position, after: Position) -> bool:
    return before[0] < after[0] or before[1] < after[1]


def _reachable(direct: Mapping[int, Sequence[int] | set[int]], number: int) -> set[int]:
    found: set[int] = set()
    left = [number]
    while left:
        new = set(direct[left.pop()]) - found
        found |= new
        left += sorted(new)
    return found
