"""The cluster's metadata as its records make it (MetadataImage): what a controller holds, what a snapshot stores."""

from __future__ import annotations

import copy
from typing import Any

from kraft_engine.brokers.partition import LOST, MIGRATING, UNASSIGNED, Partition
from kraft_engine.consensus.log_batches import Batch

TOPIC, BROKER = 2, 4
MIN_ISR = "min.insync.replicas"
ELR_FEATURE = "eligible.leader.replicas.version"
METADATA_VERSION = "metadata.version"


class ReplayError(Exception):
    """A record that contradicts the state before it."""


class Image:
    """All metadata after some record. `replay` is strict: what contradicts the state is an error."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.brokers: dict[int, dict[str, Any]] = {}
        self.controllers: dict[int, dict[str, Any]] = {}
        self.topics: dict[bytes, str] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.partitions: dict[bytes, dict[int, Partition]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.next_producer_id = 0
        self.acls: dict[bytes, dict[str, Any]] = {}
        self.scram: dict[tuple[str, int], dict[str, Any]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.zk_migration_state: int | None = None
        self.before_transaction: Image | None = None

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_FEATURE, 0) >= 1

    def copy(self) -> Image:
        """Records are never changed once replayed, nor lists within a state: only what changes in place is copied."""
        same = copy.copy(self)
        for name, value in self.__dict__.items():
            if isinstance(value, dict):
                same.__dict__[name] = dict(value)
        same.brokers = {broker_id: dict(broker) for broker_id, broker in self.brokers.items()}
        same.quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        same.partitions = {
            topic_id: {index: copy.copy(partition) for index, partition in parts.items()}
            for topic_id, parts in self.partitions.items()
        }
        if self.before_transaction is not None:
            same.before_transaction = self.before_transaction.copy()
        return same

    def all_partitions(self) -> list[Partition]:
        return [partition for parts in self.partitions.values() for partition in parts.values()]

    def partition(self, topic_id: bytes, index: int) -> Partition:
        try:
            return self.partitions[topic_id][index]
        except KeyError:
            raise ReplayError(f"partition {topic_id.hex()}-{index} is unknown") from None

    def replay_batch(self, batch: Batch) -> None:
        if not batch.is_control:
            for name, _, fields in batch.records:
                self.replay(name, fields)

    def replay_what_fits(self, batch: Batch) -> bool:
        """Applies every record that can be applied; false where one could not be (MetadataBatchLoader)."""
        fits = True
        for name, _, fields in () if batch.is_control else batch.records:
            try:
                self.replay(name, fields)
            except ReplayError:
                fits = False
        return fits

    def replay(self, name: str, fields: dict[str, Any]) -> None:
        """Applies one metadata record."""
        try:
            handler = _REPLAYS[name]
        except KeyError:
            raise ReplayError(f"no replay for {name}") from None
        handler(self, fields)

    # Topics and partitions

    def _topic(self, fields: dict[str, Any]) -> None:
        name, topic_id = fields["name"], fields["topicId"]
        if name in self.topic_ids:
            raise ReplayError(f"topic {name} exists")
        self.topics[topic_id] = name
        self.topic_ids[name] = topic_id
        self.partitions[topic_id] = {}

    def _partition(self, fields: dict[str, Any]) -> None:
        if fields["topicId"] not in self.topics:
            raise ReplayError(f"partition of unknown topic {fields['topicId'].hex()}")
        self.partitions[fields["topicId"]][fields["partitionId"]] = Partition(fields)

    def _partition_change(self, fields: dict[str, Any]) -> None:
        self.partition(fields["topicId"], fields["partitionId"]).merge(fields)

    def _remove_topic(self, fields: dict[str, Any]) -> None:
        topic_id = fields["topicId"]
        if topic_id not in self.topics:
            raise ReplayError(f"removal of unknown topic {topic_id.hex()}")
        name = self.topics.pop(topic_id)
        del self.topic_ids[name], self.partitions[topic_id]
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (TOPIC, name)}

    def _clear_elr(self, fields: dict[str, Any]) -> None:
        name = fields["topicName"]
        if name and name not in self.topic_ids:
            raise ReplayError(f"ClearElr of unknown topic {name}")
        chosen = [self.topic_ids[name]] if name else list(self.partitions)
        for topic_id in chosen:
            for partition in self.partitions[topic_id].values():
                if partition.elr or partition.last_known_elr:
                    partition.merge({"eligibleLeaderReplicas": [], "lastKnownElr": []})

    # Brokers and controllers

    def _register_broker(self, fields: dict[str, Any]) -> None:
        self.brokers[fields["brokerId"]] = {
            **fields,
            "fenced": fields.get("fenced", True),
            "inControlledShutdown": fields.get("inControlledShutdown", False),
            "logDirs": sorted(fields.get("logDirs") or (), key=_signed_halves),
        }

    def _broker(self, broker_id: int, epoch: int) -> dict[str, Any]:
        broker = self.brokers.get(broker_id)
        if broker is None or broker["brokerEpoch"] != epoch:
            raise ReplayError(f"broker {broker_id} with epoch {epoch} is not registered")
        return broker

    def _unregister_broker(self, fields: dict[str, Any]) -> None:
        self._broker(fields["brokerId"], fields["brokerEpoch"])
        del self.brokers[fields["brokerId"]]

    def _fence(self, fields: dict[str, Any]) -> None:
        self._broker(fields["id"], fields["epoch"])["fenced"] = True

    def _unfence(self, fields: dict[str, Any]) -> None:
        self._broker(fields["id"], fields["epoch"])["fenced"] = False

    def _change_broker(self, fields: dict[str, Any]) -> None:
        broker = self._broker(fields["brokerId"], fields["brokerEpoch"])
        if fields.get("fenced"):
            broker["fenced"] = fields["fenced"] > 0
        if fields.get("inControlledShutdown"):
            broker["inControlledShutdown"] = True
        if fields.get("logDirs"):
            broker["logDirs"] = sorted(fields["logDirs"], key=_signed_halves)
        if fields.get("cordonedLogDirs") is not None:
            broker["cordonedLogDirs"] = list(fields["cordonedLogDirs"])

    def _register_controller(self, fields: dict[str, Any]) -> None:
        self.controllers[fields["controllerId"]] = dict(fields)

    def _unregister_controller(self, fields: dict[str, Any]) -> None:
        self.controllers.pop(fields["controllerId"], None)

    # Everything else

    def _config(self, fields: dict[str, Any]) -> None:
        key = (fields["resourceType"], fields["resourceName"], fields["name"])
        if fields["value"] is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = fields["value"]

    def _feature(self, fields: dict[str, Any]) -> None:
        if fields["featureLevel"] == 0:
            self.features.pop(fields["name"], None)
        elif fields["name"] != "kraft.version":
            self.features[fields["name"]] = fields["featureLevel"]

    def _quota(self, fields: dict[str, Any]) -> None:
        entity = tuple((part["entityType"], part["entityName"]) for part in fields["entity"])
        values = self.quotas.setdefault(entity, {})
        if fields["remove"]:
            values.pop(fields["key"], None)
        else:
            values[fields["key"]] = fields["value"]
        if not values:
            del self.quotas[entity]

    def _producer_ids(self, fields: dict[str, Any]) -> None:
        self.next_producer_id = fields["nextProducerId"]

    def _acl(self, fields: dict[str, Any]) -> None:
        self.acls[fields["id"]] = dict(fields)

    def _remove_acl(self, fields: dict[str, Any]) -> None:
        if self.acls.pop(fields["id"], None) is None:
            raise ReplayError(f"removal of unknown ACL {fields['id'].hex()}")

    def _scram(self, fields: dict[str, Any]) -> None:
        self.scram[(fields["name"], fields["mechanism"])] = dict(fields)

    def _remove_scram(self, fields: dict[str, Any]) -> None:
        self.scram.pop((fields["name"], fields["mechanism"]), None)

    def _token(self, fields: dict[str, Any]) -> None:
        self.tokens[fields["tokenId"]] = dict(fields)

    def _remove_token(self, fields: dict[str, Any]) -> None:
        self.tokens.pop(fields["tokenId"], None)

    def _zk_migration(self, fields: dict[str, Any]) -> None:
        self.zk_migration_state = fields["zkMigrationState"]

    def _nothing(self, fields: dict[str, Any]) -> None:
        """NoOpRecord moves the offset only."""

    # Transactions (KIP-868)

    def _begin(self, fields: dict[str, Any]) -> None:
        if self.before_transaction is not None:
            raise ReplayError("a transaction begins inside another")
        self.before_transaction = self.copy()

    def _end(self, fields: dict[str, Any]) -> None:
        if self.before_transaction is None:
            raise ReplayError("a transaction ends that did not begin")
        self.before_transaction = None

    def _abort(self, fields: dict[str, Any]) -> None:
        before = self.before_transaction
        if before is None:
            raise ReplayError("a transaction is aborted that did not begin")
        self.__dict__.update(before.__dict__)
        self.before_transaction = None

    # Readings

    def min_isr_config(self, topic_id: bytes, *, node_id: int = -1, static_default: int = 1) -> int:
        """min.insync.replicas as configured: topic, the asking node, cluster, static file, 1 (KafkaConfigSchema)."""
        configs = self.configs
        value = configs.get((TOPIC, self.topics[topic_id], MIN_ISR))
        if value is None:
            value = configs.get((BROKER, str(node_id), MIN_ISR))
        if value is None:
            value = configs.get((BROKER, "", MIN_ISR))
        return int(value) if value is not None else static_default

    def min_isr(self, topic_id: bytes, *, node_id: int = -1, static_default: int = 1) -> int:
        """The controller's effective value: at most the replica count of the topic's partition 0."""
        wanted = self.min_isr_config(topic_id, node_id=node_id, static_default=static_default)
        first = self.partitions[topic_id].get(0)
        return min(wanted, len(first.replicas)) if first is not None else wanted

    def unclean_allowed(self, topic_id: bytes) -> bool:
        key = "unclean.leader.election.enable"
        value = self.configs.get((TOPIC, self.topics[topic_id], key)) or self.configs.get((BROKER, "", key))
        return value == "true"

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced, not shutting down: may lead and may join an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker["fenced"] and not broker["inControlledShutdown"]

    def is_online(self, broker_id: int, directory: bytes) -> bool:
        """DirectoryId.isOnline: reserved ids first, then the broker's registered dirs (none registered: all online)."""
        if directory == LOST:
            return False
        if directory in (UNASSIGNED, MIGRATING):
            return True
        dirs = self.brokers[broker_id]["logDirs"] if broker_id in self.brokers else ()
        return not dirs or directory in dirs


def _signed_halves(uuid: bytes) -> tuple[int, int]:
    """Kafka sorts uuids as two signed 64-bit numbers."""
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)


_REPLAYS = {
    "RegisterBrokerRecord": Image._register_broker,
    "UnregisterBrokerRecord": Image._unregister_broker,
    "TopicRecord": Image._topic,
    "PartitionRecord": Image._partition,
    "ConfigRecord": Image._config,
    "PartitionChangeRecord": Image._partition_change,
    "FenceBrokerRecord": Image._fence,
    "UnfenceBrokerRecord": Image._unfence,
    "RemoveTopicRecord": Image._remove_topic,
    "DelegationTokenRecord": Image._token,
    "UserScramCredentialRecord": Image._scram,
    "FeatureLevelRecord": Image._feature,
    "ClientQuotaRecord": Image._quota,
    "ProducerIdsRecord": Image._producer_ids,
    "BrokerRegistrationChangeRecord": Image._change_broker,
    "AccessControlEntryRecord": Image._acl,
    "RemoveAccessControlEntryRecord": Image._remove_acl,
    "NoOpRecord": Image._nothing,
    "LaterRecord": Image._nothing,
    "ZkMigrationStateRecord": Image._zk_migration,
    "RemoveUserScramCredentialRecord": Image._remove_scram,
    "BeginTransactionRecord": Image._begin,
    "EndTransactionRecord": Image._end,
    "AbortTransactionRecord": Image._abort,
    "RemoveDelegationTokenRecord": Image._remove_token,
    "RegisterControllerRecord": Image._register_controller,
    "ClearElrRecord": Image._clear_elr,
    "UnregisterControllerRecord": Image._unregister_controller,
}
