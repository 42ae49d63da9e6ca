"""What admin requests changed: topics, partitions added, configs, ACLs, quotas, SCRAM credentials and features.

Each change says which lines of Kafka's authorizer log can be those of the request that made it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.tables.silver import SNAPSHOT

AUTHORIZER_LOG_TOPIC: Final = "Topic"
"""A topic as the authorizer log names the type of a resource."""
_CONFIG_REQUESTS: Final = frozenset({"IncrementalAlterConfigs", "AlterConfigs"})


@dataclass(frozen=True, slots=True)
class Asked:
    """How a request that makes such a change is authorized, as Kafka 4.3.1 logs it (ControllerApis).

    `operations` on a resource of the change's own name, or `cluster_operation` on the cluster: then its lines name no
    subject. None: never on the cluster alone.
    """

    requests: frozenset[str]
    operations: frozenset[str] = frozenset()
    cluster_operation: str | None = None


@dataclass(frozen=True, slots=True)
class AdminChange:
    """One change, by the record that made it. `resource` is the (type, name) that its request's lines may name."""

    offset: int
    epoch: int
    timestamp_ms: int
    kind: str
    subject: str
    text: str
    asked: Asked
    resource: tuple[str, str] | None = None


# Who may create every topic needs no right on this one; whether its configs may be shown is asked by its name.
CREATE_TOPIC: Final = Asked(frozenset({"CreateTopics"}), frozenset({"CREATE", "DESCRIBE_CONFIGS"}), "CREATE")
DELETE_TOPIC: Final = Asked(frozenset({"DeleteTopics"}), frozenset({"DELETE"}), "DELETE")
ADD_PARTITIONS: Final = Asked(frozenset({"CreatePartitions"}), frozenset({"ALTER"}))
TOPIC_CONFIG: Final = Asked(_CONFIG_REQUESTS, frozenset({"ALTER_CONFIGS"}))
CLUSTER_CONFIG: Final = Asked(_CONFIG_REQUESTS, cluster_operation="ALTER_CONFIGS")
_SECURITY: Final[Mapping[tuple[str, bool], Asked]] = {
    ("ACL", True): Asked(frozenset({"CreateAcls"}), cluster_operation="ALTER"),
    ("ACL", False): Asked(frozenset({"DeleteAcls"}), cluster_operation="ALTER"),
    **{
        ("CLIENT_QUOTA", exists): Asked(frozenset({"AlterClientQuotas"}), cluster_operation="ALTER_CONFIGS")
        for exists in (True, False)
    },
    **{
        ("SCRAM", exists): Asked(frozenset({"AlterUserScramCredentials"}), cluster_operation="ALTER")
        for exists in (True, False)
    },
}
FEATURE: Final = Asked(frozenset({"UpdateFeatures"}), cluster_operation="ALTER")
_CONFIG_RESOURCES: Final = {"TOPIC": AUTHORIZER_LOG_TOPIC, "GROUP": "Group"}
_ACL_RESOURCES: Final = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
_ACL_OPERATIONS: Final = (
    *("unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe", "cluster action"),
    *("describe configs", "alter configs", "idempotent write", "create tokens", "describe tokens", "two phase commit"),
)
_ACL_PERMISSIONS: Final = {2: "deny", 3: "allow"}
_SCRAM_MECHANISMS: Final = {"1": "SCRAM-SHA-256", "2": "SCRAM-SHA-512"}


def admin_changes(history: ClusterHistory) -> list[AdminChange]:
    """Every such change that the log holds, by offset; what a snapshot says of before the log is no change."""
    changes = [*_topics(history), *_partitions(history), *_configs(history), *_security(history), *_features(history)]
    return sorted(changes, key=attrgetter("offset"))


def _rows(history: ClusterHistory, table: str) -> Iterator[dict[str, Any]]:
    return (row for row in history.rows(table) if row["cause"] != SNAPSHOT)


def _change(row: Mapping[str, Any], kind: str, subject: str, text: str, asked: Asked, **more: Any) -> AdminChange:
    return AdminChange(row["from_offset"], row["from_epoch"], row["timestamp_ms"], kind, subject, text, asked, **more)


def _topics(history: ClusterHistory) -> Iterator[AdminChange]:
    for row in _rows(history, "topic_changes"):
        topic, asked = row["topic"], CREATE_TOPIC if row["exists"] else DELETE_TOPIC
        verb = "created" if row["exists"] else "deleted"
        yield _change(row, "topic", topic, f"topic {topic} {verb}", asked, resource=(AUTHORIZER_LOG_TOPIC, topic))


def _partitions(history: ClusterHistory) -> Iterator[AdminChange]:
    """Partitions that a topic got later; those that it was created with follow it in one batch."""
    made = {row["topic_id"]: row["timestamp_ms"] for row in history.rows("topic_changes") if row["exists"]}
    table = history.table("partition_changes")
    created = table.filter(pc.equal(table["cause"], "created"))
    columns = ["from_offset", "from_epoch", "timestamp_ms", "topic_id", "topic", "partition"]
    for row in created.select(columns).to_pylist():
        if made.get(row["topic_id"]) != row["timestamp_ms"]:
            text = f"topic {row['topic']}: partition {row['partition']} added"
            subject = f"{row['topic']}-{row['partition']}"
            yield _change(
                row, "partition", subject, text, ADD_PARTITIONS, resource=(AUTHORIZER_LOG_TOPIC, row["topic"])
            )


def _configs(history: ClusterHistory) -> Iterator[AdminChange]:
    """Without those that go with a deleted topic. A topic's first configs come right after it, of one request."""
    after_topic = {
        (row["topic"], row["from_offset"] + 1) for row in history.rows("topic_changes") if row["cause"] == "created"
    }
    for row in sorted(_rows(history, "config_changes"), key=lambda row: int(row["from_offset"])):
        if row["cause"] == "topic_removed":
            continue
        resource_type, name = row["resource_type"], row["resource_name"]
        asked = TOPIC_CONFIG if resource_type in _CONFIG_RESOURCES else CLUSTER_CONFIG
        if resource_type == "TOPIC" and (name, row["from_offset"]) in after_topic:
            after_topic.add((name, row["from_offset"] + 1))
            asked = CREATE_TOPIC
        resource = (_CONFIG_RESOURCES[resource_type], name) if resource_type in _CONFIG_RESOURCES else None
        subject = f"{resource_type.lower()} {name or '(default)'}: {row['name']}"
        text = f"{subject} = {row['value']}" if row["exists"] else f"{subject} deleted"
        yield _change(row, "config", subject, text, asked, resource=resource)


def _security(history: ClusterHistory) -> Iterator[AdminChange]:
    known: dict[str, str] = {}
    for row in history.rows("security_changes"):
        if row["kind"] == "ACL" and row["exists"]:
            known[row["subject"]] = _acl_text(json.loads(row["state"]))
        if row["cause"] == SNAPSHOT:
            continue
        asked = _SECURITY.get((row["kind"], row["exists"]))
        if asked is None:
            continue
        kind, subject = row["kind"].lower().replace("client_", ""), row["subject"]
        words = f"ACL {known.get(subject, subject)}" if kind == "acl" else _security_text(row)
        verb = "" if kind == "quota" and row["exists"] else " set" if row["exists"] else " removed"
        yield _change(row, kind, subject, f"{words}{verb}", asked)


def _acl_text(state: Mapping[str, Any]) -> str:
    operation = state["operation"]
    words = _ACL_OPERATIONS[operation] if 0 <= operation < len(_ACL_OPERATIONS) else f"operation {operation}"
    resource = _ACL_RESOURCES.get(state["resource_type"], f"resource type {state['resource_type']}")
    prefix = "*" if state["pattern_type"] == 4 else ""
    permission = _ACL_PERMISSIONS.get(state["permission_type"], f"permission {state['permission_type']}")
    host = "" if state["host"] == "*" else f" from {state['host']}"
    return f"{permission} {words} on {resource} {state['resource_name']}{prefix} to {state['principal']}{host}"


def _security_text(row: Mapping[str, Any]) -> str:
    if row["kind"] == "SCRAM":
        mechanism, _, user = row["subject"].partition(" ")
        return f"{_SCRAM_MECHANISMS.get(mechanism, mechanism)} credential of {user}"
    entity = json.loads(row["subject"])
    key = entity.pop("key")
    of = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity.items())
    value = f" = {json.loads(row['state'])['value']:g}" if row["exists"] else ""
    return f"quota of {of}: {key}{value}"


def _features(history: ClusterHistory) -> Iterator[AdminChange]:
    for row in _rows(history, "feature_changes"):
        text = f"feature {row['name']} level {row['feature_level']}"
        yield _change(row, "feature", row["name"], text, FEATURE)
