"""The duties of a leader: the epoch's first batch, appends, begin-epoch requests, check-quorum (LeaderState)."""

from __future__ import annotations

from kraft_engine.consensus import raft
from kraft_engine.consensus.leader_state import LeaderState
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.messages import BeginQuorumEpochRequest
from kraft_engine.consensus.raft import LEADER, NEVER, RaftNode
from kraft_engine.consensus.serving import answer_parked, expire_parked


def become_leader(node: RaftNode) -> None:
    """Elected: the epoch's first batch is appended at once (LeaderState)."""
    voters = node.voters
    if voters is None:
        return
    granted = tuple(sorted(node.granted))
    node.leader_id = node.id
    node.voted = None
    leader = LeaderState(node, voters, granted)
    node.leader = leader
    if node.switches.leadership_is_persisted:
        node.persist()
    node.log.assign_epoch_start(node.epoch)
    node.enter(LEADER, 0)
    node.witness.elected(node, voters, granted)
    records = node.membership.start_of_epoch(node, leader)
    if not node.switches.no_data_before_epoch_commit:
        leader.writable = True
        node.machine.epoch_committed(node)
    if node.switches.leader_change_is_first:
        append(node, records, is_control=True)
    else:
        append(node, (("NoOpRecord", 0, {}),), is_control=False)
        append(node, records, is_control=True)


def leader_change(node: RaftNode, leader: LeaderState) -> Record:
    """LeaderChange names ids only, in version 0 (LeaderChangeMessage)."""
    return (
        "LEADER_CHANGE",
        0,
        {
            "version": 0,
            "leaderId": node.id,
            "voters": [{"voterId": id} for id in sorted(set(leader.voters.ids))],  # noqa: A001
            "grantingVoters": [{"voterId": id} for id in sorted({key[0] for key in leader.granted})],  # noqa: A001
        },
    )


def append(
    node: RaftNode, records: tuple[Record, ...], *, is_control: bool, operation_offset: int | None = None
) -> bool:
    """Appends records as leader; data may wait for more (BatchAccumulator), what waits goes before a control batch.

    `operation_offset` is where the operation that these are a later part of begins. False where the process died
    between a write and its sync: that batch was never sent.
    """
    leader = node.leader
    if leader is None:
        raise ValueError(f"node {node.id} is {raft.ROLE_NAMES[node.role]} and cannot append")
    linger_us = node.settings.append_linger_us
    if is_control or not linger_us:
        if not drain(node, leader):
            return False
        operations = None if operation_offset is None else (operation_offset,) * len(records)
        return _write(node, leader, records, node.world.wall_ms(node.skew_ms), is_control, operations)
    waiting = leader.accumulator
    if waiting.records and waiting.size_bytes_with(records) > node.settings.max_batch_bytes and not drain(node, leader):
        return False
    if not waiting.records:
        waiting.opened_ms = node.world.wall_ms(node.skew_ms)
        waiting.drain_at_us = node.world.now_us + linger_us
        node.wake_by(waiting.drain_at_us)
    begin_offset = leader.next_offset if operation_offset is None else operation_offset
    waiting.operations.extend([begin_offset] * len(records))
    waiting.records.extend(records)
    return True


def drain(node: RaftNode, leader: LeaderState) -> bool:
    """Writes the data that waits, as one batch; false where the process died doing so."""
    waiting = leader.accumulator
    if not waiting.records:
        return True
    records, waiting.records = tuple(waiting.records), []
    operations, waiting.operations = tuple(waiting.operations), []
    waiting.drain_at_us = NEVER
    return _write(node, leader, records, waiting.opened_ms, False, operations) and node.leader is leader


def _write(
    node: RaftNode,
    leader: LeaderState,
    records: tuple[Record, ...],
    timestamp_ms: int,
    is_control: bool,
    operations: tuple[int, ...] | None,
) -> bool:
    """Writes one batch, syncs it, and answers the fetches that wait for it."""
    log = node.log
    batch = Batch(log.end_offset, leader.epoch, timestamp_ms, is_control, records, log.last_batch, operations)
    if node.settings.measure_batch is not None:
        batch.size_bytes = node.settings.measure_batch(batch)
    log.append(batch)
    node.witness.appended(node, batch, by_leader=True)
    if is_control and batch.end_offset > node.controls_read_to:
        node.membership.apply(node, batch)
    if node.switches.leader_syncs_what_it_counts and not node.sync():
        return False
    if leader.replicas:
        leader.maybe_advance()
    if node.leader is leader:
        answer_parked(node, leader)
    return True


def poll_leader(node: RaftNode, now_us: int) -> int:
    leader = node.leader
    if leader is None:
        return NEVER
    settings = node.settings
    if now_us >= leader.accumulator.drain_at_us:
        drain(node, leader)
        if node.leader is not leader:
            return raft.POLLS[node.role](node, now_us) if node.running else NEVER
    next_us = _check_quorum(node, leader, now_us)
    if node.leader is not leader:
        return raft.POLLS[node.role](node, now_us)
    own_keys, begin_epoch_us = leader.own_keys, settings.begin_epoch_us
    for key, state in leader.replicas.items():
        if key in own_keys:
            continue
        quiet_until_us = state.last_fetch_us + begin_epoch_us
        if quiet_until_us < state.next_begin_us:
            quiet_until_us = state.next_begin_us
        if now_us >= quiet_until_us or state.next_begin_us == 0:
            slot = node.addresses.slot_of(key[0])
            if slot >= 0 and slot != node.slot and node.ready(slot, now_us):
                body = BeginQuorumEpochRequest(settings.cluster_id, key, node.id, node.epoch, node.endpoint)
                node.request(slot, body)
            state.next_begin_us = quiet_until_us = now_us + begin_epoch_us
        if quiet_until_us < next_us:
            next_us = quiet_until_us
    next_us = min(next_us, leader.accumulator.drain_at_us)
    if leader.parked:
        next_us = min(next_us, expire_parked(node, leader, now_us))
    return min(next_us, node.membership.poll_leader(node, leader, now_us))


def _check_quorum(node: RaftNode, leader: LeaderState, now_us: int) -> int:
    """Resigns when no majority has fetched for 1.5 x the fetch timeout (LeaderState)."""
    own_keys = leader.own_keys
    others = [state.last_fetch_us for key, state in leader.replicas.items() if key not in own_keys]
    if not others or (len(leader.replicas) == 1 and len(others) == 0):
        return NEVER
    needed = leader.voters.majority - (1 if len(others) < len(leader.replicas) else 0)
    others.sort(reverse=True)
    newest_us = others[needed - 1] if needed else now_us
    deadline_us = max(leader.quorum_deadline_us, newest_us + node.settings.check_quorum_us)
    if now_us >= deadline_us:
        node.witness.note(node, "lost its quorum and resigns")
        node.resign()
    return deadline_us


raft.POLLS[LEADER] = poll_leader
