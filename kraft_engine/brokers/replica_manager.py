"""A broker's replicas: which it leads and follows, what they fetch and acknowledge (ReplicaManager, Partition)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kraft_engine.brokers.broker_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    BrokerRequest,
    DataFetchRequest,
    DataFetchResponse,
    FetchedPart,
    FetchPosition,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from kraft_engine.brokers.image import Image
from kraft_engine.brokers.partition import LOST, MIGRATING, RECOVERED, UNASSIGNED, Partition
from kraft_engine.brokers.replicas import LAG_LIMIT_US, FollowerState, Replica, TopicPartition
from kraft_engine.consensus.protocols import BrokerHost
from kraft_engine.consensus.raft import RaftNode

FETCH_RECORDS = 200
RESERVED = (MIGRATING, UNASSIGNED, LOST)


class ReplicaManager(ABC):
    """The replicas of one broker. What they hold outlives the process."""

    def __init__(self, host: BrokerHost, slot: int, broker_id: int, log_dirs: list[bytes]) -> None:
        self.host = host
        self.slot = slot
        self.id = broker_id
        self.log_dirs = log_dirs
        self.replicas: dict[TopicPartition, Replica] = {}
        # Where they lie, and under which name: as the metadata said when they were created or moved.
        self.replica_dirs: dict[TopicPartition, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.running = False
        self.incarnation = b""
        self.epoch = -1
        self.tick_count = 0
        self.offline_dirs: list[bytes] = []
        # The broker epoch that a controlled shutdown left in the log dirs, -1 after any other end.
        self.clean_epoch = -1
        # Whether it has read the metadata up to its own registration since it started.
        self.published = False

    def is_offline(self, key: TopicPartition) -> bool:
        """Whether a replica's log dir is offline: it neither leads nor follows, and no log takes its place in another
        dir, as the old one may still be there (Partition.createLogInAssignedDirectoryId).
        """
        return bool(self.offline_dirs) and (self.dir_of(key) in self.offline_dirs or self._is_elsewhere(key))

    def _is_elsewhere(self, key: TopicPartition) -> bool:
        """Whether the metadata has a replica in a dir that this broker does not have."""
        directory = self.replica_dirs.get(key, UNASSIGNED)
        return directory not in RESERVED and directory not in self.log_dirs

    def misplaced(self) -> list[TopicPartition]:
        """Replicas whose dir the metadata does not name: it names another, or none. A broker that reports nothing has
        none of these.
        """
        if not self.host.brokers_report_directories or self.epoch < 0 or not self.published:
            return []
        return [
            key
            for key in sorted(self.replicas)
            if not self.is_offline(key) and (self._is_elsewhere(key) or self.replica_dirs.get(key) == UNASSIGNED)
        ]

    def report_directories(self, node: RaftNode) -> None:
        """AssignReplicasToDirs: new logs go to the online dirs with the fewest (LogManager, AssignmentsManager)."""
        misplaced = self.misplaced()
        if not misplaced:
            return
        online = [directory for directory in self.log_dirs if directory not in self.offline_dirs]
        counts = dict.fromkeys(online, 0)
        for key in sorted(self.replicas):
            if key not in misplaced and self.replica_dirs.get(key) in counts:
                counts[self.replica_dirs[key]] += 1
        assignments = []
        for key in misplaced:
            directory = min(online, key=lambda candidate: counts[candidate])
            counts[directory] += 1
            assignments.append((key, directory))
        self.ask(node, AssignReplicasToDirsRequest(self.incarnation, self.id, self.epoch, tuple(assignments)))

    @abstractmethod
    def ask(self, node: RaftNode, request: BrokerRequest | AssignReplicasToDirsRequest) -> None:
        """Sends a request to the active controller, where it is known."""

    def dir_of(self, key: TopicPartition) -> bytes:
        """The log dir that holds a replica: the assigned one, or the first where none of this broker's is."""
        directory = self.replica_dirs.get(key)
        return directory if directory in self.log_dirs else self.log_dirs[0]

    # Metadata

    def metadata_changed(self, image: Image, partition: Partition) -> None:
        """A partition's registration as this broker has now read it: it leads, follows, or has lost its replica."""
        if self.id not in partition.replicas:
            removed = self.replicas.pop((partition.topic_id, partition.index), None)
            if removed is not None:
                self.host.lost_from_disk(self, (partition.topic_id, partition.index), removed.values, "deleted")
            return
        key = (partition.topic_id, partition.index)
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = Replica()
            self.topic_names[key[0]] = image.topics[key[0]]
        self.replica_dirs[key] = partition.directory_of(self.id)
        is_leader = partition.leader == self.id and self.running
        if replica.partition_epoch == partition.partition_epoch and replica.is_leader == is_leader:
            # This partition did not change: a pending AlterPartition stays pending.
            return
        if is_leader and (not replica.is_leader or partition.leader_epoch > replica.leader_epoch):
            if not replica.is_leader:
                now_us = self.host.world.now_us
                replica.followers = {
                    broker: FollowerState(now_us) for broker in partition.replicas if broker != self.id
                }
                replica.epoch_start = replica.end_offset
                replica.high_watermark = min(replica.high_watermark, replica.end_offset)
                replica.acks = []
            replica.assigned_epoch = partition.leader_epoch
            self.host.became_leader(self, key, replica, partition)
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
                    replica.followers[broker] = FollowerState(self.host.world.now_us)
            self._advance(key, replica)

    # Leading

    def produce(self, key: TopicPartition, value: int, *, acks_all: bool = True) -> bool:
        """acks=all: refused below min ISR; acknowledged when the high watermark has passed it.

        acks=0 and 1 are accepted at any ISR and promise nothing: they fill a log that must not be taken for committed.
        """
        replica = self.replicas.get(key)
        if replica is None or not replica.is_leader or not self.running or self.is_offline(key):
            return False
        if acks_all and len(replica.isr) < self.host.min_isr(self.slot, key):
            return False
        offset = replica.end_offset
        replica.append(replica.leader_epoch, value)
        if not acks_all:
            self._advance(key, replica)
            return True
        replica.acks.append((offset, value))
        if not self.host.switches.acks_wait_for_high_watermark:
            self.host.acknowledged(self, key, replica, replica.acks.pop())
        self._advance(key, replica)
        return True

    def fetched_from(self, node: RaftNode, source: int, request: DataFetchRequest) -> None:
        """Validates a follower's fetch, counts it and answers it."""
        parts: list[FetchedPart] = []
        for key, leader_epoch, offset, last_epoch in request.positions:
            replica = self.replicas.get(key)
            if replica is None or not replica.is_leader or self.is_offline(key):
                continue
            if leader_epoch != replica.leader_epoch and self.host.switches.data_leader_epoch_fences:
                continue
            diverging = replica.diverges(offset, last_epoch)
            if not self.host.switches.data_leader_checks_divergence:
                diverging = None
            records: tuple[tuple[int, int], ...] = ()
            if diverging is None and offset <= replica.end_offset:
                self.host.counted(self, leader_epoch, key, replica, (request.broker_id, offset))
                self._count(node, key, replica, request, offset)
                stop = offset + FETCH_RECORDS
                records = tuple(zip(replica.epochs[offset:stop], replica.values[offset:stop], strict=True))
            parts.append(FetchedPart(key, replica.leader_epoch, offset, diverging, records, replica.high_watermark))
        if parts:
            node.network.send(self.slot, source, 1, DataFetchResponse(tuple(parts)))

    def _count(
        self, node: RaftNode, key: TopicPartition, replica: Replica, request: DataFetchRequest, offset: int
    ) -> None:
        now_us = self.host.world.now_us
        state = replica.followers.get(request.broker_id)
        if state is None:
            return
        state.end_offset = offset
        state.broker_epoch = request.broker_epoch
        if offset >= replica.end_offset:
            state.last_caught_up_us = now_us
        self._advance(key, replica)
        wanted = replica.epoch_start if self.host.switches.isr_expansion_reaches_epoch_start else 0
        caught_up = offset >= max(replica.high_watermark, wanted)
        if not self.host.switches.isr_expansion_needs_caught_up:
            caught_up = True
        may_join = request.broker_id not in replica.isr and replica.pending_isr is None
        if caught_up and may_join and self.host.sees_active(self.slot, request.broker_id):
            self._alter(node, key, replica, sorted([*replica.isr, request.broker_id]))

    def shrink(self, node: RaftNode, key: TopicPartition, replica: Replica) -> None:
        if replica.pending_isr is not None:
            if self.tick_count % 20 == 0 and self.host.switches.alter_partition_is_repeated:
                self._alter(node, key, replica, replica.pending_isr)
            return
        now_us = self.host.world.now_us
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

    def drop_follower(self, node: RaftNode, key: TopicPartition, follower: int) -> None:
        """Finds a follower late, as `shrink` does; it joins again once it has fetched up to the end."""
        replica = self.replicas[key]
        if replica.is_leader and replica.pending_isr is None and follower in replica.isr:
            self._alter(node, key, replica, [broker for broker in replica.isr if broker != follower])

    def _alter(self, node: RaftNode, key: TopicPartition, replica: Replica, isr: list[int]) -> None:
        """AlterPartition: until it is answered, members that would join count, and members that would leave still
        do.
        """
        replica.pending_isr = isr
        replica.attempt += 1
        epochs = {broker: state.broker_epoch for broker, state in replica.followers.items()}
        epochs[self.id] = self.epoch
        new_isr = tuple((broker, epochs.get(broker, -1)) for broker in isr)
        request = AlterPartitionRequest(
            self.incarnation, self.id, self.epoch, key, replica.leader_epoch, replica.partition_epoch, new_isr,
            RECOVERED, replica.attempt,
        )  # fmt: skip
        self.ask(node, request)

    def altered(self, response: AlterPartitionResponse) -> None:
        """Only a refusal of the newest attempt takes the pending ISR back; after any other error the change may have
        been made, and the metadata will show it (Partition.handleAlterPartitionError).
        """
        replica = self.replicas.get(response.key)
        refused = response.error in ("INELIGIBLE_REPLICA", "INVALID_REQUEST")
        if refused and replica is not None and response.attempt == replica.attempt:
            replica.pending_isr = None

    def _advance(self, key: TopicPartition, replica: Replica) -> None:
        """The high watermark moves to the end that the whole ISR holds; since 3.7 only while |ISR| >= min ISR."""
        if not replica.is_leader:
            return
        switches = self.host.switches
        end = replica.in_sync_end(self.id, switches)
        if end <= replica.high_watermark:
            return
        members = replica.isr if switches.pending_members_do_not_count else replica.maximal_isr(switches)
        enough = len(members) >= self.host.watermark_min_isr(self.slot, key)
        if not enough and switches.high_watermark_needs_min_isr:
            return
        replica.high_watermark = end
        self.host.data_watermark_moved(self, key, replica)
        while replica.acks and replica.acks[0][0] < end:
            self.host.acknowledged(self, key, replica, replica.acks.pop(0))

    # Following

    def fetch(self, node: RaftNode) -> None:
        by_leader: dict[int, list[FetchPosition]] = {}
        image = self.host.image_of(self.slot)
        for key in sorted(self.replicas):
            replica = self.replicas[key]
            if replica.is_leader or replica.leader_epoch < 0 or self.is_offline(key):
                continue
            leader = image.partitions[key[0]][key[1]].leader if key[0] in image.partitions else -1
            if leader >= 0 and leader != self.id:
                position = FetchPosition(key, replica.leader_epoch, replica.end_offset, replica.last_epoch)
                by_leader.setdefault(leader, []).append(position)
        for leader in sorted(by_leader):
            slot = node.addresses.slot_of(leader)
            if slot >= 0:
                node.network.send(self.slot, slot, 1, DataFetchRequest(self.id, self.epoch, tuple(by_leader[leader])))

    def fetched(self, node: RaftNode, message: DataFetchResponse) -> None:
        for key, leader_epoch, offset, diverging, records, mark in message.parts:
            replica = self.replicas.get(key)
            follows = replica is not None and replica.end_offset == offset
            if replica is None or replica.is_leader or self.is_offline(key):
                continue
            if not follows and self.host.switches.data_answers_follow_the_log:
                continue
            if leader_epoch != replica.leader_epoch and self.host.switches.data_leader_epoch_fences:
                continue
            if diverging is not None:
                replica.follow_divergence(*diverging)
                continue
            for epoch, value in records:
                replica.append(epoch, value)
            replica.high_watermark = max(replica.high_watermark, min(mark, replica.end_offset))

    # Unclean recovery

    def log_info(self, request: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse | None:
        """The end of a replica's log, the epoch of its last record, and the leader epoch that it knows."""
        replica = self.replicas.get(request.key)
        if replica is None or not self.running:
            return None
        return GetReplicaLogInfoResponse(
            self.id, self.epoch, request.key, replica.last_epoch, replica.leader_epoch, replica.end_offset
        )
