"""What a cluster does beside its incidents: NoOpRecords, registrations at each start, snapshots by bytes and by time.

A random run without it writes only what its workload asks for. With it, histograms of record types and batches can be
compared with those of real controllers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kraft_codec.schemas import Dialect
from kraft_engine.brokers.broker_messages import ControllerRegistrationRequest
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.machine import KafkaMachine
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.runs.schedule import make_snapshot
from kraft_engine.world.encoding import batch_octets
from kraft_engine.world.processes import Cluster, Process
from kraft_engine.world.world import HOUR_US, MS, Chance

TICK_US = 250 * MS
BACKOFF_US, BACKOFF_MAX_US = 100 * MS, 120_000 * MS
FIRST_NOOP_VERSION = 5


@dataclass(frozen=True, slots=True)
class Habits:
    """Kafka's settings of the same meaning, and what a site chooses. The defaults are Kafka's."""

    # metadata.max.idle.interval.ms
    idle_interval_us: int = 500 * MS
    # metadata.log.max.record.bytes.between.snapshots, metadata.log.max.snapshot.interval.ms (KIP-876)
    snapshot_bytes: int = 20 << 20
    snapshot_interval_us: int = HOUR_US
    # metadata.log.segment.bytes: at least 8 MiB, less only by an internal setting
    segment_bytes: int = 1 << 30
    # Listeners of controllers after the first: (name, port)
    further_listeners: tuple[tuple[str, int], ...] = ()
    # How long before the first start `kafka-storage format` ran.
    formatted_before_ms: int = 5_000

    @classmethod
    def of(cls, seed: int) -> Habits:
        """Drawn from the seed, apart from the run's own draws."""
        chance = Chance(seed + (1 << 40))
        return cls(
            idle_interval_us=chance.choose((500, 500, 1_000)) * MS,
            snapshot_bytes=chance.choose((5_000, 20_000, 20 << 20)),
            snapshot_interval_us=chance.choose((10_000, 30_000, 3_600_000)) * MS,
            segment_bytes=chance.choose((16_000, 8 << 20, 1 << 30)),
            further_listeners=chance.choose(((), (("CONTROLLER_SSL", 9094),))),
            formatted_before_ms=chance.choose((3_000, 60_000)),
        )

    def apply(self, settings: Settings, cluster: Cluster) -> None:
        """Before any node is formatted."""
        settings.measure_batch = written_bytes
        cluster.segment_limit_bytes = self.segment_bytes
        cluster.further_listeners = self.further_listeners
        cluster.formatted_before_ms = self.formatted_before_ms


def written_bytes(batch: Batch) -> int:
    """The size of a batch on disk, which segments are rolled by and snapshots are made by."""
    return len(batch_octets(batch, Dialect.KIP853))


@dataclass(slots=True)
class _Incarnation:
    """A process as long as it runs: its registration, and what it has read since its last snapshot."""

    node: RaftNode
    id: bytes
    snapshot_us: int
    counted_to: int = 0
    read_bytes: int = 0
    ask_at_us: int = 0
    refusals: int = field(default=0)


class Surroundings:
    """Acts for every running node of a cluster, a few times a second."""

    def __init__(self, cluster: Cluster, machine: KafkaMachine, habits: Habits) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.machine = machine
        self.habits = habits
        self._incarnations: dict[int, _Incarnation] = {}
        self._idle: dict[int, tuple[Controller, int]] = {}
        machine.bootstrap.controllers_register_themselves = True
        self.world.after(TICK_US, self._tick)

    def _tick(self, _: Any, __: Any) -> None:
        for process in self.cluster.processes:
            if process.node is not None and not process.paused:
                incarnation = self._incarnation(process, process.node)
                if process.can_become_voter:
                    self._register(incarnation)
                self._snapshot(incarnation)
        for slot in sorted(self.machine.controllers):
            controller = self.machine.controllers.get(slot)
            if controller is not None and not self.machine.is_paused(slot) and controller.node.leader is not None:
                self._write_noop(slot, controller)
        self.world.after(TICK_US, self._tick)

    def _incarnation(self, process: Process, node: RaftNode) -> _Incarnation:
        known = self._incarnations.get(process.slot)
        if known is None or known.node is not node:
            known = _Incarnation(node, self.world.chance.uuid(), self.world.now_us)
            self._incarnations[process.slot] = known
        return known

    def _register(self, incarnation: _Incarnation) -> None:
        """Until its registration is answered, backing off after each attempt (ControllerRegistrationManager)."""
        node, now_us = incarnation.node, self.world.now_us
        if incarnation.id in self.machine.registered_controllers or now_us < incarnation.ask_at_us:
            return
        slot = node.addresses.slot_of(node.leader_id)
        if slot < 0:
            return
        incarnation.ask_at_us = now_us + min(BACKOFF_US << incarnation.refusals, BACKOFF_MAX_US)
        incarnation.refusals += 1
        node.network.send(node.slot, slot, 1, ControllerRegistrationRequest(node.id, incarnation.id))

    def _snapshot(self, incarnation: _Incarnation) -> None:
        """By the bytes of what it has read since its last snapshot, or by the time since (SnapshotGenerator)."""
        node, now_us = incarnation.node, self.world.now_us
        latest = node.log.latest_snapshot
        if latest is not None and latest.id[0] > incarnation.counted_to:
            incarnation.counted_to, incarnation.read_bytes = latest.id[0], 0
            incarnation.snapshot_us = now_us
        for batch in node.log.read_from(incarnation.counted_to, 1 << 30):
            if batch.end_offset > node.high_watermark:
                break
            incarnation.read_bytes += batch.size_bytes
            incarnation.counted_to = batch.end_offset
        by_bytes = incarnation.read_bytes >= self.habits.snapshot_bytes
        by_time = incarnation.read_bytes and now_us - incarnation.snapshot_us >= self.habits.snapshot_interval_us
        if (by_bytes or by_time) and make_snapshot(node) is not None:
            incarnation.read_bytes, incarnation.snapshot_us = 0, now_us

    def _write_noop(self, slot: int, controller: Controller) -> None:
        """Each interval, whether or not there was other work (QuorumController, writeNoOpRecord)."""
        known, due_us = self._idle.get(slot, (None, 0))
        interval_us = self.habits.idle_interval_us
        if known is not controller:
            due_us = self.world.now_us + interval_us
        elif self.world.now_us >= due_us:
            due_us += interval_us
            if controller.image.metadata_version >= FIRST_NOOP_VERSION:
                controller.write([("NoOpRecord", 0, {})])
        self._idle[slot] = (controller, due_us)
