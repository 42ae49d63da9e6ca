"""What the controller checks before it takes an AlterPartition, in Kafka's order (ReplicationControlManager)."""

from __future__ import annotations

from kraft_engine.brokers.broker_messages import AlterPartitionRequest
from kraft_engine.brokers.elr import RECOVERED
from kraft_engine.brokers.image import Image
from kraft_engine.brokers.partition import Partition
from kraft_engine.invariants.switches import Switches


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
