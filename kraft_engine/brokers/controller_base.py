"""What every operation of the active controller needs: its image, one atomic write, one partition's next change.

A controller is active while its node leads and the epoch's first batch is committed. It replays what it prepares at
once, answers when that is committed, and forgets everything when it loses leadership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraft_engine.brokers.broker_messages import (
    AlterPartitionRequest,
    BrokerRegistrationRequest,
    BrokerResponse,
)
from kraft_engine.brokers.elr import ONLINE, UNCLEAN, ChangeBuilder
from kraft_engine.brokers.image import Image
from kraft_engine.brokers.image_records import partition_fields, partition_version
from kraft_engine.brokers.partition import NO_LEADER, Partition
from kraft_engine.consensus.leader import append
from kraft_engine.consensus.log_batches import Record
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.invariants.switches import Switches
from kraft_engine.world.bootstrap import Bootstrap

Reply = Callable[[BrokerResponse], None]
Then = Callable[[], None]
SESSION_TIMEOUT_US = 3_000_000


class ControllerWitness(Protocol):
    """Sees every operation that the active controller writes, and what it accepts."""

    def operation(self, controller: ControllerBase, records: list[Record]) -> None: ...
    def altered(self, image: Image, partition: Partition, request: AlterPartitionRequest) -> None: ...
    def answered(self, end_offset: int) -> None: ...
    def registering(self, request: BrokerRegistrationRequest, stored_epoch: int) -> None: ...


class ControllerBase:
    """One activation of one node."""

    __slots__ = (
        "bootstrap",
        "image",
        "node",
        "registered_epochs",
        "sessions_us",
        "switches",
        "waiting",
        "witness",
    )

    def __init__(self, node: RaftNode, image: Image, bootstrap: Bootstrap, witness: ControllerWitness | None) -> None:
        self.node = node
        self.image = image
        self.bootstrap = bootstrap
        self.witness = witness
        self.switches: Switches = node.switches
        self.waiting: list[tuple[int, Then]] = []
        now_us = node.world.now_us
        self.sessions_us = dict.fromkeys(image.brokers, now_us + SESSION_TIMEOUT_US)

    # Writing

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        leader = self.node.leader
        return leader.next_offset if leader is not None else self.node.log.end_offset

    def write(self, records: list[Record], then: Then | None = None, *, is_atomic: bool = True) -> bool:
        """Appends one operation; `then` waits for its commit. False where the node died writing it.

        One that is not atomic may end up in several batches (QuorumController.appendRecords).
        """
        node = self.node
        if node.leader is None:
            return False
        if records:
            for name, _, fields in records:
                self.image.replay(name, fields)
            begin, end = self.next_offset, self.next_offset + len(records)
            if then is not None and not self.switches.answers_wait_for_commit:
                self._answer(end, then)
            elif then is not None:
                self.waiting.append((end, then))
            step = len(records) if is_atomic else node.settings.max_batch_records
            for start in range(0, len(records), step):
                part = tuple(records[start : start + step])
                if not append(node, part, is_control=False, operation_offset=begin):
                    return False
            if self.witness is not None:
                self.witness.operation(self, records)
        elif then is not None:
            then()
        return True

    def committed(self) -> None:
        """The high watermark moved: operations below it are answered."""
        leader = self.node.leader
        if leader is None:
            return
        mark = leader.high_watermark
        while self.waiting and self.waiting[0][0] <= mark:
            self._answer(*self.waiting.pop(0))

    def _answer(self, end_offset: int, then: Then) -> None:
        if self.witness is not None:
            self.witness.answered(end_offset)
        then()

    # Changes of partitions

    def builder(self, partition: Partition, *, unclean_leaving: int = -1) -> ChangeBuilder:
        image = self.image

        switches = self.switches

        def usable(broker: int) -> bool:
            if broker == unclean_leaving or (not image.is_active(broker) and switches.election_needs_active_broker):
                return False
            online = image.is_online(broker, partition.directory_of(broker))
            return online or not switches.election_needs_online_directory

        return ChangeBuilder(
            partition,
            usable=usable,
            min_isr=self.min_isr(partition.topic_id),
            metadata_version=image.metadata_version,
            elr_enabled=image.elr_enabled,
            release=self.bootstrap.release,
            switches=self.switches,
            unclean_recovery=self.bootstrap.unclean_recovery,
        )

    def min_isr(self, topic_id: bytes) -> int:
        return self.image.min_isr(topic_id, node_id=self.node.id, static_default=self.bootstrap.static_min_isr)

    def change(self, fields: dict[str, Any]) -> Record:
        level = self.image.metadata_version
        return ("PartitionChangeRecord", partition_version(level), partition_fields(fields, level))

    def election(self, topic_id: bytes) -> str:
        allowed = self.image.unclean_allowed(topic_id) and not self.bootstrap.unclean_recovery
        return UNCLEAN if allowed else ONLINE

    def removals(self, broker: int, *, unclean: bool, from_elr: bool = False, leaving: bool = True) -> list[Record]:
        """Changes that take a broker out of every ISR (or every ELR) that has it."""
        records: list[Record] = []
        for partition in self.image.all_partitions():
            is_member = broker in partition.isr
            if (is_member or broker not in partition.elr) if from_elr else not is_member:
                continue
            build = self.builder(partition, unclean_leaving=broker if leaving else -1)
            if not from_elr and (self.switches.unclean_shutdown_leaves_isr or not unclean):
                build.isr = [member for member in build.isr if member != broker]
            if unclean:
                build.unclean_shutdown = frozenset((broker,))
            fields = build.build(self.election(partition.topic_id))
            if fields is not None:
                records.append(self.change(fields))
        return records

    def elections(self) -> list[Record]:
        """A broker came back: leaderless partitions try again, nothing else changes."""
        records: list[Record] = []
        for partition in self.image.all_partitions():
            if partition.leader == NO_LEADER:
                fields = self.builder(partition).build(self.election(partition.topic_id))
                if fields is not None:
                    records.append(self.change(fields))
        return records
