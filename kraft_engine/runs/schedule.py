"""Random runs of Raft: a workload, faults within the model or beyond it, voter changes, snapshots."""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.leader import append
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.protocols import Membership
from kraft_engine.consensus.raft import LEADER, RaftNode
from kraft_engine.consensus.raft_settings import CLUSTER_ID, Settings
from kraft_engine.consensus.replica_log import Snapshot
from kraft_engine.consensus.voter_sets import ReplicaKey, VoterSet
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.healing import Healing
from kraft_engine.world.faults import WITHIN_MODEL, Faults
from kraft_engine.world.processes import Cluster, Process
from kraft_engine.world.random_accidents import RandomAccidents
from kraft_engine.world.world import MS, World


class Plan:
    """What a random run is made of; every field is drawn from the seed unless it is given."""

    __slots__ = ("append_every_us", "beyond_model", "change_voters", "fault_every_us", "observers", "static", "voters")

    def __init__(self, world: World, *, beyond_model: bool = False, static: bool | None = None) -> None:
        chance = world.chance
        self.voters = chance.choose((1, 2, 3, 3, 3, 4, 5, 5, 6, 7))
        self.observers = chance.choose((0, 0, 1, 1, 2, 3, 4, 5))
        self.static = chance.happens(0.25) if static is None else static
        self.change_voters = not self.static
        self.append_every_us = chance.choose((2, 10, 40)) * MS
        self.fault_every_us = chance.choose((150, 400, 1200)) * MS
        self.beyond_model = beyond_model


class RandomRun:
    """One seed's run: build it, `run` it for a number of events; an invariant that breaks raises out of it."""

    def __init__(
        self,
        seed: int,
        *,
        switches: Switches = ALL_ON,
        rules: Membership | None = None,
        beyond_model: bool = False,
        static: bool | None = None,
        pre_vote: bool | None = None,
        voters: int | None = None,
    ) -> None:
        self.world = World(seed)
        chance = self.world.chance
        self.plan = Plan(self.world, beyond_model=beyond_model, static=static)
        if voters is not None:
            self.plan.voters = voters
        settings = Settings(CLUSTER_ID, pre_vote=chance.happens(0.8) if pre_vote is None else pre_vote)
        settings.auto_join = chance.happens(0.2)
        settings.append_linger_us = chance.choose((0, 0, 2, 25)) * MS
        self.invariants = RaftInvariants(self.world, is_static=self.plan.static)
        self.rules = rules if rules is not None else Kip853()
        limit = chance.choose((2_000, 20_000, 1 << 30))
        self.cluster = Cluster(
            self.world, settings, self.rules, self.invariants, switches=switches, segment_limit_bytes=limit
        )
        self.invariants.cluster = self.cluster
        self.faults = Faults(
            self.cluster,
            self.invariants,
            slots=lambda: range(len(self.cluster.processes)),
            restart=self.cluster.restart,
        )
        # Beyond the model two of seven seeds have accidents with sound bytes, the others disks that lie.
        self.accidents = RandomAccidents(self.faults) if beyond_model and seed % 7 in (0, 6) else None
        self._build()
        for process in self.cluster.processes:
            self.world.after(chance.below(300 * MS), self._start, process)
        self.world.after(50 * MS, self._append)
        self.world.after(1_000 * MS, self._fault)
        self.world.after(900 * MS, self._housekeeping)

    def _build(self) -> None:
        plan, cluster = self.plan, self.cluster
        ids = tuple(range(1, plan.voters + 1))
        if plan.static:
            cluster.format_static(ids)
        else:
            cluster.format_initial_controllers(ids)
            for extra in range(min(plan.observers, 2) + 1):
                cluster.add_process(plan.voters + 1 + extra)
        for observer in range(plan.observers):
            broker = cluster.add_process(101 + observer, can_become_voter=False)
            broker.static_voters = cluster.processes[0].static_voters

    def run(self, events: int) -> int:
        return self.world.run(events=events)

    def heal(self) -> bool:
        """Ends the run: see `Healing`."""
        return Healing(self.cluster, self.invariants, self.faults).run()

    # Drivers

    def _start(self, process: Process, _: Any) -> None:
        self.cluster.restart(process.slot)

    def _append(self, _: Any, __: Any) -> None:
        """The state machine of any node that considers itself the leader writes, a zombie too."""
        if self.faults.are_over:
            return
        for process in self.cluster.processes:
            node = process.node
            leader = node.leader if node is not None and not process.paused else None
            if node is not None and leader is not None and leader.writable and self.rules.data_allowed(node, leader):
                count = 1 + self.world.chance.below(3)
                append(node, tuple(("NoOpRecord", 0, {}) for _ in range(count)), is_control=False)
        self.world.after(1 + self.world.chance.below(2 * self.plan.append_every_us), self._append)

    def _housekeeping(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        node = self._some_node()
        if node is not None:
            if chance.happens(0.5):
                make_snapshot(node)
            else:
                clean(node)
        if self.accidents is not None:
            self.accidents.back_up()
            self.accidents.note_losses()
        self.world.after(chance.between(300 * MS, 1_500 * MS), self._housekeeping)

    def _some_node(self) -> RaftNode | None:
        nodes = [process.node for process in self.cluster.processes if process.node is not None and not process.paused]
        return self.world.chance.choose(nodes) if nodes else None

    def _fault(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        if self.faults.are_over:
            return
        if self.plan.change_voters and chance.happens(0.4):
            self._change_voters()
        else:
            self.faults.strike(chance.choose(WITHIN_MODEL))
        if self.plan.beyond_model and chance.happens(0.05):
            if self.accidents is not None:
                self.accidents.strike()
            else:
                self.faults.damage()
        self.world.after(chance.between(self.plan.fault_every_us // 2, 2 * self.plan.fault_every_us), self._fault)

    # Membership

    def _replace_disk(self, voters: VoterSet) -> None:
        self.faults.replace_disk(voters.keys)

    def _change_voters(self) -> None:
        chance, cluster = self.world.chance, self.cluster
        node = self._some_leader()
        voters = node.voters if node is not None else None
        if node is None or voters is None:
            return
        if chance.happens(0.15):
            self._replace_disk(voters)
            return
        outside = [
            process
            for process in cluster.processes
            if process.can_become_voter and not voters.contains((process.id, process.disk.directory))
        ]
        cluster_id = cluster.settings.cluster_id
        if outside and chance.happens(0.9 if len(voters) < 3 else 0.5):
            replaced = [process for process in outside if process.id in voters.ids]
            process = chance.choose(replaced if replaced and chance.happens(0.7) else outside)
            cluster.ask(node.slot, AddRaftVoterRequest(cluster_id, cluster.voter_of(process)))
        else:
            itself = chance.happens(0.2) and node.key in voters.keys
            self._remove_voter(node, node.key if itself else chance.choose(voters.keys))
        if chance.happens(0.5) and node.running:
            self._remove_voter(node, chance.choose(voters.keys))

    def _remove_voter(self, node: RaftNode, key: ReplicaKey) -> None:
        """Only where a majority stays: an administrator who removes a voter beside a lost disk can end the quorum."""
        if self.cluster.survives_without(key, removed=True):
            self.cluster.ask(node.slot, RemoveRaftVoterRequest(self.cluster.settings.cluster_id, key))

    def _some_leader(self) -> RaftNode | None:
        """A node that considers itself the leader and is not paused: a zombie too."""
        cluster = self.cluster
        leaders = [node for node in cluster.nodes() if node.role == LEADER and not cluster.processes[node.slot].paused]
        return self.world.chance.choose(leaders) if leaders else None


def make_snapshot(node: RaftNode) -> Snapshot | None:
    """A snapshot of what this node knows to be committed, at the end of a batch (SnapshotGenerator)."""
    log = node.log
    mark = node.high_watermark
    if not node.switches.snapshot_below_high_watermark:
        mark = log.end_offset
    batch = log.batch_at(mark - 1)
    if batch is None or batch.end_offset > mark:
        return None
    switches = node.switches
    offset = batch.end_offset if switches.snapshot_at_batch_end else batch.base_offset + 1
    epoch = batch.epoch if switches.snapshot_epoch_is_of_its_last_record else node.epoch
    latest = log.latest_snapshot
    if latest is not None and latest.id[0] >= offset:
        return None
    voters = node.history.at(offset - 1) if switches.snapshot_carries_voters else None
    image = node.machine.snapshot_image(node, offset)
    if image is None:
        return None
    snapshot = Snapshot(
        (offset, epoch), image, node.history.version_at(offset - 1), voters, batch.timestamp_ms,
        node.world.wall_ms(node.skew_ms),
    )  # fmt: skip
    if snapshot.voters is node.history.static and switches.static_snapshot_names_no_voters:
        # Nothing in the log says who votes (kraft.version 0): the configuration does.
        snapshot.voters = None
    log.snapshots.append(snapshot)
    node.witness.snapshot_made(node, snapshot.id)
    node.history.truncate_before(offset - 1)
    return snapshot


def clean(node: RaftNode) -> bool:
    """With two snapshots or more: the log starts at the next one; the newest is never deleted (KafkaRaftLog)."""
    log = node.log
    if len(log.snapshots) < 2:
        return False
    next_snapshot = log.snapshots[1]
    log.advance_start(next_snapshot.id)
    if not node.switches.cleaning_keeps_a_snapshot:
        log.snapshots.pop(0)
    node.witness.cleaned(node)
    return True
