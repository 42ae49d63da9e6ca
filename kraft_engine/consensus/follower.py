"""Fetch and FetchSnapshot on a follower or observer: append, truncate, install; what the next fetch acknowledges
(KafkaRaftClient, KIP-630).
"""

from __future__ import annotations

from kraft_engine.consensus import raft
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.messages import (
    NOT_FOLLOWER,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kraft_engine.consensus.raft import FOLLOWER, RaftNode
from kraft_engine.consensus.replica_log import Snapshot, SnapshotId


def fetch_from_someone(node: RaftNode, now_us: int) -> int:
    """A replica that knows no leader asks any voter or bootstrap server: its error answer names the leader.

    An observer whose fetch timed out asks bootstrap servers until one of them is the leader, whoever is named meanwhile
    (KAFKA-19354, up to 4.1). Its own voter set may be too old to hold that one.
    """
    ids = node.known_voter_ids()
    if node.role == FOLLOWER and node.leader_id not in ids:
        ids = node.addresses.bootstrap_ids()
    if not node.switches.unattached_asks_for_the_leader:
        return now_us + node.settings.request_timeout_us
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
    return FetchRequest(
        node.settings.cluster_id,
        node.key,
        node.epoch,
        log.end_offset,
        last_epoch,
        node.high_watermark,
        log.start_offset,
        node.settings.fetch_max_wait_us,
    )


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
    other_epoch = response.leader_epoch != node.epoch and (
        response.leader_epoch > node.epoch or node.switches.fetched_batches_are_of_this_epoch
    )
    if response.error or other_epoch or node.role != FOLLOWER:
        node.learn(response.leader_epoch, response.leader_id)
        if response.error:
            if response.error == NOT_FOLLOWER and response.leader_epoch == node.epoch and node.is_voter:
                # KIP-642: no voter any more, although the assignment that says so has not been read yet.
                node.downgraded_epoch = node.epoch
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


def _append(node: RaftNode, batches: tuple[Batch, ...]) -> None:
    """Appends the leader's batches verbatim, then syncs: the next fetch acknowledges them."""
    log = node.log
    if batches[0].base_offset != log.end_offset:
        return
    witness = node.witness
    for batch in batches:
        log.append(batch)
        witness.appended(node, batch, by_leader=False)
        if batch.is_control and batch.end_offset > node.controls_read_to:
            if node.switches.voter_set_applies_when_appended:
                node.membership.apply(node, batch)
            else:
                node.pending_controls.append(batch)
    node.fetch_epoch_override = -1
    if node.can_become_voter and node.switches.sync_before_next_fetch:
        node.sync()
    else:
        witness.synced(node)


def _follow_watermark(node: RaftNode, leader_watermark: int) -> None:
    mark = leader_watermark
    if node.switches.follower_watermark_within_log:
        mark = min(node.log.end_offset, mark)
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
    if not node.switches.truncation_by_epoch:
        cut = max(node.high_watermark, log.start_offset)
    elif epoch == 0:
        cut = min(end_offset, log.end_offset)
    elif local_epoch == epoch:
        cut = min(local_end, end_offset)
    else:
        cut = local_end
    if cut >= log.end_offset:
        log.forget_empty_epochs()
        return
    node.witness.truncating(node, cut, by_snapshot=False)
    node.keep_reading_position()
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
    if not node.switches.offered_snapshot_is_fetched:
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
    """A downloaded snapshot replaces the log (KIP-630)."""
    if snapshot.id[0] <= node.high_watermark and snapshot.id[0] <= node.log.end_offset and node.log.batches:
        return
    node.witness.truncating(node, snapshot.id[0], by_snapshot=True)
    node.keep_reading_position()
    node.log.truncate_to_snapshot(snapshot)
    node.downgraded_epoch = -1
    if node.switches.installed_snapshot_brings_its_voters and snapshot.id[0] > node.controls_read_to:
        node.load_history()
    node.pending_controls.clear()
    node.high_watermark = max(node.high_watermark, snapshot.id[0])
    node.witness.watermark_moved(node, by_leader=False)
    node.machine.watermark_moved(node)


raft.HANDLERS.update({FetchResponse: handle_fetch_response, FetchSnapshotResponse: handle_fetch_snapshot_response})
raft.POLLS[FOLLOWER] = poll_follower
