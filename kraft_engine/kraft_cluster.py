"""A simulated KRaft cluster that tests and scenario files drive: start, stop, kill, cut, produce, capture.

The engine's invariants are checked after every event; the call during which one breaks raises
InvariantViolationError. The same seed and the same calls give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft_engine.brokers.controller_admin import reassign
from kraft_engine.runs.chronicle import timeline_text
from kraft_engine.runs.scenario_stage import Stage

CONTROLLERS = (1, 2, 3)
BROKERS = (11, 12, 13)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the active controller has it. `leader` is -1 where there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


class KraftCluster:
    """A cluster by the node ids that an operator uses. Every verb runs the cluster until its effect has happened.

    A verb whose effect does not happen within two minutes of logical time raises TimeoutError. `stage` is the
    engine's own interface, for what is not here.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._topic_ids: dict[str, bytes] = {}

    @classmethod
    def started(
        cls,
        out: Path,
        *,
        seed: int = 1,
        controllers: tuple[int, ...] = CONTROLLERS,
        brokers: tuple[int, ...] = BROKERS,
        static: bool = False,
        **settings: Any,
    ) -> KraftCluster:
        """A cluster with a leader and all brokers unfenced, which writes its captures below `out`.

        `settings`: `release`, `metadata_version` (a level), `elr` (0 or 1), `static_min_isr`, `switches`.
        """
        cluster = cls(Stage(seed, out, **settings))
        cluster.stage.controllers(*controllers, static=static)
        if brokers:
            cluster.stage.brokers(*brokers)
        return cluster

    # Nodes

    @property
    def seed(self) -> int:
        return self.stage.world.seed

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every node id, controllers and brokers, running or not."""
        return tuple(process.id for process in self.stage.cluster.processes)

    def is_running(self, node_id: int) -> bool:
        return self.stage.cluster.processes[self._slot(node_id)].node is not None

    def start(self, *node_ids: int) -> None:
        """Starts stopped or killed nodes; a broker is waited for until it is unfenced."""
        for node_id in node_ids:
            if self._is_broker(node_id):
                self.stage.start_broker(node_id)
            else:
                self.stage.start(node_id)

    def stop(self, *node_ids: int) -> None:
        """Clean stops: a broker's controlled shutdown to its end, a leading controller resigns first."""
        for node_id in node_ids:
            if self._is_broker(node_id):
                self.stage.stop_broker(node_id)
            else:
                self.stage.stop(node_id)

    def kill(self, *node_ids: int, power_cut: bool = True) -> None:
        """kill -9 of all of them at once. A power cut also takes what was not synced."""
        for node_id in node_ids:
            if self._is_broker(node_id):
                self.stage.kill_broker(node_id, power_cut=power_cut, wait=False)
            else:
                self.stage.fault("crash", node=node_id)
                self.stage.cluster.crash(self._slot(node_id), power_cut=power_cut)

    def pause(self, *node_ids: int) -> None:
        """Nothing is handled and time goes on, as in a long collection of garbage."""
        for node_id in node_ids:
            self.stage.fault("pause", node=node_id)
            self.stage.cluster.pause(self._slot(node_id))

    def resume(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.stage.fault("resume", node=node_id)
            self.stage.cluster.resume(self._slot(node_id))

    def replace_disk(self, node_id: int) -> None:
        """A new, empty disk under a new directory id; the controller is started again, as an observer."""
        self.stage.replace_disk(node_id)

    def wipe_disk(self, node_id: int) -> None:
        """The log is gone under the old directory id: beyond Raft's model. The controller stays down."""
        self.stage.wipe_disk(node_id)

    # Network

    def cut(self, *node_ids: int) -> None:
        """Cuts these nodes off from all others, both ways; they still reach each other."""
        for node_id in node_ids:
            self._slot(node_id)
        self.stage.isolate(*node_ids)

    def cut_one_way(self, source: int, destination: int) -> None:
        """Drops what `source` sends to `destination`; the opposite direction works."""
        self.stage.fault("one-way cut", source=source, destination=destination)
        self.stage.cluster.network.block(self._slot(source), self._slot(destination))

    def heal(self) -> None:
        """All links carry again."""
        self.stage.heal()

    # Quorum

    @property
    def leader(self) -> int:
        """The id of the active controller: runs until an election has been won and its epoch is committed."""
        return self.stage.leader().id

    @property
    def voters(self) -> tuple[int, ...]:
        """The ids of the latest voter set of the leader, uncommitted included."""
        voters = self.stage.leader().voters
        return voters.ids if voters is not None else ()

    @property
    def committed_offset(self) -> int:
        """The end of what is committed, seen from outside: no node knows it this well."""
        return self.stage.invariants.ledger.committed_offset

    def add_controller(self, node_id: int) -> None:
        """A controller formatted with --no-initial-controllers, started, caught up: an observer."""
        self.stage.spare_controller(node_id)

    def add_voter(self, node_id: int) -> str:
        """add-controller: the answer's error, "" where the voter was added."""
        return self.stage.add_voter(node_id)

    def remove_voter(self, node_id: int) -> str:
        """remove-controller: the answer's error, "" where the voter was removed."""
        return self.stage.remove_voter(node_id)

    # Topics

    def topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        replicas: list[list[int]] | None = None,
        configs: dict[str, Any] | None = None,
    ) -> None:
        """Creates a topic: by counts over all brokers, or with `replicas`, a list of broker ids a partition."""
        if replicas is None:
            ids = sorted(self.stage.machine.broker_by_id)
            factor = min(replication_factor or 3, len(ids))
            replicas = [[ids[(index + place) % len(ids)] for place in range(factor)] for index in range(partitions)]
        values = {key: str(value) for key, value in (configs or {}).items()}
        self._topic_ids[name] = self.stage.topic(name, *replicas, configs=values or None)

    def reassign(self, topic: str, replicas: list[int], partition: int = 0) -> None:
        """Asks for a reassignment; it is done when the partition's replicas are these."""
        reassign(self.stage.controller(), self._topic_id(topic), partition, replicas)

    def produce(self, topic: str, count: int = 10, *, partition: int = 0) -> int:
        """Sends `count` records with acks=all to the partition's leader; returns how many it accepted."""
        return self.stage.produce(self._topic_id(topic), count, index=partition)

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        state = self.stage.partition(self._topic_id(topic), partition)
        return PartitionState(
            topic, partition, state.leader, state.leader_epoch, state.partition_epoch, tuple(state.replicas),
            tuple(state.isr), tuple(state.elr), tuple(state.last_known_elr),
        )  # fmt: skip

    # Time

    def run_ms(self, milliseconds: int) -> None:
        """Lets the cluster run for a while of logical time."""
        self.stage.run_ms(milliseconds)

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Runs until `condition()` holds. TimeoutError says that `what` did not happen."""
        self.stage.until(condition, what)

    def until_isr(self, topic: str, isr: list[int], partition: int = 0) -> None:
        """Runs until the partition's ISR has exactly these members."""
        self.stage.until_isr(self._topic_id(topic), *isr, index=partition)

    def until_fenced(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.until(lambda broker_id=broker_id: not self.stage.is_active(broker_id), f"broker {broker_id} fenced")  # type: ignore[misc]

    def settle(self) -> None:
        """Runs until every running node holds what the leader has, and knows it to be committed."""
        self.stage.settle()

    # Evidence

    def allow_data_loss(self, reason: str) -> None:
        """From here on the loss of acknowledged data is part of the story, not a violation."""
        self.stage.partitions.allow_data_loss(reason)

    def capture(self, name: str, nodes: list[int] | None = None) -> Path:
        """Copies the log dirs of all nodes, or of some, as they are now, to `<out>/<name>/node-<id>`."""
        return self.stage.capture(name, *(nodes or ()))

    def finish(self, name: str = "test", *, raises: tuple[str, ...] = (), story: str = "") -> Path:
        """Writes truth.jsonl and timeline.txt beside the captures; returns the folder."""
        out = self.stage.recorder.out
        out.mkdir(parents=True, exist_ok=True)
        self.stage.recorder.finish(name, raises=raises, story=story)
        (out / "timeline.txt").write_text(timeline_text(self.stage.cluster, self.stage.invariants), encoding="utf-8")
        return out

    def _is_broker(self, node_id: int) -> bool:
        self._slot(node_id)
        return node_id in self.stage.machine.broker_by_id

    def _slot(self, node_id: int) -> int:
        slot = self.stage.cluster.slot_of(node_id)
        if slot < 0:
            raise ValueError(f"no node {node_id}; the nodes are {', '.join(map(str, self.nodes))}")
        return slot

    def _topic_id(self, topic: str) -> bytes:
        if topic not in self._topic_ids:
            raise ValueError(f"no topic {topic!r}; created were {', '.join(sorted(self._topic_ids)) or 'none'}")
        return self._topic_ids[topic]
