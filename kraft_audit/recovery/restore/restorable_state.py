"""What of a cluster's state its commands can bring back: topics, configs, ACLs, quotas, credentials, by their names.

Ids, epochs, leaders, ISRs and registrations are left out: another cluster makes its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraft_audit.replay.cluster_state import ClusterState
from kraft_audit.tables.silver import (
    CONFIG_CHANGES,
    FEATURE_CHANGES,
    PARTITION_CHANGES,
    SECURITY_CHANGES,
    TOPIC_CHANGES,
)

SCRAM_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""ScramMechanism (org.apache.kafka.clients.admin, 4.3)."""
Resource = tuple[str, str]
"""Type and name of what has configs; the name is empty for the default of all brokers."""
Entity = tuple[tuple[str, str | None], ...]
"""(type, name) of each part of what has a quota; no name means the default."""


@dataclass(frozen=True, slots=True)
class RestorableTopic:
    """A topic with the replicas of each partition as they are once a running reassignment is done.

    `leader_epoch` is the highest of its partitions; no command sets it.
    """

    name: str
    topic_id: str
    replicas: Mapping[int, tuple[int, ...]]
    is_reassigned: bool = False
    leader_epoch: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An ACL without its id, in Kafka's numbers (ResourceType, PatternType, AclPermissionType, AclOperation)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    permission_type: int
    operation: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What may be said of a credential: `fingerprint` differs where the password or the salt does."""

    iterations: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RestorableState:
    """Everything by its name: configs by resource, quotas by entity, credentials by user and mechanism."""

    topics: Mapping[str, RestorableTopic] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    credentials: Mapping[tuple[str, int], ScramCredential] = field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    tokens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int | None = None

    @property
    def object_count(self) -> int:
        """How many things there are to create or set, each config and each quota by itself."""
        keyed = (*self.configs.values(), *self.quotas.values())
        return len(self.topics) + sum(map(len, keyed)) + len(self.credentials) + len(self.acls)


def restorable_state(state: ClusterState) -> RestorableState:
    """The names and values of a replayed state."""
    configs: dict[Resource, dict[str, str]] = defaultdict(dict)
    for row in state.existing(CONFIG_CHANGES.name):
        configs[row["resource_type"], row["resource_name"]][row["name"]] = row["value"] or ""
    fields: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for row in state.existing(SECURITY_CHANGES.name):
        fields[row["kind"]].append((row["subject"], json.loads(row["state"])))
    quotas: dict[Entity, dict[str, float]] = defaultdict(dict)
    for _, quota in fields["CLIENT_QUOTA"]:
        quotas[_entity(quota["entity"])][quota["key"]] = quota["value"]
    return RestorableState(
        _topics(state),
        {resource: dict(sorted(values.items())) for resource, values in sorted(configs.items())},
        dict(sorted(quotas.items(), key=str)),
        {(each["name"], each["mechanism"]): _credential(each) for _, each in fields["SCRAM"]},
        frozenset(_acl(each) for _, each in fields["ACL"]),
        dict(fields["DELEGATION_TOKEN"]),
        {row["name"]: row["feature_level"] for row in state.existing(FEATURE_CHANGES.name)},
        next((each["next_producer_id"] for _, each in fields["PRODUCER_IDS"]), None),
    )


def _topics(state: ClusterState) -> dict[str, RestorableTopic]:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in state.existing(PARTITION_CHANGES.name):
        rows[row["topic_id"]].append(row)
    topics = {}
    for topic in sorted(state.existing(TOPIC_CHANGES.name), key=lambda row: str(row["topic"])):
        partitions = sorted(rows[topic["topic_id"]], key=lambda row: int(row["partition"]))
        topics[topic["topic"]] = RestorableTopic(
            topic["topic"],
            topic["topic_id"],
            {row["partition"]: _target(row) for row in partitions},
            any(row["adding_replicas"] or row["removing_replicas"] for row in partitions),
            max((row["leader_epoch"] for row in partitions), default=-1),
        )
    return topics


def _target(row: Mapping[str, Any]) -> tuple[int, ...]:
    """The replicas that a running reassignment leads to (PartitionReassignmentReplicas, 4.3)."""
    return tuple(replica for replica in row["replicas"] if replica not in row["removing_replicas"])


def _entity(parts: Iterable[Mapping[str, Any]]) -> Entity:
    return tuple(sorted(((part["entity_type"], part["entity_name"]) for part in parts), reverse=True, key=str))


def _credential(fields: Mapping[str, Any]) -> ScramCredential:
    return ScramCredential(fields["iterations"], f"{fields['salt']} {fields['stored_key']} {fields['server_key']}")


def _acl(fields: Mapping[str, Any]) -> Acl:
    return Acl(
        fields["resource_type"],
        fields["resource_name"],
        fields["pattern_type"],
        fields["principal"],
        fields["host"],
        fields["permission_type"],
        fields["operation"],
    )
