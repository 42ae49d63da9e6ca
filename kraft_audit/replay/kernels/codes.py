"""What the partition kernels write as numbers, with the texts and columns that stand for them in the tables.

A change record holds no cause. It follows from the records around it in the same controller operation: the changes of a
broker's partitions stand before its fencing, registration or removal, and after its unfencing or controlled shutdown
(ReplicationControlManager, Kafka 4.3.0).

What exposes a partition is decided here, for the kernel, rules KP001, KP002 and KP005, reports and SQL alike: plain
arithmetic on 0 and 1, which the kernel compiles for the integers of one partition and rules call with whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final


class Cause(IntEnum):
    """Why a partition changed; the name in small letters is the text in the tables."""

    SNAPSHOT = 0
    CREATED = 1
    TOPIC_REMOVED = 2
    FENCED = 3
    UNFENCED = 4
    UNCLEAN_SHUTDOWN = 5
    REGISTERED = 6
    UNREGISTERED = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_SHRUNK = 9
    ISR_EXPANDED = 10
    ISR_CHANGED = 11
    PREFERRED_ELECTION = 12
    LEADER_ELECTION = 13
    UNCLEAN_ELECTION = 14
    LEADER_LOST = 15
    LEADER_EPOCH_BUMPED = 16
    REASSIGNMENT_STARTED = 17
    REASSIGNMENT_CHANGED = 18
    REASSIGNMENT_COMPLETED = 19
    REASSIGNMENT_CANCELLED = 20
    DIRECTORY_ASSIGNED = 21
    DIRECTORY_FAILED = 22
    ELR_CLEARED = 23
    ELR_CHANGED = 24
    MIN_ISR_EDITED = 25
    REPLICAS_OF_PARTITION_0 = 26
    CONTROLLER_CHANGED = 27
    RECOVERED = 28
    REPLACED = 29
    OTHER = 30


LEFT_OPEN: Final = 32
"""A cause plus this times one of the numbers below: operations share a batch, and another one may have written the
record instead."""
(OR_ISR_SHRUNK, OR_UNCLEAN_ELECTION, OR_ELECTED_ANYHOW) = (1, 2, 3)
_OTHER_CAUSES: Final = (
    (),
    (Cause.ISR_SHRUNK,),
    (Cause.UNCLEAN_ELECTION,),
    (Cause.UNCLEAN_ELECTION, Cause.UNFENCED),
)
CAUSE_CODES: Final = len(_OTHER_CAUSES) * LEFT_OPEN


def possible_causes(code: int) -> list[str] | None:
    """The causes that the bytes leave open, as texts in order; None where the code is a cause."""
    way, cause = divmod(code, LEFT_OPEN)
    if not way or cause > max(Cause):
        return None
    return sorted(each.name.lower() for each in {Cause(cause), *_OTHER_CAUSES[way]})


def cause_text(code: int) -> str:
    """The text of a cause; empty where it is open."""
    return Cause(code).name.lower() if code <= max(Cause) else ""


ELECTIONS: Final = (None, "isr", "preferred", "elr", "last_known", "unclean", "none", "same")
"""How the leader was elected; None where the record does not set the leader."""
(NO_ELECTION, BY_ISR, BY_PREFERENCE, BY_ELR, BY_LAST_KNOWN, UNCLEAN, LEADERLESS, SAME_LEADER) = range(len(ELECTIONS))

PROBLEMS: Final = ("unknown_partition", "unknown_topic")
(UNKNOWN_PARTITION, UNKNOWN_TOPIC) = range(len(PROBLEMS))

LAST_REPLICA: Final = 1
OFFLINE: Final = 2
UNDER_MIN_ISR: Final = 4
EXPOSED_BEFORE: Final = 8
"""Times this the bits of the state before the event."""

EXPOSURE_FLAGS: Final[Mapping[str, int]] = {
    "is_last_replica": LAST_REPLICA,
    "is_offline": OFFLINE,
    "is_under_min_isr": UNDER_MIN_ISR,
}
"""The columns of `exposure_changes` by the bits that they show."""
IS_EXPOSED_SQL: Final = " OR ".join(EXPOSURE_FLAGS)


def is_last_replica(exists: Any, replica_count: Any, has_one_holder: Any) -> Any:
    """One replica alone in ISR and ELR together though more are assigned (KP001)."""
    return exists & (replica_count > 1) & has_one_holder


def is_offline(exists: Any, leader: Any) -> Any:
    """No leader (KP002)."""
    return exists & (leader == -1)


def is_under_min_isr(exists: Any, isr_count: Any, min_isr: Any) -> Any:
    """ISR below the effective min ISR: acks=all writes are refused, the high watermark stands (KP005)."""
    return exists & (isr_count < min_isr)
