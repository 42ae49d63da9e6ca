"""The state machines of everything but partitions: topics, registrations, configs, features and security.

Their records are few beside those of partitions, so each record is a plain value here. The state of a subject is a dict
of the columns of its table; every record yields the state after it. The rules are those of Kafka 4.3.0, in the classes
that each state machine names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from kraft_audit.capture.decoded_records import ENVELOPE, RecordColumns, rows_in_order
from kraft_audit.tables.contract import Table, silver_batch
from kraft_audit.tables.silver import (
    BROKER_CHANGES,
    CONFIG_CHANGES,
    CONTROLLER_CHANGES,
    FEATURE_CHANGES,
    SECURITY_CHANGES,
    TOPIC_CHANGES,
)
from kraft_codec.schemas.releases import KRAFT_VERSION_FEATURE
from kraft_codec.text.java_text import uuid_text

_FENCED_BY_CODE: Final = {1: True, -1: False}
"""`Fenced` of a BrokerRegistrationChangeRecord; 0 means no change."""
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
RESOURCE_TYPES: Final = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    8: "BROKER_LOGGER",
    16: "CLIENT_METRICS",
    32: "GROUP",
}
"""`resourceType` of a ConfigRecord (ConfigResource.Type of Kafka 4.3)."""
_ENVELOPE_COLUMNS: Final = frozenset({*ENVELOPE, "base_offset", "unknown_tagged_fields"})


@dataclass(frozen=True, slots=True)
class SubjectChange:
    """What one record did to one subject. `state` is None once the subject is removed; `last` is what it was then."""

    subject: Hashable
    cause: str
    state: Mapping[str, Any] | None
    last: Mapping[str, Any] | None = None


class StateMachine(ABC):
    """The state of one kind of subject, and the rows of its `*_changes` table.

    Windows of the log come in order. `emit_from_offset`: records below it change the state and give no rows. `problems`
    are (offset, problem) of records that contradict the state before them.
    """

    table: ClassVar[Table]
    messages: ClassVar[tuple[str, ...]]

    def __init__(self, *, cluster_id: str, plan: int, emit_from_offset: int) -> None:
        self.cluster_id = cluster_id
        self.plan = plan
        self.emit_from_offset = emit_from_offset
        self.state: dict[Hashable, Mapping[str, Any]] = {}
        self.problems: list[tuple[int, str]] = []

    @abstractmethod
    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """What a record (message name, fields by column name) does to the current state; the caller applies it."""

    def reset(self) -> None:
        """Forgets everything, before a snapshot is loaded."""
        self.state.clear()

    def replay(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Applies the records of a window; yields one batch of the table, or none where nothing changed."""
        rows = [
            self._row(change, row["offset"], row["leader_epoch"], row["timestamp_ms"])
            for change, row in self._applied(records)
            if row["offset"] >= self.emit_from_offset
        ]
        if rows:
            yield silver_batch(self.table, self.cluster_id, self.plan, rows)

    def absorb(self, records: RecordColumns) -> None:
        """Applies records and gives no rows: those of a snapshot, whose state is shown as a whole."""
        for _ in self._applied(records):
            pass

    def _applied(self, records: RecordColumns) -> Iterator[tuple[SubjectChange, Mapping[str, Any]]]:
        """Each change with the record that made it."""
        for name, row in rows_in_order(records, self.messages):
            for change in list(self.changes(name, row)):
                if change.state is None:
                    self.state.pop(change.subject, None)
                else:
                    self.state[change.subject] = change.state
                yield change, row

    def rows(self, offset: int, epoch: int, timestamp_ms: int) -> Iterator[pa.RecordBatch]:
        """The current state as rows at `offset`, with cause "snapshot"."""
        rows = [
            self._row(SubjectChange(subject, "snapshot", state), offset, epoch, timestamp_ms)
            for subject, state in sorted(self.state.items(), key=lambda entry: str(entry[0]))
        ]
        if rows:
            yield silver_batch(self.table, self.cluster_id, self.plan, rows)

    def _row(self, change: SubjectChange, offset: int, epoch: int, timestamp_ms: int) -> dict[str, Any]:
        state = change.state if change.state is not None else change.last
        return {
            "from_offset": offset,
            "from_epoch": epoch,
            "timestamp_ms": timestamp_ms,
            "cause": change.cause,
            "exists": change.state is not None,
            **(state or {}),
        }


class TopicStateMachine(StateMachine):
    """`topic_changes` (ReplicationControlManager, TopicsDelta)."""

    table: ClassVar[Table] = TOPIC_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("TopicRecord", "RemoveTopicRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """A topic is known by its id: the same name created again is another topic."""
        topic_id = uuid_text(row["topic_id"])
        if name == "TopicRecord":
            yield SubjectChange(topic_id, "created", {"topic_id": topic_id, "topic": row["name"]})
        elif topic_id in self.state:
            yield SubjectChange(topic_id, "removed", None, self.state[topic_id])
        else:
            self.problems.append((row["offset"], "unknown_topic"))


class BrokerStateMachine(StateMachine):
    """`broker_changes` (ClusterControlManager, ClusterDelta, BrokerRegistration)."""

    table: ClassVar[Table] = BROKER_CHANGES
    messages: ClassVar[tuple[str, ...]] = (
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord",
    )

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """A registration replaces the one before it. Every other record has to name a registered id and its epoch."""
        if name == "RegisterBrokerRecord":
            cause = "reregistered" if row["broker_id"] in self.state else "registered"
            yield SubjectChange(row["broker_id"], cause, _registration(row))
            return
        broker_id, epoch = (row[n] for n in (("id", "epoch") if "id" in row else ("broker_id", "broker_epoch")))
        before = self.state.get(broker_id)
        if before is None or before["broker_epoch"] != epoch:
            self.problems.append((row["offset"], "unknown_broker" if before is None else "broker_epoch_mismatch"))
            if before is None or name != "UnregisterBrokerRecord":
                return  # the image, unlike the controller, unregisters without comparing epochs
        if name == "UnregisterBrokerRecord":
            yield SubjectChange(broker_id, "unregistered", None, before)
        elif name == "FenceBrokerRecord":
            yield SubjectChange(broker_id, "fenced", {**before, "fenced": True})
        elif name == "UnfenceBrokerRecord":
            yield SubjectChange(broker_id, "unfenced", {**before, "fenced": False})
        else:
            yield _registration_change(before, row)


class ControllerStateMachine(StateMachine):
    """`controller_changes` (ClusterControlManager).

    Up to Kafka 4.3 no record unregisters a controller: it stays registered after it has left.
    """

    table: ClassVar[Table] = CONTROLLER_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("RegisterControllerRecord", "UnregisterControllerRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """A registration replaces the one of the same id."""
        controller_id = row["controller_id"]
        before = self.state.get(controller_id)
        if name == "UnregisterControllerRecord":
            if before is None:
                self.problems.append((row["offset"], "unknown_controller"))
            else:
                yield SubjectChange(controller_id, "unregistered", None, before)
            return
        state = {
            "controller_id": controller_id,
            "incarnation_id": uuid_text(row["incarnation_id"]),
            "zk_migration_ready": row["zk_migration_ready"],
            "end_points": _by_name(row["end_points"]),
            "features": _by_name(row["features"]),
        }
        yield SubjectChange(controller_id, "registered" if before is None else "reregistered", state)


def _registration(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "broker_id": row["broker_id"],
        "broker_epoch": row["broker_epoch"],
        "incarnation_id": uuid_text(row["incarnation_id"]),
        "fenced": row["fenced"],
        "in_controlled_shutdown": row["in_controlled_shutdown"],
        "rack": row["rack"],
        "log_dirs": _sorted_directories(row["log_dirs"]),
        "cordoned_log_dirs": _directory_texts(row["cordoned_log_dirs"]),
        "end_points": _by_name(row["end_points"]),
        "features": _by_name(row["features"]),
        "is_migrating_zk_broker": row["is_migrating_zk_broker"],
    }


def _registration_change(before: Mapping[str, Any], row: Mapping[str, Any]) -> SubjectChange:
    """Applies a BrokerRegistrationChangeRecord: 0, empty and null mean no change.

    Cordoned log dirs are the exception: an empty list is a value, only null means no change.
    """
    state = dict(before)
    cause = "unchanged"
    if row["cordoned_log_dirs"] is not None:
        state["cordoned_log_dirs"] = _directory_texts(row["cordoned_log_dirs"])
        # Kafka 4.3 writes the list with every unfencing, mostly empty as before: that is no change of cordoning.
        if state["cordoned_log_dirs"] != before["cordoned_log_dirs"]:
            cause = "cordoned_log_dirs"
    if row["log_dirs"]:
        state["log_dirs"] = _sorted_directories(row["log_dirs"])
        cause = "log_dirs"
    if row["in_controlled_shutdown"] == 1:
        state["in_controlled_shutdown"] = True
        cause = "controlled_shutdown"
    if row["fenced"] in _FENCED_BY_CODE:
        state["fenced"] = _FENCED_BY_CODE[row["fenced"]]
        cause = "fenced" if state["fenced"] else "unfenced"
    return SubjectChange(row["broker_id"], cause, state)


def _by_name(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sorted by name: snapshots write features and listeners in hash order, and two states have to compare equal."""
    return sorted(items, key=lambda item: str(item["name"]))


def _sorted_directories(directories: Sequence[bytes]) -> list[str]:
    """Directory ids sorted as BrokerRegistration does: by their two halves as signed 64-bit numbers."""

    def halves(value: bytes) -> tuple[int, int]:
        return int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:], "big", signed=True)

    return [uuid_text(directory) for directory in sorted(directories, key=halves)]


def _directory_texts(directories: Sequence[bytes] | None) -> list[str]:
    return [uuid_text(directory) for directory in directories or ()]


class ConfigStateMachine(StateMachine):
    """`config_changes` (ConfigurationsDelta, ConfigurationControlManager)."""

    table: ClassVar[Table] = CONFIG_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("ConfigRecord", "TopicRecord", "RemoveTopicRecord")

    def __init__(self, *, cluster_id: str, plan: int, emit_from_offset: int) -> None:
        super().__init__(cluster_id=cluster_id, plan=plan, emit_from_offset=emit_from_offset)
        self._topic_names: dict[bytes, str] = {}
        self._keys_of_topic: dict[str, set[str]] = {}

    def reset(self) -> None:
        super().reset()
        self._topic_names.clear()
        self._keys_of_topic.clear()

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """A null value deletes a config. Removing a topic deletes its configs, without a record for each."""
        if name == "TopicRecord":
            self._topic_names[row["topic_id"]] = row["name"]
        elif name == "RemoveTopicRecord":
            topic = self._topic_names.pop(row["topic_id"], "")
            for key in sorted(self._keys_of_topic.pop(topic, ())):
                subject = ("TOPIC", topic, key)
                yield SubjectChange(subject, "topic_removed", None, {**self.state[subject], "value": None})
        else:
            yield from self._write(row)

    def _write(self, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        type_name = RESOURCE_TYPES.get(row["resource_type"], str(row["resource_type"]))
        subject = (type_name, row["resource_name"], row["name"])
        state = {
            "resource_type": type_name,
            "resource_name": row["resource_name"],
            "name": row["name"],
            "value": row["value"],
        }
        if type_name == "TOPIC":
            keys = self._keys_of_topic.setdefault(row["resource_name"], set())
            if row["value"] is None:
                keys.discard(row["name"])
            else:
                keys.add(row["name"])
        if row["value"] is None:
            yield SubjectChange(subject, "deleted", None, state)
        else:
            yield SubjectChange(subject, "set", state)


class FeatureStateMachine(StateMachine):
    """`feature_changes` (FeaturesDelta, FeatureControlManager).

    kraft.version comes from its control record, never from a FeatureLevelRecord (KIP-853).
    """

    table: ClassVar[Table] = FEATURE_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("FeatureLevelRecord", "KRaftVersionRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """Level 0 removes a feature."""
        if name == "KRaftVersionRecord":
            feature, level = KRAFT_VERSION_FEATURE, row["kraft_version"]
            if self.state.get(feature, {}).get("feature_level") == level:
                return  # a leader that updates its own endpoints writes the same version again
        else:
            feature, level = row["name"], row["feature_level"]
            if feature == KRAFT_VERSION_FEATURE:
                return
        state = {"name": feature, "feature_level": level}
        yield SubjectChange(feature, "set" if level else "removed", state if level else None, state)


def _quota_entity(row: Mapping[str, Any]) -> str:
    entity = {part["entity_type"]: part["entity_name"] for part in row["entity"]}
    return json.dumps({**dict(sorted(entity.items())), "key": row["key"]}, ensure_ascii=False)


_SECURITY_SUBJECTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]]] = {
    "AccessControlEntryRecord": ("ACL", lambda row: uuid_text(row["id"])),
    "RemoveAccessControlEntryRecord": ("ACL", lambda row: uuid_text(row["id"])),
    "ClientQuotaRecord": ("CLIENT_QUOTA", _quota_entity),
    "UserScramCredentialRecord": ("SCRAM", lambda row: f"{row['mechanism']} {row['name']}"),
    "RemoveUserScramCredentialRecord": ("SCRAM", lambda row: f"{row['mechanism']} {row['name']}"),
    "DelegationTokenRecord": ("DELEGATION_TOKEN", lambda row: str(row["token_id"])),
    "RemoveDelegationTokenRecord": ("DELEGATION_TOKEN", lambda row: str(row["token_id"])),
    "ProducerIdsRecord": ("PRODUCER_IDS", lambda row: "next"),
}
"""The kind of subject that a message is about, and its name from the message's fields."""


class SecurityStateMachine(StateMachine):
    """`security_changes`: ACLs, client quotas, SCRAM credentials, delegation tokens and producer id blocks.

    AclsDelta, ClientQuotasDelta, ScramDelta, DelegationTokenDelta, ProducerIdsDelta. Secrets arrive as fingerprints:
    the rows show that a secret changed, never what it is.
    """

    table: ClassVar[Table] = SECURITY_CHANGES
    messages: ClassVar[tuple[str, ...]] = tuple(_SECURITY_SUBJECTS)

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[SubjectChange]:
        """A record that sets a subject carries its whole state; one that removes it carries its key."""
        kind, subject_of = _SECURITY_SUBJECTS[name]
        subject = (kind, subject_of(row))
        removes = name.startswith("Remove") or bool(row.get("remove"))
        state = {"kind": kind, "subject": subject[1], "state": None}
        if not removes:
            state["state"] = _fields_json(row)
            yield SubjectChange(subject, "set", state)
        elif subject in self.state:
            yield SubjectChange(subject, "removed", None, state)
        elif kind != "CLIENT_QUOTA":
            self.problems.append((row["offset"], f"unknown_{kind.lower()}"))


def _fields_json(row: Mapping[str, Any]) -> str:
    """The fields of a message as JSON; bytes, the only type of value here that JSON does not have, in base64."""
    fields = {name: value for name, value in row.items() if name not in _ENVELOPE_COLUMNS}
    return json.dumps(fields, default=lambda data: b64encode(data).decode("ascii"), sort_keys=True, ensure_ascii=False)
