"""Kafka on top of Raft: the metadata image of every node, the active controller, the brokers."""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.broker_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    BrokerRequest,
    BrokerResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    DataFetchRequest,
    DataFetchResponse,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    refused,
)
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.controller_admin import assign_directories
from kraft_engine.brokers.image import Image, ReplayError
from kraft_engine.brokers.partition import Partition
from kraft_engine.brokers.replica_manager import ReplicaManager
from kraft_engine.brokers.replicas import Replica, TopicPartition
from kraft_engine.brokers.unclean_recovery import RecoveryManager, Strategy
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.invariants.lost_records import LostRecords
from kraft_engine.invariants.partition_invariants import PartitionInvariants
from kraft_engine.world.bootstrap import Bootstrap
from kraft_engine.world.processes import Cluster

SESSION_CHECK_US = 250_000
RESTART_AFTER_FAULT_US = 5_000_000
BROKER_REQUESTS = (BrokerRegistrationRequest, BrokerHeartbeatRequest, AlterPartitionRequest)
BROKER_RESPONSES = (BrokerRegistrationResponse, BrokerHeartbeatResponse, AlterPartitionResponse)


class NodeImage:
    """A node's image and the offset up to which it has been replayed; `is_whole`: no record was passed over."""

    __slots__ = ("image", "is_whole", "node", "offset")

    def __init__(self, node: RaftNode) -> None:
        self.node = node
        self.image = Image()
        self.offset = 0
        self.is_whole = True


class KafkaMachine:
    """The state machine of every node of a cluster: controllers and brokers alike."""

    def __init__(self, cluster: Cluster, bootstrap: Bootstrap, invariants: PartitionInvariants) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.switches = cluster.switches
        self.bootstrap = bootstrap
        self.invariants = invariants
        self.images: dict[int, NodeImage] = {}
        self.controllers: dict[int, Controller] = {}
        self.brokers: dict[int, Broker] = {}
        self.broker_by_id: dict[int, Broker] = {}
        self.recovery: RecoveryManager | None = None
        self.brokers_report_directories = False
        # Incarnations of controllers whose registration is committed, as they have been answered.
        self.registered_controllers: set[bytes] = set()
        cluster.machine = self
        invariants.brokers = self.broker_by_id
        self.world.after(SESSION_CHECK_US, self._check_sessions)

    def add_broker(self, broker_id: int, *, log_dir_count: int = 1, rack: str | None = None) -> Broker:
        """A broker on a node of its own, or in the process of the controller with its id."""
        if broker_id in self.cluster.slots_by_id:
            process = self.cluster.processes[self.cluster.slot_of(broker_id)]
        else:
            process = self.cluster.add_process(broker_id, can_become_voter=False)
            controllers = [peer for peer in self.cluster.processes if peer.can_become_voter]
            process.static_voters = controllers[0].static_voters
        extra = [self.world.chance.uuid() for _ in range(log_dir_count - 1)]
        broker = Broker(self, process.slot, broker_id, [process.disk.directory, *extra])
        broker.rack = rack
        self.brokers[process.slot] = broker
        self.broker_by_id[broker_id] = broker
        return broker

    def recover_uncleanly(self, strategy: Strategy) -> None:
        """Turns KIP-966's unclean recovery on, in place of the elections that ship."""
        self.recovery = RecoveryManager(strategy)
        self.bootstrap.unclean_recovery = True
        self.invariants.strict_elr = False

    def follow_losses(self) -> None:
        """For runs that are about lost records: the truth says of each loss who still holds what, brokers report their
        dirs, and leader-epoch-checkpoints name an epoch from its election on.

        Runs that were pinned before there was this stay as they are.
        """
        self.brokers_report_directories = True
        self.invariants.losses = LostRecords(self.invariants.raft, self.broker_by_id)

    # Raft's state machine

    def epoch_committed(self, node: RaftNode) -> None:
        try:
            image = self.image_at(node, node.log.end_offset).copy()
        except ReplayError as error:
            self._halt(node, error)
            return
        controller = Controller(node, image, self.bootstrap, self.invariants)
        self.controllers[node.slot] = controller
        controller.activate()

    def resigned(self, node: RaftNode) -> None:
        """Drops what was prepared and not committed; its clients get no answer."""
        self.controllers.pop(node.slot, None)
        entry = self.images.get(node.slot)
        if entry is not None and entry.offset > max(node.high_watermark, 0):
            del self.images[node.slot]

    def watermark_moved(self, node: RaftNode) -> None:
        controller = self.controllers.get(node.slot)
        if controller is not None:
            controller.committed()
        broker = self.brokers.get(node.slot)
        if broker is not None:
            self._follow(node, broker)

    def image_at(self, node: RaftNode, offset: int) -> Image:
        """The node's image as after the record before `offset`: replayed from where it stands, or from the start."""
        entry = self._entry(node, offset)
        self._replay(entry, offset, None)
        return entry.image

    def snapshot_image(self, node: RaftNode, offset: int) -> Image | None:
        """None inside a metadata transaction: no snapshot is emitted there (MetadataBatchLoader)."""
        try:
            image = self.image_at(node, offset)
        except ReplayError as error:
            self._halt(node, error)
            return None
        if image.before_transaction is not None and self.switches.snapshot_outside_transaction:
            return None
        if not self.images[node.slot].is_whole:
            return None  # "snapshots disabled: metadata loading fault" (SharedServer)
        self.invariants.snapshot(image, offset)
        return image.copy()

    def _halt(self, node: RaftNode, error: ReplayError) -> None:
        """A controller that cannot apply a committed record ends its process, and is started again after a while.

        (QuorumController.handleCommit, fatalFaultHandler.) As shipped a standby does so as soon as it reads the record,
        here once it is the leader or makes a snapshot. Within Raft's model no log has such a record: raises `error`.
        """
        raft = self.invariants.raft
        if not raft.beyond_model:
            raise error
        raft.seen["controller: halted by a record"] += 1
        raft.note(node, f"halts: {error}")
        self.world.after(0, self._end_process, node)

    def _end_process(self, node: RaftNode, _: Any) -> None:
        if node.running:
            self.cluster.crash(node.slot, power_cut=False)
            self.world.after(RESTART_AFTER_FAULT_US, self._start_again, node.slot)

    def _start_again(self, slot: int, _: Any) -> None:
        self.cluster.restart(slot)

    def _entry(self, node: RaftNode, offset: int) -> NodeImage:
        entry = self.images.get(node.slot)
        log = node.log
        if entry is None or entry.node is not node or entry.offset > offset or entry.offset < log.start_offset:
            entry = self.images[node.slot] = NodeImage(node)
            usable = [snapshot for snapshot in log.snapshots if snapshot.id[0] <= offset]
            if usable and isinstance(usable[-1].image, Image):
                entry.image = usable[-1].image.copy()
                entry.offset = usable[-1].id[0]
        return entry

    def _replay(self, entry: NodeImage, offset: int, broker: Broker | None) -> None:
        for batch in entry.node.log.read_from(entry.offset, 1 << 30):
            if batch.end_offset > offset:
                break
            if batch.base_offset >= entry.offset:
                self._apply(entry, batch)
                entry.offset = batch.end_offset
                if broker is not None and not batch.is_control:
                    self._notify_broker(broker, entry.image, batch.records)

    def _apply(self, entry: NodeImage, batch: Batch) -> None:
        """A broker logs what it cannot apply and goes on; where a controller runs it is fatal (SharedServer)."""
        if self.invariants.raft.beyond_model and entry.node.slot in self.brokers:
            entry.is_whole &= entry.image.replay_what_fits(batch)
        else:
            entry.image.replay_batch(batch)

    def _follow(self, node: RaftNode, broker: Broker) -> None:
        known = self.images.get(node.slot)
        entry = self._entry(node, node.high_watermark)
        if entry is not known:
            broker.published = False
        self._replay(entry, node.high_watermark, broker if broker.published else None)
        registered = entry.image.brokers.get(broker.id)
        if broker.published:
            return
        is_known = registered is not None and registered["incarnationId"] == broker.incarnation
        if not is_known and self.switches.broker_waits_for_its_registration:
            return
        # A broker first acts on metadata that holds its own registration: not on history, nor on what it led before
        # its restart (BrokerLifecycleManager, MetadataLoader).
        broker.published = True
        for partition in entry.image.all_partitions():
            broker.metadata_changed(entry.image, partition)

    def _notify_broker(self, broker: Broker, image: Image, records: tuple[Record, ...]) -> None:
        for name, _, fields in records:
            if name in ("PartitionRecord", "PartitionChangeRecord"):
                partition = image.partitions.get(fields["topicId"], {}).get(fields["partitionId"])
                if partition is not None:
                    broker.metadata_changed(image, partition)
            elif name == "ClearElrRecord":
                for partition in image.all_partitions():
                    broker.metadata_changed(image, partition)
            elif name == "RemoveTopicRecord":
                for key in [key for key in broker.replicas if key[0] == fields["topicId"]]:
                    del broker.replicas[key]

    def image_of(self, slot: int) -> Image:
        entry = self.images.get(slot)
        return entry.image if entry is not None else Image()

    # Messages

    def message(self, node: RaftNode, source: int, body: Any) -> None:
        # The most frequent first: data fetches are most of what brokers send.
        broker = self.brokers.get(node.slot)
        if isinstance(body, DataFetchRequest):
            if broker is not None and broker.running:
                broker.fetched_from(node, source, body)
        elif isinstance(body, DataFetchResponse):
            if broker is not None and broker.running:
                broker.fetched(node, body)
        elif isinstance(body, BROKER_REQUESTS):
            self._for_controller(node, source, body)
        elif isinstance(body, BROKER_RESPONSES):
            if broker is not None and broker.running:
                broker.answered(node, body)
        elif isinstance(body, AssignReplicasToDirsRequest):
            controller = self.controllers.get(node.slot)
            if controller is not None and controller.image.metadata_version:
                assign_directories(controller, body)
        elif isinstance(body, ControllerRegistrationRequest):
            self._register_controller(node, source, body)
        elif isinstance(body, ControllerRegistrationResponse):
            if not body.error:
                self.registered_controllers.add(body.sender)
        elif isinstance(body, GetReplicaLogInfoResponse):
            if self.recovery is not None and node.slot in self.controllers:
                self.recovery.answered(body)
        elif isinstance(body, GetReplicaLogInfoRequest) and broker is not None and broker.running:
            info = broker.log_info(body)
            if info is not None:
                node.network.send(node.slot, source, 1, info)

    def _for_controller(self, node: RaftNode, source: int, request: BrokerRequest) -> None:
        def reply(response: BrokerResponse) -> None:
            if node.running:
                node.network.send(node.slot, source, 1, response)

        controller = self.controllers.get(node.slot)
        if controller is None:
            reply(refused(request, "NOT_CONTROLLER"))
        elif not controller.image.metadata_version:
            reply(refused(request, "BROKER_NOT_AVAILABLE"))
        elif isinstance(request, BrokerRegistrationRequest):
            controller.register(request, reply)
        elif isinstance(request, BrokerHeartbeatRequest):
            controller.heartbeat(request, reply)
        else:
            controller.alter_partition(request, reply)

    def _register_controller(self, node: RaftNode, source: int, request: ControllerRegistrationRequest) -> None:
        def reply(response: ControllerRegistrationResponse) -> None:
            if node.running:
                node.network.send(node.slot, source, 1, response)

        controller = self.controllers.get(node.slot)
        if controller is None:
            reply(ControllerRegistrationResponse(request.sender, "NOT_CONTROLLER"))
        else:
            controller.register_controller(request, reply)

    def _check_sessions(self, _: Any, __: Any) -> None:
        for slot in sorted(self.controllers):
            controller = self.controllers.get(slot)
            if controller is not None and not self.is_paused(slot) and controller.node.leader is not None:
                controller.check_sessions()
                if self.recovery is not None and controller is self.active_controller():
                    self.recovery.check(controller)
        self.world.after(SESSION_CHECK_US, self._check_sessions)

    # What brokers ask of their surroundings

    def node_of(self, slot: int) -> RaftNode | None:
        return self.cluster.processes[slot].node

    def is_paused(self, slot: int) -> bool:
        return self.cluster.processes[slot].paused

    def stop_process(self, slot: int) -> None:
        self.cluster.stop(slot)

    def min_isr(self, slot: int, key: TopicPartition) -> int:
        """A broker's own effective min ISR: its config, at most this partition's replicas (Partition.effectiveMinIsr:
        min(min.insync.replicas, remote replicas + 1); 4.3.1).

        The controller reads its own node's config and caps it by the replica count of partition 0
        (KafkaConfigSchema): the two may differ.
        """
        image = self.image_of(slot)
        if key[0] not in image.topics or key[1] not in image.partitions[key[0]]:
            return 1
        node_id = self.brokers[slot].id
        wanted = image.min_isr_config(key[0], node_id=node_id, static_default=self.bootstrap.static_min_isr)
        return min(wanted, len(image.partitions[key[0]][key[1]].replicas))

    def watermark_min_isr(self, slot: int, key: TopicPartition) -> int:
        return self.min_isr(slot, key) if self.bootstrap.release.watermark_waits else 0

    def sees_active(self, slot: int, broker_id: int) -> bool:
        return self.image_of(slot).is_active(broker_id)

    def active_controller(self) -> Controller | None:
        """The controller of the highest epoch, where it has committed it."""
        best: Controller | None = None
        for slot in sorted(self.controllers):
            controller = self.controllers[slot]
            if best is None or controller.node.epoch > best.node.epoch:
                best = controller
        return best if best is not None and best.image.metadata_version else None

    # What brokers report

    def became_leader(
        self, broker: ReplicaManager, key: TopicPartition, replica: Replica, partition: Partition
    ) -> None:
        self.invariants.became_leader(broker, key, replica, partition)

    def counted(
        self, broker: ReplicaManager, leader_epoch: int, key: TopicPartition, replica: Replica, fetch: tuple[int, int]
    ) -> None:
        self.invariants.counted(broker, key, replica, self.broker_by_id.get(fetch[0]), fetch[1])
        if leader_epoch != replica.leader_epoch:
            detail = f"leader {broker.id} of epoch {replica.leader_epoch} counts a fetch of epoch {leader_epoch}"
            self.invariants.fail("FetchInLeaderEpoch", detail)

    def data_watermark_moved(self, broker: ReplicaManager, key: TopicPartition, replica: Replica) -> None:
        """The committed ISR alone counts: a member that AlterPartition may yet refuse does not."""
        if len(replica.isr) < self.watermark_min_isr(broker.slot, key):
            self.invariants.fail("WatermarkNeedsMinIsr", f"broker {broker.id}: ISR {replica.isr} is under min ISR")
        self.invariants.watermark(broker, key, replica, self.active_controller(), self.broker_by_id)

    def acknowledged(self, broker: ReplicaManager, key: TopicPartition, replica: Replica, ack: tuple[int, int]) -> None:
        self.invariants.acknowledged(broker, key, replica, ack)

    def lost_from_disk(self, broker: ReplicaManager, key: TopicPartition, values: list[int], cause: str) -> None:
        if self.invariants.losses is not None:
            self.invariants.losses.lost_from_disk(broker.id, key, values, cause)

    # Processes

    def start_broker(self, broker: Broker) -> None:
        """Starts a broker's process, or a broker beside the controller that runs in it."""
        process = self.cluster.processes[broker.slot]
        if process.node is None:
            self.images.pop(broker.slot, None)
            broker.start(self.cluster.start(process))
        elif not broker.running and process.can_become_voter:
            broker.start(process.node)

    def crash_broker(self, broker: Broker, *, power_cut: bool) -> int:
        lost = broker.crash(power_cut=power_cut)
        self.cluster.crash(broker.slot, power_cut=power_cut)
        self.images.pop(broker.slot, None)
        return lost
