"""Fetch, FetchSnapshot and DescribeQuorum on the leader: what it checks, counts and answers (KIP-595, KIP-630)."""

from __future__ import annotations

from kraft_engine.consensus import raft
from kraft_engine.consensus.leader_state import LeaderState, describe_replicas
from kraft_engine.consensus.messages import (
    BROKER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    NONE,
    NOT_FOLLOWER,
    NOT_LEADER_OR_FOLLOWER,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kraft_engine.consensus.raft import NEVER, RaftNode
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, Voter


def is_stranger(node: RaftNode, cluster_id: str) -> bool:
    """Refuses a request of another cluster before any field of it is used."""
    return cluster_id != node.settings.cluster_id and node.switches.requests_name_their_cluster


def leader_only_error(node: RaftNode, cluster_id: str, epoch: int) -> str:
    """Facts 7.3: the first checks of a request that only a leader may answer."""
    if is_stranger(node, cluster_id):
        return INCONSISTENT_CLUSTER_ID
    if node.stopping:
        return BROKER_NOT_AVAILABLE
    if epoch < node.epoch and node.switches.leader_fences_old_epochs:
        return FENCED_LEADER_EPOCH
    if epoch > node.epoch and node.switches.leader_refuses_later_epochs:
        return UNKNOWN_LEADER_EPOCH
    return NONE if node.leader is not None else NOT_LEADER_OR_FOLLOWER


def handle_fetch(node: RaftNode, source: int, correlation: int, request: FetchRequest) -> None:
    error = leader_only_error(node, request.cluster_id, request.current_leader_epoch)
    leader = node.leader
    if error or leader is None:
        node.reply(source, correlation, FetchResponse(error, node.leader_id, node.epoch))
        return
    if _is_answered_as_removed(node, leader, source, correlation, request):
        return
    is_valid = _is_valid(node, request)
    if is_valid or not node.switches.diverging_fetch_does_not_count:
        _acknowledge(node, leader, request)
    if is_valid:
        nothing_new = request.fetch_offset >= node.log.end_offset and request.high_watermark >= leader.high_watermark
        if node.leader is leader and nothing_new:
            deadline_us = node.world.now_us + request.max_wait_us
            leader.parked.append((source, correlation, request, deadline_us))
            return
    answer_fetch(node, source, correlation, request)


def _is_answered_as_removed(
    node: RaftNode, leader: LeaderState, source: int, correlation: int, request: FetchRequest
) -> bool:
    """KIP-642: the first fetch of a voter after its removal was committed is answered NOT_FOLLOWER."""
    if request.replica[0] not in leader.no_followers:
        return False
    leader.no_followers.discard(request.replica[0])
    node.reply(source, correlation, FetchResponse(NOT_FOLLOWER, node.id, node.epoch))
    return True


def _is_valid(node: RaftNode, request: FetchRequest) -> bool:
    if not node.switches.leader_checks_divergence:
        return node.log.start_offset <= request.fetch_offset <= node.log.end_offset
    return node.log.validate(request.fetch_offset, request.last_fetched_epoch)[0] == "valid"


def _acknowledge(node: RaftNode, leader: LeaderState, request: FetchRequest) -> None:
    """A valid fetch with offset X says: I hold everything below X."""
    node.witness.acknowledged(node, request.current_leader_epoch)
    state = leader.state_of(request.replica)
    if state.key[1] == NO_DIRECTORY:
        # A static entry: the fetch says which directory it stands for.
        leader.known_directories.setdefault(request.replica[0], Voter(*request.replica))
    now_us = node.world.now_us
    end = node.log.end_offset
    if request.fetch_offset >= end or (state.last_fetch_end >= 0 and request.fetch_offset >= state.last_fetch_end):
        state.last_caught_up_us = now_us if request.fetch_offset >= end else state.last_fetch_us
    state.last_fetch_us = now_us
    state.last_fetch_end = end
    if request.fetch_offset > state.end_offset:
        state.end_offset = request.fetch_offset
        if leader.maybe_advance() and node.leader is leader:
            answer_parked(node, leader)


def answer_fetch(node: RaftNode, source: int, correlation: int, request: FetchRequest) -> None:
    """Judges the fetch against the log as it is now: it may have changed while the request was parked."""
    leader = node.leader
    if leader is None:
        node.reply(source, correlation, FetchResponse(NOT_LEADER_OR_FOLLOWER, node.leader_id, node.epoch))
        return
    if _is_answered_as_removed(node, leader, source, correlation, request):
        return
    log = node.log
    mark = leader.high_watermark
    if _is_valid(node, request):
        batches = tuple(log.read_from(request.fetch_offset, node.settings.fetch_batch_count))
        response = FetchResponse(NONE, node.id, node.epoch, mark, log.start_offset, batches)
    else:
        verdict, offset, epoch = log.validate(request.fetch_offset, request.last_fetched_epoch)
        if verdict == "snapshot":
            response = FetchResponse(NONE, node.id, node.epoch, mark, log.start_offset, snapshot_id=(offset, epoch))
        else:
            response = FetchResponse(NONE, node.id, node.epoch, mark, log.start_offset, diverging=(epoch, offset))
    node.reply(source, correlation, response)


def handle_fetch_snapshot(node: RaftNode, source: int, correlation: int, request: FetchSnapshotRequest) -> None:
    error = leader_only_error(node, request.cluster_id, request.current_leader_epoch)
    snapshot = next((snapshot for snapshot in node.log.snapshots if snapshot.id == request.snapshot_id), None)
    if not error and snapshot is None:
        error = SNAPSHOT_NOT_FOUND
    if error:
        response = FetchSnapshotResponse(error, node.leader_id, node.epoch)
    else:
        if node.leader is not None:
            node.leader.state_of(request.replica).last_fetch_us = node.world.now_us
        size = node.settings.snapshot_chunk_count
        response = FetchSnapshotResponse(NONE, node.id, node.epoch, request.position, size, snapshot)
    node.reply(source, correlation, response)


def answer_parked(node: RaftNode, leader: LeaderState) -> None:
    """Answers parked fetches for which there are new batches or a new high watermark."""
    if not leader.parked:
        return
    end = node.log.end_offset
    mark = leader.high_watermark
    waiting: list[tuple[int, int, FetchRequest, int]] = []
    parked, leader.parked = leader.parked, waiting
    for entry in parked:
        request = entry[2]
        if request.fetch_offset < end or request.high_watermark < mark:
            answer_fetch(node, entry[0], entry[1], request)
        else:
            waiting.append(entry)


def expire_parked(node: RaftNode, leader: LeaderState, now_us: int) -> int:
    """Answers the fetches that have waited long enough; returns when the next one has."""
    next_us = NEVER
    waiting: list[tuple[int, int, FetchRequest, int]] = []
    for entry in leader.parked:
        if entry[3] <= now_us:
            answer_fetch(node, entry[0], entry[1], entry[2])
        else:
            waiting.append(entry)
            next_us = min(next_us, entry[3])
    leader.parked = waiting
    return next_us


def handle_describe(node: RaftNode, source: int, correlation: int, request: DescribeQuorumRequest) -> None:
    """DescribeQuorum: only the leader answers with replicas, its own log end included."""
    leader = node.leader
    if leader is None:
        node.reply(source, correlation, DescribeQuorumResponse(NOT_LEADER_OR_FOLLOWER, node.leader_id, node.epoch))
        return
    for key, state in leader.replicas.items():
        if leader.is_own(key):
            state.end_offset = node.log.end_offset
    response = DescribeQuorumResponse(
        NONE,
        node.id,
        node.epoch,
        leader.high_watermark,
        describe_replicas(leader.replicas),
        target_voters=tuple(sorted(leader.voters.target or ())),
        observers=describe_replicas(leader.observers),
    )
    node.reply(source, correlation, response)


raft.HANDLERS.update(
    {
        FetchRequest: handle_fetch,
        FetchSnapshotRequest: handle_fetch_snapshot,
        DescribeQuorumRequest: handle_describe,
    }
)
