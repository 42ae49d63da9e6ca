"""Random runs that lose acknowledged records: several brokers cut at once, most of them from power.

The other kinds of random runs keep within KIP-966's promise, or leave it now and then. These are for what follows a
loss: elections that forfeit records, disks of dead brokers that hold them, replicas that come back and truncate.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.elr import UNCLEAN
from kraft_engine.brokers.image import MIN_ISR
from kraft_engine.brokers.partition import NO_LEADER
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.world.data_disk_accidents import DataDiskAccidents
from kraft_engine.world.faults import WITHIN_MODEL
from kraft_engine.world.world import MS

POWER_CUT_SHARE = 0.6
FLUSH_INTERVALS_MS = (500, 2_000, 10_000, 30_000)
# By seed: metadata.version, ELR, release. Before 3.7 the high watermark does not wait for min ISR members.
HARSH_CLUSTERS = (
    (30, True, "4.3.1"), (14, False, "3.6.2"), (30, True, "4.3.1"), (30, False, "4.3.1"),
    (30, True, "4.3.1"), (21, False, "3.9.2"), (30, True, "4.3.1"), (14, False, "3.6.2"),
)  # fmt: skip
DIRECTORIES_SINCE = 17


class HarshRun(KafkaRun):
    """One seed's cluster. `power_cuts` false makes every cut a kill -9, which leaves the page cache as it is.

    What no metadata log can show stays out: a broker that dies in a shutdown that it has announced, and with ELR off a
    disk that is emptied after a clean stop.
    """

    log_dir_counts = (1, 2, 2)
    has_disk_accidents = False
    copies_data_dirs = True

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, power_cuts: bool = True) -> None:
        level, elr, release = HARSH_CLUSTERS[seed % len(HARSH_CLUSTERS)]
        self.power_cuts = power_cuts
        super().__init__(seed, switches=switches, metadata_version=level, release=release, elr=elr)
        chance = self.world.chance
        self.machine.follow_losses()
        self.partition_invariants.allow_data_loss("several brokers cut at once")
        self.partition_invariants.operations.unclean_is_asked = True
        self.data_disks = DataDiskAccidents(self.machine, self.invariants)
        for broker in self.machine.brokers.values():
            broker.flush_interval_us = chance.choose(FLUSH_INTERVALS_MS) * MS
        self.world.after(3_000 * MS, self._lower_min_isr)

    # Administrators

    def _one_request(self, controller: Controller) -> None:
        chance, image = self.world.chance, controller.image
        leaderless = [partition for partition in image.all_partitions() if partition.leader == NO_LEADER]
        if leaderless and chance.happens(0.06):
            controller.elect(UNCLEAN, chance.choose(leaderless))
        elif image.topics and chance.happens(0.03):
            topic = image.topics[chance.choose(sorted(image.topics))]
            value = chance.choose((None, "true", "false"))
            controller.topic_config(topic, "unclean.leader.election.enable", value)
        else:
            super()._one_request(controller)

    def _lower_min_isr(self, _: Any, __: Any) -> None:
        """An administrator who wants producers to go on lowers min ISR when a single member is left."""
        if self.faults.are_over:
            return
        chance = self.world.chance
        controller = self.machine.active_controller()
        if controller is not None and controller.node.leader is not None:
            alone = [
                partition
                for partition in controller.image.all_partitions()
                if len(partition.isr) == 1 and controller.min_isr(partition.topic_id) > 1
            ]
            if alone and chance.happens(0.15):
                topic = controller.image.topics[chance.choose(alone).topic_id]
                self.invariants.seen["min ISR lowered at one member"] += 1
                controller.topic_config(topic, MIN_ISR, "1")
        self.world.after(chance.between(300 * MS, 2_000 * MS), self._lower_min_isr)

    # Faults

    def _fault(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        if self.faults.are_over:
            return
        kind = chance.below(20)
        if kind < 8:
            self._cut_several()
        elif kind < 11:
            self._stop_several()
        elif kind == 11:
            self._lose_directory(chance.choose(list(self.machine.brokers.values())))
        elif kind == 12:
            self._hit_disk(chance.choose(list(self.machine.brokers.values())))
        elif kind == 13:
            self._isolate_leader()
        else:
            self.faults.strike(chance.choose(WITHIN_MODEL))
            self.faults.heal_later(6_000 * MS)
        self.world.after(chance.between(1_000 * MS, 5_000 * MS), self._fault)

    def _some_running(self, most: int) -> list[Broker]:
        running = [broker for broker in self.machine.brokers.values() if broker.running and not broker.shutting_down]
        return self.world.chance.shuffled(running)[: self.world.chance.between(1, most + 1)]

    def _cut_several(self) -> None:
        """A rack, or all brokers at once; each comes back in its own time, some long after the others."""
        chance = self.world.chance
        power_cut = chance.happens(POWER_CUT_SHARE) and self.power_cuts
        for broker in self._some_running(len(self.machine.brokers)):
            self._cut(broker, power_cut=power_cut)
            self._restart_later(broker)

    def _cut(self, broker: Broker, *, power_cut: bool) -> None:
        self.invariants.seen[f"broker: {'power cut' if power_cut else 'killed'}"] += 1
        lost = self.machine.crash_broker(broker, power_cut=power_cut)
        self.invariants.record("broker_crash", broker=broker.id, power_cut=power_cut, lost_records=lost)

    def _restart_later(self, broker: Broker) -> None:
        latest = self.world.chance.choose((2_000, 9_000, 9_000, 40_000))
        self.world.after(self.world.chance.between(200, latest) * MS, self._restart_broker, broker)

    def _stop_several(self) -> None:
        for broker in self._some_running(2):
            self.invariants.seen["broker: controlled shutdown"] += 1
            broker.shutting_down = True
            self.world.after(self.world.chance.between(3_000 * MS, 15_000 * MS), self._restart_broker, broker)

    def _hit_disk(self, broker: Broker) -> None:
        """A dir of a dead broker is replaced or emptied. Before 3.7 the metadata names no dirs, and shows neither."""
        chance = self.world.chance
        controller = self.machine.active_controller()
        if controller is None or (broker.shutting_down and (broker.running or not controller.image.elr_enabled)):
            return
        if broker.running:
            self._cut(broker, power_cut=False)
        number = chance.below(len(broker.log_dirs))
        level = controller.image.metadata_version
        if level >= DIRECTORIES_SINCE and chance.happens(0.7):
            self.data_disks.replace(broker, number)
        else:
            self.data_disks.empty(broker, number)
        self._restart_later(broker)

    def _isolate_leader(self) -> None:
        """A leader of partitions loses its network, and does not know that it is replaced."""
        running = self._some_running(1)
        if running:
            others = [process.slot for process in self.cluster.processes if process.slot != running[0].slot]
            self.cluster.network.split(([running[0].slot], others))
            self.faults.heal_later(12_000 * MS)
