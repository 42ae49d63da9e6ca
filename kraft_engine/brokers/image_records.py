"""The records that restore an image: the body of a snapshot (MetadataImage.write), versions by level
(4.2).
"""

from __future__ import annotations

from typing import Any

from kraft_engine.brokers.image import METADATA_VERSION, Image
from kraft_engine.consensus.log_batches import Record


def partition_version(metadata_version: int) -> int:
    """PartitionRecord and PartitionChangeRecord: by metadata.version alone, not by the ELR feature."""
    if metadata_version >= 23:
        return 2
    return 1 if metadata_version >= 17 else 0


def register_broker_version(metadata_version: int) -> int:
    if metadata_version >= 30:
        return 4
    if metadata_version >= 17:
        return 3
    if metadata_version >= 8:
        return 2
    return 1 if metadata_version >= 7 else 0


def feature(name: str, level: int) -> Record:
    return ("FeatureLevelRecord", 0, {"name": name, "featureLevel": level})


def config(resource_type: int, resource: str, name: str, value: str | None) -> Record:
    return (
        "ConfigRecord",
        0,
        {"resourceType": resource_type, "resourceName": resource, "name": name, "value": value},
    )


def partition_fields(fields: dict[str, Any], metadata_version: int) -> dict[str, Any]:
    """Leaves out what the level's record version cannot hold."""
    version = partition_version(metadata_version)
    dropped = set()
    if version < 1:
        dropped.add("directories")
    if version < 2:
        dropped |= {"eligibleLeaderReplicas", "lastKnownElr"}
    return {name: value for name, value in fields.items() if name not in dropped}


def snapshot_records(image: Image) -> list[Record]:
    """Features first, then brokers, controllers, topics with their partitions, configs, quotas, ids, ACLs, secrets."""
    level = image.metadata_version
    records: list[Record] = []
    if level:
        records.append(feature(METADATA_VERSION, level))
    records += [feature(name, image.features[name]) for name in sorted(image.features) if name != METADATA_VERSION]
    if image.zk_migration_state is not None:
        records.append(("ZkMigrationStateRecord", 0, {"zkMigrationState": image.zk_migration_state}))
    broker_version = register_broker_version(level)
    for broker_id in sorted(image.brokers):
        records.append(("RegisterBrokerRecord", broker_version, _broker(image.brokers[broker_id], broker_version)))
    for controller_id in sorted(image.controllers):
        records.append(("RegisterControllerRecord", 0, image.controllers[controller_id]))
    records += _topics(image, level)
    for key in sorted(image.configs):
        records.append(config(*key, image.configs[key]))
    for entity in sorted(image.quotas, key=repr):
        parts = [{"entityType": kind, "entityName": name} for kind, name in entity]
        for key_name, value in sorted(image.quotas[entity].items()):
            fields = {"entity": parts, "key": key_name, "value": value, "remove": False}
            records.append(("ClientQuotaRecord", 0, fields))
    if image.next_producer_id:
        fields = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": image.next_producer_id}
        records.append(("ProducerIdsRecord", 0, fields))
    records += [("AccessControlEntryRecord", 0, image.acls[acl]) for acl in sorted(image.acls)]
    records += [("UserScramCredentialRecord", 0, image.scram[user]) for user in sorted(image.scram)]
    records += [("DelegationTokenRecord", 0, image.tokens[token]) for token in sorted(image.tokens)]
    return records


def _topics(image: Image, level: int) -> list[Record]:
    records: list[Record] = []
    version = partition_version(level)
    for name in sorted(image.topic_ids):
        topic_id = image.topic_ids[name]
        records.append(("TopicRecord", 0, {"name": name, "topicId": topic_id}))
        partitions = image.partitions[topic_id]
        for index in sorted(partitions):
            fields = partitions[index].fields(with_elr=image.elr_enabled)
            records.append(("PartitionRecord", version, partition_fields(fields, level)))
    return records


def _broker(broker: dict[str, Any], version: int) -> dict[str, Any]:
    dropped = set()
    if version < 1:
        dropped.add("inControlledShutdown")
    if version < 2:
        dropped.add("isMigratingZkBroker")
    if version < 3:
        dropped.add("logDirs")
    if version < 4:
        dropped.add("cordonedLogDirs")
    return {name: value for name, value in broker.items() if name not in dropped}
