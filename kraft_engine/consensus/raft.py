"""One KRaft replica: its states, what it persists, what it sends when (KIP-595 as shipped; QuorumState,
KafkaRaftClient).

A node is driven by events: a message, or a wake-up at the time that its last `poll` asked for. What the roles do
lies in `election`, `leader`, `serving` (its side of fetches), `follower` and `membership`, which put themselves into
HANDLERS and POLLS; this file owns the state that they share and every transition, and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraft_engine.consensus.protocols import Addresses, Membership, StateMachine, Witness
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.consensus.replica_log import MetadataLog, SnapshotId
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, VoterHistory, VoterSet
from kraft_engine.invariants.switches import Switches
from kraft_engine.world.disks import Disk, DiskFailureError, QuorumState
from kraft_engine.world.network import Network
from kraft_engine.world.world import World

if TYPE_CHECKING:
    from kraft_engine.consensus.leader_state import LeaderState
    from kraft_engine.consensus.log_batches import Batch

UNATTACHED, PROSPECTIVE, CANDIDATE, LEADER, FOLLOWER, RESIGNED = range(6)
ROLE_NAMES = ("Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned")
NEVER = 1 << 62


class RaftNode:
    """A running replica. It dies with its process; its `disk` stays."""

    __slots__ = (
        "addresses", "backing_off_until_us", "busy_until_us", "can_become_voter", "candidacies", "controls_read_to",
        "correlation", "deadline_us", "directory", "disk", "downgraded_epoch", "endpoint", "epoch",
        "fetch_epoch_override", "fetched_once", "granted", "had_leader_id", "high_watermark", "history", "id",
        "in_flight", "join_at_us", "key", "leader", "leader_id", "log", "machine", "membership", "network",
        "pending_controls", "rejected", "role", "running", "settings", "skew_ms", "slot", "snapshot_fetch",
        "static_voters", "stopping", "successors", "switches", "update_again_at_us", "update_sent_epoch",
        "voted", "wake_at_us", "witness",
        "world",
    )  # fmt: skip

    def __init__(
        self,
        *,
        world: World,
        network: Network,
        addresses: Addresses,
        witness: Witness,
        membership: Membership,
        machine: StateMachine,
        settings: Settings,
        switches: Switches,
        slot: int,
        node_id: int,
        disk: Disk,
        static_voters: VoterSet | None,
        can_become_voter: bool = True,
        endpoint: tuple[str, int] = ("localhost", 9093),
        skew_ms: int = 0,
    ) -> None:
        self.world = world
        self.network = network
        self.addresses = addresses
        self.witness = witness
        self.membership = membership
        self.machine = machine
        self.settings = settings
        self.switches = switches
        self.slot = slot
        self.id = node_id
        self.disk = disk
        self.directory = disk.directory
        self.key: ReplicaKey = (node_id, disk.directory)
        self.log: MetadataLog = disk.log
        self.static_voters = static_voters
        self.can_become_voter = can_become_voter
        self.endpoint = endpoint
        self.skew_ms = skew_ms
        self.history = VoterHistory(static_voters)
        self.role = UNATTACHED
        self.epoch = 0
        self.leader_id = -1
        self.voted: ReplicaKey | None = None
        self.high_watermark = -1
        # When the role's timer ends: the election timer, or a follower's fetch timer.
        self.deadline_us = NEVER
        # Before pre-vote: candidacies in a row, and until when a candidate that lost waits before its next.
        self.candidacies = 1
        self.backing_off_until_us = NEVER
        self.wake_at_us = NEVER
        self.granted: dict[ReplicaKey, bool] = {}
        self.rejected: dict[ReplicaKey, bool] = {}
        self.had_leader_id = -1
        self.in_flight: dict[int, tuple[int, int]] = {}
        self.correlation = 0
        self.leader: LeaderState | None = None
        self.fetched_once = False
        self.fetch_epoch_override = -1
        self.snapshot_fetch: tuple[SnapshotId, int] | None = None
        self.update_sent_epoch = -1
        self.update_again_at_us = NEVER
        self.downgraded_epoch = -1  # KIP-642: in which a leader said NOT_FOLLOWER
        self.join_at_us = 0
        self.successors: tuple[ReplicaKey, ...] = ()
        self.pending_controls: list[Batch] = []
        # Control batches that end at or below it are passed over: see Settings.truncation_rewinds_voters.
        self.controls_read_to = 0
        self.running = True
        self.stopping = False
        self.busy_until_us = 0

    # What the node is

    @property
    def voters(self) -> VoterSet | None:
        return self.history.last

    @property
    def is_voter(self) -> bool:
        """In the latest voter set by (id, directory), uncommitted included; everything else is an observer."""
        voters = self.history.last
        if voters is None or not self.can_become_voter or self.downgraded_epoch == self.epoch:
            return False
        return voters.contains(self.key) or (not self.switches.voters_match_by_directory and self.id in voters.ids)

    def known_voter_ids(self) -> tuple[int, ...]:
        voters = self.history.last
        return voters.ids if voters is not None else self.addresses.bootstrap_ids()

    def random_election_timeout_us(self) -> int:
        timeout_us = self.settings.election_timeout_us
        return timeout_us + int(self.world.chance.random() * timeout_us)

    def _unattached_timeout_us(self) -> int:
        """What is left of the election timer; a new one for a node that waited for none.

        An observer waits for none at all. A timer that started again with every epoch that a node hears of would let a
        candidate that cannot win keep every other voter from standing (QuorumState.transitionToUnattached).
        """
        if not self.is_voter and self.switches.only_voters_stand:
            return NEVER
        keeps = (UNATTACHED, CANDIDATE, PROSPECTIVE, RESIGNED) if self.settings.pre_vote else (UNATTACHED, CANDIDATE)
        runs = self.role in keeps and self.deadline_us < NEVER and not self.lost_pre_vote
        if runs and self.switches.election_timer_keeps_running:
            return max(self.deadline_us - self.world.now_us, 0)
        return self.random_election_timeout_us()

    @property
    def lost_pre_vote(self) -> bool:
        """Whether a majority has refused this prospective node its pre-vote."""
        voters = self.voters
        if self.role != PROSPECTIVE or voters is None:
            return False
        return sum(1 for key in voters.keys if key in self.rejected) >= voters.majority

    # Start

    def start(self) -> None:
        """Loads the state that the disk holds (QuorumState.initialize), whatever a crash has left of it."""
        self._until_disk_fails(self._start)

    def _until_disk_fails(self, action: Callable[[], None]) -> None:
        """A write of quorum-state that fails ends the process in the middle of what it did."""
        try:
            action()
        except DiskFailureError as failure:
            self.witness.note(self, f"dies: cannot write {failure}")
            self.addresses.died(self.slot)

    def _start(self) -> None:
        self.disk.recover()
        self.load_history(with_log=self.switches.restart_reads_voters_from_log)
        cut = "" if self.log.is_connected else f"its log starts at {self.log.start_offset}, without a snapshot there"
        if refusal := cut or self.membership.refuses_start(self):
            self.witness.note(self, f"refuses to start: {refusal}")
            return self.addresses.refused(self.slot)
        stored = self.disk.visible_state
        state = stored if stored is not None else QuorumState()
        self.epoch, self.leader_id, self.voted = state.epoch, state.leader_id, state.voted
        if not self.switches.restart_remembers_epoch:
            self.epoch = self.log.last_epoch
        if not self.switches.restart_remembers_vote:
            self.voted = None
        elif state.voted is not None and state.version == 0:
            self.voted = (state.voted[0], NO_DIRECTORY)
        if self.log.snapshots:
            self.high_watermark = max(self.high_watermark, self.log.snapshots[-1].id[0])
        if state.epoch < self.log.last_epoch:
            self.become_unattached(self.log.last_epoch)
        elif state.leader_id == self.id and self.is_voter:
            self.enter(RESIGNED, self.random_election_timeout_us())
        elif self._voted_for_itself(state) and self.is_voter and state.leader_id < 0:
            self.granted, self.rejected = {self.key: True}, {}
            self.enter(CANDIDATE, self.random_election_timeout_us())
        elif state.leader_id >= 0 and state.leader_id != self.id:
            self.enter(FOLLOWER, self.settings.fetch_timeout_us)
        else:
            self.leader_id = -1
            self.enter(UNATTACHED, self.random_election_timeout_us())
        # What survived a crash unsynced is on the disk now, held in this epoch.
        self.witness.synced(self)
        if self.role == UNATTACHED and self.is_voter and self.voters is not None and len(self.voters) == 1:
            self.become_prospective()
        self._poll()

    def _voted_for_itself(self, state: QuorumState) -> bool:
        """A vote for its id on another disk is no vote for itself (ElectionState.isVotedCandidate)."""
        if state.voted is None or state.voted[0] != self.id:
            return False
        return state.version == 0 or state.voted[1] in (NO_DIRECTORY, self.key[1])

    def load_history(self, *, with_log: bool = True) -> None:
        """Rebuilds the voter history: the newest snapshot, then every control record of the log above it."""
        history = self.history
        history.clear()
        base = 0
        snapshot = self.log.latest_snapshot or self.disk.bootstrap
        if snapshot is not None:
            base = snapshot.id[0]
            if snapshot.kraft_version:
                history.add_version(base - 1, snapshot.kraft_version)
            if snapshot.voters is not None:
                history.add(base - 1, snapshot.voters)
        for batch in self.log.batches if with_log else ():
            if batch.is_control and batch.base_offset >= base:
                self.membership.apply(self, batch)

    def keep_reading_position(self) -> None:
        """The log is about to be cut or replaced: releases up to 4.3 go on reading voter records from its end."""
        if not self.settings.truncation_rewinds_voters:
            self.controls_read_to = max(self.controls_read_to, self.log.end_offset)

    # Transitions (QuorumState); each is persisted unless said otherwise

    def enter(self, role: int, timeout_us: int) -> None:
        """Changes the role in memory and restarts the role's timer."""
        was_leader = self.role == LEADER
        self.role = role
        self.deadline_us = min(self.world.now_us + timeout_us, NEVER)
        self.backing_off_until_us = NEVER
        self.in_flight.clear()
        self.snapshot_fetch = None
        if was_leader and role != LEADER:
            self.leader = None
            self.machine.resigned(self)
        self.witness.role_changed(self)

    def persist(self, *, voted: bool = False) -> None:
        synced = self.switches.persist_vote_before_reply or not voted
        voter_ids, applied_offset = self.membership.stored_voters(self)
        version = 1 if self.history.version or self.membership.votes_with_directory else 0
        state = QuorumState(self.epoch, self.leader_id, self.voted, version, voter_ids, applied_offset)
        self.disk.write_state(state, synced=synced)
        self.witness.persisted(self)

    def become_unattached(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.voted = None
        self.epoch = epoch
        self.leader_id = -1
        if self.switches.epoch_is_persisted:
            self.persist()
        self.enter(UNATTACHED, self._unattached_timeout_us())

    def become_follower(self, epoch: int, leader_id: int) -> None:
        if epoch > self.epoch:
            self.voted = None
        self.epoch = epoch
        self.leader_id = leader_id
        self.fetched_once = False
        self.fetch_epoch_override = -1
        if self.switches.epoch_is_persisted:
            self.persist()
        self.enter(FOLLOWER, self.settings.fetch_timeout_us)

    def become_prospective(self) -> None:
        """Memory only: a crash leaves the state before (QuorumState)."""
        voters = self.voters
        if voters is None:
            return
        if not self.settings.pre_vote or len(voters) == 1:
            self.become_candidate()
            return
        self.had_leader_id = self.leader_id if self.role == FOLLOWER else -1
        self.granted, self.rejected = {self.key: True}, {}
        self.enter(PROSPECTIVE, self.random_election_timeout_us())

    def become_candidate(self) -> None:
        """A new epoch, a vote for itself on disk; what follows is the next poll's: requests, or leadership at once."""
        if self.switches.epoch_grows_with_each_candidacy or self.epoch == 0:
            self.epoch += 1
        self.leader_id = -1
        with_directory = self.history.version or self.membership.votes_with_directory
        self.voted = self.key if with_directory else (self.id, NO_DIRECTORY)
        if self.switches.pre_votes_are_no_votes:
            self.granted = {self.key: True}
        self.rejected = {}
        self.candidacies = self.candidacies + 1 if self.role == CANDIDATE else 1
        self.persist(voted=True)
        self.enter(CANDIDATE, self.random_election_timeout_us())

    def resign(self) -> None:
        """Gives up leadership within the epoch: memory only, the disk still says leader (QuorumState)."""
        self.successors = self.leader.successors() if self.leader is not None else ()
        self.enter(RESIGNED, self.random_election_timeout_us())

    def learn(self, epoch: int, leader_id: int) -> None:
        """Takes epoch and leader from any message (KafkaRaftClient.maybeTransition)."""
        if epoch > self.epoch:
            self.witness.saw_epoch(self, epoch)
            if self.role == LEADER and not self.switches.step_down_at_higher_epoch:
                return
            if leader_id >= 0 and leader_id != self.id:
                self.become_follower(epoch, leader_id)
            else:
                self.become_unattached(epoch)
            return
        is_news = epoch == self.epoch and self.leader_id < 0
        falls = epoch < self.epoch and not self.switches.epoch_never_falls
        if (is_news or falls) and leader_id >= 0 and leader_id != self.id:
            self.become_follower(epoch, leader_id)

    # The disk

    def sync(self) -> bool:
        """Forces the log to the disk; false where the process dies instead. A slow disk keeps the node busy
        meanwhile.
        """
        disk = self.disk
        if disk.dies_before_sync or disk.read_only:
            self.addresses.died(self.slot)
            return False
        if disk.slow_us:
            self.busy_until_us = self.world.now_us + disk.slow_us
        self.log.sync()
        self.witness.synced(self)
        return True

    def adopt_voters(self, offset: int, voters: VoterSet) -> None:
        """A voter record has been appended: its set counts from now on, uncommitted."""
        self.history.add(offset, voters)
        self.witness.voters_changed(self, offset, voters)
        if self.leader is not None:
            self.leader.set_voters(voters)

    # Sending

    def request(self, slot: int, body: Any) -> None:
        """One request in flight a destination; the answer is matched by its correlation (RequestManager)."""
        self.correlation += 1
        self.in_flight[slot] = (self.correlation, self.world.now_us + self.settings.request_timeout_us)
        self.network.send(self.slot, slot, self.correlation, body)

    def ready(self, slot: int, now_us: int) -> bool:
        flight = self.in_flight.get(slot)
        return flight is None or flight[1] <= now_us

    def back_off(self, slot: int) -> None:
        self.in_flight[slot] = (-1, self.world.now_us + self.settings.retry_backoff_us)

    def reply(self, source: int, correlation: int, body: Any) -> None:
        if source < 0:
            self.addresses.client_reply(correlation, body)
        else:
            self.network.send(self.slot, source, -correlation, body)

    # Events

    def receive(self, envelope: tuple[int, int, Any]) -> None:
        """A message: a request has a positive correlation, a response the negated one of its request."""
        self._until_disk_fails(lambda: self._receive(*envelope))

    def _receive(self, source: int, correlation: int, body: Any) -> None:
        if correlation < 0:
            flight = self.in_flight.get(source)
            if flight is not None and flight[0] == -correlation:
                del self.in_flight[source]
            elif not self.switches.admit_unawaited(type(body).__name__):
                return
        handler = HANDLERS.get(type(body))
        if handler is not None:
            handler(self, source, correlation, body)
        elif not self.membership.handle(self, source, correlation, body):
            self.machine.message(self, source, body)
        self._poll()

    def poll(self) -> None:
        """Does the work that is due and schedules the next wake-up."""
        self._until_disk_fails(self._poll)

    def _poll(self) -> None:
        if not self.running:
            return
        now_us = self.world.now_us
        next_us = self.busy_until_us if now_us < self.busy_until_us else POLLS[self.role](self, now_us)
        self.wake_by(next_us)

    def wake_by(self, time_us: int) -> None:
        """Polls at `time_us` at the latest."""
        if time_us < self.wake_at_us:
            self.wake_at_us = time_us
            self.world.at(time_us, self._wake, time_us)

    def _wake(self, wake_at_us: int, _: None) -> None:
        if self.wake_at_us == wake_at_us and self.running:
            self.wake_at_us = NEVER
            self.poll()


HANDLERS: dict[type, Callable[[RaftNode, int, int, Any], None]] = {}
POLLS: list[Callable[[RaftNode, int], int]] = [lambda node, now_us: NEVER] * 6
