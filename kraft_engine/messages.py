"""Requests and responses between replicas, with the fields of their Kafka schemas that KRaft acts on.

Every class is the single partition `__cluster_metadata-0` of its Kafka message; errors are Kafka's names ("" is NONE).
"""

from __future__ import annotations

from kraft_engine.batches import Batch
from kraft_engine.log import Snapshot, SnapshotId
from kraft_engine.voters import NO_DIRECTORY, ReplicaKey, Voter

NONE = ""
BROKER_NOT_AVAILABLE = "BROKER_NOT_AVAILABLE"
DUPLICATE_VOTER = "DUPLICATE_VOTER"
FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
INCONSISTENT_CLUSTER_ID = "INCONSISTENT_CLUSTER_ID"
INVALID_REQUEST = "INVALID_REQUEST"
INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
INVALID_VOTER_KEY = "INVALID_VOTER_KEY"
NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
POSITION_OUT_OF_RANGE = "POSITION_OUT_OF_RANGE"
REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
VOTER_NOT_FOUND = "VOTER_NOT_FOUND"
NOT_VOTER = "NOT_VOTER"
NOT_FOLLOWER = "NOT_FOLLOWER"
VOTER_ALREADY_ADDED = "VOTER_ALREADY_ADDED"


class VoteRequest:
    """VoteRequest v2 (v1 without PreVote): voter_id and voter_directory name the receiver."""

    __slots__ = (
        "cluster_id",
        "last_epoch",
        "last_offset",
        "pre_vote",
        "replica",
        "replica_epoch",
        "voter",
    )

    def __init__(
        self,
        cluster_id: str,
        voter: ReplicaKey,
        replica: ReplicaKey,
        replica_epoch: int,
        last_epoch: int,
        last_offset: int,
        pre_vote: bool,
    ) -> None:
        self.cluster_id = cluster_id
        self.voter = voter
        self.replica = replica
        self.replica_epoch = replica_epoch
        self.last_epoch = last_epoch
        self.last_offset = last_offset
        self.pre_vote = pre_vote


class Response:
    """What every KRaft response carries: an error, and the leader and epoch that the sender knows."""

    __slots__ = ("error", "leader_epoch", "leader_id")

    def __init__(self, error: str, leader_id: int, leader_epoch: int) -> None:
        self.error = error
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class VoteResponse(Response):
    __slots__ = ("granted", "pre_vote", "replica_epoch", "voter")

    def __init__(
        self,
        error: str,
        leader_id: int,
        leader_epoch: int,
        granted: bool,
        pre_vote: bool,
        replica_epoch: int,
        voter: ReplicaKey,
    ) -> None:
        super().__init__(error, leader_id, leader_epoch)
        self.granted = granted
        self.pre_vote = pre_vote
        self.replica_epoch = replica_epoch
        self.voter = voter


class BeginQuorumEpochRequest:
    __slots__ = ("cluster_id", "leader_epoch", "leader_id", "voter")

    def __init__(self, cluster_id: str, voter: ReplicaKey, leader_id: int, leader_epoch: int) -> None:
        self.cluster_id = cluster_id
        self.voter = voter
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class BeginQuorumEpochResponse(Response):
    __slots__ = ()


class EndQuorumEpochRequest:
    """preferred_candidates are sorted by end offset, the longest log first."""

    __slots__ = ("cluster_id", "leader_epoch", "leader_id", "preferred_candidates")

    def __init__(
        self, cluster_id: str, leader_id: int, leader_epoch: int, preferred_candidates: tuple[ReplicaKey, ...]
    ) -> None:
        self.cluster_id = cluster_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.preferred_candidates = preferred_candidates


class EndQuorumEpochResponse(Response):
    __slots__ = ()


class FetchRequest:
    __slots__ = (
        "cluster_id",
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "replica",
    )

    def __init__(
        self,
        cluster_id: str,
        replica: ReplicaKey,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        high_watermark: int,
    ) -> None:
        self.cluster_id = cluster_id
        self.replica = replica
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = high_watermark


class FetchResponse(Response):
    __slots__ = ("batches", "diverging", "high_watermark", "log_start_offset", "snapshot_id")

    def __init__(
        self,
        error: str,
        leader_id: int,
        leader_epoch: int,
        high_watermark: int = -1,
        log_start_offset: int = 0,
        batches: list[Batch] | None = None,
        diverging: tuple[int, int] | None = None,
        snapshot_id: SnapshotId | None = None,
    ) -> None:
        super().__init__(error, leader_id, leader_epoch)
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.batches = batches
        self.diverging = diverging
        self.snapshot_id = snapshot_id


class FetchSnapshotRequest:
    """`position` and the response's `size` are counted in chunks of the snapshot."""

    __slots__ = ("cluster_id", "current_leader_epoch", "position", "replica", "snapshot_id")

    def __init__(
        self,
        cluster_id: str,
        replica: ReplicaKey,
        current_leader_epoch: int,
        snapshot_id: SnapshotId,
        position: int,
    ) -> None:
        self.cluster_id = cluster_id
        self.replica = replica
        self.current_leader_epoch = current_leader_epoch
        self.snapshot_id = snapshot_id
        self.position = position


class FetchSnapshotResponse(Response):
    __slots__ = ("position", "size", "snapshot")

    def __init__(
        self,
        error: str,
        leader_id: int,
        leader_epoch: int,
        position: int = 0,
        size: int = 0,
        snapshot: Snapshot | None = None,
    ) -> None:
        super().__init__(error, leader_id, leader_epoch)
        self.position = position
        self.size = size
        self.snapshot = snapshot


class AddRaftVoterRequest:
    __slots__ = ("ack_when_committed", "cluster_id", "timeout_us", "voter")

    def __init__(
        self, cluster_id: str, voter: Voter, timeout_us: int = 5_000_000, ack_when_committed: bool = True
    ) -> None:
        self.cluster_id = cluster_id
        self.voter = voter
        self.timeout_us = timeout_us
        self.ack_when_committed = ack_when_committed


class RemoveRaftVoterRequest:
    __slots__ = ("cluster_id", "timeout_us", "voter")

    def __init__(self, cluster_id: str, voter: ReplicaKey, timeout_us: int = 5_000_000) -> None:
        self.cluster_id = cluster_id
        self.voter = voter
        self.timeout_us = timeout_us


class UpdateRaftVoterRequest:
    __slots__ = ("cluster_id", "leader_epoch", "voter")

    def __init__(self, cluster_id: str, leader_epoch: int, voter: Voter) -> None:
        self.cluster_id = cluster_id
        self.leader_epoch = leader_epoch
        self.voter = voter


class VoterChangeResponse(Response):
    """AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter responses."""

    __slots__ = ()


class ApiVersionsRequest:
    __slots__ = ()


class ApiVersionsResponse:
    __slots__ = ("max_kraft_version", "min_kraft_version", "replica")

    def __init__(self, replica: ReplicaKey, min_kraft_version: int, max_kraft_version: int) -> None:
        self.replica = replica
        self.min_kraft_version = min_kraft_version
        self.max_kraft_version = max_kraft_version


class DescribeQuorumResponse(Response):
    """The leader's view: (key, log end offset, last fetch, last caught up) of voters and observers."""

    __slots__ = ("current_voters", "high_watermark", "observers")

    def __init__(
        self,
        error: str,
        leader_id: int,
        leader_epoch: int,
        high_watermark: int = -1,
        current_voters: tuple[tuple[ReplicaKey, int, int, int], ...] = (),
        observers: tuple[tuple[ReplicaKey, int, int, int], ...] = (),
    ) -> None:
        super().__init__(error, leader_id, leader_epoch)
        self.high_watermark = high_watermark
        self.current_voters = current_voters
        self.observers = observers


UNKNOWN_REPLICA: ReplicaKey = (-1, NO_DIRECTORY)
