"""The end of every random run: faults stop, every node runs, and what KRaft promises must then come about.

Safety alone would let a cluster stand still for ever. These are the liveness properties of the TLA+ models (facts 8.2)
in bounded form: each has a name that a violation carries, and a number of election timeouts that it may take.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft_engine.brokers.image import Image
from kraft_engine.brokers.machine import KafkaMachine
from kraft_engine.brokers.partition import NO_LEADER, Partition
from kraft_engine.consensus.epoch_messages import outsider_error
from kraft_engine.consensus.leader import append
from kraft_engine.consensus.raft import ROLE_NAMES, RaftNode
from kraft_engine.consensus.voter_sets import NO_DIRECTORY
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.world.faults import Faults
from kraft_engine.world.processes import Cluster

ELECTION_TIMEOUTS = 20
UNSHELTERED_TIMEOUTS = 400
"""Without pre-vote a node that lacks the newest voters deposes each leader, until one is elected that it follows."""
ADVANCE_TIMEOUTS = 40


class Healing:
    """Heals one run and demands progress. `machine` is the run's, where it has brokers."""

    def __init__(
        self, cluster: Cluster, invariants: RaftInvariants, faults: Faults, machine: KafkaMachine | None = None
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.invariants = invariants
        self.faults = faults
        self.machine = machine
        self.written_epoch = self.written_end = -1
        self.timeout_us = cluster.settings.election_timeout_us

    def run(self) -> bool:
        """Ends with a violation where progress is missing; false where no rule could elect a leader any more."""
        self.end_faults()
        # A leader that was removed leads on until the others have its removal: one of them can be elected then.
        timeouts = ELECTION_TIMEOUTS if self.cluster.settings.pre_vote else UNSHELTERED_TIMEOUTS
        self._demand("LeaderIsElected", timeouts, self._can_elect_or_has_no_leader, self._roles)
        if not could_elect(self.cluster):
            self.invariants.seen["healing: no node can be elected"] += 1
            return False
        self._demand("LeaderIsElected", timeouts, self._has_leader, self._roles)
        self._demand("ReplicasCatchUp", ADVANCE_TIMEOUTS, self._are_level, self._late)
        self._demand("ChangesAreAnswered", ADVANCE_TIMEOUTS, self._changes_are_answered, self._roles)
        if self.machine is not None and self.machine.active_controller() is not None:
            self._demand_of_brokers(self.machine)
        self.invariants.seen["healed"] += 1
        return True

    def end_faults(self) -> None:
        """No fault from here on, and every process runs that its disk lets start."""
        self.faults.stop_all()
        brokers = self.machine.brokers if self.machine is not None else {}
        for process in self.cluster.processes:
            self.cluster.resume(process.slot)
            if process.slot not in brokers:
                self.cluster.restart(process.slot)
        if self.machine is not None:
            for broker in brokers.values():
                self.machine.start_broker(broker)

    def _demand(self, name: str, timeouts: int, holds: Callable[[], bool], detail: Callable[[], str]) -> None:
        self.invariants.check_count += 1
        if not self.world.run_until(holds, limit_us=timeouts * self.timeout_us):
            self.invariants.fail(name, f"not within {timeouts} election timeouts without faults: {detail()}")

    # The quorum

    def _can_elect_or_has_no_leader(self) -> bool:
        return could_elect(self.cluster) or self.cluster.leader() is None

    def _has_leader(self) -> bool:
        return self.cluster.ready_leader() is not None

    def _are_level(self) -> bool:
        """Whether every replica knows that a record is committed which the leader has written since the faults ended.

        A leader that had not heard of its successor is replaced meanwhile; the successor then writes another.
        """
        leader = self.cluster.ready_leader()
        if leader is None:
            return False
        if leader.epoch != self.written_epoch:
            self.written_epoch = leader.epoch
            append(leader, (("NoOpRecord", 0, {}),), is_control=False)
            self.written_end = leader.leader.next_offset if leader.leader is not None else -1
        return not self._late_nodes(leader)

    def _late_nodes(self, leader: RaftNode) -> list[RaftNode]:
        late = [node for node in self.cluster.nodes() if node.high_watermark < self.written_end]
        voters = leader.voters
        if self.cluster.settings.pre_vote or voters is None:
            return late
        # Without pre-vote a removed voter that has not read of its removal stands in later and later epochs. Those
        # whom it asks for votes follow it there, and cannot follow a leader that it does not ask.
        return [node for node in late if voters.contains(node.key) or node.epoch <= leader.epoch]

    def _late(self) -> str:
        late = ", ".join(f"{node.id} at {node.high_watermark}" for node in self.cluster.nodes())
        return f"{late} of {self.written_end}; {self._roles()}"

    def _changes_are_answered(self) -> bool:
        leader = self.cluster.ready_leader()
        state = leader.leader if leader is not None else None
        return state is not None and state.pending is None and not state.queued and not state.unanswered

    def _roles(self) -> str:
        return "; ".join(
            f"{node.id} {ROLE_NAMES[node.role]} epoch {node.epoch} end {node.log.last_epoch}/{node.log.end_offset}"
            f" {node.voters!r}"
            for node in self.cluster.nodes()
        )

    # Brokers and partitions

    def _demand_of_brokers(self, machine: KafkaMachine) -> None:
        def image() -> Image:
            controller = machine.active_controller()
            return controller.image if controller is not None else Image()

        def fenced() -> list[int]:
            # A controlled shutdown that was under way ends first.
            for broker in machine.brokers.values():
                machine.start_broker(broker)
            return [broker.id for broker in machine.brokers.values() if not image().is_active(broker.id)]

        def leaderless() -> list[Partition]:
            return [partition for partition in image().all_partitions() if _could_be_led(image(), partition)]

        self._demand(
            "BrokersAreUnfenced", ADVANCE_TIMEOUTS, lambda: bool(image().brokers) and not fenced(),
            lambda: f"brokers {fenced()}",
        )  # fmt: skip
        self._demand(
            "PartitionsAreLed", ADVANCE_TIMEOUTS, lambda: not leaderless(),
            lambda: "; ".join(f"{image().topics[part.topic_id]}-{part.index}: ISR {part.isr}, ELR {part.elr}"
                              for part in leaderless()),
        )  # fmt: skip
        self._demand(
            "IsrIsWhole", ADVANCE_TIMEOUTS, lambda: not _outside(machine, image()),
            lambda: "; ".join(_outside(machine, image())),
        )  # fmt: skip


def _could_be_led(image: Image, partition: Partition) -> bool:
    """Whether a partition has no leader although a live member of its ISR or ELR could lead it."""
    members = [broker for broker in (*partition.isr, *partition.elr) if broker in partition.replicas]
    return partition.leader == NO_LEADER and any(_is_usable(image, partition, broker) for broker in members)


def _is_usable(image: Image, partition: Partition, broker: int) -> bool:
    return image.is_active(broker) and image.is_online(broker, partition.directory_of(broker))


def _outside(machine: KafkaMachine, image: Image) -> list[str]:
    """The live replicas of led partitions that are not in the ISR."""
    lines = []
    for partition in image.all_partitions():
        if partition.leader == NO_LEADER:
            continue
        key = (partition.topic_id, partition.index)
        outside = [
            broker
            for broker in partition.replicas
            if broker not in partition.isr
            and _is_usable(image, partition, broker)
            and not machine.broker_by_id[broker].is_offline(key)
        ]
        if outside and not machine.broker_by_id[partition.leader].is_offline(key):
            lines.append(f"{image.topics[key[0]]}-{key[1]}: {outside} outside ISR {partition.isr}")
    return lines


def could_elect(cluster: Cluster) -> bool:
    """Whether some running node counts votes over a set whose running majority may grant it theirs.

    As shipped, a removal can leave none, with every disk intact: of two voters the leader removes itself and stops
    before the other has the record. It is an observer by its own log and never stands; the other has the shorter log
    and never gets its vote. Kafka's own classes, 4.3.1, end the same way (SimulateRaft.playRemoved). By KIP-642 a
    voter that has not read of the candidate's addition refuses it, too: an old voter with the shorter log, and a new
    one that the old does not know, stand against each other for ever.
    """
    return any(_could_win(cluster, node) for node in cluster.nodes())


def _could_win(cluster: Cluster, node: RaftNode) -> bool:
    voters = node.voters
    if voters is None or not node.is_voter:
        return False
    granting = 0
    for key in voters.keys:
        process = cluster.processes[cluster.slot_of(key[0])]
        voter = process.node
        if voter is None or key[1] not in (NO_DIRECTORY, process.disk.directory):
            continue
        log = process.disk.log
        is_not_ahead = (log.last_epoch, log.end_offset) <= (node.log.last_epoch, node.log.end_offset)
        may_vote = voter.membership.may_vote_for(voter, node.key) and not outsider_error(voter, node.id)
        granting += is_not_ahead and may_vote
    return granting >= voters.majority
