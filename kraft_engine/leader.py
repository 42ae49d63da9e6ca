"""What a leader knows and does: end offsets of replicas, the high watermark, appends, begin-epoch, check-quorum
(LeaderState).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_engine import raft
from kraft_engine.batches import Batch, Record
from kraft_engine.messages import BeginQuorumEpochRequest, FetchRequest
from kraft_engine.raft import LEADER, NEVER, RaftNode
from kraft_engine.voters import NO_DIRECTORY, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from kraft_engine.membership import PendingChange

UNKNOWN = -1
HOUR_US = 3_600_000_000


class ReplicaState:
    """A replica as the leader sees it; `end_offset` is -1 until its first valid fetch of this epoch."""

    __slots__ = ("end_offset", "key", "last_caught_up_us", "last_fetch_end", "last_fetch_us", "next_begin_us")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = UNKNOWN
        self.last_fetch_us = -1
        self.last_caught_up_us = -1
        self.last_fetch_end = -1
        self.next_begin_us = 0


class LeaderState:
    """Leadership of one epoch. Replicas are keyed by (id, directory), in a static quorum by (id, zero)."""

    __slots__ = (
        "bootstrapped",
        "epoch",
        "epoch_start",
        "forgot_removal",
        "granted",
        "high_watermark",
        "known_directories",
        "no_followers",
        "node",
        "observers",
        "parked",
        "pending",
        "queued",
        "quorum_deadline_us",
        "replicas",
        "voters",
        "writable",
    )  # fmt: skip

    def __init__(self, node: RaftNode, voters: VoterSet, granted: tuple[ReplicaKey, ...]) -> None:
        self.node = node
        self.epoch = node.epoch
        self.epoch_start = node.log.end_offset
        self.high_watermark = UNKNOWN
        self.voters = voters
        self.granted = granted
        self.replicas: dict[ReplicaKey, ReplicaState] = {key: ReplicaState(key) for key in voters.keys}
        self.observers: dict[ReplicaKey, ReplicaState] = {}
        self.parked: list[tuple[int, int, FetchRequest, int]] = []
        self.pending: PendingChange | None = None
        self.quorum_deadline_us = node.world.now_us + node.settings.check_quorum_us
        self.known_directories: dict[int, Voter] = {}
        self.writable = False
        self.forgot_removal = False
        # Drafts: changes that wait for the one under way (KIP-856), removed voters to be told so (KIP-642).
        self.queued: list[PendingChange] = []
        self.no_followers: set[int] = set()
        self.bootstrapped = False

    def state_of(self, key: ReplicaKey) -> ReplicaState:
        """The voter's state where `key` is one (by id alone in a static quorum), else an observer's."""
        state = self.replicas.get(key)
        if state is None:
            state = self.replicas.get((key[0], NO_DIRECTORY))
        if state is None:
            state = self.observers.get(key)
            if state is None:
                state = self.observers[key] = ReplicaState(key)
        return state

    def is_own(self, key: ReplicaKey) -> bool:
        return key[0] == self.node.id and key[1] in (NO_DIRECTORY, self.node.directory)

    def set_voters(self, voters: VoterSet) -> None:
        """The latest set counts from now on; states move between voters and observers."""
        known = {**self.observers, **self.replicas}
        self.voters = voters
        self.replicas = {}
        for key in voters.keys:
            state = known.pop(key, None)
            if state is None:
                for other in list(known):
                    if other[0] == key[0] and NO_DIRECTORY in (other[1], key[1]):
                        state = known.pop(other)
                        state.key = key
                        break
            self.replicas[key] = state if state is not None else ReplicaState(key)
        self.observers = {key: state for key, state in known.items() if not self.is_own(key)}

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Other voters, the longest log first (EndQuorumEpoch's preferred candidates)."""
        others = [state for key, state in self.replicas.items() if not self.is_own(key)]
        others.sort(key=lambda state: (-state.end_offset, state.key))
        return tuple(state.key for state in others)

    def majority_end(self) -> int:
        """The largest end offset that a majority of the latest voters have, -1 where unknown (facts 7.5)."""
        node = self.node
        ends: list[int] = []
        own_counts = not node.switches.leader_outside_set_does_not_count_itself
        for key, state in self.replicas.items():
            if self.is_own(key):
                ends.append(node.log.end_offset)
                own_counts = False
            else:
                ends.append(state.end_offset)
        if own_counts:
            ends[ends.index(min(ends))] = node.log.end_offset
        if not node.switches.observers_do_not_count:
            ends.extend(state.end_offset for state in self.observers.values())
        ends.sort(reverse=True)
        index = len(self.replicas) // 2 if node.switches.commit_needs_majority else max(len(self.replicas) // 2 - 1, 0)
        return ends[index]

    def maybe_advance(self) -> bool:
        """Raises the high watermark by the current-epoch rule (LeaderState.maybeUpdateHighWatermark)."""
        node = self.node
        end = self.majority_end()
        if end <= self.epoch_start and node.switches.commit_needs_current_epoch:
            return False
        if end < 0 or end == self.high_watermark:
            return False
        if end < self.high_watermark and node.switches.high_watermark_never_decreases:
            return False
        self.high_watermark = end
        if end > node.high_watermark or not node.switches.high_watermark_never_decreases:
            node.high_watermark = end
        node.witness.watermark_moved(node, by_leader=True)
        if not self.writable and end > self.epoch_start:
            self.writable = True
            node.machine.epoch_committed(node)
        node.membership.high_watermark_moved(node, self)
        if node.leader is self:
            node.machine.watermark_moved(node)
        return True


def become_leader(node: RaftNode) -> None:
    """Elected: the epoch's first batch is appended at once (facts 7.4)."""
    voters = node.voters
    if voters is None:
        return
    granted = tuple(sorted(node.granted))
    node.leader_id = node.id
    node.voted = None
    leader = LeaderState(node, voters, granted)
    node.leader = leader
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
    """LeaderChange names ids only, in version 0 (facts 2.3)."""
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


def append(node: RaftNode, records: tuple[Record, ...], *, is_control: bool) -> Batch | None:
    """Appends one batch as leader, syncs it, and answers the fetches that wait for it.

    None where the process died between the write and its sync: the batch was never sent.
    """
    leader = node.leader
    if leader is None:
        raise ValueError(f"node {node.id} is {raft.ROLE_NAMES[node.role]} and cannot append")
    log = node.log
    batch = Batch(log.end_offset, leader.epoch, node.world.wall_ms(node.skew_ms), is_control, records, log.last_batch)
    log.append(batch)
    node.witness.appended(node, batch, by_leader=True)
    if is_control:
        node.membership.apply(node, batch)
    if not sync(node):
        return None
    if leader.replicas:
        leader.maybe_advance()
    if node.leader is leader:
        answer_parked(node, leader)
    return batch


def sync(node: RaftNode) -> bool:
    """Forces the log to the disk; false where the process dies instead. A slow disk keeps the node busy meanwhile."""
    disk = node.disk
    if disk.dies_before_sync or disk.read_only:
        node.addresses.died(node.slot)
        return False
    if disk.slow_us:
        node.busy_until_us = node.world.now_us + disk.slow_us
    node.log.sync()
    node.witness.synced(node)
    return True


def answer_parked(node: RaftNode, leader: LeaderState) -> None:
    """Completes the fetches that have something to learn: new batches, or a new high watermark."""
    if not leader.parked:
        return
    from kraft_engine.replication import answer_fetch

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


def poll_leader(node: RaftNode, now_us: int) -> int:
    leader = node.leader
    if leader is None:
        return NEVER
    settings = node.settings
    next_us = _check_quorum(node, leader, now_us)
    if node.leader is not leader:
        return raft.POLLS[node.role](node, now_us)
    for key, state in leader.replicas.items():
        if leader.is_own(key):
            continue
        quiet_until_us = max(state.next_begin_us, state.last_fetch_us + settings.begin_epoch_us)
        if now_us >= quiet_until_us or state.next_begin_us == 0:
            slot = node.addresses.slot_of(key[0])
            if slot >= 0 and slot != node.slot and node.ready(slot, now_us):
                body = BeginQuorumEpochRequest(settings.cluster_id, key, node.id, node.epoch)
                node.request(slot, body)
            state.next_begin_us = quiet_until_us = now_us + settings.begin_epoch_us
        next_us = min(next_us, quiet_until_us)
    if leader.parked:
        next_us = min(next_us, _expire_parked(node, leader, now_us))
    return min(next_us, node.membership.poll_leader(node, leader, now_us))


def _check_quorum(node: RaftNode, leader: LeaderState, now_us: int) -> int:
    """Resigns when no majority has fetched for 1.5 x the fetch timeout (facts 7.1)."""
    others = [state.last_fetch_us for key, state in leader.replicas.items() if not leader.is_own(key)]
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


def _expire_parked(node: RaftNode, leader: LeaderState, now_us: int) -> int:
    from kraft_engine.replication import answer_fetch

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


def describe_replicas(states: dict[ReplicaKey, ReplicaState]) -> tuple[tuple[ReplicaKey, int, int, int], ...]:
    return tuple(
        (key, state.end_offset, state.last_fetch_us, state.last_caught_up_us) for key, state in sorted(states.items())
    )


raft.POLLS[LEADER] = poll_leader
