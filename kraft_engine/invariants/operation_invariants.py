"""Invariants between the state before an operation of the controller and the state after it (KIP-966 as shipped)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraft_engine.brokers.controller_base import ControllerBase
from kraft_engine.brokers.image import BROKER, METADATA_VERSION, MIN_ISR, Image
from kraft_engine.brokers.partition import NO_LEADER, Partition
from kraft_engine.brokers.replicas import TopicPartition
from kraft_engine.consensus.log_batches import Record
from kraft_engine.invariants.run_invariants import RaftInvariants


class Before(NamedTuple):
    """A partition as the last operation left it."""

    replicas: frozenset[int]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding: frozenset[int]
    leader: int
    leader_epoch: int
    recovering: int


class OperationInvariants:
    """Compares each operation with what was before, within one controller's reign."""

    def __init__(self, fail: Callable[[str, str], None], raft: RaftInvariants) -> None:
        self._fail = fail
        self._raft = raft
        self._reign = -1
        self._known: dict[TopicPartition, Before] = {}
        self._level = 0
        self._transaction_reign = -1
        # Partitions for which an administrator has asked for an unclean election, or the dialect recovers.
        self.unclean_is_asked = False

    def check(self, controller: ControllerBase, records: list[Record]) -> None:
        image = controller.image
        if controller.node.epoch != self._reign:
            self._reign, self._known, self._level = controller.node.epoch, {}, 0
        changed: list[TopicPartition] = []
        gone: set[int] = set()
        settings = False
        for name, _, fields in records:
            if name in ("PartitionRecord", "PartitionChangeRecord"):
                changed.append((fields["topicId"], fields["partitionId"]))
            elif name in ("ConfigRecord", "FeatureLevelRecord"):
                settings = True
            elif name == "BeginTransactionRecord":
                self._transaction_reign = self._reign
            elif name in ("RegisterBrokerRecord", "UnregisterBrokerRecord"):
                gone.add(fields["brokerId"])
                self._check_unfenced(image, fields["brokerId"])
            elif name == "BrokerRegistrationChangeRecord":
                self._check_unfenced(image, fields["brokerId"])
                if fields.get("logDirs"):
                    self._check_directories(image, fields["brokerId"])
        for key in changed:
            partition = image.partitions.get(key[0], {}).get(key[1])
            if partition is not None:
                self._check_partition(controller, key, partition, gone)
        if settings:
            self._check_settings(controller)
        if image.before_transaction is not None and self._transaction_reign != self._reign:
            self._fail(
                "TransactionEndsWithItsController", f"epoch {self._reign} writes into one of an earlier controller"
            )

    # Partitions

    def _check_partition(
        self, controller: ControllerBase, key: TopicPartition, partition: Partition, gone: set[int]
    ) -> None:
        before = self._known.get(key)
        self._known[key] = Before(
            frozenset(partition.replicas),
            tuple(partition.isr),
            tuple(partition.elr),
            tuple(partition.last_known_elr),
            frozenset(partition.adding),
            partition.leader,
            partition.leader_epoch,
            partition.recovering,
        )
        if before is None:
            return
        self._count_steps(before, partition)
        name = f"{controller.image.topics[key[0]]}-{key[1]}"
        removed = before.replicas - set(partition.replicas)
        bumped = partition.leader_epoch > before.leader_epoch
        if removed and not bumped:
            self._fail("RemovalBumpsLeaderEpoch", f"{name} loses {sorted(removed)} within one leader epoch")
        shrunk = set(before.isr) - set(partition.isr)
        if shrunk and not bumped and controller.image.metadata_version < 12:
            self._fail("ShrinkBumpsLeaderEpoch", f"{name}: ISR loses {sorted(shrunk)} within one leader epoch")
        self._check_reassignment(name, before, partition)
        if partition.leader == NO_LEADER:
            self._check_last_known(controller, name, before, partition)
        if partition.recovering and not before.recovering:
            self._check_unclean(controller, name, before, partition, gone)

    def _count_steps(self, before: Before, partition: Partition) -> None:
        """Counts the kind of election and of reassignment step."""
        seen = self._raft.seen
        leader = partition.leader
        if leader != before.leader and leader == NO_LEADER:
            seen["election: no replica is left"] += 1
        elif partition.recovering and not before.recovering:
            seen[f"election: {'last known leader' if before.last_known_elr == (leader,) else 'unclean'}"] += 1
        elif leader != before.leader and leader in before.elr:
            seen["election: from the ELR"] += 1
        elif leader != before.leader and before.leader in partition.isr and leader == partition.replicas[0]:
            seen["election: preferred"] += 1
        elif leader != before.leader:
            seen["election: from the ISR"] += 1
        if before.recovering and not partition.recovering:
            seen["recovered"] += 1
        if before.adding and not partition.adding:
            removed = before.replicas - set(partition.replicas)
            seen["reassignment: cancelled" if removed and removed <= before.adding else "reassignment: completed"] += 1

    def _check_reassignment(self, name: str, before: Before, partition: Partition) -> None:
        """A replica may leave for good only where the remaining members have everything."""
        removed = before.replicas - set(partition.replicas)
        if not removed or partition.adding or partition.removing:
            return
        added = before.adding & set(partition.replicas)
        is_cancelled = removed <= before.adding
        isr = set(partition.isr)
        if before.isr and not isr & set(partition.replicas):
            self._fail("ReassignmentKeepsIsr", f"{name}: no member of ISR {before.isr} is left in {partition.replicas}")
        if not is_cancelled and not added <= isr:
            self._fail("ReassignmentWaits", f"{name} is reassigned to {sorted(added)}, ISR {partition.isr}")
        if not is_cancelled and len(before.adding) < len(removed) and not set(partition.replicas) <= isr:
            self._fail("ReassignmentWaits", f"{name} has {partition.replicas} left, ISR {partition.isr}")

    def _check_last_known(self, controller: ControllerBase, name: str, before: Before, partition: Partition) -> None:
        """LastKnownElr of a partition that loses its leader is that leader (since 4.1.1)."""
        image, bootstrap = controller.image, controller.bootstrap
        if not image.elr_enabled or bootstrap.unclean_recovery or bootstrap.release.old_last_known_elr:
            return
        loses = before.leader != NO_LEADER and not before.last_known_elr
        if loses and partition.last_known_elr != [before.leader]:
            self._fail("LastKnownIsLastLeader", f"{name}: {partition.last_known_elr} after leader {before.leader}")

    def _check_unclean(
        self, controller: ControllerBase, name: str, before: Before, partition: Partition, gone: set[int]
    ) -> None:
        """Without permission only the last known leader is elected uncleanly, and only when ISR and ELR are used up.

        An ISR of a broker without a leader is so too, where that broker comes back uncleanly (PartitionChangeBuilder).
        """
        if partition.elr and not controller.bootstrap.unclean_recovery:
            self._fail("UncleanEmptiesElr", f"{name}: unclean leader {partition.leader}, ELR {partition.elr}")
        if self.unclean_is_asked or controller.image.unclean_allowed(partition.topic_id):
            return
        used_up = {*before.isr, *before.elr} <= gone
        if not used_up or before.last_known_elr != (partition.leader,):
            self._fail("UncleanIsAllowed", f"{name}: leader {partition.leader} is elected uncleanly, before: {before}")

    # Brokers

    def _check_unfenced(self, image: Image, broker_id: int) -> None:
        """An unfenced broker has read the metadata up to its own registration."""
        registered = image.brokers.get(broker_id)
        cluster = self._raft.cluster
        if registered is None or registered["fenced"] or cluster is None:
            return
        node = cluster.processes[cluster.slot_of(broker_id)].node
        if node is not None and node.high_watermark <= registered["brokerEpoch"]:
            epoch, mark = registered["brokerEpoch"], node.high_watermark
            self._fail("UnfencedHasCaughtUp", f"broker {broker_id} of epoch {epoch} is unfenced at {mark}")

    def _check_directories(self, image: Image, broker_id: int) -> None:
        for partition in image.all_partitions():
            sole = len(partition.isr) == 1 and partition.leader == NO_LEADER
            if broker_id in partition.isr and not sole and not image.is_online(
                broker_id, partition.directory_of(broker_id)
            ):  # fmt: skip
                self._fail("OfflineDirectoryLeavesIsr", f"partition {partition.index}: broker {broker_id} stays in ISR")

    # Configs and features

    def _check_settings(self, controller: ControllerBase) -> None:
        """With ELR on there is one min.insync.replicas a topic, the same for brokers and controllers (KAFKA-16540)."""
        image = controller.image
        if image.metadata_version < self._level:
            self._fail("MetadataVersionGrows", f"{METADATA_VERSION} {image.metadata_version} after {self._level}")
        self._level = image.metadata_version
        if not image.elr_enabled or image.before_transaction is not None:
            return
        of_brokers = [resource for kind, resource, name in image.configs if kind == BROKER and name == MIN_ISR]
        if "" not in of_brokers:
            self._fail("ElrHasClusterMinIsr", "ELR is on, and the cluster has no min.insync.replicas of its own")
        if any(of_brokers):
            self._fail("ElrHasNoNodeMinIsr", f"ELR is on, and nodes {of_brokers} have a min.insync.replicas")
