"""A stage on which a scenario plays: a cluster, and the verbs that describe an incident."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from kraft_codec.schemas import Dialect
from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.broker_messages import PLAINTEXT, Listener
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.elr import Release
from kraft_engine.brokers.image import MIN_ISR
from kraft_engine.brokers.machine import KafkaMachine
from kraft_engine.brokers.partition import Partition
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest, VoterChangeResponse
from kraft_engine.consensus.protocols import Membership
from kraft_engine.consensus.raft import LEADER, RaftNode
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, Voter, VoterSet
from kraft_engine.invariants.partition_invariants import PartitionInvariants
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.surroundings import Habits, Surroundings
from kraft_engine.world.bootstrap import Bootstrap
from kraft_engine.world.capturing import Recorder
from kraft_engine.world.data_disk_accidents import DataDiskAccidents
from kraft_engine.world.disks import Disk
from kraft_engine.world.processes import Cluster, Process
from kraft_engine.world.world import MS, World

PATIENCE_US = 120_000 * MS
MIN_ISR_2 = {MIN_ISR: "2"}
"""The configs of a topic whose partitions need two replicas in sync."""


class Stage:
    """A cluster and its verbs. A verb runs the world until its effect has happened, or raises TimeoutError.

    `habits` give it the surroundings of a real cluster: then it writes NoOpRecords and snapshots by itself.
    `follows_losses` is for stories about lost records (KafkaMachine.follow_losses).
    """

    def __init__(
        self,
        seed: int,
        out: Path,
        *,
        metadata_version: int = 30,
        elr: int | None = None,
        static_min_isr: int = 1,
        release: str = "4.3.1",
        switches: Switches = ALL_ON,
        rules: Membership | None = None,
        dialect: Dialect = Dialect.KIP853,
        cluster_id: str | None = None,
        segment_limit_bytes: int = 1 << 30,
        habits: Habits | None = None,
        follows_losses: bool = False,
    ) -> None:
        self.world = World(seed)
        from kraft_codec.text.java_text import uuid_text

        drawn = uuid_text(self.world.chance.uuid())
        rules_of_release = Release(release)
        self.settings = Settings(cluster_id or drawn, pre_vote=rules_of_release.pre_vote)
        self.settings.truncation_rewinds_voters = rules_of_release.truncation_rewinds_voters
        self.settings.elects_among_voters_only = rules_of_release.elects_among_voters_only
        self.invariants = RaftInvariants(self.world)
        self.cluster = Cluster(
            self.world,
            self.settings,
            rules if rules is not None else Kip853(),
            self.invariants,
            switches=switches,
            segment_limit_bytes=segment_limit_bytes,
        )
        self.invariants.cluster = self.cluster
        if habits is not None:
            habits.apply(self.settings, self.cluster)
        self.partitions = PartitionInvariants(self.invariants)
        # Stories elect as they need to.
        self.partitions.operations.unclean_is_asked = True
        self.bootstrap = Bootstrap(metadata_version, elr=elr, static_min_isr=static_min_isr)
        self.bootstrap.release = rules_of_release
        self.machine = KafkaMachine(self.cluster, self.bootstrap, self.partitions)
        if follows_losses:
            self.machine.follow_losses()
        self.data_disks = DataDiskAccidents(self.machine, self.invariants)
        self.surroundings = Surroundings(self.cluster, self.machine, habits) if habits is not None else None
        self.recorder = Recorder(
            out,
            self.cluster,
            self.invariants,
            dialect=dialect,
            bootstrap_records=self.bootstrap.feature_records(),
            brokers=self.machine.brokers.get,
        )
        self.value = 0

    # Time

    def run_ms(self, milliseconds: int) -> None:
        self.world.run(until_us=self.world.now_us + milliseconds * MS)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        if not self.world.run_until(condition, limit_us=PATIENCE_US):
            raise TimeoutError(f"{what} did not happen within {PATIENCE_US // MS} ms (seed {self.world.seed})")

    def fault(self, what: str, **fields: Any) -> None:
        self.invariants.record("fault", what=what, **fields)
        self.invariants.say(0, what)

    def happened(self, what: str, *broker_ids: int) -> None:
        """Says in the truth what it was that these brokers went through, in the words of whoever ran them."""
        self.invariants.record("happened", what=what, brokers=list(broker_ids))

    # Controllers

    def controllers(self, *ids: int, static: bool = False) -> list[Process]:
        """Formats and starts controllers: static voters, or --initial-controllers."""
        made = self.cluster.format_static(ids) if static else self.cluster.format_initial_controllers(ids)
        for process in made:
            self.cluster.start(process)
        self.leader()
        return made

    def spare_controller(self, node_id: int) -> Process:
        """A controller formatted --no-initial-controllers, started: an observer that may be added."""
        process = self.cluster.add_process(node_id)
        self.cluster.start(process)
        self.until(lambda: self.caught_up(node_id), f"controller {node_id} catching up")
        return process

    def caught_up(self, node_id: int) -> bool:
        leader = self.cluster.ready_leader()
        node = self.cluster.processes[self.cluster.slot_of(node_id)].node
        return leader is not None and node is not None and 0 < node.log.end_offset == leader.log.end_offset

    def leader(self) -> RaftNode:
        """The leader whose epoch is committed; runs until there is one."""
        self.until(lambda: self.cluster.ready_leader() is not None, "an election")
        node = self.cluster.ready_leader()
        if node is None:
            raise TimeoutError("the leader went as it came")
        return node

    def node(self, node_id: int) -> RaftNode:
        node = self.cluster.processes[self.cluster.slot_of(node_id)].node
        if node is None:
            raise ValueError(f"node {node_id} is not running")
        return node

    def slot(self, node_id: int) -> int:
        return self.cluster.slot_of(node_id)

    def controller(self) -> Controller:
        self.leader()
        self.until(lambda: self.machine.active_controller() is not None, "an active controller")
        controller = self.machine.active_controller()
        if controller is None:
            raise TimeoutError("the active controller went as it came")
        return controller

    def crash(self, node_id: int) -> None:
        self.fault("crash", node=node_id)
        self.cluster.crash(self.slot(node_id))

    def stop(self, node_id: int) -> None:
        self.fault("stop", node=node_id)
        self.cluster.stop(self.slot(node_id))

    def start(self, node_id: int) -> None:
        self.fault("start", node=node_id)
        self.cluster.restart(self.slot(node_id))

    def isolate(self, *node_ids: int) -> None:
        """Cuts these nodes off from all others; they still reach each other."""
        self.fault("isolate", nodes=list(node_ids))
        inside = [self.slot(node_id) for node_id in node_ids]
        outside = [process.slot for process in self.cluster.processes if process.slot not in inside]
        self.cluster.network.split((inside, outside))

    def heal(self) -> None:
        self.fault("heal")
        self.cluster.network.heal()

    def settle(self) -> None:
        """Until every running node holds and knows to be committed everything that the leader has."""

        def quiet() -> bool:
            leader = self.cluster.ready_leader()
            if leader is None or leader.leader is None:
                return False
            end = leader.log.end_offset
            same_epoch = all(
                node.log.end_offset == end and node.high_watermark == end and node.epoch == leader.epoch
                for node in self.cluster.nodes()
            )
            return same_epoch and leader.leader.high_watermark == end

        self.until(quiet, "settling")

    def settle_controllers(self) -> None:
        """As `settle`, for the controllers alone: brokers may be down."""
        leader = self.leader()
        end = leader.log.end_offset
        controllers = [node for node in self.cluster.nodes() if node.can_become_voter]
        self.until(lambda: all(node.high_watermark >= end for node in controllers), "settling")

    # Membership

    def configure_voters(self, node_ids: Collection[int], voters: Collection[int]) -> None:
        """What controller.quorum.voters names at the next start of these nodes; formats those that are not there."""
        named = VoterSet(Voter(each, NO_DIRECTORY, *self.cluster.endpoint_of(each)) for each in voters)
        for node_id in node_ids:
            if node_id in self.cluster.slots_by_id:
                self.cluster.processes[self.slot(node_id)].static_voters = named
            else:
                self.cluster.add_process(node_id, static_voters=named)

    def add_voter(self, node_id: int) -> str:
        process = self.cluster.processes[self.slot(node_id)]
        leader = self.leader()
        request = AddRaftVoterRequest(self.settings.cluster_id, self.cluster.voter_of(process))
        return self._answer(self.cluster.ask(leader.slot, request))

    def remove_voter(self, node_id: int, directory: bytes | None = None) -> str:
        leader = self.leader()
        voters = leader.voters
        if directory is None and voters is not None:
            directory = next((key[1] for key in voters.keys if key[0] == node_id), bytes(16))
        request = RemoveRaftVoterRequest(self.settings.cluster_id, (node_id, directory or bytes(16)))
        return self._answer(self.cluster.ask(leader.slot, request))

    def _answer(self, correlation: int) -> str:
        self.until(lambda: correlation in self.cluster.replies, "an answer")
        reply = self.cluster.replies[correlation]
        return reply.error if isinstance(reply, VoterChangeResponse) else ""

    def replace_disk(self, node_id: int) -> None:
        """A failed disk, a new one under a new directory id; the node is started again."""
        slot = self.slot(node_id)
        process = self.cluster.processes[slot]
        old_key, old_end = (process.id, process.disk.directory), process.disk.log.end_offset
        self.fault("disk replaced", node=node_id, old_directory_id=old_key[1])
        self.cluster.replace_disk(slot)
        self.invariants.forget(slot, replaced=old_key, end_offset=old_end)
        self.cluster.restart(slot)

    def wipe_disk(self, node_id: int) -> None:
        """The log is gone and the directory id is the old one: beyond Raft's model."""
        slot = self.slot(node_id)
        process = self.cluster.processes[slot]
        self.cluster.crash(slot)
        self.invariants.damage("wiped disk, same directory id", node=node_id)
        process.disk.wipe_log(self.world.wall_ms())
        self.invariants.forget(slot)
        self.machine.images.pop(slot, None)

    def disk_accident(self, label: str, *node_ids: int, change: Callable[[Disk], object]) -> None:
        """Stops these nodes and changes each one's disk (see `world.disk_accidents`): beyond Raft's model."""
        for node_id in node_ids:
            slot = self.slot(node_id)
            self.cluster.crash(slot, power_cut=False)
            self.invariants.damage(label, node=node_id)
            change(self.cluster.processes[slot].disk)
            self.invariants.forget(slot)
            self.machine.images.pop(slot, None)

    def disk(self, node_id: int) -> Disk:
        return self.cluster.processes[self.slot(node_id)].disk

    # Brokers

    def brokers(
        self,
        *ids: int,
        racks: tuple[str | None, ...] = (),
        log_dirs: int = 1,
        listener: Listener = PLAINTEXT,
    ) -> list[Broker]:
        """Formats and starts brokers; runs until the controller has unfenced them all."""
        made = [
            self.machine.add_broker(broker_id, log_dir_count=log_dirs, rack=racks[number] if racks else None)
            for number, broker_id in enumerate(ids)
        ]
        for broker in made:
            broker.listener = listener
            self.machine.start_broker(broker)
        for broker in made:
            self.until(lambda broker=broker: self.is_active(broker.id), f"broker {broker.id} unfenced")  # type: ignore[misc]
        return made

    def is_active(self, broker_id: int) -> bool:
        controller = self.machine.active_controller()
        return controller is not None and controller.image.is_active(broker_id)

    def kill_broker(self, broker_id: int, *, power_cut: bool = True, wait: bool = True) -> None:
        """kill -9; with a power cut unsynced records may go. Waits until the controller has fenced it."""
        broker = self.machine.broker_by_id[broker_id]
        lost = self.machine.crash_broker(broker, power_cut=power_cut)
        self.fault("broker killed", broker=broker_id, power_cut=power_cut, lost_records=lost)
        if wait:
            self.until(lambda: not self.is_active(broker_id), f"broker {broker_id} fenced")

    def flush_every(self, milliseconds: int, *broker_ids: int) -> None:
        """These brokers flush their logs that often; a power cut takes all that they had not flushed."""
        for broker_id in broker_ids:
            self.machine.broker_by_id[broker_id].flush_interval_us = milliseconds * MS

    def flush(self, *broker_ids: int) -> None:
        """Flushes what these brokers hold now."""
        for broker_id in broker_ids:
            for replica in self.machine.broker_by_id[broker_id].replicas.values():
                replica.sync()

    def lose_committed(self, broker_id: int, topic_id: bytes, count: int) -> None:
        """A broker that is down has lost this many committed records of partition 0, and what came after them."""
        committed = len(self.partitions.committed[(topic_id, 0)])
        replica = self.machine.broker_by_id[broker_id].replicas[(topic_id, 0)]
        replica.truncate(min(committed - count, replica.end_offset))
        self.fault("committed records lost", broker=broker_id, partition=0, records=count)

    def stop_broker(self, broker_id: int) -> None:
        """A controlled shutdown, to its end."""
        broker = self.machine.broker_by_id[broker_id]
        self.fault("broker stops", broker=broker_id)
        broker.shutting_down = True
        self.until(lambda: not broker.running, f"broker {broker_id} stopping")

    def freeze_broker(self, broker_id: int) -> None:
        """SIGSTOP until the controller has fenced it, then SIGCONT until it is back."""
        self.fault("broker paused", broker=broker_id)
        self.cluster.pause(self.slot(broker_id))
        self.until(lambda: not self.is_active(broker_id), f"broker {broker_id} fenced")
        self.fault("broker resumed", broker=broker_id)
        self.cluster.resume(self.slot(broker_id))
        self.until(lambda: self.is_active(broker_id), f"broker {broker_id} unfenced")

    def start_broker(self, broker_id: int, *, wait: bool = True) -> None:
        self.fault("broker starts", broker=broker_id)
        self.machine.start_broker(self.machine.broker_by_id[broker_id])
        if wait:
            self.until(lambda: self.is_active(broker_id), f"broker {broker_id} unfenced")

    # Topics

    def topic(self, name: str, *assignments: list[int], configs: dict[str, str] | None = None) -> bytes:
        topic_id = self.world.chance.uuid()
        if not admin.create_topic(self.controller(), name, list(assignments), topic_id=topic_id, configs=configs):
            raise ValueError(f"topic {name} was not created")
        return topic_id

    def partition(self, topic_id: bytes, index: int = 0) -> Partition:
        return self.controller().image.partition(topic_id, index)

    def until_isr(self, topic_id: bytes, *members: int, index: int = 0) -> None:
        wanted = set(members)
        self.until(lambda: set(self.partition(topic_id, index).isr) == wanted, f"ISR {sorted(wanted)}")

    def produce(self, topic_id: bytes, count: int = 10, *, index: int = 0, acks_all: bool = True) -> int:
        """Writes to the current leader; returns how many the leader accepted."""
        accepted = 0
        for _ in range(count):
            for broker in self.machine.brokers.values():
                replica = broker.replicas.get((topic_id, index))
                if replica is not None and replica.is_leader and broker.running:
                    self.value += 1
                    accepted += broker.produce((topic_id, index), self.value, acks_all=acks_all)
            self.run_ms(70)
        return accepted

    def leaders(self) -> list[RaftNode]:
        """Every node that considers itself the leader, zombies included."""
        return [node for node in self.cluster.nodes() if node.role == LEADER]

    def capture(self, name: str, *node_ids: int) -> Path:
        return self.recorder.capture(name, node_ids or None)
