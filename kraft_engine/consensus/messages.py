"""Requests and responses between the replicas of the metadata log, with the fields of their Kafka schemas.

Every class is the single partition `__cluster_metadata-0` of its Kafka message: what the schema nests in topics and
partitions is flat here, a pair of id and directory id is one ReplicaKey, times are logical microseconds. Errors are
Kafka's names ("" is NONE).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.replica_log import Snapshot, SnapshotId
from kraft_engine.consensus.voter_sets import ReplicaKey, Voter

NONE = ""
BROKER_NOT_AVAILABLE = "BROKER_NOT_AVAILABLE"
DUPLICATE_VOTER = "DUPLICATE_VOTER"
FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
INCONSISTENT_CLUSTER_ID = "INCONSISTENT_CLUSTER_ID"
INCONSISTENT_VOTER_SET = "INCONSISTENT_VOTER_SET"
INVALID_REQUEST = "INVALID_REQUEST"
INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
INVALID_VOTER_KEY = "INVALID_VOTER_KEY"
NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
VOTER_NOT_FOUND = "VOTER_NOT_FOUND"
NOT_VOTER = "NOT_VOTER"
NOT_FOLLOWER = "NOT_FOLLOWER"
VOTER_ALREADY_ADDED = "VOTER_ALREADY_ADDED"
VOTER_ALREADY_REMOVED = "VOTER_ALREADY_REMOVED"


HostPort = tuple[str, int]
"""(host, port) of the one controller listener that every node has."""


@dataclass(frozen=True, slots=True)
class Response:
    """The fields of every KRaft response: an error, and the leader and epoch that the sender knows."""

    error: str
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """VoteRequest v2 (v1 without PreVote): `voter` names the receiver, `replica` the candidate."""

    cluster_id: str
    voter: ReplicaKey
    replica: ReplicaKey
    replica_epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse(Response):
    """`pre_vote`, `replica_epoch` and `voter` are the request's, by which the candidate knows what was answered."""

    granted: bool
    pre_vote: bool
    replica_epoch: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str
    voter: ReplicaKey
    leader_id: int
    leader_epoch: int
    leader_endpoint: HostPort


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse(Response):
    pass


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """preferred_candidates are sorted by end offset, the longest log first."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoint: HostPort


@dataclass(frozen=True, slots=True)
class KeyedEndQuorumEpochRequest(EndQuorumEpochRequest):
    """KIP-856, EndQuorumEpoch, Request: "VoterId was added to the request", "VoterUuid was added to the Partitions"."""

    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse(Response):
    pass


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Fetch v17 and later: `high_watermark` is the replica's: a leader with a newer one answers at once."""

    cluster_id: str
    replica: ReplicaKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    log_start_offset: int
    max_wait_us: int


@dataclass(frozen=True, slots=True)
class FetchResponse(Response):
    """Batches from the fetch offset on, or where the logs diverge, or the snapshot to fetch instead."""

    high_watermark: int = -1
    log_start_offset: int = 0
    batches: tuple[Batch, ...] = ()
    diverging: tuple[int, int] | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """`position` and the response's `size` are counted in chunks of the snapshot."""

    cluster_id: str
    replica: ReplicaKey
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse(Response):
    position: int = 0
    size: int = 0
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class AddRaftVoterRequest:
    cluster_id: str
    voter: Voter
    timeout_us: int = 5_000_000
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveRaftVoterRequest:
    cluster_id: str
    voter: ReplicaKey
    timeout_us: int = 5_000_000


@dataclass(frozen=True, slots=True)
class UpdateRaftVoterRequest:
    """`voter` carries the new endpoint and the range of kraft.version that it supports."""

    cluster_id: str
    current_leader_epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class VoterChangeResponse(Response):
    """AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter responses."""


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    pass


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    replica: ReplicaKey
    min_kraft_version: int
    max_kraft_version: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    pass


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica as the leader sees it; -1 where it has not fetched in this epoch."""

    replica: ReplicaKey
    log_end_offset: int
    last_fetch_us: int
    last_caught_up_us: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse(Response):
    """The leader's view; only a leader has one."""

    high_watermark: int = -1
    current_voters: tuple[ReplicaDescription, ...] = ()
    # KIP-642's TargetVoters.
    target_voters: tuple[int, ...] = ()
    observers: tuple[ReplicaDescription, ...] = ()
