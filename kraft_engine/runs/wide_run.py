"""Random runs of a whole cluster: administrators use every operation, and brokers send invalid requests.

These runs add what KafkaRun leaves out, so that its seeds keep their meaning: every record type and level, cancelled
reassignments, transactions that their controller does not survive, kraft.version's upgrade, replaced disks.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.broker_messages import AlterPartitionRequest
from kraft_engine.brokers.controller import Controller, alter_error
from kraft_engine.brokers.elr import UNCLEAN
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, METADATA_VERSION, MIN_ISR
from kraft_engine.brokers.image_records import config
from kraft_engine.brokers.partition import NO_LEADER, RECOVERED, RECOVERING, UNASSIGNED, Partition
from kraft_engine.consensus.leader import drain
from kraft_engine.consensus.log_batches import Record
from kraft_engine.consensus.membership import Kip853
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.world.world import MS

CLIENT_METRICS, GROUP = 16, 32
WIDE_RUN_LEVELS = (5, 7, 8, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 29, 30, 33)
RELEASES = ((33, "4.4.0"), (30, "4.3.1"), (7, "4.3.1"), (0, "3.9.2"))


class WideRun(KafkaRun):
    """One seed's cluster, begun at any metadata.version from 3.3 to 4.4."""

    log_dir_counts = (2, 2, 1)
    has_disk_accidents = False

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, beyond_model: bool = False) -> None:
        level = WIDE_RUN_LEVELS[seed * 7 % len(WIDE_RUN_LEVELS)] if seed % 3 else 30
        release = next(name for first, name in RELEASES if level >= first)
        super().__init__(seed, switches=switches, beyond_model=beyond_model, metadata_version=level, release=release)
        self.membership = Kip853()
        self.world.after(500 * MS, self._idle)
        self.world.after(2_500 * MS, self._place)
        # Several administrators at once, and faults that come in threes.
        for number in range(3):
            self.world.after((2_100 + 100 * number) * MS, self._administer)
        for number in range(2):
            self.world.after((4_500 + 300 * number) * MS, self._fault)

    @staticmethod
    def _habits(seed: int) -> None:
        """These runs write NoOpRecords of their own."""

    # Timers

    def _place(self, _: Any, __: Any) -> None:
        """A broker with several dirs reports where it has put its replicas; now and then it loses a dir."""
        chance = self.world.chance
        if self.faults.are_over:
            return
        controller = self.machine.active_controller()
        broker = chance.choose(list(self.machine.brokers.values()))
        if controller is not None and controller.node.leader is not None:
            known = controller.image.brokers.get(broker.id)
            online = known["logDirs"] if known is not None else []
            for partition in controller.image.all_partitions():
                if online and broker.running and partition.directory_of(broker.id) == UNASSIGNED:
                    directory = online[partition.index % len(online)]
                    admin.assign_directory(controller, broker.id, partition.topic_id, partition.index, directory)
        if chance.happens(0.08):
            self._lose_directory(broker)
        self.world.after(chance.between(200 * MS, 1_200 * MS), self._place)

    def _idle(self, _: Any, __: Any) -> None:
        """metadata.max.idle.interval.ms: an active controller without work writes a NoOpRecord."""
        controller = self.machine.active_controller()
        if controller is not None and controller.node.leader is not None and controller.image.metadata_version >= 5:
            controller.write([("NoOpRecord", 0, {})])
        self.world.after(1_500 * MS, self._idle)

    def _one_request(self, controller: Controller) -> None:
        partitions = controller.image.all_partitions()
        if len(partitions) < 3 or self.world.chance.happens(0.5):
            super()._one_request(controller)
            return
        partition = self.world.chance.choose(partitions)
        self.world.chance.choose(REQUESTS)(self, controller, partition)

    # Requests

    def _cancel(self, controller: Controller, partition: Partition) -> None:
        """Cancels a reassignment that is under way; starts one where there is none."""
        busy = [candidate for candidate in controller.image.all_partitions() if candidate.adding or candidate.removing]
        if busy:
            chosen = self.world.chance.choose(busy)
            admin.cancel_reassignment(controller, chosen.topic_id, chosen.index)
        else:
            self._reassign(controller, partition)

    def _reassign(self, controller: Controller, partition: Partition) -> None:
        """To any registered brokers, dead ones too: it then waits, and may be cancelled."""
        known = sorted(controller.image.brokers)
        if known:
            target = self.world.chance.shuffled(known)[: self.world.chance.between(1, 4)]
            admin.reassign(controller, partition.topic_id, partition.index, target)

    def _nonsense(self, controller: Controller, partition: Partition) -> None:
        """An AlterPartition that its broker should never have sent: the controller must refuse it."""
        chance, image = self.world.chance, controller.image
        if not image.brokers or partition.leader == NO_LEADER:
            return
        flaw = chance.below(6)
        recovering = [
            candidate for candidate in image.all_partitions() if candidate.recovering and candidate.leader != NO_LEADER
        ]
        if recovering:
            partition, flaw = recovering[0], 6
        sender = chance.choose(sorted(image.brokers)) if flaw == 0 else partition.leader
        isr, recovery = list(partition.isr), RECOVERED
        if flaw == 1:
            isr = [broker for broker in partition.replicas if broker != partition.leader]
        elif flaw == 2:
            isr = sorted({*isr, chance.choose(sorted(image.brokers))})
        elif flaw == 6:
            recovery = RECOVERING
            isr = sorted({*isr, *(broker for broker in partition.replicas if image.is_active(broker))})
        elif flaw in (3, 4):
            recovery = RECOVERING
            isr = isr if flaw == 3 else [partition.leader]
        known = image.brokers.get(sender)
        if known is None:
            return
        # The epoch that a member had before its last restart.
        new_isr = tuple((broker, max(image.brokers[broker]["brokerEpoch"] - 1, 0) if flaw == 5 else -1)
                        for broker in isr if broker in image.brokers)  # fmt: skip
        request = AlterPartitionRequest(
            known["incarnationId"], sender, known["brokerEpoch"], (partition.topic_id, partition.index),
            partition.leader_epoch, partition.partition_epoch, new_isr, recovery, 1 << 30,
        )  # fmt: skip
        # One that nothing is wrong with would be a lie about who is in sync: that is beyond the model.
        if alter_error(controller.image, ALL_ON, request):
            controller.alter_partition(request, lambda response: None)

    def _die_in_transaction(self, controller: Controller, partition: Partition) -> None:
        """The controller's machine goes down in the middle of a transaction; the next one finds it open."""
        if controller.image.metadata_version < 13 or controller.image.before_transaction is not None:
            return
        node = controller.node

        def write(record: Record) -> bool:
            """A transaction is there to span batches."""
            return controller.write([record]) and node.leader is not None and drain(node, node.leader)

        done = write(("BeginTransactionRecord", 0, {"name": f"transaction-{self.world.chance.below(1000)}"}))
        count = self.world.chance.between(1, 4)
        for number in range(count):
            if node.leader is None:
                return
            if number == count - 1:
                node.disk.dies_before_sync = self.world.chance.happens(0.8)
                self.faults.restart_later(node.slot)
            done = done and write(config(BROKER, "", "log.cleaner.threads", str(number + 1)))
        if done and node.leader is not None:
            write(("EndTransactionRecord", 0, {}))

    def _configs(self, controller: Controller, partition: Partition) -> None:
        """Every kind of resource that has configs, and the changes that must be refused."""
        chance = self.world.chance
        kind = chance.below(6)
        if kind == 0 and controller.image.metadata_version >= 19:
            controller.write([config(CLIENT_METRICS, "slow", "interval.ms", chance.choose((None, "30000")))])
        elif kind == 1 and controller.image.metadata_version >= 22:
            controller.write([config(GROUP, "billing", "consumer.session.timeout.ms", chance.choose((None, "50000")))])
        elif kind == 2 and controller.image.brokers:
            broker = str(chance.choose(sorted(controller.image.brokers)))
            admin.broker_config(controller, broker, "log.cleaner.threads", chance.choose((None, "2", "4")))
        elif kind == 3:
            admin.broker_config(controller, "", MIN_ISR, None)
        elif kind == 4:
            node = str(chance.choose([process.id for process in self.cluster.processes]))
            admin.broker_config(controller, node, MIN_ISR, chance.choose((None, "1", "2", "3")))
        else:
            name = controller.image.topics[partition.topic_id]
            controller.topic_config(name, "retention.ms", chance.choose((None, "86400000", "604800000")))

    def _quotas(self, controller: Controller, partition: Partition) -> None:
        chance = self.world.chance
        entity = chance.choose((
            (("client-id", "reports"),), (("ip", "10.0.0.7"),), (("user", None),),
            (("user", "user-1"), ("client-id", None)),
        ))  # fmt: skip
        fields = {
            "entity": [{"entityType": kind, "entityName": name} for kind, name in entity],
            "key": "connection_creation_rate" if entity[0][0] == "ip" else "consumer_byte_rate",
            "value": float(chance.between(1, 100)),
            "remove": chance.happens(0.4) and entity in controller.image.quotas,
        }
        controller.write([("ClientQuotaRecord", 0, fields)])

    def _levels(self, controller: Controller, partition: Partition) -> None:
        """UpdateFeatures up, down (refused), of ELR, of kraft.version."""
        chance, image = self.world.chance, controller.image
        node = controller.node
        if chance.happens(0.4) and image.metadata_version >= 21 and node.history.version == 0:
            error = self.membership.upgrade_kraft_version(node)
            self.invariants.record("fault", what="kraft.version upgrade asked for", node=node.id, error=error)
        elif chance.happens(0.4):
            lower = [level for level in WIDE_RUN_LEVELS if level < image.metadata_version]
            if lower:
                admin.set_feature(controller, METADATA_VERSION, chance.choose(lower))
        elif image.metadata_version >= 23 and not image.elr_enabled:
            admin.set_feature(controller, ELR_FEATURE, 1)
        else:
            higher = [level for level in WIDE_RUN_LEVELS if level > image.metadata_version]
            # A metadata.version of a later release needs that release.
            if higher and higher[0] <= self.machine.bootstrap.release.newest_version:
                admin.set_feature(controller, METADATA_VERSION, higher[0])

    def _nodes(self, controller: Controller, partition: Partition) -> None:
        """Nodes come and go: unregistered while they run, or with a new disk."""
        chance = self.world.chance
        voters = controller.node.voters
        kind = chance.below(4)
        if kind == 0 and controller.image.controllers and controller.image.metadata_version >= 27:
            gone = chance.choose(sorted(controller.image.controllers))
            controller.write([("UnregisterControllerRecord", 0, {"controllerId": gone})])
        elif kind == 1 and len(controller.image.brokers) > 3:
            controller.unregister(chance.choose(sorted(controller.image.brokers)))
        elif kind == 2 and voters is not None and controller.node.history.version:
            self.faults.replace_disk(voters.keys)
        else:
            self._change_voters(controller)

    def _create_with_any(self, controller: Controller, partition: Partition) -> None:
        """CreateTopics with a manual assignment that names fenced brokers."""
        chance = self.world.chance
        known = sorted(controller.image.brokers)
        if len(known) >= 2 and len(controller.image.all_partitions()) < 12:
            assignment = chance.shuffled(known)[: chance.between(2, 4)]
            admin.create_topic(controller, f"manual-{chance.below(100_000)}", [assignment], topic_id=chance.uuid())

    def _elect_uncleanly(self, controller: Controller, partition: Partition) -> None:
        """Only where a leader is there, which must be refused, or beyond the model."""
        if partition.leader != NO_LEADER or self.beyond_model:
            controller.elect(UNCLEAN, partition)


class WideBeyondRun(WideRun):
    """The same beyond KIP-966's promise: power cuts without limit, unclean elections on request."""

    def __init__(self, seed: int, *, switches: Switches = ALL_ON) -> None:
        super().__init__(seed, switches=switches, beyond_model=True)


REQUESTS = (
    WideRun._cancel, WideRun._cancel, WideRun._reassign, WideRun._nonsense, WideRun._nonsense,
    WideRun._die_in_transaction, WideRun._configs, WideRun._configs, WideRun._quotas, WideRun._levels, WideRun._nodes,
    WideRun._create_with_any, WideRun._elect_uncleanly,
)  # fmt: skip
