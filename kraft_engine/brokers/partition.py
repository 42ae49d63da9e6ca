"""One partition's registration, and how a change record merges into it (PartitionRegistration)."""

from __future__ import annotations

from typing import Any

MIGRATING = bytes(16)
UNASSIGNED = bytes(15) + b"\x01"
LOST = bytes(15) + b"\x02"
NO_LEADER = -1
UNCHANGED = -2
RECOVERED, RECOVERING = 0, 1
"""LeaderRecoveryState: whether the leader has still to recover from an unclean election."""


class Partition:
    """A partition's registration (PartitionRegistration)."""

    __slots__ = (
        "adding",
        "directories",
        "elr",
        "index",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "recovering",
        "removing",
        "replicas",
        "topic_id",
    )

    def __init__(self, fields: dict[str, Any]) -> None:
        self.topic_id: bytes = fields["topicId"]
        self.index: int = fields["partitionId"]
        self.replicas: list[int] = list(fields["replicas"])
        self.isr: list[int] = list(fields["isr"])
        self.removing: list[int] = list(fields.get("removingReplicas") or ())
        self.adding: list[int] = list(fields.get("addingReplicas") or ())
        self.leader: int = fields["leader"]
        self.recovering: int = fields.get("leaderRecoveryState", 0)
        self.leader_epoch: int = fields["leaderEpoch"]
        self.partition_epoch: int = fields["partitionEpoch"]
        directories = list(fields.get("directories") or ())
        self.directories: list[bytes] = directories or [MIGRATING] * len(self.replicas)
        self.elr: list[int] = list(fields.get("eligibleLeaderReplicas") or ())
        self.last_known_elr: list[int] = list(fields.get("lastKnownElr") or ())

    def merge(self, change: dict[str, Any]) -> None:
        """Applies a PartitionChangeRecord (PartitionRegistration.merge)."""
        replicas = change.get("replicas")
        directories = change.get("directories")
        if replicas is not None:
            self.replicas = list(replicas)
        if directories is not None:
            self.directories = list(directories)
        elif all(directory == MIGRATING for directory in self.directories):
            self.directories = [MIGRATING] * len(self.replicas)
        if change.get("isr") is not None:
            self.isr = list(change["isr"])
        if change.get("removingReplicas") is not None:
            self.removing = list(change["removingReplicas"])
        if change.get("addingReplicas") is not None:
            self.adding = list(change["addingReplicas"])
        if change.get("eligibleLeaderReplicas") is not None:
            self.elr = list(change["eligibleLeaderReplicas"])
        if change.get("lastKnownElr") is not None:
            self.last_known_elr = list(change["lastKnownElr"])
        leader = change.get("leader", UNCHANGED)
        if leader != UNCHANGED:
            self.leader = leader
            self.leader_epoch += 1
        recovering = change.get("leaderRecoveryState", -1)
        if recovering != -1:
            self.recovering = recovering
        self.partition_epoch += 1

    def directory_of(self, broker: int) -> bytes:
        try:
            return self.directories[self.replicas.index(broker)]
        except (ValueError, IndexError):
            return UNASSIGNED

    def fields(self, *, with_elr: bool) -> dict[str, Any]:
        """A PartitionRecord that restores this state."""
        fields: dict[str, Any] = {
            "partitionId": self.index,
            "topicId": self.topic_id,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "removingReplicas": list(self.removing),
            "addingReplicas": list(self.adding),
            "leader": self.leader,
            "leaderRecoveryState": self.recovering,
            "leaderEpoch": self.leader_epoch,
            "partitionEpoch": self.partition_epoch,
            "directories": list(self.directories),
        }
        if with_elr and self.elr:
            fields["eligibleLeaderReplicas"] = list(self.elr)
        if with_elr and self.last_known_elr:
            fields["lastKnownElr"] = list(self.last_known_elr)
        return fields

    def state(self) -> dict[str, Any]:
        """For the truth: every field, ids as they are."""
        return {
            "topic_id": self.topic_id,
            "partition": self.index,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "elr": list(self.elr),
            "last_known_elr": list(self.last_known_elr),
            "adding_replicas": list(self.adding),
            "removing_replicas": list(self.removing),
            "directories": list(self.directories),
            "leader": self.leader,
            "leader_recovery_state": self.recovering,
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
        }
