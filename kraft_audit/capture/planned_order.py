"""The captures of one cluster numbered in time, as planning knows them: by what says when they were taken, and where
nothing does by an estimate from their epochs, their ends and their names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from kraft_audit.capture.capture_order import CaptureTimes, in_time, stated_earlier
from kraft_audit.capture.foreign_disks import FirstBatch
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.text.readable import natural
from kraft_codec.schemas import Dialect

_EMPTY = (0, 0)
"""The end estimate of a log without a batch."""


@dataclass(slots=True)
class DiscoveredReplica:
    """A replica as it was discovered.

    `epoch` and `leader_id` are those of its quorum-state, `end_estimate` is (base offset, size in bytes) of its last
    segment, `begun_ms` the timestamp of the record at offset 0 (None where it is gone): they order captures in time.
    `first_batches` are the first batches of its segments by offset, epoch and CRC, where they were wanted: no two
    clusters share one. `dialects` are those for which the beginnings of its files speak.
    """

    plan: ReplicaPlan
    epoch: int
    leader_id: int
    end_estimate: tuple[int, int]
    first_batches: frozenset[FirstBatch]
    begun_ms: int | None
    dialects: frozenset[Dialect]


def numbered_in_time(replicas: Sequence[DiscoveredReplica]) -> tuple[ReplicaPlan, ...]:
    """The plans, their captures numbered in time: as something states it, else as epochs and ends show, else by name.

    When files were written is not known here: whether copying kept their times shows once the logs are read.
    """
    by_capture: dict[tuple[str, str], list[DiscoveredReplica]] = defaultdict(list)
    for replica in replicas:
        by_capture[(replica.plan.capture, "")].append(replica)
    for (capture, _), members in list(by_capture.items()):
        identities = [member.plan.identity for member in members]
        if len(set(identities)) < len(identities):
            # One replica stands twice in this capture: each of the given paths is a capture of its own.
            del by_capture[(capture, "")]
            for member in members:
                by_capture[(capture, member.plan.root)].append(member)
    ordered = sorted(by_capture, key=lambda key: (natural(key[0]), natural(key[1])))

    def in_order(first: tuple[str, str], second: tuple[str, str]) -> int:
        return _compare_captures(by_capture[first], by_capture[second])

    ordered.sort(key=cmp_to_key(in_order))
    times = {
        key: CaptureTimes.of(key[0], ((replica.plan, None) for replica in by_capture[key])) for key in sorted(ordered)
    }
    ordered = in_time(ordered, stated_earlier(times))
    plans = [
        replace(replica.plan, capture_number=number)
        for number, key in enumerate(ordered)
        for replica in by_capture[key]
    ]
    return tuple(sorted(plans, key=lambda plan: plan.sort_key))


def _compare_captures(first: Sequence[DiscoveredReplica], second: Sequence[DiscoveredReplica]) -> int:
    """Negative where the first capture is the earlier one, 0 where epochs and ends do not decide.

    The epoch of a replica never goes back, but for a disk that was wiped, restored or copied: most replicas decide. Its
    end may: the replica drops what an older leader wrote, or a crash loses bytes that were not synced yet, even within
    one epoch, and observers lose more than voters. A leader's log only grows while it leads; where no leader was
    captured, the end that a majority reached does not go back. This is an estimate: `quorum.rounds` proves an order
    once the logs are read.
    """
    before = {replica.plan.identity: replica for replica in first}
    both = [(before[replica.plan.identity], replica) for replica in second if replica.plan.identity in before]
    known = [(early.epoch, late.epoch) for early, late in both if min(early.epoch, late.epoch) >= 0]
    steps = _steps_back(known)
    # As many disks went back as on: a log that begins with another record has begun again since.
    begun = [(early.begun_ms, late.begun_ms) for early, late in both]
    steps = steps or _steps_back((old, new) for old, new in begun if old is not None and new is not None)
    newest = max(replica.epoch for replica in first), max(replica.epoch for replica in second)
    led = [pair for pair in both if newest[0] == newest[1] and all(_leads(replica, newest[0]) for replica in pair)]
    steps = steps or _steps_back((early.end_estimate, late.end_estimate) for early, late in led)
    if not steps and len(known) < len(both):
        # A disk without quorum-state was never started, or lost it: one voice among those that logs have.
        stands = [((early.epoch, early.end_estimate), (late.epoch, late.end_estimate)) for early, late in both]
        steps = _steps_back(stands)
    if steps:
        return steps
    # Only now the other disks: one that lost contact with the quorum may have raised its epoch alone.
    if newest[0] != newest[1]:
        return newest[0] - newest[1]
    grown = led or [(early, late) for early, late in both if max(early.end_estimate, late.end_estimate) > _EMPTY]
    ends = (_majority_end(early for early, _ in grown), _majority_end(late for _, late in grown))
    if not both:
        ends = (_end_in(first, newest[0]), _end_in(second, newest[1]))
    return _steps_back([ends])


def _steps_back(pairs: Iterable[tuple[Any, Any]]) -> int:
    """How many more pairs (early, late) went back than on."""
    return sum((early > late) - (early < late) for early, late in pairs)


def _leads(replica: DiscoveredReplica, epoch: int) -> bool:
    return replica.epoch == epoch and replica.leader_id == replica.plan.node_id


def _majority_end(members: Iterable[DiscoveredReplica]) -> tuple[int, int]:
    """The end estimate that a majority of these replicas reached."""
    ends = sorted((member.end_estimate for member in members), reverse=True)
    return ends[len(ends) // 2] if ends else _EMPTY


def _end_in(members: Sequence[DiscoveredReplica], epoch: int) -> tuple[int, int]:
    return max(member.end_estimate for member in members if member.epoch == epoch)
