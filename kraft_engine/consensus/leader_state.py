"""A leader's state: end offsets of replicas, the high watermark, parked fetches, the pending change (LeaderState)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_engine.consensus.log_batches import BATCH_BYTES, RECORD_BYTES, Record
from kraft_engine.consensus.messages import FetchRequest, ReplicaDescription
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from kraft_engine.consensus.raft import RaftNode

UNKNOWN = -1


class PendingChange:
    """An add or remove under way. `offset` is -1 until its VotersRecord is appended."""

    __slots__ = ("ack_when_committed", "correlation", "deadline_us", "is_add", "offset", "source", "voter")

    def __init__(
        self, is_add: bool, voter: Voter, source: int, correlation: int, deadline_us: int, ack_when_committed: bool
    ) -> None:
        self.is_add = is_add
        self.voter = voter
        self.source = source
        self.correlation = correlation
        self.deadline_us = deadline_us
        self.ack_when_committed = ack_when_committed
        self.offset = -1


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


class Accumulator:
    """Data records that a leader has given offsets and not written yet (BatchAccumulator)."""

    __slots__ = ("drain_at_us", "opened_ms", "operations", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        # By record the offset at which its operation begins.
        self.operations: list[int] = []
        # The batch's timestamp: the wall clock at its first record.
        self.opened_ms = 0
        self.drain_at_us = 1 << 62

    def size_bytes_with(self, records: tuple[Record, ...]) -> int:
        """The estimated size of the batch with these records too."""
        return BATCH_BYTES + RECORD_BYTES * (len(self.records) + len(records))


class LeaderState:
    """Leadership of one epoch. Replicas are keyed by (id, directory), in a static quorum by (id, zero)."""

    __slots__ = (
        "accumulator",
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
        "own_keys",
        "parked",
        "pending",
        "queued",
        "quorum_deadline_us",
        "removals_scanned_to",
        "replicas",
        "unanswered",
        "updated_voters",
        "voters",
        "writable",
    )  # fmt: skip

    def __init__(self, node: RaftNode, voters: VoterSet, granted: tuple[ReplicaKey, ...]) -> None:
        self.node = node
        # Under which the node counts itself, in a static quorum too.
        self.own_keys = frozenset(((node.id, NO_DIRECTORY), node.key))
        self.epoch = node.epoch
        self.epoch_start = node.log.end_offset
        self.high_watermark = UNKNOWN
        self.accumulator = Accumulator()
        self.voters = voters
        self.granted = granted
        self.replicas: dict[ReplicaKey, ReplicaState] = {key: ReplicaState(key) for key in voters.keys}
        self.observers: dict[ReplicaKey, ReplicaState] = {}
        self.parked: list[tuple[int, int, FetchRequest, int]] = []
        self.pending: PendingChange | None = None
        self.quorum_deadline_us = node.world.now_us + node.settings.check_quorum_us
        self.known_directories: dict[int, Voter] = {}
        # What voters of a static quorum sent in UpdateRaftVoter: an upgrade of kraft.version needs it.
        self.updated_voters: dict[int, Voter] = {}
        self.writable = False
        self.forgot_removal = False
        # Drafts: changes that wait for the change under way (KIP-856), removed voters that still have to be answered
        # NOT_FOLLOWER (KIP-642).
        self.queued: list[PendingChange] = []
        self.no_followers: set[int] = set()
        # Every removal below this offset is in `no_followers` or was committed before this epoch.
        self.removals_scanned_to = max(node.high_watermark, 0)
        # (offset, source, correlation) of requests that are answered when the record there is committed (KIP-642).
        self.unanswered: list[tuple[int, int, int]] = []
        self.bootstrapped = False

    @property
    def next_offset(self) -> int:
        """The offset of the next record, those that wait to be written included."""
        return self.node.log.end_offset + len(self.accumulator.records)

    def state_of(self, key: ReplicaKey) -> ReplicaState:
        """The voter's state where `key` is one (by id alone in a static quorum), else an observer's."""
        state = self.replicas.get(key)
        if state is None and not self.node.switches.voters_match_by_directory:
            state = next((state for voter, state in self.replicas.items() if voter[0] == key[0]), None)
        if state is None:
            state = self.replicas.get((key[0], NO_DIRECTORY))
        if state is None:
            state = self.observers.get(key)
            if state is None:
                state = self.observers[key] = ReplicaState(key)
        return state

    def is_own(self, key: ReplicaKey) -> bool:
        return key in self.own_keys

    def set_voters(self, voters: VoterSet) -> None:
        """The latest set counts from now on; states move between voters and observers."""
        known = {**self.observers, **self.replicas}
        self.voters = voters
        self.replicas = {}
        for key in voters.keys:
            state = known.pop(key, None)
            if state is None:
                for known_key in list(known):
                    if known_key[0] == key[0] and NO_DIRECTORY in (known_key[1], key[1]):
                        state = known.pop(known_key)
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
        """The largest end offset that a majority of the latest voters have, -1 where unknown."""
        node = self.node
        ends: list[int] = []
        own_counts = not node.switches.leader_outside_set_does_not_count_itself
        own_keys = self.own_keys
        for key, state in self.replicas.items():
            if key in own_keys:
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


def describe_replicas(states: dict[ReplicaKey, ReplicaState]) -> tuple[ReplicaDescription, ...]:
    return tuple(
        ReplicaDescription(key, state.end_offset, state.last_fetch_us, state.last_caught_up_us)
        for key, state in sorted(states.items())
    )
