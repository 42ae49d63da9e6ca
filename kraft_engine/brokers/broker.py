"""A broker's process: registration, heartbeats, shutdown, and the ticks on which its replicas act
(BrokerLifecycleManager).
"""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers.broker_messages import (
    PLAINTEXT,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRequest,
    BrokerResponse,
    Listener,
)
from kraft_engine.brokers.replica_manager import ReplicaManager
from kraft_engine.consensus.protocols import BrokerHost
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.world.world import MS

HEARTBEAT_US = 500 * MS
FETCH_US = 60 * MS
CLOSING_US = 300 * MS
"""A broker that may stop closes its logs first; the node beside it reads the metadata until then."""
CHECKPOINT_TICKS = 5_000 * MS // FETCH_US


class Broker(ReplicaManager):
    """A broker's process and its data disks. The Raft observer beside it brings the metadata."""

    def __init__(self, host: BrokerHost, slot: int, broker_id: int, log_dirs: list[bytes]) -> None:
        super().__init__(host, slot, broker_id, log_dirs)
        self.listener: Listener = PLAINTEXT
        self.rack: str | None = None
        # How often its logs are flushed; None: only at a clean stop (log.flush.interval.ms is not set).
        self.flush_interval_us: int | None = None
        self.flushed_us = 0
        self.fenced = True
        self.shutting_down = False
        self.closing = False
        self.previous_epoch = -1

    # Life

    def start(self, node: RaftNode) -> None:
        self.running = True
        self.published = False
        self.incarnation = self.host.world.chance.uuid()
        self.epoch = -1
        self.fenced = True
        self.shutting_down = False
        self.closing = False
        self.previous_epoch = self.clean_epoch
        self.clean_epoch = -1
        node.disk.clean_shutdown_epoch = -1
        for replica in self.replicas.values():
            replica.forget_memory()
            replica.assigned_epoch = -1
        self.flushed_us = self.host.world.now_us
        self.host.world.after(self.host.world.chance.below(FETCH_US), self._tick, self.incarnation)

    def crash(self, *, power_cut: bool) -> int:
        """Ends without a controlled shutdown; a power cut takes unsynced records. Returns how many were lost.

        A broker that flushes by itself loses all that it had not flushed, another one a random part of it.
        """
        self.running = False
        self.clean_epoch = -1
        count = 0
        for key in sorted(self.replicas):
            replica = self.replicas[key]
            if power_cut:
                by_chance = self.flush_interval_us is None
                lost = replica.lose_unsynced(self.host.world.chance) if by_chance else replica.lose_unflushed()
                self.host.lost_from_disk(self, key, lost, "unflushed")
                count += len(lost)
            replica.forget_memory()
        return count

    def _close(self, incarnation: bytes, _: Any) -> None:
        node = self.host.node_of(self.slot)
        if not self.running or incarnation != self.incarnation or node is None:
            return
        if self.host.is_paused(self.slot):
            self.host.world.after(CLOSING_US, self._close, incarnation)
        else:
            self._stopped(node)

    def _stopped(self, node: RaftNode) -> None:
        """Ends a controlled shutdown: syncs everything and stores the broker epoch for the next start."""
        self.running = False
        self.clean_epoch = self.epoch
        for replica in self.replicas.values():
            if self.host.switches.clean_shutdown_syncs:
                replica.sync()
            else:
                replica.lose_unsynced(self.host.world.chance)
            replica.checkpoint_watermark()
            replica.forget_memory()
        node.disk.clean_shutdown_epoch = self.epoch
        self.host.stop_process(self.slot)

    def _tick(self, incarnation: bytes, _: Any) -> None:
        if not self.running or incarnation != self.incarnation:
            return
        host = self.host
        node = host.node_of(self.slot)
        if node is None or host.is_paused(self.slot):
            host.world.after(FETCH_US, self._tick, incarnation)
            return
        self.tick_count += 1
        if self.epoch < 0:
            if self.tick_count % 5 == 0:
                self._register(node)
        elif self.tick_count % (HEARTBEAT_US // FETCH_US) == 0:
            self._heartbeat(node)
        self.report_directories(node)
        self.fetch(node)
        self._flush()
        for key in sorted(self.replicas):
            if self.replicas[key].is_leader:
                self.shrink(node, key, self.replicas[key])
            if self.tick_count % CHECKPOINT_TICKS == 0:
                self.replicas[key].checkpoint_watermark()
        jitter_us = host.world.chance.below(FETCH_US // 3)
        host.world.after(FETCH_US - jitter_us, self._tick, incarnation)

    def _flush(self) -> None:
        now_us = self.host.world.now_us
        if self.flush_interval_us is not None and now_us - self.flushed_us >= self.flush_interval_us:
            self.flushed_us = now_us
            for replica in self.replicas.values():
                replica.sync()

    # Controller channel

    def ask(self, node: RaftNode, request: BrokerRequest | AssignReplicasToDirsRequest) -> None:
        if node.leader_id >= 0:
            node.network.send(self.slot, node.addresses.slot_of(node.leader_id), 1, request)

    def _register(self, node: RaftNode) -> None:
        online = tuple(directory for directory in self.log_dirs if directory not in self.offline_dirs)
        request = BrokerRegistrationRequest(
            self.id, self.incarnation, self.listener, self.previous_epoch, online, self.rack,
            may_wait=self.tick_count < 30,
        )  # fmt: skip
        self.ask(node, request)

    def _heartbeat(self, node: RaftNode) -> None:
        """A broker asks to be unfenced once the metadata names the dirs that its replicas are in (BrokerServer)."""
        read = -1 if self.misplaced() else node.high_watermark
        request = BrokerHeartbeatRequest(
            self.incarnation, self.id, self.epoch, read, self.shutting_down, tuple(self.offline_dirs)
        )
        self.ask(node, request)

    def answered(self, node: RaftNode, response: BrokerResponse) -> None:
        if not self.running or response.sender != self.incarnation:
            return
        if isinstance(response, AlterPartitionResponse):
            self.altered(response)
        elif isinstance(response, BrokerHeartbeatResponse):
            if response.error == "STALE_BROKER_EPOCH":
                if self.host.switches.stale_broker_registers_again:
                    self.epoch = -1
            elif not response.error and response.should_shut_down and self.shutting_down and not self.closing:
                self.closing = True
                self.host.world.after(CLOSING_US, self._close, self.incarnation)
        elif not response.error:
            self.epoch = response.broker_epoch
