"""The active controller: it turns requests into batches of records, as Kafka 4.x does (QuorumController,
ReplicationControlManager).

A controller is active while its node leads and the epoch's first batch is committed. It replays what it prepares at
once, answers when that is committed, and forgets everything when it loses leadership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_engine.brokers.broker_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraft_engine.brokers.controller_base import SESSION_TIMEOUT_US, ControllerBase, Reply, Then
from kraft_engine.brokers.elr import PREFERRED, UNCLEAN
from kraft_engine.brokers.image import METADATA_VERSION, MIN_ISR, TOPIC, Image
from kraft_engine.brokers.image_records import config, register_broker_version
from kraft_engine.brokers.partition import NO_LEADER, RECOVERED, Partition
from kraft_engine.consensus.log_batches import Record
from kraft_engine.invariants.switches import Switches


class Controller(ControllerBase):
    """Handles the requests of brokers and administrators, and its own timers."""

    __slots__ = ()

    # Activation

    def activate(self) -> None:
        """An empty log gets the bootstrap records; a transaction left open is aborted (ActivationRecordsGenerator)."""
        if self.image.before_transaction is not None and self.switches.open_transaction_is_aborted:
            reason: Record = ("AbortTransactionRecord", 0, {"reason": "Controller failover"})
            self.write([reason])
        if not self.image.metadata_version:
            self.write(self.bootstrap.records())
        self._register_controllers()

    def _register_controllers(self) -> None:
        """Every controller that is known by address registers once (here: when a controller becomes active).

        With `Bootstrap.controllers_register_themselves` each does at each of its starts instead.
        """
        if self.image.metadata_version < 15 or self.bootstrap.controllers_register_themselves:
            return
        for controller_id in self.node.addresses.bootstrap_ids():
            if controller_id not in self.image.controllers:
                self.write([self.controller_registration(controller_id)])

    def register_controller(
        self, request: ControllerRegistrationRequest, reply: Callable[[ControllerRegistrationResponse], None]
    ) -> None:
        """ControllerRegistration: a new record each time (ClusterControlManager.registerController)."""
        if self.image.metadata_version < 15:
            reply(ControllerRegistrationResponse(request.sender, "UNSUPPORTED_VERSION"))
            return
        record = self.controller_registration(request.controller_id, request.incarnation_id)
        self.write([record], lambda: reply(ControllerRegistrationResponse(request.sender, "")))

    def controller_registration(self, controller_id: int, incarnation: bytes | None = None) -> Record:
        addresses = self.node.addresses
        host, port = addresses.endpoint_of(controller_id)
        listener = self.bootstrap.controller_listener
        endpoints = [
            {"name": listener.name, "host": host, "port": port, "securityProtocol": listener.security_protocol}
        ]
        for name, further_host, further_port in addresses.further_endpoints_of(controller_id):
            protocol = int(name.endswith("SSL"))
            further = {"name": name, "host": further_host, "port": further_port, "securityProtocol": protocol}
            endpoints.append(further)
        features = [
            {"name": "kraft.version", "minSupportedVersion": 0, "maxSupportedVersion": 1},
            self._supported_versions(),
        ]
        return (
            "RegisterControllerRecord",
            0,
            {
                "controllerId": controller_id,
                "incarnationId": incarnation or self.node.world.chance.uuid(),
                "zkMigrationReady": False,
                "endPoints": endpoints,
                "features": features,
            },
        )

    def _supported_versions(self) -> dict[str, Any]:
        """The metadata.version range that a node of this release registers; it includes the finalized level."""
        release, level = self.bootstrap.release, self.image.metadata_version
        low, high = min(release.oldest_version, level), max(release.newest_version, level)
        return {"name": METADATA_VERSION, "minSupportedVersion": low, "maxSupportedVersion": high}

    # Brokers

    def register(self, request: BrokerRegistrationRequest, reply: Reply) -> None:
        """BrokerRegistration: an unclean shutdown costs ISR and ELR, a clean one only the ISR."""
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
        if self.witness is not None:
            self.witness.registering(request, stored_epoch)
        unclean = self.image.elr_enabled and (not is_clean or not self.switches.clean_restart_keeps_elr)
        epoch = self.next_offset
        leaves = self.image.elr_enabled or self.switches.restarted_broker_leaves_isr
        records = self.removals(broker_id, unclean=unclean) if leaves else []
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
            "fenced": known["fenced"] if known is not None else self.switches.new_registration_is_fenced,
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
        """Renews the session; fences, unfences or lets it shut down, by the broker's request and its metadata lag."""
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
        caught_up = request.current_metadata_offset > known["brokerEpoch"]
        if known["fenced"] and (caught_up or not self.switches.unfencing_needs_caught_up):
            self.unfence(broker_id)
        reply(BrokerHeartbeatResponse(request.sender, ""))

    def _shut_down(self, request: BrokerHeartbeatRequest, known: dict[str, Any], reply: Reply) -> None:
        """Leaders move first, and the log says that the broker is in controlled shutdown; one that leads nothing is
        fenced at once, with no other word (BrokerHeartbeatManager.calculateNextBrokerState, 4.3.0)."""
        broker_id = request.broker_id
        leads = any(partition.leader == broker_id for partition in self.image.all_partitions())
        if leads and not known["inControlledShutdown"]:
            records = [self.broker_change(broker_id, 1, inControlledShutdown=1)]
            if self.image.metadata_version < 7:
                records = []
            if self.switches.controlled_shutdown_leaves_isr:
                records += self.removals(broker_id, unclean=False)
            if not self.write(records, is_atomic=False):
                return
        if any(partition.leader == broker_id for partition in self.image.all_partitions()):
            reply(BrokerHeartbeatResponse(request.sender, ""))
            return
        response = BrokerHeartbeatResponse(request.sender, "", should_shut_down=True)
        if self.image.brokers[broker_id]["fenced"]:
            reply(response)
        else:
            self.fence(broker_id, lambda: reply(response))

    def fence(self, broker_id: int, then: Then | None = None) -> None:
        """The partitions first, the fencing record last; `then` waits for the commit."""
        records = self.removals(broker_id, unclean=False) if self.switches.fenced_broker_leaves_isr else []
        records.append(self.broker_change(broker_id, 0, fenced=1))
        self.write(records, then, is_atomic=False)

    def unfence(self, broker_id: int) -> None:
        record = self.broker_change(broker_id, 0, fenced=-1)
        known = self.image.brokers[broker_id]
        known["fenced"] = False
        records = [record, *(self.elections() if self.switches.unfenced_broker_brings_elections else ())]
        known["fenced"] = True
        self.write(records, is_atomic=False)

    def unregister(self, broker_id: int) -> None:
        """As fencing, for the ELR too, where nothing is unclean: the broker stays in it (handleBrokerUnregistered)."""
        known = self.image.brokers.get(broker_id)
        if known is None:
            return
        leaves = self.switches.unregistered_broker_leaves_isr
        records = self.removals(broker_id, unclean=False) if leaves else []
        records.append(("UnregisterBrokerRecord", 0, {"brokerId": broker_id, "brokerEpoch": known["brokerEpoch"]}))
        self.sessions_us.pop(broker_id, None)
        self.write(records, is_atomic=False)

    def _offline(self, broker_id: int, dirs: tuple[bytes, ...]) -> None:
        known = self.image.brokers[broker_id]
        remaining = [directory for directory in known["logDirs"] if directory not in dirs]
        if remaining == known["logDirs"] or not remaining or self.image.metadata_version < 17:
            return
        records: list[Record] = []
        for partition in self.image.all_partitions():
            is_hit = broker_id in partition.isr and partition.directory_of(broker_id) in dirs
            if is_hit and self.switches.offline_directory_leaves_isr:
                build = self.builder(partition, unclean_leaving=broker_id)
                build.isr = [member for member in build.isr if member != broker_id]
                fields = build.build(self.election(partition.topic_id))
                if fields is not None:
                    records.append(self.change(fields))
        records.append(self.broker_change(broker_id, 2, logDirs=remaining))
        self.write(records, is_atomic=False)

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
        """Validation in Kafka's order (validateAlterPartitionData), then one change."""
        error = alter_error(self.image, self.switches, request)
        if error:
            reply(AlterPartitionResponse(request.sender, error, request.key, request.attempt))
            return
        partition = self.image.partition(*request.key)
        if self.witness is not None:
            self.witness.altered(self.image, partition, request)
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
        if name == MIN_ISR and self.image.elr_enabled and self.switches.min_isr_change_clears_elr:
            records.append(("ClearElrRecord", 0, {"topicName": topic}))
        self.write(records)


def alter_error(image: Image, switches: Switches, request: AlterPartitionRequest) -> str:
    """Returns the first error of a request, "" where it is valid."""
    parts = image.partitions.get(request.key[0])
    partition = parts.get(request.key[1]) if parts is not None else None
    if partition is None:
        return "UNKNOWN_TOPIC_OR_PARTITION"
    known = image.brokers.get(request.broker_id)
    if known is None or known["brokerEpoch"] != request.broker_epoch:
        return "STALE_BROKER_EPOCH"
    if switches.alter_partition_checks_epoch:
        if request.leader_epoch > partition.leader_epoch or request.partition_epoch > partition.partition_epoch:
            return "NOT_CONTROLLER"
        if request.leader_epoch < partition.leader_epoch:
            return "FENCED_LEADER_EPOCH"
    if request.broker_id != partition.leader and switches.alter_partition_comes_from_leader:
        return "INVALID_REQUEST"
    if switches.alter_partition_checks_epoch and request.partition_epoch < partition.partition_epoch:
        return "INVALID_UPDATE_VERSION"
    return _isr_error(image, switches, partition, request)


def _isr_error(image: Image, switches: Switches, partition: Partition, request: AlterPartitionRequest) -> str:
    isr = request.isr
    is_set = bool(isr) and len(set(isr)) == len(isr)
    if not is_set or (not set(isr) <= set(partition.replicas) and switches.alter_partition_isr_is_of_replicas):
        return "INVALID_REQUEST"
    if partition.leader not in isr and switches.alter_partition_isr_has_leader:
        return "INVALID_REQUEST"
    recovers = request.leader_recovery_state != RECOVERED
    if recovers and len(isr) > 1 and switches.recovering_leader_is_alone:
        return "INVALID_REQUEST"
    if partition.recovering == RECOVERED and recovers and switches.recovered_partition_stays_recovered:
        return "INVALID_REQUEST"
    if switches.alter_partition_checks_brokers:
        for broker, wanted in request.new_isr:
            known = image.brokers.get(broker)
            is_old = known is not None and wanted not in (-1, known["brokerEpoch"])
            if not image.is_active(broker) or (is_old and switches.alter_partition_checks_broker_epochs):
                return "INELIGIBLE_REPLICA"
    return ""
