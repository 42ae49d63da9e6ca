"""What `may-i` says of brokers in runs that lose records, beside what their disks really hold.

A yes is unsound where the broker's disk is the only one that holds an acknowledged record which Kafka could still
serve, or where it lies still and holds records that an election lost. The operator says which brokers do not run as
they are registered: a log hears of a crash late.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.image import Image
from kraft_engine.brokers.partition import Partition
from kraft_engine.runs.harsh_run import HarshRun
from kraft_engine.world.capturing import Recorder
from tests.witness.audited import FAST_FOLDER, Audited

Key = tuple[bytes, int]
EVENTS = 10_000
ASKED = (Action.START, Action.WIPE, Action.SCALE_IN, Action.DELETE_VOLUME)


@dataclass
class Disks:
    """What the brokers' disks hold at one moment of a run, by the engine alone."""

    run: HarshRun
    image: Image = field(default_factory=Image)

    def __post_init__(self) -> None:
        for batch in self.run.invariants.ledger.batches:
            self.image.replay_batch(batch)
        self.brokers = self.run.machine.broker_by_id
        self.acknowledged: dict[Key, set[int]] = defaultdict(set)
        for _, kind, fields in self.run.invariants.events:
            if kind == "acknowledged":
                self.acknowledged[fields["topic_id"], fields["partition"]].add(fields["value"])

    def absent(self) -> frozenset[int]:
        """Registered brokers that do not run, or run in another process than the one that is registered."""
        return frozenset(
            broker_id
            for broker_id, known in self.image.brokers.items()
            if not self.brokers[broker_id].running or self.brokers[broker_id].incarnation != known["incarnationId"]
        )

    def alone_with(self, broker_id: int) -> Iterator[str]:
        """Partitions that Kafka could still serve in full from this disk alone."""
        for partition in self.image.all_partitions():
            key = partition.topic_id, partition.index
            could_lead = partition.leader == broker_id or (
                partition.leader == -1 and broker_id in {*partition.isr, *partition.elr, *partition.last_known_elr}
            )
            held = self._values(broker_id, key)
            served = self.acknowledged[key] & set(self.run.partition_invariants.committed.get(key, ()))
            others = [self._values(other, key) for other in partition.replicas if other != broker_id]
            if could_lead and served & held - set[int]().union(*others):
                yield self._name(partition)

    def _values(self, broker_id: int, key: Key) -> set[int]:
        broker = self.brokers[broker_id]
        replica = broker.replicas.get(key)
        return set() if replica is None or broker.is_offline(key) else set(replica.values)

    def kept_by(self, broker_id: int) -> Iterator[tuple[str, int]]:
        """Partitions (topic id, number) that lost acknowledged records to an election, of which this disk lies still
        and has some that no other still disk has."""
        if self.brokers[broker_id].running:
            return
        for partition in self.image.all_partitions():
            key = partition.topic_id, partition.index
            lost = self.acknowledged[key] - set(self.run.partition_invariants.committed.get(key, ()))
            still = [other for other in partition.replicas if other != broker_id and not self.brokers[other].running]
            others = [self._values(other, key) for other in still]
            if broker_id in partition.replicas and lost & self._values(broker_id, key) - set[int]().union(*others):
                yield uuid_text(partition.topic_id), partition.index

    def _name(self, partition: Partition) -> str:
        return f"{self.image.topics[partition.topic_id]}-{partition.index}"


def asked(seed: int, counts: Counter[str], *, moments: int = 4) -> Iterator[str]:
    """Plays one run; asks about every broker at several moments; every unsound yes as a sentence."""
    run = HarshRun(seed)
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        out = Path(folder) / "run"
        recorder = Recorder(out, run.cluster, run.invariants, bootstrap_records=run.machine.bootstrap.feature_records())
        for step in range(moments):
            run.run(EVENTS // moments)
            recorder.capture(f"capture-{step}")
            history = Audited.of(out, capture=f"capture-{step}").history
            for text in _of_moment(Disks(run), history, counts):
                yield f"seed {seed}, moment {step}: {text}"


def _of_moment(disks: Disks, history: ClusterHistory, counts: Counter[str]) -> Iterator[str]:
    absent = disks.absent()
    for broker_id in sorted(disks.image.brokers):
        alone, kept = sorted(disks.alone_with(broker_id)), sorted(disks.kept_by(broker_id))
        counts["only disks"] += bool(alone)
        counts["holders of losses"] += bool(kept)
        for action in ASKED:
            answer = broker_permission(Question(action, broker_id, "captures", stopped=absent), history)
            if answer is None:
                continue
            counts[f"{action} {answer.verdict}"] += 1
            if answer.verdict is not Verdict.YES:
                continue
            if alone and action is not Action.START:
                yield f"{action} {broker_id}: yes, though only its disk has all of {alone}"
            if kept:
                yield f"{action} {broker_id}: yes, though it has what was lost of {kept}"
