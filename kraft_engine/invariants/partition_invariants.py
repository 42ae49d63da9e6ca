"""Invariants of partitions after every operation of the controller and every step of their replicas (KIP-966
and its TLA+ model).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft_engine.brokers.broker_messages import AlterPartitionRequest, BrokerRegistrationRequest
from kraft_engine.brokers.controller_base import ControllerBase
from kraft_engine.brokers.image import MIN_ISR, Image, ReplayError
from kraft_engine.brokers.image_records import snapshot_records
from kraft_engine.brokers.partition import NO_LEADER, Partition
from kraft_engine.brokers.replica_manager import ReplicaManager
from kraft_engine.brokers.replicas import Replica, TopicPartition
from kraft_engine.consensus.log_batches import Record
from kraft_engine.invariants.lost_records import LostRecords
from kraft_engine.invariants.operation_invariants import OperationInvariants
from kraft_engine.invariants.run_invariants import RaftInvariants


class PartitionInvariants:
    """Watches the active controller's operations, and the data that was acknowledged to producers."""

    def __init__(self, raft: RaftInvariants) -> None:
        self.raft = raft
        self.committed: dict[TopicPartition, list[int]] = {}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.newest_epochs: dict[TopicPartition, int] = {}
        self.unclean_epochs: dict[TopicPartition, int] = {}
        self.reassigned: set[bytes] = set()
        # Partitions that had min ISR members under ELR, and no unclean shutdown or change of the rules since.
        self.promised: set[TopicPartition] = set()
        self.registers_uncleanly = False
        self.stale: dict[TopicPartition, set[int]] = {}
        self.epochs: dict[TopicPartition, tuple[int, int, int]] = {}
        # The brokers of the cluster, where there are any.
        self.brokers: Mapping[int, ReplicaManager] = {}
        self.acknowledged_count = 0
        self.lost_count = 0
        self.data_beyond_model = False
        self.strict_elr = True
        self.operations = OperationInvariants(self.fail, raft)
        # Follows lost records to the disks that still hold them, in runs that are about such.
        self.losses: LostRecords | None = None

    def fail(self, name: str, detail: str) -> None:
        """Stops the run; once more power cuts came than KIP-966 allows for, what happens to data is their effect."""
        if self.data_beyond_model and name in ABOUT_DATA:
            self.raft.damage_effects.append((name, detail))
            self.raft.record("damage_effect", invariant=name, detail=detail)
        else:
            self.raft.fail(name, detail)

    def allow_data_loss(self, label: str, **fields: Any) -> None:
        """Labels, once, what goes beyond KIP-966's promise about data; Raft's own invariants stay strict."""
        if not self.data_beyond_model:
            self.data_beyond_model = True
            self.raft.record("damage", label=label, **fields)

    # The controller's operations

    def registering(self, request: BrokerRegistrationRequest, stored_epoch: int) -> None:
        self.registers_uncleanly = request.previous_broker_epoch != stored_epoch

    def operation(self, controller: ControllerBase, records: list[Record]) -> None:
        """Checks every partition that an operation touched, as it is at the operation's end."""
        self.raft.check_count += 1
        image = controller.image
        brokers_changed = min_isr_changed = False
        touched: dict[TopicPartition, bool] = {}
        for name, _, fields in records:
            if name in ("PartitionRecord", "PartitionChangeRecord"):
                key = (fields["topicId"], fields["partitionId"])
                touched[key] = touched.get(key, False) or "replicas" in fields
            elif name in ("BrokerRegistrationChangeRecord", "RegisterBrokerRecord", "FenceBrokerRecord"):
                brokers_changed = True
            elif name == "ConfigRecord":
                min_isr_changed = min_isr_changed or fields["name"] == MIN_ISR
        self.operations.check(controller, records)
        if self.losses is not None:
            self.losses.operation(image, records)
        if min_isr_changed or not image.elr_enabled:
            self.promised.clear()
        if min_isr_changed and image.elr_enabled and self.strict_elr:
            for listed in image.all_partitions():
                name = f"{image.topics[listed.topic_id]}-{listed.index}"
                self._elr(controller, listed, name, reassigned=False)
        is_registration = any(name == "RegisterBrokerRecord" for name, _, _ in records)
        for (topic_id, index), reassigned in touched.items():
            partition = image.partitions.get(topic_id, {}).get(index)
            if reassigned or (is_registration and self.registers_uncleanly):
                self.promised.discard((topic_id, index))
            if partition is not None:
                self._partition(controller, partition, reassigned=reassigned)
        if brokers_changed:
            for partition in image.all_partitions():
                self._membership(image, partition)

    def _partition(self, controller: ControllerBase, partition: Partition, *, reassigned: bool) -> None:
        image = controller.image
        name = f"{image.topics[partition.topic_id]}-{partition.index}"
        isr, elr = set(partition.isr), set(partition.elr)
        self._epochs(controller, partition)
        self._stale_members(partition, isr, elr)
        if not isr <= set(partition.replicas):
            self.fail("IsrWithinReplicas", f"{name}: ISR {partition.isr}, replicas {partition.replicas}")
        if isr & elr:
            self.fail("IsrAndElrDisjoint", f"{name}: ISR {partition.isr}, ELR {partition.elr}")
        if partition.leader != NO_LEADER and partition.leader not in isr:
            self.fail("LeaderInIsr", f"{name}: leader {partition.leader}, ISR {partition.isr}")
        if partition.leader != NO_LEADER and not image.is_online(
            partition.leader, partition.directory_of(partition.leader)
        ):
            self.fail("LeaderOnOnlineDirectory", f"{name}: leader {partition.leader}'s directory is offline")
        if partition.recovering and len(isr) > 1:
            self.fail("RecoveringAlone", f"{name}: RECOVERING with ISR {partition.isr}")
        if len(partition.directories) != len(partition.replicas):
            self.fail("DirectoryPerReplica", f"{name}: {len(partition.directories)} of {len(partition.replicas)}")
        if image.elr_enabled and self.strict_elr:
            self._elr(controller, partition, name, reassigned=reassigned)
        self._membership(image, partition)

    def _stale_members(self, partition: Partition, isr: set[int], elr: set[int]) -> None:
        """As shipped, a reassignment leaves brokers in the ELR whose replicas it removed: assigned
        again, they are eligible with an empty log, until they have caught up."""
        key = (partition.topic_id, partition.index)
        known = self.stale.get(key, set()) | (elr - set(partition.replicas))
        elected = {partition.leader} if isr == {partition.leader} else set()
        self.stale[key] = known & (elr | elected)

    def _elr(self, controller: ControllerBase, partition: Partition, name: str, *, reassigned: bool) -> None:
        min_isr = controller.min_isr(partition.topic_id)
        if reassigned:
            # Fewer replicas may mean a lower effective min ISR, under which a filled ELR is not recomputed.
            self.reassigned.add(partition.topic_id)
        if len(partition.isr) >= min_isr and partition.elr and partition.topic_id not in self.reassigned:
            self.fail("NoElrAtMinIsr", f"{name}: ISR {partition.isr}, ELR {partition.elr}, min ISR {min_isr}")
        self._promise(partition, name, min_isr)
        if partition.leader == NO_LEADER and len(partition.last_known_elr) > 1:
            self.fail("OneLastKnownLeader", f"{name}: last known {partition.last_known_elr}")
        if partition.leader != NO_LEADER and partition.last_known_elr:
            self.fail("NoLastKnownWithLeader", f"{name}: leader {partition.leader}, {partition.last_known_elr}")

    def _promise(self, partition: Partition, name: str, min_isr: int) -> None:
        """KIP-966's promise: while no broker shuts down uncleanly, ISR and ELR together hold min ISR replicas.

        It begins when the ISR itself has so many, and ends with an unclean shutdown of a member, an unclean election,
        a reassignment, or another min.insync.replicas.
        """
        key = (partition.topic_id, partition.index)
        if partition.recovering or partition.topic_id in self.reassigned:
            self.promised.discard(key)
        elif len(partition.isr) >= min_isr:
            self.promised.add(key)
        elif key in self.promised and len(partition.isr) + len(partition.elr) < min_isr:
            self.fail("IsrAndElrHoldMinIsr", f"{name}: ISR {partition.isr}, ELR {partition.elr}, min ISR {min_isr}")

    def _membership(self, image: Image, partition: Partition) -> None:
        """T: a fenced broker is not in the ISR, except a sole member without a leader while ELR is off."""
        for broker in partition.isr:
            sole = len(partition.isr) == 1 and partition.leader == NO_LEADER
            if not image.is_active(broker) and not sole:
                name = f"{image.topics[partition.topic_id]}-{partition.index}"
                self.fail("NoFencedInIsr", f"{name}: broker {broker} is not active, ISR {partition.isr}")

    def snapshot(self, image: Image, offset: int) -> None:
        """A snapshot is the replay of everything committed below its end.

        Beyond Raft's model a committed record can be lost, and what was committed first is no one log any more.
        """
        if image.before_transaction is not None:
            self.fail("SnapshotOutsideTransaction", f"a snapshot at {offset}, inside a metadata transaction")
        replayed = Image()
        for batch in self.raft.ledger.batches:
            if batch.end_offset > offset:
                break
            try:
                replayed.replay_batch(batch)
            except ReplayError:
                if self.raft.beyond_model:
                    return
                raise
        if snapshot_records(image) != snapshot_records(replayed):
            self.fail("SnapshotEqualsReplay", f"the snapshot at {offset} is not the replay of the log below it")

    def _epochs(self, controller: ControllerBase, partition: Partition) -> None:
        """Within one controller's reign a partition's epochs only grow, and each change counts."""
        key = (partition.topic_id, partition.index)
        reign, leader_epoch, partition_epoch = self.epochs.get(key, (-1, -1, -1))
        same_reign = reign == controller.node.epoch
        went_back = partition.leader_epoch < leader_epoch or partition.partition_epoch <= partition_epoch
        if same_reign and went_back:
            self.fail("PartitionEpochsGrow", f"partition {partition.index}: {partition_epoch} after itself")
        self.epochs[key] = (controller.node.epoch, partition.leader_epoch, partition.partition_epoch)

    def answered(self, end_offset: int) -> None:
        """An operation that was answered as done must be committed."""
        if end_offset > self.raft.ledger.committed_offset:
            committed = self.raft.ledger.committed_offset
            self.fail("AnsweredIsCommitted", f"answered is an operation up to {end_offset}, committed is {committed}")

    def altered(self, image: Image, partition: Partition, request: AlterPartitionRequest) -> None:
        """An accepted AlterPartition was based on the partition as it is, to the controller that accepts it."""
        name = f"partition {partition.index}"
        isr, leader = request.isr, partition.leader
        if request.broker_id != leader or leader not in isr:
            self.fail("AlterComesFromLeader", f"{name} of leader {leader}: broker {request.broker_id} makes ISR {isr}")
        if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
            self.fail("AlterNamesReplicas", f"{name} of replicas {partition.replicas}: ISR {isr}")
        if request.leader_recovery_state and (len(isr) > 1 or not partition.recovering):
            self.fail("AlterRecoversOnce", f"{name} recovering {partition.recovering}: RECOVERING with ISR {isr}")
        for broker, epoch in request.new_isr:
            registered = image.brokers[broker]["brokerEpoch"] if broker in image.brokers else -1
            if epoch >= 0 and epoch != registered:
                self.fail("AlterNamesRunningBrokers", f"{name}: broker {broker} of epoch {epoch}, now {registered}")
        committed = len(self.committed.get(request.key, ()))
        for broker in set(isr) - set(partition.isr):
            joining = self.brokers.get(broker)
            held = joining.replicas.get(request.key) if joining is not None and joining.running else None
            if held is not None and held.end_offset < committed:
                self.fail("NewcomerIsComplete", f"{name}: {broker} joins the ISR at {held.end_offset} of {committed}")
        asked = request.leader_epoch, request.partition_epoch
        known = partition.leader_epoch, partition.partition_epoch
        if asked != known:
            self.fail("AlterOnCurrentState", f"partition {partition.index}: asked at {asked}, is at {known}")

    # Data

    def counted(
        self,
        broker: ReplicaManager,
        key: TopicPartition,
        replica: Replica,
        follower: ReplicaManager | None,
        offset: int,
    ) -> None:
        """T LogMatching, by induction: what a fetch says is held below its offset is what the leader holds there."""
        held = follower.replicas.get(key) if follower is not None else None
        if self.losses is not None:
            self.losses.look_at_copies(key)
        if held is None or offset == 0 or held.end_offset < offset or held.leader_epoch != replica.leader_epoch:
            return
        if held.values[offset - 1] != replica.values[offset - 1]:
            self.fail(
                "DataLogMatching", f"leader {broker.id} of partition {key[1]} and a follower differ at {offset - 1}"
            )

    def became_leader(
        self, broker: ReplicaManager, key: TopicPartition, replica: Replica, partition: Partition
    ) -> None:
        """T LeaderCompleteness: a leader elected cleanly has everything that was committed."""
        known = self.leaders.setdefault((key, partition.leader_epoch), broker.id)
        if known != broker.id:
            self.fail("OneDataLeaderPerEpoch", f"{key[1]} epoch {partition.leader_epoch}: {known} and {broker.id}")
        newest = self.newest_epochs.get(key, -1)
        if partition.leader_epoch <= newest:
            return
        self.newest_epochs[key] = partition.leader_epoch
        if partition.recovering:
            self.unclean_epochs[key] = partition.leader_epoch
        committed = self.committed.setdefault(key, [])
        if self.losses is not None:
            self.losses.elected(broker, key, partition)
        if replica.values[: len(committed)] == committed:
            return
        common = 0
        for mine, theirs in zip(replica.values, committed, strict=False):
            if mine != theirs:
                break
            common += 1
        lost = len(committed) - common
        self.lost_count += lost
        fields: dict[str, Any] = {
            "topic_id": key[0], "partition": key[1], "from_offset": common, "to_offset": len(committed),
            "leader": broker.id, "leader_epoch": partition.leader_epoch, "unclean": bool(partition.recovering),
        }  # fmt: skip
        if self.losses is not None:
            fields |= self.losses.lost(broker, partition, common, committed, newest)
        self.raft.record("data_lost", **fields)
        is_promised = not partition.recovering and broker.id not in self.stale.get(key, ())
        if is_promised and not self.data_beyond_model:
            self.fail("AckedIsNotLost", f"leader {broker.id} of {key[1]} lacks {lost} committed records from {common}")
        del committed[common:]

    def watermark(
        self,
        broker: ReplicaManager,
        key: TopicPartition,
        replica: Replica,
        controller: ControllerBase | None,
        brokers: Mapping[int, ReplicaManager],
    ) -> None:
        """T ConsistentRead and LeaderCandidateCompleteness, at every move of a data high watermark."""
        self.raft.check_count += 1
        if self._is_replaced_uncleanly(key, replica):
            return
        mark = replica.high_watermark
        committed = self.committed.setdefault(key, [])
        shared = min(mark, len(committed))
        if replica.values[:shared] != committed[:shared]:
            self.fail("ConsistentRead", f"leader {broker.id} of partition {key[1]} contradicts what was committed")
            del committed[:]
        if mark > len(committed):
            if self.losses is not None:
                self.losses.committed(key, replica, len(committed), mark)
            committed.extend(replica.values[len(committed) : mark])
        if controller is None or self.data_beyond_model or key[0] not in controller.image.partitions:
            return
        partition = controller.image.partitions[key[0]].get(key[1])
        if partition is None or partition.recovering:
            return
        for member in {*partition.isr, *partition.elr} - self.stale.get(key, set()):
            member_broker = brokers.get(member)
            if member_broker is None or not member_broker.running or member not in partition.replicas:
                continue
            registered = controller.image.brokers.get(member)
            if registered is None or registered["incarnationId"] != member_broker.incarnation:
                continue
            held = member_broker.replicas.get(key)
            if held is not None and held.end_offset < len(committed):
                self.fail(
                    "CandidateCompleteness",
                    f"member {member} of partition {key[1]} ends at {held.end_offset}, committed is {len(committed)}",
                )

    def _is_replaced_uncleanly(self, key: TopicPartition, replica: Replica) -> bool:
        """Whether this leader has not heard of an unclean election yet: what it commits then is no promise."""
        return replica.leader_epoch < self.unclean_epochs.get(key, -1)

    def acknowledged(self, broker: ReplicaManager, key: TopicPartition, replica: Replica, ack: tuple[int, int]) -> None:
        offset, value = ack
        self.acknowledged_count += 1
        committed = self.committed.get(key, [])
        is_committed = offset < len(committed) and committed[offset] == value
        if not is_committed and not self._is_replaced_uncleanly(key, replica):
            self.fail("AckedIsCommitted", f"broker {broker.id} acknowledges {value} at {offset} of partition {key[1]}")
        if self.losses is not None and is_committed:
            self.losses.acknowledged(key, value)
        elif self.losses is not None:
            self._lost_on_arrival(key, replica, ack)
        self.raft.record(
            "acknowledged", topic_id=key[0], partition=key[1], offset=offset, value=value, leader=broker.id
        )

    def _lost_on_arrival(self, key: TopicPartition, replica: Replica, ack: tuple[int, int]) -> None:
        """A leader that was replaced uncleanly, and has not heard of it, acknowledges what its successor lacks."""
        offset, _ = ack
        if self.losses is not None and self._is_replaced_uncleanly(key, replica):
            self.lost_count += 1
            self.raft.record(
                "data_lost", topic_id=key[0], partition=key[1], from_offset=offset, to_offset=offset + 1,
                **self.losses.acknowledged_too_late(key, replica, offset), unclean=True,
            )  # fmt: skip


ABOUT_DATA = frozenset((
    "AckedIsCommitted", "AckedIsNotLost", "CandidateCompleteness", "ConsistentRead", "DataLogMatching",
    "NewcomerIsComplete",
))  # fmt: skip
