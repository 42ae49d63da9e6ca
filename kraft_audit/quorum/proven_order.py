"""Which captures are earlier, once their logs were read: by what states it, and by their content where nothing does.

What says when captures were taken comes first (`capture_order`). The epoch of a disk that nobody restores and its
newest snapshot never go back, and committed offsets never shrink: else a smaller value is the earlier capture's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.capture.capture_order import CaptureOrder, CaptureTimes, stated_earlier
from kraft_audit.capture.replica import Replica, kept_time_ms

Position = tuple[int, tuple[int, int]]
CaptureNumbers = frozenset[int]


@dataclass(frozen=True, slots=True)
class CaptureSigns:
    """What orders a capture: the committed interval that it proves alone, and the position of each disk by identity."""

    low: int
    high: int | None
    positions: Mapping[tuple[int, str, str], Position]


def position_of(replica: Replica) -> Position:
    """The values of a disk that never decrease, even in a crash: its epoch, its newest snapshot (offset, epoch).

    Both are synced before anything depends on them (FileQuorumStateStore, FileRawSnapshotWriter, Kafka 4.3.0).
    """
    state = replica.quorum_state
    return state.leader_epoch if state else 0, replica.snapshots[-1] if replica.snapshots else (0, 0)


def stated_captures(replicas: Iterable[Replica]) -> dict[int, CaptureNumbers]:
    """By number of a capture: those of which something other than content says that they are earlier."""
    members: dict[tuple[int, str], list[Replica]] = defaultdict(list)
    for replica in replicas:
        members[replica.plan.capture_number, replica.plan.capture].append(replica)
    return stated_earlier(
        {
            number: CaptureTimes.of(capture, ((disk.plan, kept_time_ms(disk)) for disk in members[number, capture]))
            for number, capture in sorted(members)
        }
    )


def proven_earlier(
    signs: Mapping[int, CaptureSigns], stated: Mapping[int, CaptureNumbers]
) -> dict[int, CaptureNumbers]:
    """For each capture by its number: those that are `stated` to be earlier, and those that content proves to be.

    What was committed when a capture began lies at or below its `high`; a capture whose `low` is above that is a later
    one. Two captures that content proves both ways (a disk was wiped, or restored from a backup) get no order from it.
    """
    direct = {
        number: {before for before in signs if before != number and _is_before(signs[before], signs[number])}
        for number in signs
    }
    closed = {number: _reachable(direct, number) for number in signs}
    order = CaptureOrder(signs)
    for earlier in (stated, closed):
        for number in signs:
            for before in sorted(earlier.get(number, ()), reverse=True):  # the nearest first: it implies the others
                if number not in earlier.get(before, ()):
                    order.put(before, number)
    return order.all()


def _is_before(first: CaptureSigns, second: CaptureSigns) -> bool:
    if first.high is not None and second.low > first.high:
        return True
    disks = first.positions.keys() & second.positions.keys()
    positions = ((first.positions[disk], second.positions[disk]) for disk in disks)
    return any(before[0] < after[0] or before[1] < after[1] for before, after in positions)


def _reachable(direct: Mapping[int, Sequence[int] | set[int]], number: int) -> set[int]:
    numbers: set[int] = set()
    left = [number]
    while left:
        new = set(direct[left.pop()]) - numbers
        numbers |= new
        left += sorted(new)
    return numbers
