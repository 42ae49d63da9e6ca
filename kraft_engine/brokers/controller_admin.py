"""What administrators ask of the controller: topics, reassignments, configs, features, ACLs, quotas, secrets."""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers.broker_messages import AssignReplicasToDirsRequest
from kraft_engine.brokers.controller import Controller
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, METADATA_VERSION, MIN_ISR, TOPIC
from kraft_engine.brokers.image_records import config, feature, partition_fields, partition_version
from kraft_engine.brokers.partition import UNASSIGNED
from kraft_engine.consensus.log_batches import Record


def create_topic(
    controller: Controller,
    name: str,
    assignments: list[list[int]],
    *,
    topic_id: bytes,
    configs: dict[str, str] | None = None,
) -> bool:
    """TopicRecord, its configs (ClearElr after min.insync.replicas), then its partitions, in one operation."""
    image = controller.image
    if name in image.topic_ids or not assignments:
        return False
    records: list[Record] = [("TopicRecord", 0, {"name": name, "topicId": topic_id})]
    for key, value in sorted((configs or {}).items()):
        records.append(config(TOPIC, name, key, value))
        if key == MIN_ISR and image.elr_enabled:
            records.append(("ClearElrRecord", 0, {"topicName": name}))
    level = image.metadata_version
    for index, replicas in enumerate(assignments):
        isr = [broker for broker in replicas if image.is_active(broker)]
        if not controller.switches.new_partition_isr_is_active:
            isr = list(replicas)
        if not isr:
            return False
        fields: dict[str, Any] = {
            "partitionId": index,
            "topicId": topic_id,
            "replicas": replicas,
            "isr": isr,
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": isr[0],
            "leaderRecoveryState": 0,
            "leaderEpoch": 0,
            "partitionEpoch": 0,
            "directories": [default_directory(controller, broker) for broker in replicas],
        }
        records.append(("PartitionRecord", partition_version(level), partition_fields(fields, level)))
    return controller.write(records)


def default_directory(controller: Controller, broker_id: int) -> bytes:
    """The broker's only dir, or UNASSIGNED where it has several."""
    known = controller.image.brokers.get(broker_id)
    dirs = known["logDirs"] if known is not None else []
    if len(dirs) == 1:
        return bytes(dirs[0])
    return UNASSIGNED if dirs else bytes(16)


def delete_topic(controller: Controller, topic_id: bytes) -> bool:
    return controller.write([("RemoveTopicRecord", 0, {"topicId": topic_id})])


def reassign(controller: Controller, topic_id: bytes, index: int, target: list[int]) -> bool:
    """AlterPartitionReassignments: the union of old and new replicas until the ISR allows the end."""
    partition = controller.image.partition(topic_id, index)
    if not target or len(set(target)) < len(target):
        return False
    current = [broker for broker in partition.replicas if broker not in partition.adding]
    build = controller.builder(partition)
    build.adding = [broker for broker in target if broker not in current]
    build.removing = [broker for broker in current if broker not in target]
    build.replicas = target + build.removing
    build.isr = [broker for broker in build.isr if broker in build.replicas]
    if not build.isr:
        return False
    build.directories = {broker: default_directory(controller, broker) for broker in build.adding}
    fields = build.build(controller.election(topic_id))
    return controller.write([controller.change(fields)]) if fields is not None else True


def cancel_reassignment(controller: Controller, topic_id: bytes, index: int) -> str:
    """AlterPartitionReassignments with null: back to the replicas from before (PartitionReassignmentRevert).

    Refused where none of them is in the ISR: that would be an unclean election.
    """
    partition = controller.image.partition(topic_id, index)
    if not partition.adding and not partition.removing:
        return "NO_REASSIGNMENT_IN_PROGRESS"
    build = controller.builder(partition)
    build.replicas = [broker for broker in partition.replicas if broker not in partition.adding]
    build.isr = [broker for broker in partition.isr if broker not in partition.adding]
    build.adding, build.removing = [], []
    if not build.isr and controller.switches.cancelled_reassignment_keeps_an_isr:
        return "INVALID_REPLICA_ASSIGNMENT"
    fields = build.build(controller.election(topic_id))
    if fields is not None:
        controller.write([controller.change(fields)])
    return ""


def assign_directory(controller: Controller, broker_id: int, topic_id: bytes, index: int, directory: bytes) -> bool:
    """AssignReplicasToDirs. Up to 4.2.0 its change was built with ELR off, which wiped the ELR (KIP-858)."""
    partition = controller.image.partition(topic_id, index)
    if controller.image.metadata_version < 17 or broker_id not in partition.replicas:
        return False
    build = controller.builder(partition)
    if controller.bootstrap.release.directories_wipe_elr:
        build.elr_enabled = False
    build.directories = {broker_id: directory}
    fields = build.build(controller.election(topic_id))
    return controller.write([controller.change(fields)]) if fields is not None else False


def assign_directories(controller: Controller, request: AssignReplicasToDirsRequest) -> None:
    """A broker's own report: what it names and the metadata does not yet have."""
    known = controller.image.brokers.get(request.broker_id)
    if known is None or known["brokerEpoch"] != request.broker_epoch:
        return
    for (topic_id, index), directory in request.assignments:
        partition = controller.image.partitions.get(topic_id, {}).get(index)
        if partition is not None and partition.directory_of(request.broker_id) != directory:
            assign_directory(controller, request.broker_id, topic_id, index, directory)


def broker_config(controller: Controller, broker: str, name: str, value: str | None) -> str:
    """A broker's or ("") the cluster's config: rules of min.insync.replicas while ELR is on (KAFKA-16540)."""
    records = [config(BROKER, broker, name, value)]
    switches = controller.switches
    if name == MIN_ISR and controller.image.elr_enabled:
        if broker and switches.node_min_isr_needs_elr_off:
            return "INVALID_CONFIG"
        if not broker and value is None and switches.cluster_min_isr_stays_with_elr:
            return "INVALID_CONFIG"
        if switches.min_isr_change_clears_elr:
            records.append(("ClearElrRecord", 0, {"topicName": ""}))
    controller.write(records)
    return ""


def set_feature(controller: Controller, name: str, level: int) -> str:
    """UpdateFeatures: turning ELR on fixes the cluster's min.insync.replicas first (FeatureControlManager)."""
    image = controller.image
    records: list[Record] = []
    if name == ELR_FEATURE and level >= 1 and not image.elr_enabled:
        if image.metadata_version < 23:
            return "INVALID_UPDATE_VERSION"
        begins = controller.switches.elr_begins_with_cluster_min_isr
        if (BROKER, "", MIN_ISR) not in image.configs and begins:
            records.append(config(BROKER, "", MIN_ISR, str(controller.bootstrap.static_min_isr)))
        overrides = sorted(key for key in image.configs if key[0] == BROKER and key[1] and key[2] == MIN_ISR)
        records += [config(BROKER, key[1], MIN_ISR, None) for key in overrides]
    falls = name == METADATA_VERSION and level < image.metadata_version
    if falls and controller.switches.metadata_version_never_falls:
        return "INVALID_UPDATE_VERSION"
    records.append(feature(name, level))
    controller.write(records)
    return ""


def allocate_producer_ids(controller: Controller, broker_id: int) -> None:
    image = controller.image
    fields = {
        "brokerId": broker_id,
        "brokerEpoch": image.brokers[broker_id]["brokerEpoch"],
        "nextProducerId": image.next_producer_id + 1000,
    }
    controller.write([("ProducerIdsRecord", 0, fields)])


def security_change(controller: Controller) -> None:
    """One of the records that carry who may do what, and secrets."""
    chance = controller.node.world.chance
    image = controller.image
    user = f"user-{chance.below(5)}"
    kind = chance.below(6)
    if kind == 0:
        record = acl_record(chance.uuid(), user, operation=chance.between(2, 13), allow=chance.happens(0.9))
    elif kind == 1 and image.acls:
        record = ("RemoveAccessControlEntryRecord", 0, {"id": chance.choose(sorted(image.acls))})
    elif kind == 2 and image.metadata_version >= 11:
        record = (
            "UserScramCredentialRecord",
            0,
            {
                "name": user,
                "mechanism": chance.between(1, 3),
                "salt": chance.octets(16),
                "storedKey": chance.octets(32),
                "serverKey": chance.octets(32),
                "iterations": 4096,
            },
        )
    elif kind == 3 and image.scram:
        name, mechanism = chance.choose(sorted(image.scram))
        record = ("RemoveUserScramCredentialRecord", 0, {"name": name, "mechanism": mechanism})
    elif kind == 4 and image.metadata_version >= 14:
        record = _token(controller, user)
    else:
        entity = [{"entityType": "user", "entityName": user}]
        value = float(chance.between(1, 100) * 1024)
        fields = {"entity": entity, "key": "producer_byte_rate", "value": value, "remove": False}
        record = ("ClientQuotaRecord", 0, fields)
    controller.write([record])


def acl_record(acl_id: bytes, user: str, *, operation: int = 3, allow: bool = True, host: str = "*") -> Record:
    fields = {
        "id": acl_id,
        "resourceType": 2,
        "resourceName": "*",
        "patternType": 3,
        "principal": f"User:{user}",
        "host": host,
        "operation": operation,
        "permissionType": 3 if allow else 2,
    }
    return ("AccessControlEntryRecord", 0, fields)


def _token(controller: Controller, user: str) -> Record:
    chance = controller.node.world.chance
    image = controller.image
    if image.tokens and chance.happens(0.4):
        return ("RemoveDelegationTokenRecord", 0, {"tokenId": chance.choose(sorted(image.tokens))})
    now_ms = controller.node.world.wall_ms()
    fields = {
        "owner": f"User:{user}",
        "requester": f"User:{user}",
        "renewers": [],
        "issueTimestamp": now_ms,
        "maxTimestamp": now_ms + 604_800_000,
        "expirationTimestamp": now_ms + 86_400_000,
        "tokenId": chance.octets(16).hex(),
    }
    return ("DelegationTokenRecord", 0, fields)
