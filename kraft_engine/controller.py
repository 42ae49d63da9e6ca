"""The active controller: it turns requests into batches of records, as Kafka 4.x does (QuorumController; facts 5.8,
6.3, 6.4).

A controller is active while its node leads and the epoch's first batch is committed. It replays what it prepares at
once, answers when that is committed, and forgets everything when it loses leadership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraft_engine.alter_partition import alter_error
from kraft_engine.batches import Record
from kraft_engine.bootstrap import Bootstrap
from kraft_engine.broker_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    BrokerResponse,
)
from kraft_engine.elr import ONLINE, PREFERRED, UNCLEAN, ChangeBuilder
from kraft_engine.image import METADATA_VERSION, MIN_ISR, TOPIC, Image
from kraft_engine.image_records import config, partition_fields, partition_version, register_broker_version
from kraft_engine.leader import append
from kraft_engine.partition import NO_LEADER, Partition
from kraft_engine.raft import RaftNode
from kraft_engine.switches import Switches

Reply = Callable[[BrokerResponse], None]
Then = Callable[[], None]
SESSION_TIMEOUT_US = 3_000_000


class ControllerWitness(Protocol):
    """Sees every operation that the active controller writes, and what it accepts."""

    def operation(self, controller: Controller, records: list[Record]) -> None: ...
    def altered(self, partition: Partition, request: AlterPartitionRequest) -> None: ...


class Controller:
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

    def activate(self) -> None:
        """An empty log gets the bootstrap records; a transaction left open is aborted (facts 5.7, 5.8)."""
        if self.image.before_transaction is not None:
            reason: Record = ("AbortTransactionRecord", 0, {"reason": "Controller failover"})
            self.write([reason])
        if not self.image.metadata_version:
            self.write(self.bootstrap.records())
        self._register_controllers()

    def _register_controllers(self) -> None:
        """Every controller that is known by address registers once (here: when a controller becomes active)."""
        if self.image.metadata_version < 15:
            return
        for controller_id in self.node.addresses.bootstrap_ids():
            if controller_id not in self.image.controllers:
                self.write([self.controller_registration(controller_id)])

    def controller_registration(self, controller_id: int) -> Record:
        host, port = self.node.addresses.endpoint_of(controller_id)
        listener = self.bootstrap.controller_listener
        protocol = listener.security_protocol
        endpoint = {"name": listener.name, "host": host, "port": port, "securityProtocol": protocol}
        features = [
            {"name": "kraft.version", "minSupportedVersion": 0, "maxSupportedVersion": 1},
            self._supported_versions(),
        ]
        return (
            "RegisterControllerRecord",
            0,
            {
                "controllerId": controller_id,
                "incarnationId": self.node.world.chance.uuid(),
                "zkMigrationReady": False,
                "endPoints": [endpoint],
                "features": features,
            },
        )

    def _supported_versions(self) -> dict[str, Any]:
        """What a node of this release says of metadata.version; never less than what is finalized."""
        release, level = self.bootstrap.release, self.image.metadata_version
        low, high = min(release.oldest_version, level), max(release.newest_version, level)
        return {"name": METADATA_VERSION, "minSupportedVersion": low, "maxSupportedVersion": high}

    def write(self, records: list[Record], then: Then | None = None) -> bool:
        """Appends one atomic operation; `then` waits for its commit. False where the node died writing it."""
        node = self.node
        if node.leader is None:
            return False
        if records:
            for name, _, fields in records:
                self.image.replay(name, fields)
            if then is not None:
                self.waiting.append((node.log.end_offset + len(records), then))
            if append(node, tuple(records), is_control=False) is None:
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
            self.waiting.pop(0)[1]()

    # Changes of partitions

    def builder(self, partition: Partition, *, unclean_leaving: int = -1) -> ChangeBuilder:
        image = self.image

        switches = self.switches

        def usable(broker: int) -> bool:
            if broker == unclean_leaving or (not image.is_active(broker) and switches.election_needs_active_broker):
                return False
            return image.is_online(broker, partition.directory_of(broker))

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

    # Brokers

    def register(self, request: BrokerRegistrationRequest, reply: Reply) -> None:
        """BrokerRegistration: an unclean shutdown costs ISR and ELR, a clean one only the ISR (facts 6.3)."""
        broker_id = request.broker_id
        known = self.image.brokers.get(broker_id)
        self.sessions_us[broker_id] = self.node.world.now_us + SESSION_TIMEOUT_US
        if known is not None and known["incarnationId"] == request.incarnation_id:
            response = BrokerRegistrationResponse(request.sender, "", known["brokerEpoch"])
            self.write([self._registration(request, known["brokerEpoch"], known)], lambda: reply(response))
            return
        if known is not None and not known["fenced"] and request.may_wait:
            reply(BrokerRegistrationResponse(request.sender, "DUPLICATE_BROKER_REGISTRATION"))
            return
        stored_epoch = known["brokerEpoch"] if known is not None else -2
        is_clean = request.previous_broker_epoch == stored_epoch or not self.switches.clean_shutdown_names_its_epoch
        unclean = self.image.elr_enabled and not is_clean
        epoch = self.node.log.end_offset
        records = self.removals(broker_id, unclean=unclean)
        if unclean:
            records += self.removals(broker_id, unclean=True, from_elr=True)
        records.append(self._registration(request, epoch, None))
        self.write(records, lambda: reply(BrokerRegistrationResponse(request.sender, "", epoch)))

    def _registration(self, request: BrokerRegistrationRequest, epoch: int, known: dict[str, Any] | None) -> Record:
        """A new registration is fenced; one of the same incarnation keeps the state of the `known` one."""
        version = register_broker_version(self.image.metadata_version)
        listener = request.listener
        endpoint = {
            "name": listener.name,
            "host": f"broker-{request.broker_id}",
            "port": listener.port,
            "securityProtocol": listener.security_protocol,
        }
        fields: dict[str, Any] = {
            "brokerId": request.broker_id,
            "incarnationId": request.incarnation_id,
            "brokerEpoch": epoch,
            "endPoints": [endpoint],
            "features": [self._supported_versions()],
            "rack": request.rack,
            "fenced": known["fenced"] if known is not None else True,
        }
        if known is not None and known["inControlledShutdown"]:
            fields["inControlledShutdown"] = True
        if version >= 3:
            fields["logDirs"] = list(request.log_dirs)
        return ("RegisterBrokerRecord", version, fields)

    def broker_change(self, broker_id: int, version: int, **changes: Any) -> Record:
        """BrokerRegistrationChangeRecord; before 3.3-IV2 fencing had records of its own."""
        epoch = self.image.brokers[broker_id]["brokerEpoch"]
        if self.image.metadata_version < 6 and "fenced" in changes:
            name = "FenceBrokerRecord" if changes["fenced"] > 0 else "UnfenceBrokerRecord"
            return (name, 0, {"id": broker_id, "epoch": epoch})
        return ("BrokerRegistrationChangeRecord", version, {"brokerId": broker_id, "brokerEpoch": epoch, **changes})

    def heartbeat(self, request: BrokerHeartbeatRequest, reply: Reply) -> None:
        """Keeps the session; fences, unfences and lets go as the broker's wishes and its catch-up allow."""
        broker_id = request.broker_id
        known = self.image.brokers.get(broker_id)
        if known is None or known["brokerEpoch"] != request.broker_epoch:
            reply(BrokerHeartbeatResponse(request.sender, "STALE_BROKER_EPOCH"))
            return
        self.sessions_us[broker_id] = self.node.world.now_us + SESSION_TIMEOUT_US
        if request.offline_log_dirs:
            self._offline(broker_id, request.offline_log_dirs)
        if request.want_shut_down:
            self._shut_down(request, known, reply)
            return
        if known["fenced"] and request.current_metadata_offset > known["brokerEpoch"]:
            self.unfence(broker_id)
            reply(BrokerHeartbeatResponse(request.sender, "", is_fenced=False))
        else:
            reply(BrokerHeartbeatResponse(request.sender, "", is_fenced=bool(known["fenced"])))

    def _shut_down(self, request: BrokerHeartbeatRequest, known: dict[str, Any], reply: Reply) -> None:
        broker_id = request.broker_id
        if not known["inControlledShutdown"]:
            records = [self.broker_change(broker_id, 1, inControlledShutdown=1)]
            if self.image.metadata_version < 7:
                records = []
            if self.switches.controlled_shutdown_leaves_isr:
                records += self.removals(broker_id, unclean=False)
            if not self.write(records):
                return
        if any(partition.leader == broker_id for partition in self.image.all_partitions()):
            reply(BrokerHeartbeatResponse(request.sender, "", is_fenced=False))
            return
        if not self.image.brokers[broker_id]["fenced"]:
            self.fence(broker_id)
        reply(BrokerHeartbeatResponse(request.sender, "", is_fenced=True, should_shut_down=True))

    def fence(self, broker_id: int) -> None:
        """The partitions first, the fencing record last."""
        records = self.removals(broker_id, unclean=False) if self.switches.fenced_broker_leaves_isr else []
        records.append(self.broker_change(broker_id, 0, fenced=1))
        self.write(records)

    def unfence(self, broker_id: int) -> None:
        record = self.broker_change(broker_id, 0, fenced=-1)
        known = self.image.brokers[broker_id]
        known["fenced"] = False
        records = [record, *self.elections()]
        known["fenced"] = True
        self.write(records)

    def unregister(self, broker_id: int) -> None:
        """As fencing, for the ELR too, where nothing is unclean: the broker stays in it (facts 6.3)."""
        known = self.image.brokers.get(broker_id)
        if known is None:
            return
        records = self.removals(broker_id, unclean=False)
        records.append(("UnregisterBrokerRecord", 0, {"brokerId": broker_id, "brokerEpoch": known["brokerEpoch"]}))
        self.sessions_us.pop(broker_id, None)
        self.write(records)

    def _offline(self, broker_id: int, dirs: tuple[bytes, ...]) -> None:
        known = self.image.brokers[broker_id]
        remaining = [directory for directory in known["logDirs"] if directory not in dirs]
        if remaining == known["logDirs"] or not remaining or self.image.metadata_version < 17:
            return
        records: list[Record] = []
        for partition in self.image.all_partitions():
            if broker_id in partition.isr and partition.directory_of(broker_id) in dirs:
                build = self.builder(partition, unclean_leaving=broker_id)
                build.isr = [member for member in build.isr if member != broker_id]
                fields = build.build(self.election(partition.topic_id))
                if fields is not None:
                    records.append(self.change(fields))
        records.append(self.broker_change(broker_id, 2, logDirs=remaining))
        self.write(records)

    def check_sessions(self) -> None:
        """Fences one broker whose session has ended (BrokerHeartbeatManager)."""
        now_us = self.node.world.now_us
        for broker_id in sorted(self.sessions_us):
            known = self.image.brokers.get(broker_id)
            if known is not None and not known["fenced"] and self.sessions_us[broker_id] <= now_us:
                self.fence(broker_id)
                return

    # AlterPartition

    def alter_partition(self, request: AlterPartitionRequest, reply: Reply) -> None:
        """Validation in Kafka's order (facts 6.4), then one change."""
        error = alter_error(self.image, self.switches, request)
        if error:
            reply(AlterPartitionResponse(request.sender, error, request.key, request.attempt))
            return
        partition = self.image.partition(*request.key)
        if self.witness is not None:
            self.witness.altered(partition, request)
        build = self.builder(partition)
        build.isr = request.isr
        build.recovery = request.leader_recovery_state
        fields = build.build(self.election(partition.topic_id))
        records = [self.change(fields)] if fields is not None else []
        response = AlterPartitionResponse(request.sender, "", request.key, request.attempt)
        self.write(records, lambda: reply(response))

    # Elections on request

    def elect(self, election: str, partition: Partition) -> str:
        """ElectLeaders and the periodic tasks: PREFERRED for imbalanced, UNCLEAN for leaderless partitions."""
        if election == PREFERRED and partition.leader == partition.replicas[0]:
            return "ELECTION_NOT_NEEDED"
        if election == UNCLEAN and partition.leader != NO_LEADER:
            return "ELECTION_NOT_NEEDED"
        fields = self.builder(partition).build(election)
        if fields is None:
            return "PREFERRED_LEADER_NOT_AVAILABLE" if election == PREFERRED else "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        self.write([self.change(fields)])
        return ""

    def topic_config(self, topic: str, name: str, value: str | None) -> None:
        """A topic's config; min.insync.replicas with ELR on also clears the topic's ELR."""
        records = [config(TOPIC, topic, name, value)]
        if name == MIN_ISR and self.image.elr_enabled:
            records.append(("ClearElrRecord", 0, {"topicName": topic}))
        self.write(records)
