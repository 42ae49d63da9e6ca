"""Processes and their disks, formatted as `kafka-storage` would, started, crashed, paused, wiped (Formatter)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kraft_engine.brokers.image import Image
from kraft_engine.consensus import election, membership
from kraft_engine.consensus.protocols import Membership, StateMachine, Witness
from kraft_engine.consensus.raft import LEADER, RaftNode
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.consensus.replica_log import Snapshot
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.world.disks import Disk
from kraft_engine.world.network import Network
from kraft_engine.world.world import EPOCH_MS, MS, World

__all__ = ["Cluster", "IdleMachine", "Process"]

_LOADED = (election, membership)  # each enters its handlers into the tables of `raft` when it is imported
CONTROLLER_PORT = 9093
FORMAT_MS = 31


class IdleMachine:
    """A state machine that does nothing: for runs of Raft alone."""

    __slots__ = ()

    def epoch_committed(self, node: RaftNode) -> None:
        pass

    def resigned(self, node: RaftNode) -> None:
        pass

    def message(self, node: RaftNode, source: int, body: Any) -> None:
        pass

    def watermark_moved(self, node: RaftNode) -> None:
        pass

    def snapshot_image(self, node: RaftNode, offset: int) -> Image | None:
        return Image()


class Process:
    """A slot in which a node lives: its disk outlasts it."""

    __slots__ = (
        "backlog",
        "can_become_voter",
        "correlation",
        "disk",
        "endpoint",
        "id",
        "node",
        "paused",
        "skew_ms",
        "slot",
        "static_voters",
    )

    def __init__(self, slot: int, node_id: int, disk: Disk, static_voters: VoterSet | None) -> None:
        self.slot = slot
        self.id = node_id
        self.disk = disk
        self.static_voters = static_voters
        self.node: RaftNode | None = None
        self.paused = False
        self.backlog: list[tuple[int, int, Any]] = []
        self.can_become_voter = True
        # A process counts on from its predecessor: answers to that one ended with its connections.
        self.correlation = 0
        self.endpoint = (f"controller-{node_id}", CONTROLLER_PORT)
        self.skew_ms = 0


class Cluster:
    """All nodes of one cluster id, controllers first; the ids of `controller_ids` answer to bootstrap requests."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        membership_rules: Membership,
        witness: Witness,
        *,
        switches: Switches = ALL_ON,
        segment_limit_bytes: int = 1 << 30,
    ) -> None:
        self.world = world
        self.settings = settings
        self.membership = membership_rules
        self.witness = witness
        self.switches = switches
        self.segment_limit_bytes = segment_limit_bytes
        self.network = Network(world, self._deliver)
        self.processes: list[Process] = []
        self.slots_by_id: dict[int, int] = {}
        self.controller_ids: tuple[int, ...] = ()
        self.replies: dict[int, Any] = {}
        self.answers: Counter[str] = Counter()
        self._next_client_correlation = 0
        self.machine: StateMachine = IdleMachine()
        self.death_count = 0
        # Endpoints other than `controller-<id>:9093`: fill before formatting.
        self.endpoints: dict[int, tuple[str, int]] = {}
        # Listeners of controllers after the first, with their ports. `kafka-storage format` knows of none of them.
        self.further_listeners: tuple[tuple[str, int], ...] = ()
        self.old_release_ids: set[int] = set()
        # How long before the start the first node was formatted, and each a little after the one before it.
        self.formatted_before_ms = 0

    # Formatting

    def add_process(
        self, node_id: int, *, static_voters: VoterSet | None = None, can_become_voter: bool = True
    ) -> Process:
        """A formatted node that is not started: a fresh directory id, an empty log."""
        disk = Disk(self.world.chance.uuid(), segment_limit_bytes=self.segment_limit_bytes)
        process = Process(len(self.processes), node_id, disk, static_voters)
        process.can_become_voter = can_become_voter
        if can_become_voter:
            process.endpoint = self.endpoint_of(node_id)
        else:
            process.endpoint = (f"broker-{node_id}", 9092)
        if self.formatted_before_ms:
            process.disk.formatted_ms = EPOCH_MS - self.formatted_before_ms + FORMAT_MS * process.slot
        self.processes.append(process)
        self.slots_by_id[node_id] = process.slot
        if can_become_voter:
            self.controller_ids = (*self.controller_ids, node_id)
        return process

    def format_static(self, ids: tuple[int, ...]) -> list[Process]:
        """controller.quorum.voters: kraft.version 0, no directory ids, no bootstrap snapshot."""
        voters = VoterSet(Voter(id, NO_DIRECTORY, *self.endpoint_of(id)) for id in ids)  # noqa: A001
        return [self.add_process(id, static_voters=voters) for id in ids]  # noqa: A001

    def format_initial_controllers(self, ids: tuple[int, ...]) -> list[Process]:
        """--initial-controllers (one id: --standalone): kraft.version 1 and the same 0-0 snapshot on each."""
        processes = [self.add_process(id) for id in ids]  # noqa: A001
        listeners, self.further_listeners = self.further_listeners, ()  # formatting knows of one endpoint a voter
        voters = VoterSet(self.voter_of(process) for process in processes)
        self.further_listeners = listeners
        for process in processes:
            self.write_bootstrap(process, voters)
        return processes

    def format_standalone(self, process: Process) -> None:
        """--standalone: the node's 0-0 snapshot names it as the only voter."""
        self.write_bootstrap(process, VoterSet([self.voter_of(process)]))

    def write_bootstrap(self, process: Process, voters: VoterSet) -> None:
        now_ms = process.disk.formatted_ms if self.formatted_before_ms else self.world.wall_ms()
        process.disk.bootstrap = Snapshot((0, 0), None, 1, voters, now_ms, now_ms)

    def voter_of(self, process: Process) -> Voter:
        newest = self.max_kraft_version(process.id)
        further = self.further_endpoints_of(process.id)
        return Voter(process.id, process.disk.directory, *process.endpoint, max_version=newest, further=further)

    # Processes

    def start(self, process: Process) -> RaftNode:
        node = RaftNode(
            world=self.world,
            network=self.network,
            addresses=self,
            witness=self.witness,
            membership=self.membership,
            machine=self.machine,
            settings=self.settings,
            switches=self.switches,
            slot=process.slot,
            node_id=process.id,
            disk=process.disk,
            static_voters=process.static_voters,
            can_become_voter=process.can_become_voter,
            endpoint=process.endpoint,
            skew_ms=process.skew_ms,
        )
        node.correlation = process.correlation
        process.node = node
        process.paused = False
        process.backlog.clear()
        node.start()
        return node

    def start_all(self) -> None:
        for process in self.processes:
            if process.node is None:
                self.start(process)

    def crash(self, slot: int, *, power_cut: bool = True) -> None:
        """kill -9. Only a power cut takes (a random part of) what was written and not synced: the page cache outlives
        a process.
        """
        process = self.processes[slot]
        node = process.node
        if node is None:
            return
        before = node.log.end_offset
        self._stop(process, node)
        end = before
        if power_cut:
            end = process.disk.lose_power(self.world.chance, cut_torn_tail=self.switches.recovery_cuts_torn_tail)
        self.witness.crashed(node)
        self.witness.note(node, f"crashes, log end {before} -> {end}")

    def stop(self, slot: int) -> None:
        """A clean stop: everything is synced, a leader resigns first."""
        process = self.processes[slot]
        node = process.node
        if node is None:
            return
        if node.role == LEADER:
            node.resign()
            node.poll()
        self._stop(process, node)
        process.disk.log.sync()
        self.witness.note(node, "stops cleanly")

    def _stop(self, process: Process, node: RaftNode) -> None:
        node.running = False
        if node.leader is not None:
            node.leader = None
            node.machine.resigned(node)
        process.correlation = node.correlation
        process.node = None
        process.paused = False
        process.backlog.clear()

    def died(self, slot: int) -> None:
        """The process and its machine end inside a write: chance decides how much of it reached the disk."""
        process = self.processes[slot]
        process.disk.dies_before_sync = False
        self.death_count += 1
        self.crash(slot)

    def refused(self, slot: int) -> None:
        """The process has read its log, fails to start and shuts down."""
        process = self.processes[slot]
        if process.node is not None:
            self._stop(process, process.node)

    def restart(self, slot: int) -> None:
        process = self.processes[slot]
        if process.node is None and not process.disk.read_only:
            self.start(process)

    def pause(self, slot: int) -> None:
        """Stop-the-world: nothing is handled, time goes on."""
        process = self.processes[slot]
        if process.node is not None:
            process.paused = True
            process.node.busy_until_us = 1 << 61

    def resume(self, slot: int) -> None:
        process = self.processes[slot]
        node = process.node
        if node is None or not process.paused:
            return
        process.paused = False
        node.busy_until_us = 0
        backlog, process.backlog = process.backlog, []
        for envelope in backlog:
            if node.running:
                node.receive(envelope)
        node.poll()

    def replace_disk(self, slot: int) -> None:
        """A new disk, formatted --no-initial-controllers: empty, under a new directory id."""
        process = self.processes[slot]
        if process.node is not None:
            self.crash(slot)
        process.disk.wipe(self.world.chance.uuid(), self.world.wall_ms())

    def _deliver(self, slot: int, envelope: tuple[int, int, Any]) -> None:
        process = self.processes[slot]
        node = process.node
        if node is None:
            return
        if process.paused:
            process.backlog.append(envelope)
        elif self.world.now_us < node.busy_until_us:
            self.world.at(node.busy_until_us, self._deliver, slot, envelope)
        else:
            self.network.delivered_count += 1
            node.receive(envelope)

    # Addresses

    def slot_of(self, node_id: int) -> int:
        return self.slots_by_id.get(node_id, -1)

    def endpoint_of(self, node_id: int) -> tuple[str, int]:
        return self.endpoints.get(node_id, (f"controller-{node_id}", CONTROLLER_PORT))

    def further_endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        host, _ = self.endpoint_of(node_id)
        return tuple((name, host, port) for name, port in self.further_listeners)

    def bootstrap_ids(self) -> tuple[int, ...]:
        return self.controller_ids

    def max_kraft_version(self, node_id: int) -> int:
        """0 for a node of a release before dynamic quorums."""
        return 0 if node_id in self.old_release_ids else 1

    def survives_without(self, lost: ReplicaKey, *, removed: bool) -> bool:
        """Whether every voter set that a running node has keeps a majority of disks that are still there.

        A change may be under way, so that nodes differ in their sets. `lost` is removed from each, or dead in it.
        """
        held = {(process.id, process.disk.directory) for process in self.processes}
        ids = {process.id for process in self.processes}
        for node in self.nodes():
            keys = node.voters.keys if node.voters is not None else ()
            there = sum(
                1 for key in keys if key != lost and (key in held or (key[1] == NO_DIRECTORY and key[0] in ids))
            )
            rest = len(keys) - (removed and lost in keys)
            if rest and there < rest // 2 + 1:
                return False
        return True

    # Clients

    def ask(self, slot: int, body: Any) -> int:
        """An admin client's request to a node, at once; returns the correlation under which the reply will be found."""
        self._next_client_correlation += 1
        correlation = self._next_client_correlation
        node = self.processes[slot].node
        if node is not None and not self.processes[slot].paused:
            node.receive((-1, correlation, body))
        return correlation

    def client_reply(self, correlation: int, body: Any) -> None:
        error = getattr(body, "error", None)
        if error is not None:
            self.answers[f"{type(body).__name__}: {error or 'done'}"] += 1
        self.replies[correlation] = body

    def nodes(self) -> list[RaftNode]:
        return [process.node for process in self.processes if process.node is not None]

    def leader(self) -> RaftNode | None:
        """The running leader of the highest epoch."""
        best: RaftNode | None = None
        for process in self.processes:
            node = process.node
            if node is not None and node.role == LEADER and (best is None or node.epoch > best.epoch):
                best = node
        return best

    def ready_leader(self) -> RaftNode | None:
        node = self.leader()
        return node if node is not None and node.leader is not None and node.leader.writable else None

    def run_until_leader(self) -> RaftNode:
        """Runs until a leader has committed its epoch's first batch."""
        if not self.world.run_until(lambda: self.ready_leader() is not None, limit_us=60_000 * MS):
            raise TimeoutError(f"no leader within 60000 ms (seed {self.world.seed})")
        leader = self.ready_leader()
        if leader is None:
            raise TimeoutError("the leader went as it came")
        return leader
