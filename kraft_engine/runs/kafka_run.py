"""Random runs of a whole cluster: controllers, brokers, producers, administrators, and faults."""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.elr import PREFERRED, UNCLEAN, Release
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, METADATA_VERSION, MIN_ISR
from kraft_engine.brokers.image_records import config
from kraft_engine.brokers.machine import KafkaMachine
from kraft_engine.consensus.leader import drain
from kraft_engine.consensus.log_batches import Record
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft_settings import CLUSTER_ID, Settings
from kraft_engine.invariants.partition_invariants import PartitionInvariants
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.healing import Healing
from kraft_engine.runs.schedule import clean, make_snapshot
from kraft_engine.runs.surroundings import Habits, Surroundings
from kraft_engine.world.bootstrap import Bootstrap
from kraft_engine.world.faults import WITHIN_MODEL, Faults
from kraft_engine.world.processes import Cluster
from kraft_engine.world.random_accidents import RandomAccidents
from kraft_engine.world.world import MS, World

KAFKA_RUN_LEVELS = (7, 8, 11, 13, 14, 15, 17, 21, 23, 25, 27, 29, 30)


class KafkaRun:
    """One seed's cluster. Within the model at most min ISR - 1 brokers are in doubt after a power cut at once."""

    log_dir_counts: tuple[int, ...] = (1, 1, 2)
    has_disk_accidents = True
    # Whether captures hold the brokers' data dirs too.
    copies_data_dirs = False

    def __init__(
        self,
        seed: int,
        *,
        switches: Switches = ALL_ON,
        beyond_model: bool = False,
        metadata_version: int | None = None,
        release: str = "4.3.1",
        controllers: int | None = None,
        brokers: int | None = None,
        elr: bool | None = None,
        static: bool | None = None,
    ) -> None:
        self.world = World(seed)
        chance = self.world.chance
        self.beyond_model = beyond_model
        level = (
            metadata_version
            if metadata_version is not None
            else chance.choose((30, 30, 27, chance.choose(KAFKA_RUN_LEVELS)))
        )
        drawn_elr = None if chance.happens(0.8) else chance.below(2)
        bootstrap = Bootstrap(level, elr=drawn_elr if elr is None else int(elr), static_min_isr=1)
        bootstrap.release = Release(release)
        self.invariants = RaftInvariants(self.world)
        settings = Settings(CLUSTER_ID, pre_vote=bootstrap.release.pre_vote)
        settings.elects_among_voters_only = bootstrap.release.elects_among_voters_only
        settings.append_linger_us = chance.choose((25, 25, 25, 100)) * MS
        settings.max_batch_bytes = chance.choose((8 << 20, 8 << 20, 1_000))
        settings.max_batch_records = chance.choose((10_000, 10_000, 10_000, 5))
        self.cluster = Cluster(self.world, settings, Kip853(), self.invariants, switches=switches,
                               segment_limit_bytes=chance.choose((20_000, 1 << 30)))  # fmt: skip
        self.invariants.cluster = self.cluster
        habits = self._habits(seed)
        if habits is not None:
            habits.apply(settings, self.cluster)
        self.partition_invariants = PartitionInvariants(self.invariants)
        self.partition_invariants.operations.unclean_is_asked = beyond_model
        self.machine = KafkaMachine(self.cluster, bootstrap, self.partition_invariants)
        count = controllers if controllers is not None else chance.choose((1, 3, 3))
        ids = tuple(range(3000, 3000 + count))
        is_dynamic = level >= 21 and chance.happens(0.8)
        if is_dynamic if static is None else not static:
            self.cluster.format_initial_controllers(ids)
            for extra in range(chance.below(3)):
                self.cluster.add_process(3000 + count + extra)
        else:
            self.cluster.format_static(ids)
        broker_count = brokers if brokers is not None else chance.between(3, 6)
        for number in range(broker_count):
            dirs = chance.choose(self.log_dir_counts)
            self.machine.add_broker(number + 1, log_dir_count=dirs, rack=f"rack-{number % 3}")
        self.surroundings = Surroundings(self.cluster, self.machine, habits) if habits is not None else None
        self.faults = Faults(self.cluster, self.invariants, slots=self._controller_slots, restart=self.cluster.restart)
        # Beyond the model two of seven seeds have accidents of the controllers' disks too, as random-raft-beyond has.
        has_accidents = beyond_model and self.has_disk_accidents and seed % 7 in (0, 6)
        self.accidents = RandomAccidents(self.faults) if has_accidents else None
        self.value = 0
        self.doubtful: set[int] = set()
        for process in self.cluster.processes:
            if process.slot not in self.machine.brokers:
                self.cluster.start(process)
        for broker in self.machine.brokers.values():
            self.machine.start_broker(broker)
        self.world.after(100 * MS, self._produce)
        self.world.after(2_000 * MS, self._administer)
        self.world.after(4_000 * MS, self._fault)
        self.world.after(900 * MS, self._housekeeping)

    @staticmethod
    def _habits(seed: int) -> Habits | None:
        """Every fourth seed has the surroundings of a real cluster; the others keep their meaning."""
        return Habits.of(seed) if seed % 4 == 2 else None

    def run(self, events: int) -> int:
        return self.world.run(events=events)

    def heal(self) -> bool:
        """Ends the run: see `Healing`."""
        return Healing(self.cluster, self.invariants, self.faults, self.machine).run()

    # Clients

    def _produce(self, _: Any, __: Any) -> None:
        """A producer writes to any broker that considers itself the leader, a zombie too."""
        if self.faults.are_over:
            return
        brokers = [broker for broker in self.machine.brokers.values() if broker.running]
        for _ in range(2):
            if brokers:
                broker = self.world.chance.choose(brokers)
                leading = [key for key in sorted(broker.replicas) if broker.replicas[key].is_leader]
                if leading and not self.machine.is_paused(broker.slot):
                    self.value += 1
                    acks_all = self.world.chance.happens(0.7)
                    broker.produce(self.world.chance.choose(leading), self.value, acks_all=acks_all)
        self.world.after(self.world.chance.below(60 * MS), self._produce)

    def _administer(self, _: Any, __: Any) -> None:
        if self.faults.are_over:
            return
        controller = self.machine.active_controller()
        if controller is not None and controller.node.leader is not None:
            self._one_request(controller)
        self.world.after(self._request_pause_us(controller), self._administer)

    def _request_pause_us(self, controller: Controller | None) -> int:
        """How long administrators wait before the next request; `controller` is whom they asked last."""
        return self.world.chance.between(200 * MS, 1_500 * MS)

    def _one_request(self, controller: Controller) -> None:
        chance = self.world.chance
        image = controller.image
        partitions = image.all_partitions()
        if len(partitions) < 3 or (len(partitions) < 8 and chance.happens(0.15)):
            self._create(controller)
            return
        partition = chance.choose(partitions)
        topic = image.topics[partition.topic_id]
        kind = chance.below(14)
        if kind == 0:
            controller.topic_config(topic, MIN_ISR, chance.choose((None, "1", "2", "3")))
        elif kind == 1:
            self._cluster_min_isr(controller)
        elif kind == 2:
            alive = [broker for broker in sorted(image.brokers) if image.is_active(broker)]
            count = min(chance.between(1, 4), len(alive))
            if count:
                target = chance.shuffled(alive)[:count]
                admin.reassign(controller, partition.topic_id, partition.index, target)
        elif kind == 3:
            controller.elect(PREFERRED, partition)
        elif kind == 4 and self.beyond_model and chance.happens(0.3):
            controller.elect(UNCLEAN, partition)
        elif kind == 5:
            self._assign(controller)
        elif kind == 6 and len(image.topics) > 2 and chance.happens(0.3):
            self._delete(controller, partition.topic_id)
        elif kind == 7 and self.beyond_model and chance.happens(0.3):
            value = chance.choose((None, "true", "false"))
            controller.topic_config(topic, "unclean.leader.election.enable", value)
        elif kind == 8:
            self._features(controller)
        elif kind == 9 and image.brokers:
            admin.allocate_producer_ids(controller, chance.choose(sorted(image.brokers)))
        elif kind == 10 and image.metadata_version >= 13:
            self._transaction(controller)
        elif kind == 11 and chance.happens(0.3):
            self._unregister(controller)
        elif kind == 12:
            self._change_voters(controller)
        else:
            admin.security_change(controller)

    def _cluster_min_isr(self, controller: Controller) -> None:
        """The cluster's default or, as long as ELR is off, one node's: a broker and the controller then differ."""
        chance = self.world.chance
        nodes = ["", "", *(str(process.id) for process in self.cluster.processes)]
        admin.broker_config(controller, chance.choose(nodes), MIN_ISR, chance.choose(("1", "2", "3")))

    def _transaction(self, controller: Controller) -> None:
        """A metadata transaction over several batches; a controller that dies in it leaves the abort to the next."""
        name = f"transaction-{self.world.chance.below(1000)}"

        def write(record: Record) -> bool:
            node = controller.node
            return controller.write([record]) and node.leader is not None and drain(node, node.leader)

        done = write(("BeginTransactionRecord", 0, {"name": name}))
        for _ in range(self.world.chance.between(1, 4)):
            value = str(self.world.chance.between(1, 9))
            done = done and write(config(BROKER, "", "log.cleaner.threads", value))
        end: Record = ("EndTransactionRecord", 0, {})
        if self.world.chance.happens(0.4):
            end = ("AbortTransactionRecord", 0, {"reason": "given up"})
        if done:
            write(end)

    def _unregister(self, controller: Controller) -> None:
        gone = [
            broker.id
            for broker in self.machine.brokers.values()
            if not broker.running
            and broker.id in controller.image.brokers
            and not controller.image.is_active(broker.id)
        ]
        if gone:
            controller.unregister(self.world.chance.choose(gone))

    def _change_voters(self, controller: Controller) -> None:
        """Adds a spare controller, or removes a voter, as an administrator would."""
        chance, cluster = self.world.chance, self.cluster
        voters = controller.node.voters
        if voters is None or controller.node.history.version == 0:
            return
        spare = [
            process for process in cluster.processes
            if process.can_become_voter and not voters.contains((process.id, process.disk.directory))
        ]  # fmt: skip
        if spare and (len(voters) < 4 or chance.happens(0.4)):
            voter = cluster.voter_of(chance.choose(spare))
            cluster.ask(controller.node.slot, AddRaftVoterRequest(CLUSTER_ID, voter))
        elif len(voters) > 1:
            key = chance.choose(voters.keys)
            if cluster.survives_without(key, removed=True):
                cluster.ask(controller.node.slot, RemoveRaftVoterRequest(CLUSTER_ID, key))

    def _create(self, controller: Controller) -> None:
        chance = self.world.chance
        alive = [broker for broker in sorted(controller.image.brokers) if controller.image.is_active(broker)]
        if not alive:
            return
        factor = min(3, len(alive))
        assignments = [chance.shuffled(alive)[:factor] for _ in range(chance.between(1, 3))]
        configs = {MIN_ISR: "2"} if chance.happens(0.6) else {}
        name = f"topic-{chance.below(100_000)}"
        admin.create_topic(controller, name, assignments, topic_id=chance.uuid(), configs=configs)

    def _delete(self, controller: Controller, topic_id: bytes) -> None:
        admin.delete_topic(controller, topic_id)

    def _assign(self, controller: Controller) -> None:
        broker = self.world.chance.choose(list(self.machine.brokers.values()))
        if broker.replicas and len(broker.log_dirs) > 1 and broker.id in controller.image.brokers:
            key = self.world.chance.choose(sorted(broker.replicas))
            if key[0] in controller.image.partitions and key[1] in controller.image.partitions[key[0]]:
                directory = self.world.chance.choose(controller.image.brokers[broker.id]["logDirs"] or [bytes(16)])
                if directory != bytes(16):
                    admin.assign_directory(controller, broker.id, key[0], key[1], directory)

    def _features(self, controller: Controller) -> None:
        level = controller.image.metadata_version
        newest = self.machine.bootstrap.release.newest_version
        higher = [candidate for candidate in KAFKA_RUN_LEVELS if level < candidate <= newest]
        if higher and self.world.chance.happens(0.5):
            admin.set_feature(controller, METADATA_VERSION, higher[0])
        elif level >= 23 and not controller.image.elr_enabled:
            admin.set_feature(controller, ELR_FEATURE, 1)

    # Faults

    def _controller_slots(self) -> list[int]:
        """Controllers alone: brokers crash in a step of their own, which also costs them unsynced data."""
        return [process.slot for process in self.cluster.processes if process.slot not in self.machine.brokers]

    def _fault(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        if self.faults.are_over:
            return
        kind = chance.below(12)
        if kind < 4:
            self._hit_broker(chance.choose(list(self.machine.brokers.values())))
        elif kind == 4:
            self._lose_directory(chance.choose(list(self.machine.brokers.values())))
        elif kind == 5:
            self._sync()
        elif kind == 6:
            self._slow_metadata(chance.choose(list(self.machine.brokers.values())))
        else:
            self.faults.strike(chance.choose(WITHIN_MODEL))
            self.faults.heal_later(6_000 * MS)
        if self.accidents is not None and chance.happens(0.15):
            self.accidents.strike()
        self.world.after(chance.between(500 * MS, 3_000 * MS), self._fault)

    def _hit_broker(self, broker: Broker) -> None:
        chance = self.world.chance
        if not broker.running:
            return
        if chance.happens(0.4):
            self.invariants.seen["broker: controlled shutdown"] += 1
            broker.shutting_down = True
        else:
            power_cut = self._may_lose(broker) and chance.happens(0.7)
            self.invariants.seen[f"broker: {'power cut' if power_cut else 'killed'}"] += 1
            lost = self.machine.crash_broker(broker, power_cut=power_cut)
            self.invariants.record("broker_crash", broker=broker.id, power_cut=power_cut, lost_records=lost)
            if power_cut:
                self.doubtful.add(broker.id)
        self.world.after(chance.between(200 * MS, 9_000 * MS), self._restart_broker, broker)

    def _may_lose(self, broker: Broker) -> bool:
        """Another power cut is within KIP-966's promise while fewer than min ISR replicas are in doubt."""
        if self.beyond_model:
            self.partition_invariants.allow_data_loss("power cuts without limit", broker=broker.id)
            return True
        controller = self.machine.active_controller()
        if controller is None or not controller.image.elr_enabled:
            return False
        self._forget_doubts(controller)
        smallest = min(
            (
                controller.min_isr(topic_id)
                for topic_id in controller.image.topics
                if controller.image.partitions[topic_id]
            ),
            default=1,
        )
        return len(self.doubtful | {broker.id}) < smallest

    def _forget_doubts(self, controller: Controller) -> None:
        """A broker is trusted again when it is back in the ISR of every partition that it has."""
        for broker_id in sorted(self.doubtful):
            if all(
                broker_id in partition.isr
                for partition in controller.image.all_partitions()
                if broker_id in partition.replicas
            ):
                self.doubtful.discard(broker_id)

    def _restart_broker(self, broker: Broker, _: Any) -> None:
        if self.cluster.processes[broker.slot].node is None:
            self.machine.start_broker(broker)

    def _lose_directory(self, broker: Broker) -> None:
        online = [directory for directory in broker.log_dirs if directory not in broker.offline_dirs]
        if len(online) > 1:
            self.invariants.seen["broker: log dir offline"] += 1
            broker.offline_dirs.append(online[-1])
        elif broker.offline_dirs and not broker.running:
            broker.offline_dirs.clear()

    def _slow_metadata(self, broker: Broker) -> None:
        """A broker hears from the controllers late: it acts on old metadata while data flows as ever."""
        for process in self.cluster.processes:
            if process.can_become_voter:
                self.cluster.network.slow_links[(process.slot, broker.slot)] = self.world.chance.below(1_500 * MS)

    def _sync(self) -> None:
        for broker in self.machine.brokers.values():
            for replica in broker.replicas.values():
                replica.sync()

    def _housekeeping(self, _: Any, __: Any) -> None:
        nodes = [process.node for process in self.cluster.processes if process.node is not None and not process.paused]
        if nodes:
            node = self.world.chance.choose(nodes)
            if not self.world.chance.happens(0.6):
                clean(node)
            elif self.surroundings is None:
                make_snapshot(node)
        if self.accidents is not None:
            self.accidents.back_up()
            self.accidents.note_losses()
        self.world.after(self.world.chance.between(500 * MS, 3_000 * MS), self._housekeeping)
