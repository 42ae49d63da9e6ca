"""Random runs of the workloads of two captures of real Kafka, so that what the engine writes can be held beside them.

*Incidents* is an idle cluster whose brokers stop and die now and then, as in the capture `elr`. A *storm* changes the
ISR of sixty partitions some hundred times a second, and every controller is killed in the middle, as in `crash`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.elr import PREFERRED
from kraft_engine.brokers.image import MIN_ISR
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.surroundings import Habits
from kraft_engine.world.world import MS

PARTITIONS_AT_ONCE = (8, 16)
STORM_PARTITIONS = 60
INCIDENT_TOPICS = 9


class LifelikeRun(KafkaRun):
    """Even seeds are incidents, odd ones storms: 4.3.1, ELR on, with the surroundings of a real cluster."""

    log_dir_counts = (1,)

    def __init__(self, seed: int, *, switches: Switches = ALL_ON) -> None:
        self.is_storm = bool(seed % 2)
        super().__init__(
            seed, switches=switches, metadata_version=30, controllers=3 if self.is_storm else 1,
            brokers=4 if self.is_storm else 5, elr=True, static=False,
        )  # fmt: skip
        settings = self.cluster.settings
        settings.append_linger_us, settings.max_batch_bytes, settings.max_batch_records = 25 * MS, 8 << 20, 10_000
        # What one broker's followers cause arrives at the controller over several appends.
        self.cluster.network.jitter_us = 5 * MS if self.is_storm else 34 * MS
        if self.is_storm:
            self.world.after(6_000 * MS, self._begin_storm)

    @staticmethod
    def _habits(seed: int) -> Habits:
        """As in the captures: a NoOpRecord a second."""
        return replace(Habits.of(seed), idle_interval_us=1_000 * MS)

    # Incidents

    def _request_pause_us(self, controller: Controller | None) -> int:
        few = len(controller.image.topics) < INCIDENT_TOPICS if controller is not None else True
        return 100 * MS if few else self.world.chance.between(1_000 * MS, 3_500 * MS)

    def _one_request(self, controller: Controller) -> None:
        chance, image = self.world.chance, controller.image
        alive = [broker for broker in sorted(image.brokers) if image.is_active(broker)]
        if self.is_storm or len(image.topics) < INCIDENT_TOPICS:
            self._create_topics(controller, alive)
            return
        partition = chance.choose(image.all_partitions())
        topic = image.topics[partition.topic_id]
        kind = chance.below(12)
        if kind < 7:
            controller.topic_config(topic, "retention.ms", chance.choose((None, "86400000", "604800000")))
        elif kind == 7:
            controller.topic_config(topic, MIN_ISR, chance.choose(("1", "2")))
        elif kind == 8 and len(alive) > 3:
            admin.reassign(controller, partition.topic_id, partition.index, chance.shuffled(alive)[:3])
        elif kind == 9:
            admin.security_change(controller)
        else:
            controller.elect(PREFERRED, partition)

    def _create_topics(self, controller: Controller, alive: list[int]) -> None:
        chance = self.world.chance
        if len(alive) < len(self.machine.brokers) or (self.is_storm and controller.image.topics):
            return
        count = STORM_PARTITIONS if self.is_storm else chance.choose((2, 2, 3))
        assignments = [chance.shuffled(alive)[:3] for _ in range(count)]
        name = f"topic-{chance.below(100_000)}"
        admin.create_topic(controller, name, assignments, topic_id=chance.uuid(), configs={MIN_ISR: "2"})

    def _fault(self, _: Any, __: Any) -> None:
        """One broker at a time: a stop, a kill, now and then a power cut that the promise allows."""
        if self.faults.are_over or self.is_storm:
            return
        if all(broker.running for broker in self.machine.brokers.values()) or self.world.chance.happens(0.3):
            self._hit_broker(self.world.chance.choose(list(self.machine.brokers.values())))
        self.world.after(self.world.chance.between(2_000 * MS, 7_000 * MS), self._fault)

    # Storms

    def _begin_storm(self, _: Any, __: Any) -> None:
        if self.faults.are_over:
            return
        ends_us = self.world.now_us + self.world.chance.between(2_500 * MS, 4_500 * MS)
        self._storm(ends_us, None)
        self.world.at(ends_us, self._kill_everything)

    def _storm(self, ends_us: int, _: Any) -> None:
        """A broker finds a follower of its partitions late, which joins again at its next fetch."""
        if self.faults.are_over or self.world.now_us >= ends_us:
            return
        self._drop_follower(self.world.chance.choose(list(self.machine.brokers.values())))
        self.world.after(self.world.chance.between(35 * MS, 60 * MS), self._storm, ends_us)

    def _drop_follower(self, broker: Broker) -> None:
        chance = self.world.chance
        node = self.machine.node_of(broker.slot)
        if node is None or not broker.running:
            return
        late = chance.choose([peer for peer in self.machine.broker_by_id if peer != broker.id])
        led = [key for key in sorted(broker.replicas) if broker.replicas[key].is_leader]
        shared = [key for key in led if late in broker.replicas[key].isr]
        for key in chance.shuffled(shared)[: chance.choose(PARTITIONS_AT_ONCE)]:
            broker.drop_follower(node, key, late)

    def _kill_everything(self, _: Any, __: Any) -> None:
        """kill -9 of every process under load; controllers come back at once, brokers later, under new incarnations."""
        if self.faults.are_over:
            return
        self.invariants.record("fault", what="every controller and broker killed")
        for broker in self.machine.brokers.values():
            self.machine.crash_broker(broker, power_cut=False)
            self.world.after(self.world.chance.between(6_000 * MS, 6_500 * MS), self._restart_broker, broker)
        for slot in self._controller_slots():
            self.cluster.crash(slot, power_cut=False)
            self.faults.restart_later(slot, 50 * MS)
        self.world.after(10_000 * MS, self._begin_storm)
