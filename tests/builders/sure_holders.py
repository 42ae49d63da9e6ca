"""Who surely holds every acknowledged record, by the committed metadata log alone: a second opinion on lost records.

Written from the rules of KIP-966 and KAFKA-15583, and knows nothing of what the engine's replicas held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from kraft_engine.brokers.image import Image
from kraft_engine.brokers.partition import LOST, MIGRATING, UNASSIGNED, Partition
from kraft_engine.consensus.log_batches import Batch

Key = tuple[bytes, int]
NO_DIRECTORIES = (MIGRATING, UNASSIGNED, LOST)
MOMENTS = ("operation", "batch")
WATERMARK_WAITS_SINCE = 15
CRASHED, EMPTIED, LEFT, REMOVED, PASSED = "crashed", "emptied", "left", "removed", "passed"


@dataclass(slots=True)
class Passing:
    """A record that lets a broker lead which is no sure holder, or which was one outside ISR and ELR (`was_sure`).

    `reason`: why the leader ceased to be a sure holder; None where it never was one. `others` are the sure holders
    beside it. `is_standing`: it was in the ISR, and led on or led again. `running`: the brokers in service at the end
    of the controller's operation, and at that of the batch, which may hold neighbouring operations: a log does not
    tell them apart.
    """

    name: str
    offset: int
    leader: int
    reason: str | None
    others: frozenset[int]
    replica_count: int
    min_isr: int
    is_standing: bool
    is_last_known: bool
    was_sure: bool = False
    running: dict[str, frozenset[int]] = field(default_factory=dict)

    def is_a_crash_at(self, moment: str) -> bool:
        """Whether a power cut alone can have cost something, and nothing shows that others held it."""
        if self.was_sure or self.reason != CRASHED:
            return False
        if self.others and (not self.is_standing or self.others & self.running[moment]):
            return False
        return not (self.is_last_known and self.replica_count > 1 and self.min_isr >= 2)


@dataclass(slots=True)
class _Standing:
    """The sure holders of one partition, and why each other replica ceased to be one."""

    held: set[int] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)

    def join(self, brokers: Collection[int]) -> None:
        self.held.update(brokers)
        for broker in brokers:
            self.reasons.pop(broker, None)

    def leave(self, brokers: Collection[int], reason: str) -> None:
        self.held.difference_update(brokers)
        self.reasons.update(dict.fromkeys(brokers, reason))

    def go_on_without_crashed(self, leader: int) -> None:
        """Who crashed before another leader begins lacks what that one writes, and not only its own tail."""
        for broker, reason in self.reasons.items():
            if reason == CRASHED and broker != leader:
                self.reasons[broker] = PASSED


class SureHolders:
    """`events`: by (topic id, partition, leader epoch), what passed over sure holders, or let a crash count.

    `kept`: the sure holders of each partition from an offset on, whenever they changed. A log that is captured only
    from `from_offset` on begins with a snapshot: with ISR and ELR of then.
    """

    def __init__(self, from_offset: int = 0) -> None:
        self.image = Image()
        self.standing: dict[Key, _Standing] = defaultdict(_Standing)
        self.events: dict[tuple[bytes, int, int], Passing] = {}
        self.kept: dict[Key, list[tuple[int, frozenset[int]]]] = defaultdict(list)
        self.from_offset = from_offset
        self._operation = -1
        self._incarnations: dict[int, bytes] = {}
        # Brokers that the operation took out of an ISR or ELR.
        self._dropped: set[int] = set()
        self._unseen: dict[str, list[Passing]] = {moment: [] for moment in MOMENTS}

    def read(self, batches: Iterable[Batch], *, to_offset: int | None = None) -> SureHolders:
        for batch in batches:
            if batch.is_control or (to_offset is not None and batch.end_offset > to_offset):
                continue
            for index, (name, _, fields) in enumerate(batch.records):
                if batch.operation_of(index) != self._operation:
                    self._see_running("operation")
                    self._operation = batch.operation_of(index)
                    self._dropped.clear()
                offset = batch.base_offset + index
                self._begin_with_snapshot(offset)
                self._record(offset, name, fields)
                self._keep(offset)
            self._see_running("batch")
        self._see_running("operation")
        return self

    def _begin_with_snapshot(self, offset: int) -> None:
        if not self.from_offset or offset < self.from_offset:
            return
        self.events.clear()
        self.kept.clear()
        self.standing.clear()
        for partition in self.image.all_partitions():
            key = partition.topic_id, partition.index
            self.standing[key].join({*partition.isr, *partition.elr})
            if partition.recovering and len(partition.replicas) > 1:
                self._passed(key, partition, self.from_offset - 1, was_sure=True)
        self._keep(self.from_offset - 1)
        self.from_offset = 0

    def _see_running(self, moment: str) -> None:
        running = frozenset(broker for broker in self.image.brokers if self.image.is_active(broker))
        for passing in self._unseen[moment]:
            passing.running[moment] = running
        self._unseen[moment].clear()

    def _keep(self, offset: int) -> None:
        for key, standing in self.standing.items():
            kept = self.kept[key]
            if not kept or kept[-1][1] != standing.held:
                kept.append((offset, frozenset(standing.held)))

    def _record(self, offset: int, name: str, fields: dict[str, Any]) -> None:
        if name == "PartitionChangeRecord":
            self._partition_change(offset, fields)
            return
        if name == "RegisterBrokerRecord":
            self._registered(offset, fields["brokerId"], fields["incarnationId"])
        self.image.replay(name, fields)
        if name == "PartitionRecord":
            self.standing[fields["topicId"], fields["partitionId"]].join(fields["isr"])
        elif name == "ConfigRecord":
            for partition in self.image.all_partitions():
                self._drop_those_left(partition)

    def _registered(self, offset: int, broker: int, incarnation: bytes) -> None:
        known = self.image.brokers.get(broker)
        # A process that was unregistered and registers again has not stopped.
        if self._incarnations.get(broker) == incarnation:
            return
        self._incarnations[broker] = incarnation
        is_clean = known is not None and self._was_clean(broker, known)
        for partition in self.image.all_partitions():
            key = partition.topic_id, partition.index
            standing = self.standing[key]
            if is_clean or broker not in standing.held:
                continue
            standing.leave({broker}, CRASHED)
            if partition.leader == broker:
                self._passed(key, partition, offset, is_standing=True)

    def _was_clean(self, broker: int, known: dict[str, Any]) -> bool:
        """Fenced in a shutdown that it announced. With ELR on the controller knows better: it keeps the broker in an
        ELR, or drops it."""
        if self.image.elr_enabled and any(broker in partition.elr for partition in self.image.all_partitions()):
            return True
        is_announced = known["fenced"] and known["inControlledShutdown"]
        return bool(is_announced) and not (self.image.elr_enabled and broker in self._dropped)

    def _partition_change(self, offset: int, fields: dict[str, Any]) -> None:
        key = (fields["topicId"], fields["partitionId"])
        partition, standing = self.image.partition(*key), self.standing[key]
        old_leader, old_isr, old_elr = partition.leader, set(partition.isr), set(partition.elr)
        adding, last_known = set(partition.adding), list(partition.last_known_elr)
        old_dirs = dict(zip(partition.replicas, partition.directories, strict=True))
        self.image.replay("PartitionChangeRecord", fields)
        self._dropped |= (old_isr | old_elr) - {*partition.isr, *partition.elr}
        leader, joins = fields.get("leader", -1), set[int]()
        if old_leader >= 0 and not partition.recovering:
            # An election from the ELR makes its winner the ISR. Only those that a reassignment has added caught up.
            joins = set(partition.isr) - old_isr
            joins = joins & (adding - set(partition.adding)) if leader not in (-1, old_leader) else joins
            standing.join(joins)
        emptied = self._emptied(partition, old_dirs)
        standing.leave(emptied, EMPTIED)
        if leader < 0 and partition.leader in emptied:
            self._passed(key, partition, offset, is_standing=True)
        if leader >= 0 and leader not in standing.held & set(partition.replicas):
            is_empty = not old_isr and not old_elr
            self._passed(
                key, partition, offset, is_standing=leader in old_isr, is_last_known=is_empty and leader in last_known
            )
        elif leader >= 0 and leader not in old_isr | old_elr | joins:
            self._passed(key, partition, offset, was_sure=True)
        standing.leave(standing.held - set(partition.replicas), REMOVED)
        if leader >= 0:
            standing.go_on_without_crashed(leader)
        self._drop_those_left(partition)

    def _emptied(self, partition: Partition, old_dirs: dict[int, bytes]) -> set[int]:
        """Replicas that got another directory, as their brokers do not have the one that they were in."""
        moved = set()
        for broker, directory in zip(partition.replicas, partition.directories, strict=True):
            old = old_dirs.get(broker, UNASSIGNED)
            known = self.image.brokers.get(broker)
            if old not in (directory, *NO_DIRECTORIES) and known is not None and old not in known["logDirs"]:
                moved.add(broker)
        return moved

    def _passed(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        *,
        is_standing: bool = False,
        is_last_known: bool = False,
        was_sure: bool = False,
    ) -> None:
        """From now on the leader's log is the truth. What happens to it again in one leader epoch adds nothing, but
        that its log dir is replaced."""
        standing, leader = self.standing[key], partition.leader
        reason = standing.reasons.get(leader)
        wanted = min(self.image.min_isr_config(partition.topic_id, node_id=leader), len(partition.replicas))
        passing = Passing(
            f"{self.image.topics[partition.topic_id]}-{partition.index}",
            offset,
            leader,
            reason,
            frozenset(standing.held - {leader}),
            len(partition.replicas),
            max(wanted, 1),
            is_standing,
            is_last_known,
            was_sure,
        )
        known = self.events.setdefault((*key, partition.leader_epoch), passing)
        if known is passing:
            for unseen in self._unseen.values():
                unseen.append(passing)
        elif reason == EMPTIED:
            known.reason = EMPTIED
        if not was_sure:
            standing.leave(standing.held - {leader}, PASSED)
            standing.join({leader})

    def _drop_those_left(self, partition: Partition) -> None:
        """A member that left the ISR may miss what the rest commits, as soon as the rest may commit anything."""
        wanted = self.image.min_isr_config(partition.topic_id, node_id=partition.leader)
        needed = min(wanted, len(partition.replicas))
        if len(partition.isr) >= needed or (partition.isr and self.image.metadata_version < WATERMARK_WAITS_SINCE):
            standing = self.standing[partition.topic_id, partition.index]
            standing.leave(standing.held - set(partition.isr), LEFT)
