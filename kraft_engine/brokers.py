"""Brokers: registration, heartbeats, controlled shutdown, and replication of data partitions with acks=all (facts
6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_engine.image import Image
from kraft_engine.partition import Partition
from kraft_engine.raft import RaftNode
from kraft_engine.replicas import LAG_LIMIT_US, FollowerState, Replica, TopicPartition
from kraft_engine.world import MS

if TYPE_CHECKING:
    from kraft_engine.machine import KafkaMachine

HEARTBEAT_US = 500 * MS
FETCH_US = 60 * MS
CHECKPOINT_TICKS = 5_000 * MS // FETCH_US


class DataFetch:
    """A follower's fetch of all partitions that one broker leads: (partition, leader epoch, offset, last epoch)."""

    __slots__ = ("broker_epoch", "broker_id", "positions")

    def __init__(
        self, broker_id: int, broker_epoch: int, positions: list[tuple[TopicPartition, int, int, int]]
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.positions = positions


class DataFetched:
    """Per partition: leader epoch, diverging (epoch, end) or None, records from the fetch offset on, high watermark."""

    __slots__ = ("parts",)

    def __init__(
        self,
        parts: list[tuple[TopicPartition, int, int, tuple[int, int] | None, list[tuple[int, int]], int]],
    ) -> None:
        self.parts = parts


class ToController:
    """A broker's request for the active controller."""

    __slots__ = ("body", "broker_id", "incarnation", "kind")

    def __init__(self, kind: str, broker_id: int, incarnation: bytes, body: dict[str, Any]) -> None:
        self.kind = kind
        self.broker_id = broker_id
        self.incarnation = incarnation
        self.body = body


class FromController:
    __slots__ = ("answer", "error", "incarnation", "kind")

    def __init__(self, kind: str, incarnation: bytes, error: str, answer: dict[str, Any]) -> None:
        self.kind = kind
        self.incarnation = incarnation
        self.error = error
        self.answer = answer


class Broker:
    """A broker's process and its data disks. The Raft observer beside it brings the metadata."""

    def __init__(self, machine: KafkaMachine, slot: int, broker_id: int, log_dirs: list[bytes]) -> None:
        self.machine = machine
        self.slot = slot
        self.id = broker_id
        self.log_dirs = log_dirs
        self.offline_dirs: list[bytes] = []
        self.rack: str | None = None
        self.replicas: dict[TopicPartition, Replica] = {}
        # Where they lie, and under which name: as the metadata said when they were created or moved.
        self.replica_dirs: dict[TopicPartition, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.clean_epoch = -1
        self.running = False
        self.incarnation = b""
        self.epoch = -1
        self.fenced = True
        self.shutting_down = False
        self.tick_count = 0
        self.previous_epoch = -1
        self.published = False

    def dir_of(self, key: TopicPartition) -> bytes:
        """The log dir that holds a replica: the assigned one, or the first where none of this broker's is."""
        directory = self.replica_dirs.get(key)
        return directory if directory in self.log_dirs else self.log_dirs[0]

    # Life

    def start(self, node: RaftNode) -> None:
        self.running = True
        self.published = False
        self.incarnation = self.machine.world.chance.uuid()
        self.epoch = -1
        self.fenced = True
        self.shutting_down = False
        self.previous_epoch = self.clean_epoch
        self.clean_epoch = -1
        node.disk.clean_shutdown_epoch = -1
        for replica in self.replicas.values():
            replica.forget_memory()
        self.machine.world.after(self.machine.world.chance.below(FETCH_US), self._tick, self.incarnation)

    def crash(self, *, power_cut: bool) -> int:
        """Ends without a word; a power cut takes unsynced records. Returns how many were lost."""
        self.running = False
        self.clean_epoch = -1
        lost = 0
        for key in sorted(self.replicas):
            replica = self.replicas[key]
            lost += replica.lose_unsynced(self.machine.world.chance) if power_cut else 0
            replica.forget_memory()
        return lost

    def _stopped(self, node: RaftNode) -> None:
        """The controller let it go: everything is synced, the epoch is left for the next start."""
        self.running = False
        self.clean_epoch = self.epoch
        for replica in self.replicas.values():
            replica.sync()
            replica.checkpoint_watermark()
            replica.forget_memory()
        node.disk.clean_shutdown_epoch = self.epoch
        self.machine.stop_process(self.slot)

    def _tick(self, incarnation: bytes, _: Any) -> None:
        if not self.running or incarnation != self.incarnation:
            return
        machine = self.machine
        node = machine.node_of(self.slot)
        if node is None or machine.is_paused(self.slot):
            machine.world.after(FETCH_US, self._tick, incarnation)
            return
        self.tick_count += 1
        if self.epoch < 0:
            if self.tick_count % 5 == 0:
                self._register(node)
        elif self.tick_count % (HEARTBEAT_US // FETCH_US) == 0:
            self._heartbeat(node)
        self._fetch(node)
        for key in sorted(self.replicas):
            if self.replicas[key].is_leader:
                self._shrink(node, key, self.replicas[key])
            if self.tick_count % CHECKPOINT_TICKS == 0:
                self.replicas[key].checkpoint_watermark()
        jitter_us = machine.world.chance.below(FETCH_US // 3)
        machine.world.after(FETCH_US - jitter_us, self._tick, incarnation)

    # Controller channel

    def _ask(self, node: RaftNode, kind: str, body: dict[str, Any]) -> None:
        if node.leader_id >= 0:
            slot = node.addresses.slot_of(node.leader_id)
            node.network.send(self.slot, slot, 1, ToController(kind, self.id, self.incarnation, body))

    def _register(self, node: RaftNode) -> None:
        self._ask(
            node,
            "register",
            {
                "broker_id": self.id,
                "incarnation_id": self.incarnation,
                "previous_broker_epoch": self.previous_epoch,
                "log_dirs": [directory for directory in self.log_dirs if directory not in self.offline_dirs],
                "rack": self.rack,
                "may_wait": self.tick_count < 30,
            },
        )

    def _heartbeat(self, node: RaftNode) -> None:
        self._ask(
            node,
            "heartbeat",
            {
                "broker_id": self.id,
                "broker_epoch": self.epoch,
                "want_shutdown": self.shutting_down,
                "metadata_offset": node.high_watermark,
                "offline_dirs": list(self.offline_dirs),
            },
        )

    def answered(self, node: RaftNode, message: FromController) -> None:
        if not self.running or message.incarnation != self.incarnation:
            return
        if message.kind == "register" and not message.error:
            self.epoch = message.answer["broker_epoch"]
        elif message.kind == "heartbeat":
            if message.error == "STALE_BROKER_EPOCH":
                self.epoch = -1
            elif not message.error and message.answer["may_shut_down"] and self.shutting_down:
                self._stopped(node)
        elif message.kind == "alter" and message.error in ("INELIGIBLE_REPLICA", "INVALID_REQUEST"):
            # Only a refusal of the newest attempt takes the pending ISR back; after any other error the change may
            # have been made, and the metadata will tell (Partition.handleAlterPartitionError).
            replica = self.replicas.get((message.answer["topic_id"], message.answer["partition"]))
            if replica is not None and message.answer["attempt"] == replica.attempt:
                replica.pending_isr = None

    # Metadata

    def metadata_changed(self, image: Image, partition: Partition) -> None:
        """A partition's registration as this broker has now read it: it may lead, follow, or be gone."""
        if self.id not in partition.replicas:
            self.replicas.pop((partition.topic_id, partition.index), None)
            return
        key = (partition.topic_id, partition.index)
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = Replica()
            self.topic_names[key[0]] = image.topics[key[0]]
        self.replica_dirs[key] = partition.directory_of(self.id)
        is_leader = partition.leader == self.id and self.running
        if replica.partition_epoch == partition.partition_epoch and replica.is_leader == is_leader:
            # Nothing new of this partition: an AlterPartition under way stays so.
            return
        if is_leader and (not replica.is_leader or partition.leader_epoch > replica.leader_epoch):
            if not replica.is_leader:
                now_us = self.machine.world.now_us
                replica.followers = {
                    broker: FollowerState(now_us) for broker in partition.replicas if broker != self.id
                }
                replica.epoch_start = replica.end_offset
                replica.high_watermark = min(replica.high_watermark, replica.end_offset)
                replica.acks = []
            self.machine.became_leader(self, key, replica, partition)
        if not is_leader:
            replica.acks = []
        replica.is_leader = is_leader
        replica.leader_epoch = partition.leader_epoch
        replica.partition_epoch = partition.partition_epoch
        replica.isr = list(partition.isr)
        replica.recovering = partition.recovering
        replica.pending_isr = None
        if is_leader:
            for broker in partition.replicas:
                if broker != self.id and broker not in replica.followers:
                    replica.followers[broker] = FollowerState(self.machine.world.now_us)
            self._advance(key, replica)

    # Leading

    def produce(self, key: TopicPartition, value: int) -> bool:
        """acks=all: refused below min ISR; acknowledged when the high watermark has passed it."""
        replica = self.replicas.get(key)
        if replica is None or not replica.is_leader or not self.running:
            return False
        if len(replica.isr) < self.machine.min_isr(self.slot, key):
            return False
        offset = replica.end_offset
        replica.append(replica.leader_epoch, value)
        replica.acks.append((offset, value))
        if not self.machine.switches.acks_wait_for_high_watermark:
            self.machine.acknowledged(self, key, replica, replica.acks.pop())
        self._advance(key, replica)
        return True

    def fetched_from(self, node: RaftNode, source: int, request: DataFetch) -> None:
        """A follower's fetch: judged, counted, answered."""
        parts: list[tuple[TopicPartition, int, int, tuple[int, int] | None, list[tuple[int, int]], int]] = []
        for key, leader_epoch, offset, last_epoch in request.positions:
            replica = self.replicas.get(key)
            if replica is None or not replica.is_leader:
                continue
            if leader_epoch != replica.leader_epoch and self.machine.switches.data_leader_epoch_fences:
                continue
            diverging = replica.diverges(offset, last_epoch)
            records: list[tuple[int, int]] = []
            if diverging is None and offset <= replica.end_offset:
                self.machine.counted(self, leader_epoch, replica)
                self._count(node, key, replica, request, offset)
                stop = offset + 200
                records = list(zip(replica.epochs[offset:stop], replica.values[offset:stop], strict=True))
            parts.append((key, replica.leader_epoch, offset, diverging, records, replica.high_watermark))
        if parts:
            node.network.send(self.slot, source, 1, DataFetched(parts))

    def _count(self, node: RaftNode, key: TopicPartition, replica: Replica, request: DataFetch, offset: int) -> None:
        now_us = self.machine.world.now_us
        state = replica.followers.get(request.broker_id)
        if state is None:
            return
        state.end_offset = offset
        state.broker_epoch = request.broker_epoch
        if offset >= replica.end_offset:
            state.last_caught_up_us = now_us
        self._advance(key, replica)
        caught_up = offset >= max(replica.high_watermark, replica.epoch_start)
        if not self.machine.switches.isr_expansion_needs_caught_up:
            caught_up = True
        may_join = request.broker_id not in replica.isr and replica.pending_isr is None
        if caught_up and may_join and self.machine.sees_active(self.slot, request.broker_id):
            self._alter(node, key, replica, sorted([*replica.isr, request.broker_id]))

    def _shrink(self, node: RaftNode, key: TopicPartition, replica: Replica) -> None:
        if replica.pending_isr is not None:
            if self.tick_count % 20 == 0:
                self._alter(node, key, replica, replica.pending_isr)
            return
        now_us = self.machine.world.now_us
        late = [
            broker
            for broker in replica.isr
            if broker != self.id
            and broker in replica.followers
            and replica.followers[broker].end_offset < replica.end_offset
            and now_us - replica.followers[broker].last_caught_up_us > LAG_LIMIT_US
        ]
        if late:
            isr = [broker for broker in replica.isr if broker not in late]
            self._alter(node, key, replica, isr)

    def _alter(self, node: RaftNode, key: TopicPartition, replica: Replica, isr: list[int]) -> None:
        """AlterPartition: until it is answered, members that would join count, and members that would leave still
        do.
        """
        replica.pending_isr = isr
        replica.attempt += 1
        epochs = {broker: replica.followers[broker].broker_epoch for broker in isr if broker in replica.followers}
        epochs[self.id] = self.epoch
        self._ask(
            node,
            "alter",
            {
                "broker_id": self.id,
                "broker_epoch": self.epoch,
                "topic_id": key[0],
                "partition": key[1],
                "leader_epoch": replica.leader_epoch,
                "partition_epoch": replica.partition_epoch,
                "isr": isr,
                "epochs": epochs,
                "recovery": 0,
                "attempt": replica.attempt,
            },
        )

    def _advance(self, key: TopicPartition, replica: Replica) -> None:
        """The high watermark moves only while |ISR| >= min ISR (KIP-966), to the end that the whole ISR holds."""
        if not replica.is_leader:
            return
        switches = self.machine.switches
        enough = len(replica.isr) >= self.machine.min_isr(self.slot, key)
        if not enough and switches.high_watermark_needs_min_isr:
            return
        end = replica.in_sync_end(self.id, whole=switches.high_watermark_needs_whole_isr)
        if end <= replica.high_watermark:
            return
        replica.high_watermark = end
        self.machine.data_watermark_moved(self, key, replica, enough=enough)
        while replica.acks and replica.acks[0][0] < end:
            self.machine.acknowledged(self, key, replica, replica.acks.pop(0))

    # Following

    def _fetch(self, node: RaftNode) -> None:
        by_leader: dict[int, list[tuple[TopicPartition, int, int, int]]] = {}
        image = self.machine.image_of(self.slot)
        for key in sorted(self.replicas):
            replica = self.replicas[key]
            if replica.is_leader or replica.leader_epoch < 0:
                continue
            leader = image.partitions[key[0]][key[1]].leader if key[0] in image.partitions else -1
            if leader >= 0 and leader != self.id:
                position = (key, replica.leader_epoch, replica.end_offset, replica.last_epoch)
                by_leader.setdefault(leader, []).append(position)
        for leader in sorted(by_leader):
            slot = node.addresses.slot_of(leader)
            if slot >= 0:
                node.network.send(self.slot, slot, 1, DataFetch(self.id, self.epoch, by_leader[leader]))

    def fetched(self, node: RaftNode, message: DataFetched) -> None:
        for key, leader_epoch, offset, diverging, records, mark in message.parts:
            replica = self.replicas.get(key)
            if replica is None or replica.is_leader or replica.end_offset != offset:
                continue
            if leader_epoch != replica.leader_epoch and self.machine.switches.data_leader_epoch_fences:
                continue
            if diverging is not None:
                replica.follow_divergence(*diverging)
                continue
            for epoch, value in records:
                replica.append(epoch, value)
            replica.high_watermark = max(replica.high_watermark, min(mark, replica.end_offset))
