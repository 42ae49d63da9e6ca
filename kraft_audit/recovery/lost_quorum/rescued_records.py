"""The records of a state, as a snapshot holds them: what a log's records leave when they are applied in order.

Secrets stay as they are, so these records go to a snapshot and nowhere else. Partitions come from the replay, whose
states are those of Kafka's own controllers; here only the versions of their records are followed. Each record keeps
the newest version in which the log wrote it, which metadata.version allowed then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kraft_audit.replay.state_machines import TOPIC_RESOURCE
from kraft_codec.records.message import Fields
from kraft_codec.records.record import DecodedRecord, write_metadata_value
from kraft_codec.records.redaction import is_public_config
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE
from kraft_codec.text.java_text import uuid_bytes

PARTITION_EPOCHS_ADDED: Final = 1_000
"""Leader and partition epochs that were lost must not be used again: live brokers ignore a lower partition epoch."""
PRODUCER_IDS_ADDED: Final = 1_000 * 1_000
"""A thousand blocks of ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE (Kafka 4.3): lost ids must not be used again."""
FIRST_WITH_DIRECTORIES: Final = 1
FIRST_WITH_ELR: Final = 2

Entry = tuple[int, Fields]
Record = tuple[str, int, Mapping[str, Any]]


class UnknownStateError(ValueError):
    """A record that cannot be part of a state: unknown, or not decoded. `offset`: below it nothing is wrong."""

    def __init__(self, text: str, offset: int | None = None) -> None:
        super().__init__(text)
        self.offset = offset


def _names(*fields: str) -> Callable[[Mapping[str, Any]], Hashable]:
    return lambda values: tuple(values[field] for field in fields)


def _quota_key(values: Mapping[str, Any]) -> Hashable:
    entity = frozenset((part["entityType"], part["entityName"]) for part in values["entity"])
    return entity, values["key"]


RECORD_KEYS: Final[Mapping[str, Callable[[Mapping[str, Any]], Hashable]]] = {
    "RegisterBrokerRecord": _names("brokerId"),
    "RegisterControllerRecord": _names("controllerId"),
    "TopicRecord": _names("topicId"),
    "ConfigRecord": _names("resourceType", "resourceName", "name"),
    "FeatureLevelRecord": _names("name"),
    "ClientQuotaRecord": _quota_key,
    "ProducerIdsRecord": _names(),
    "AccessControlEntryRecord": _names("id"),
    "UserScramCredentialRecord": _names("name", "mechanism"),
    "DelegationTokenRecord": _names("tokenId"),
    "ZkMigrationStateRecord": _names(),
}
"""By record that sets something: what it is known by."""
REMOVALS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Hashable]]]] = {
    "UnregisterBrokerRecord": ("RegisterBrokerRecord", _names("brokerId")),
    "UnregisterControllerRecord": ("RegisterControllerRecord", _names("controllerId")),
    "RemoveTopicRecord": ("TopicRecord", _names("topicId")),
    "RemoveAccessControlEntryRecord": ("AccessControlEntryRecord", _names("id")),
    "RemoveUserScramCredentialRecord": ("UserScramCredentialRecord", _names("name", "mechanism")),
    "RemoveDelegationTokenRecord": ("DelegationTokenRecord", _names("tokenId")),
}
WITHOUT_EFFECT: Final = frozenset({"NoOpRecord", "ClearElrRecord"})
"""ClearElr changes partitions only, which come from the replay."""
ORDER: Final = (
    *("FeatureLevelRecord", "ZkMigrationStateRecord", "RegisterBrokerRecord", "RegisterControllerRecord"),
    *("TopicRecord", "ConfigRecord", "ClientQuotaRecord", "ProducerIdsRecord", "AccessControlEntryRecord"),
    *("UserScramCredentialRecord", "DelegationTokenRecord"),
)
"""As MetadataImage.write orders them (Kafka 4.3)."""


class StateRecords:
    """Takes records in the order of the log, and gives those of the state that they leave.

    Records of a metadata transaction count once it ended; of one that was aborted, or is open at the end, none does.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Hashable], Entry] = {}
        self._partition_versions: dict[tuple[bytes, int], int] = {}
        self._open: list[tuple[DecodedRecord, bool]] | None = None
        self._redacted: dict[tuple[str, Hashable], str] = {}

    @property
    def is_in_transaction(self) -> bool:
        return self._open is not None

    @property
    def redacted(self) -> list[str]:
        """What of the state holds a secret that is a fingerprint only."""
        return [text for key, text in self._redacted.items() if key in self._entries]

    def add(self, records: Iterable[DecodedRecord], *, is_redacted: bool = False) -> None:
        """Applies the records of a batch, whose secrets may be fingerprints. Raises UnknownStateError."""
        for record in records:
            if record.message is None or record.fields is None:
                raise UnknownStateError(
                    f"the record at offset {record.raw.offset} could not be decoded", record.raw.offset
                )
            name = record.message.name
            if name == "BeginTransactionRecord":
                self._open = []
            elif name in ("EndTransactionRecord", "AbortTransactionRecord"):
                ended, self._open = self._open or [], None
                for each in ended if name == "EndTransactionRecord" else ():
                    self._apply(*each)
            elif self._open is not None:
                self._open.append((record, is_redacted))
            else:
                self._apply(record, is_redacted)

    def value(self, name: str, key: Hashable = ()) -> Mapping[str, Any] | None:
        """The fields of what a record of this name set last."""
        entry = self._entries.get((name, key))
        return None if entry is None else entry[1]

    def values(self, name: str) -> list[Mapping[str, Any]]:
        """The fields of everything that records of this name set."""
        return [fields for (each, _), (_, fields) in self._entries.items() if each == name]

    def _apply(self, record: DecodedRecord, is_redacted: bool) -> None:
        message, version, fields = record.message, record.version, record.fields
        if message is None or version is None or fields is None:
            return
        name = message.name
        if name in ("PartitionRecord", "PartitionChangeRecord"):
            partition = fields["topicId"], fields["partitionId"]
            self._partition_versions[partition] = max(version, self._partition_versions.get(partition, 0))
        elif name in REMOVALS:
            target, key_of = REMOVALS[name]
            removed = self._entries.pop((target, key_of(fields)), None)
            if target == "TopicRecord" and removed is not None:
                self._forget_configs(removed[1]["name"])
        elif name in RECORD_KEYS:
            key = RECORD_KEYS[name](fields)
            if _is_removal(name, fields):
                self._entries.pop((name, key), None)
            else:
                self._entries[name, key] = version, dict(fields)
                self._redacted.pop((name, key), None)
                if is_redacted and (secret := secret_in(name, fields)) is not None:
                    self._redacted[name, key] = secret
        elif name in ("FenceBrokerRecord", "UnfenceBrokerRecord"):
            self._change_broker(fields["id"], 0, {"fenced": name == "FenceBrokerRecord"})
        elif name == "BrokerRegistrationChangeRecord":
            self._change_broker(fields["brokerId"], *_broker_change(fields))
        elif name not in WITHOUT_EFFECT:
            raise UnknownStateError(
                f"{name} at offset {record.raw.offset}: nothing says what it leaves", record.raw.offset
            )

    def _forget_configs(self, topic: str) -> None:
        """A topic's configs go with it (ConfigurationsDelta)."""
        for name, key in list(self._entries):
            if name == "ConfigRecord" and isinstance(key, tuple) and key[:2] == (TOPIC_RESOURCE, topic):
                del self._entries[name, key]

    def _change_broker(self, broker_id: int, version: int, changes: Mapping[str, Any]) -> None:
        entry = self._entries.get(("RegisterBrokerRecord", (broker_id,)))
        if entry is not None:
            self._entries["RegisterBrokerRecord", (broker_id,)] = max(version, entry[0]), {**entry[1], **changes}

    def records(self, partitions: Iterable[Mapping[str, Any]], next_producer_id: int) -> Iterator[Record]:
        """The records of a snapshot of the state. `partitions`: rows of the replay's table, those that exist.

        `next_producer_id`: the largest that any copy of the log names.
        """
        by_topic: dict[bytes, list[Mapping[str, Any]]] = {}
        for row in partitions:
            by_topic.setdefault(uuid_bytes(row["topic_id"]), []).append(row)
        for name in ORDER:
            entries = [(key, entry) for (each, key), entry in self._entries.items() if each == name]
            if name == "FeatureLevelRecord":
                entries.sort(key=lambda pair: pair[1][1]["name"] != METADATA_VERSION_FEATURE)
            if name == "ProducerIdsRecord":
                version = entries[0][1][0] if entries else 0
                beyond = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": next_producer_id + PRODUCER_IDS_ADDED}
                entries = [((), (version, beyond))]
            for _, (version, fields) in entries:
                yield name, version, fields
                if name == "TopicRecord":
                    yield from self._partitions(by_topic.get(fields["topicId"], ()))

    def _partitions(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[Record]:
        for row in sorted(rows, key=lambda row: int(row["partition"])):
            topic_id = uuid_bytes(row["topic_id"])
            version = self._partition_versions.get((topic_id, row["partition"]), 0)
            fields: Fields = {
                "partitionId": row["partition"],
                "topicId": topic_id,
                "replicas": row["replicas"],
                "isr": row["isr"],
                "removingReplicas": row["removing_replicas"],
                "addingReplicas": row["adding_replicas"],
                "leader": row["leader"],
                "leaderRecoveryState": int(row["leader_recovery_state"] == "RECOVERING"),
                "leaderEpoch": row["leader_epoch"] + PARTITION_EPOCHS_ADDED,
                "partitionEpoch": row["partition_epoch"] + PARTITION_EPOCHS_ADDED,
            }
            if version >= FIRST_WITH_DIRECTORIES:
                fields["directories"] = [uuid_bytes(each) for each in row["directories"]]
            if version >= FIRST_WITH_ELR:
                fields["eligibleLeaderReplicas"] = list(row["elr"]) or None
                fields["lastKnownElr"] = list(row["last_known_elr"]) or None
            yield "PartitionRecord", version, fields


def secret_in(name: str, fields: Mapping[str, Any]) -> str | None:
    """What a record's secret is of, as an administrator would name it; None where it holds none."""
    if name == "UserScramCredentialRecord":
        return f"the SCRAM credential of {fields['name']}"
    if name == "DelegationTokenRecord":
        return f"a delegation token of {fields['owner']}"
    if name == "ConfigRecord" and not is_public_config(fields["resourceType"], fields["name"]):
        return f"the config {fields['name']} of {fields['resourceName'] or 'all'}" if fields["value"] else None
    return None


def _is_removal(name: str, fields: Mapping[str, Any]) -> bool:
    if name == "ConfigRecord":
        return fields["value"] is None
    if name == "FeatureLevelRecord":
        return int(fields["featureLevel"]) == 0
    return name == "ClientQuotaRecord" and bool(fields["remove"])


def _broker_change(fields: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The least version of a registration that can say it, and what a change says (BrokerRegistration.cloneWith)."""
    changes: dict[str, Any] = {}
    version = 0
    if fields["fenced"]:
        changes["fenced"] = fields["fenced"] > 0
    if fields["inControlledShutdown"]:
        changes["inControlledShutdown"] = fields["inControlledShutdown"] > 0
        version = 1
    if fields["logDirs"]:
        changes["logDirs"] = fields["logDirs"]
        version = 3
    if fields["cordonedLogDirs"] is not None:
        changes["cordonedLogDirs"] = fields["cordonedLogDirs"]
        version = 4
    return version, changes


def encoded(records: Iterable[Record]) -> Iterator[bytes]:
    """Each record as the value of a data record."""
    for name, version, fields in records:
        yield write_metadata_value(name, version, fields)
