"""Why a partition changed, as codes that the kernel writes and texts that the tables show.

A change record carries no cause. It is told from the records around it in the same controller operation: a broker's
changes stand before its fencing, registration or removal, and after its unfencing or controlled shutdown
(ReplicationControlManager 4.3.0).
"""

from __future__ import annotations

from typing import Final

CAUSES: Final = (
    "snapshot",
    "created",
    "topic_removed",
    "fenced",
    "unfenced",
    "unclean_shutdown",
    "registered",
    "unregistered",
    "controlled_shutdown",
    "isr_shrunk",
    "isr_expanded",
    "isr_changed",
    "preferred_election",
    "leader_election",
    "unclean_election",
    "leader_lost",
    "leader_epoch_bumped",
    "reassignment_started",
    "reassignment_changed",
    "reassignment_completed",
    "reassignment_cancelled",
    "directory_assigned",
    "directory_failed",
    "elr_cleared",
    "elr_changed",
    "min_isr_edited",
    "replicas_of_partition_0",
    "controller_changed",
    "recovered",
    "replaced",
    "other",
)
(
    SNAPSHOT,
    CREATED,
    TOPIC_REMOVED,
    FENCED,
    UNFENCED,
    UNCLEAN_SHUTDOWN,
    REGISTERED,
    UNREGISTERED,
    CONTROLLED_SHUTDOWN,
    ISR_SHRUNK,
    ISR_EXPANDED,
    ISR_CHANGED,
    PREFERRED_ELECTION,
    LEADER_ELECTION,
    UNCLEAN_ELECTION,
    LEADER_LOST,
    LEADER_EPOCH_BUMPED,
    REASSIGNMENT_STARTED,
    REASSIGNMENT_CHANGED,
    REASSIGNMENT_COMPLETED,
    REASSIGNMENT_CANCELLED,
    DIRECTORY_ASSIGNED,
    DIRECTORY_FAILED,
    ELR_CLEARED,
    ELR_CHANGED,
    MIN_ISR_EDITED,
    REPLICAS_OF_PARTITION_0,
    CONTROLLER_CHANGED,
    RECOVERED,
    REPLACED,
    OTHER,
) = range(len(CAUSES))

ELECTIONS: Final = (None, "isr", "preferred", "elr", "last_known", "unclean", "none", "same")
"""How the leader field came about; None where the record does not set it."""
(NO_ELECTION, BY_ISR, BY_PREFERENCE, BY_ELR, BY_LAST_KNOWN, UNCLEAN, LEADERLESS, SAME_LEADER) = range(len(ELECTIONS))

PROBLEMS: Final = ("unknown_partition", "unknown_topic")
(UNKNOWN_PARTITION, UNKNOWN_TOPIC) = range(len(PROBLEMS))
