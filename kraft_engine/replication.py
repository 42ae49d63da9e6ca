"""Fetch and FetchSnapshot, both sides: validation, divergence, truncation, what a follower acknowledges (facts 7.5,
7.6).
"""

from __future__ import annotations

from kraft_engine import raft
from kraft_engine.batches import Batch
from kraft_engine.leader import LeaderState, answer_parked, sync
from kraft_engine.log import Snapshot, SnapshotId
from kraft_engine.messages import (
    BROKER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    NONE,
    NOT_FOLLOWER,
    NOT_LEADER_OR_FOLLOWER,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kraft_engine.raft import FOLLOWER, RaftNode
from kraft_engine.voters import NO_DIRECTORY, Voter

# Leader's side


def leader_only_error(node: RaftNode, cluster_id: str, epoch: int) -> str:
    """Facts 7.3: what a request for the leader meets before anything else."""
    if cluster_id != node.settings.cluster_id:
        return INCONSISTENT_CLUSTER_ID
    if node.stopping:
        return BROKER_NOT_AVAILABLE
    if epoch < node.epoch and node.switches.leader_fences_old_epochs:
        return FENCED_LEADER_EPOCH
    if epoch > node.epoch:
        return UNKNOWN_LEADER_EPOCH
    return NONE if node.leader is not None else NOT_LEADER_OR_FOLLOWER


def handle_fetch(node: RaftNode, source: int, correlation: int, request: FetchRequest) -> None:
    error = leader_only_error(node, request.cluster_id, request.current_leader_epoch)
    leader = node.leader
    if error or leader is None:
        node.reply(source, correlation, FetchResponse(error, node.leader_id, node.epoch))
        return
    if request.replica[0] in leader.no_followers:
        leader.no_followers.discard(request.replica[0])
        node.reply(source, correlation, FetchResponse(NOT_FOLLOWER, node.id, node.epoch))
        return
    if _is_valid(node, request):
        _acknowledge(node, leader, request)
        nothing_new = request.fetch_offset >= node.log.end_offset and request.high_watermark >= leader.high_watermark
        if node.leader is leader and nothing_new:
            deadline_us = node.world.now_us + node.settings.fetch_max_wait_us
            leader.parked.append((source, correlation, request, deadline_us))
            return
    answer_fetch(node, source, correlation, request)


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
    log = node.log
    mark = leader.high_watermark
    if _is_valid(node, request):
        batches = log.read_from(request.fetch_offset, node.settings.fetch_batch_count)
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


# Follower's side


def fetch_from_someone(node: RaftNode, now_us: int) -> int:
    """A replica that knows no leader asks any voter or bootstrap server: its error answer names the leader."""
    ids = node.known_voter_ids()
    slots = [slot for slot in (node.addresses.slot_of(id) for id in ids) if slot not in (-1, node.slot)]  # noqa: A001
    if not slots:
        return now_us + node.settings.request_timeout_us
    pending = [node.in_flight[slot][1] for slot in slots if slot in node.in_flight and not node.ready(slot, now_us)]
    if pending:
        return min(pending)
    slot = node.world.chance.choose(slots)
    node.request(slot, fetch_request(node))
    return node.in_flight[slot][1]


def fetch_request(node: RaftNode) -> FetchRequest:
    log = node.log
    last_epoch = node.fetch_epoch_override if node.fetch_epoch_override >= 0 else log.last_epoch
    return FetchRequest(node.settings.cluster_id, node.key, node.epoch, log.end_offset, last_epoch, node.high_watermark)


def poll_follower(node: RaftNode, now_us: int) -> int:
    expired = now_us >= node.deadline_us
    if expired and node.is_voter:
        node.become_prospective()
        return raft.POLLS[node.role](node, now_us)
    if expired:
        return min(fetch_from_someone(node, now_us), now_us + node.settings.retry_backoff_us * 5)
    node.membership.poll_follower(node, now_us)
    slot = node.addresses.slot_of(node.leader_id)
    if slot < 0:
        return node.deadline_us
    if node.ready(slot, now_us):
        if node.snapshot_fetch is None:
            node.request(slot, fetch_request(node))
        else:
            snapshot_id, position = node.snapshot_fetch
            node.request(
                slot,
                FetchSnapshotRequest(node.settings.cluster_id, node.key, node.epoch, snapshot_id, position),
            )
    return min(node.deadline_us, node.in_flight[slot][1])


def handle_fetch_response(node: RaftNode, source: int, correlation: int, response: FetchResponse) -> None:
    if response.error or response.leader_epoch != node.epoch or node.role != FOLLOWER:
        node.learn(response.leader_epoch, response.leader_id)
        if response.error:
            node.back_off(source)
        return
    node.deadline_us = node.world.now_us + node.settings.fetch_timeout_us
    node.fetched_once = True
    if response.diverging is not None:
        _truncate(node, response.diverging[0], response.diverging[1])
    elif response.snapshot_id is not None:
        _start_download(node, response.snapshot_id)
    else:
        if response.batches:
            _append(node, response.batches)
        if node.running:
            _follow_watermark(node, response.high_watermark)


def _append(node: RaftNode, batches: list[Batch]) -> None:
    """Appends the leader's batches verbatim, then syncs: the next fetch acknowledges them."""
    log = node.log
    if batches[0].base_offset != log.end_offset:
        return
    witness = node.witness
    for batch in batches:
        log.append(batch)
        witness.appended(node, batch, by_leader=False)
        if batch.is_control:
            if node.switches.voter_set_applies_when_appended:
                node.membership.apply(node, batch)
            else:
                node.pending_controls.append(batch)
    node.fetch_epoch_override = -1
    if node.can_become_voter and node.switches.sync_before_next_fetch:
        sync(node)
    else:
        witness.synced(node)


def _follow_watermark(node: RaftNode, leader_watermark: int) -> None:
    mark = min(node.log.end_offset, leader_watermark)
    if mark > node.high_watermark:
        node.high_watermark = mark
        while node.pending_controls and node.pending_controls[0].end_offset <= mark:
            node.membership.apply(node, node.pending_controls.pop(0))
        node.witness.watermark_moved(node, by_leader=False)
        node.machine.watermark_moved(node)


def _truncate(node: RaftNode, epoch: int, end_offset: int) -> None:
    """Facts 7.6: to the leader's end of the diverging epoch, or the local end of the largest epoch not above it."""
    log = node.log
    if not node.switches.follower_truncates_on_divergence:
        node.fetch_epoch_override = node.epoch
        return
    local_epoch, local_end = log.end_offset_for_epoch(epoch)
    if epoch == 0:
        cut = min(end_offset, log.end_offset)
    elif local_epoch == epoch:
        cut = min(local_end, end_offset)
    else:
        cut = local_end
    if cut >= log.end_offset:
        log.forget_empty_epochs()
        return
    node.witness.truncating(node, cut, by_snapshot=False)
    log.truncate(cut)
    if node.switches.voter_set_reverts_on_truncation:
        node.history.truncate(cut)
    node.pending_controls = [batch for batch in node.pending_controls if batch.end_offset <= cut]
    if node.high_watermark > log.end_offset:
        node.high_watermark = log.end_offset
    node.witness.truncated(node)


def _start_download(node: RaftNode, snapshot_id: SnapshotId) -> None:
    if snapshot_id[0] <= node.log.start_offset and node.log.snapshots:
        return
    node.snapshot_fetch = (snapshot_id, 0)


def handle_fetch_snapshot_response(
    node: RaftNode, source: int, correlation: int, response: FetchSnapshotResponse
) -> None:
    if response.error or response.leader_epoch != node.epoch or node.role != FOLLOWER:
        node.learn(response.leader_epoch, response.leader_id)
        node.snapshot_fetch = None
        if response.error:
            node.back_off(source)
        return
    node.deadline_us = node.world.now_us + node.settings.fetch_timeout_us
    snapshot = response.snapshot
    if node.snapshot_fetch is None or snapshot is None or snapshot.id != node.snapshot_fetch[0]:
        return
    position = response.position + 1
    if position < response.size:
        node.snapshot_fetch = (snapshot.id, position)
        return
    node.snapshot_fetch = None
    install(node, snapshot)


def install(node: RaftNode, snapshot: Snapshot) -> None:
    """A downloaded snapshot replaces the log (facts 7.6)."""
    if snapshot.id[0] <= node.high_watermark and snapshot.id[0] <= node.log.end_offset and node.log.batches:
        return
    node.witness.truncating(node, snapshot.id[0], by_snapshot=True)
    node.log.truncate_to_snapshot(snapshot)
    node.load_history()
    node.pending_controls.clear()
    node.high_watermark = max(node.high_watermark, snapshot.id[0])
    node.witness.watermark_moved(node, by_leader=False)
    node.machine.watermark_moved(node)


raft.HANDLERS.update(
    {
        FetchRequest: handle_fetch,
        FetchResponse: handle_fetch_response,
        FetchSnapshotRequest: handle_fetch_snapshot,
        FetchSnapshotResponse: handle_fetch_snapshot_response,
    }
)
raft.POLLS[FOLLOWER] = poll_follower
