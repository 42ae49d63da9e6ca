"""Strimzi resources (KafkaTopic, KafkaUser; kafka.strimzi.io/v1, Strimzi 0.49 and later) that bring a state back.

The operators place replicas, issue credentials and remove whatever else a user of theirs has: so a user's resource has
all ACLs and quotas of it that a KafkaUser can say, and what it cannot say is named.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kraft_audit.recovery.restore.restorable_state import SCRAM_MECHANISMS, Acl, RestorableState, RestorableTopic
from kraft_audit.recovery.restore.restore_commands import (
    ACL_CLUSTER,
    ACL_OPERATIONS,
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    REMOVED_CONFIGS,
    LeftOut,
    acl_text,
)
from kraft_audit.replay.state_machines import TOPIC_RESOURCE
from kraft_audit.text.output import neutral
from kraft_codec.records.redaction import is_public_config

API_VERSION: Final = "kafka.strimzi.io/v1"
CLUSTER_LABEL: Final = "strimzi.io/cluster"
CLUSTER_BLANK: Final = "CLUSTER-NAME"
"""Stands for the name of the Kafka resource."""
PASSWORD_SECRET: Final = "restored-passwords"  # noqa: S105  # the name of a Kubernetes Secret
RESOURCE_NAMES: Final = {2: "topic", 3: "group", ACL_CLUSTER: "cluster", 5: "transactionalId"}
OPERATIONS: Final = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
"""AclOperation of Strimzi 1.0: all of Kafka's but those of tokens and two-phase commit."""
QUOTAS: Final = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
CERTIFICATE: Final = "CN="
USER_CHARACTERS_MAX: Final = 64
"""The longest common name of a certificate."""
NAME_CHARACTERS_MAX: Final = 253
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_INVALID: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class StrimziResources:
    """The resources, topics first, and what they cannot say."""

    resources: tuple[Mapping[str, Any], ...]
    left_out: tuple[LeftOut, ...]


def strimzi_resources(state: RestorableState) -> StrimziResources:
    """The topics and users of a state."""
    left_out: list[LeftOut] = []
    resources: list[Mapping[str, Any]] = []
    for topic in state.topics.values():
        resource = _topic(state, topic, left_out)
        if resource is not None:
            resources.append(resource)
    resources += _users(state, left_out)
    for (kind, name), values in state.configs.items():
        if kind != "TOPIC":
            where = "spec.kafka.config of the Kafka resource" if (kind, name) == ("BROKER", "") else "kafka-configs"
            subject = f"{kind} {name or 'default'}: {', '.join(values)}"
            left_out.append(LeftOut("config", subject, f"neither a topic's nor a user's: {where} sets it"))
    return StrimziResources(tuple(resources), tuple(left_out))


def resource_name(name: str) -> str:
    """A Kubernetes name (RFC 1123 subdomain) for any name: itself, else what is left of it with a hash."""
    if _NAME.fullmatch(name) and len(name) <= NAME_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "-".join(part for part in (_INVALID.sub("-", name.lower()).strip("-")[:200].strip("-"), digest) if part)


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = {"name": name, "labels": {CLUSTER_LABEL: CLUSTER_BLANK}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _topic(state: RestorableState, topic: RestorableTopic, left_out: list[LeftOut]) -> Mapping[str, Any] | None:
    numbers = list(topic.replicas)
    if not numbers or numbers != list(range(len(numbers))):
        left_out.append(LeftOut("topic", topic.name, f"its partitions are {numbers}, with a gap"))
        return None
    counts = sorted({len(replicas) for replicas in topic.replicas.values()})
    if len(counts) > 1:
        left_out.append(
            LeftOut("assignment", topic.name, f"its partitions have {counts} replicas: a topic has one count")
        )
    config: dict[str, str] = {}
    for key, value in state.configs.get(("TOPIC", topic.name), {}).items():
        if key in REMOVED_CONFIGS or not is_public_config(TOPIC_RESOURCE, key):
            left_out.append(
                LeftOut("topic config", f"{topic.name}: {key}", "Kafka 4.0 removed it, or it may be a secret")
            )
        else:
            config[key] = value
    name = resource_name(topic.name)
    spec: dict[str, Any] = {"topicName": topic.name} if name != topic.name else {}
    spec |= {"partitions": len(numbers), "replicas": len(topic.replicas[0])}
    return _resource("KafkaTopic", name, {**spec, "config": config} if config else spec)


def _users(state: RestorableState, left_out: list[LeftOut]) -> Iterator[Mapping[str, Any]]:
    """A resource for each user that a KafkaUser can be: its name is the user's, or its certificate's common name."""
    acls: dict[str, list[Acl]] = defaultdict(list)
    for acl in sorted(state.acls):
        acls[acl.principal].append(acl)
    quotas: dict[str, Mapping[str, float]] = {}
    for entity, values in state.quotas.items():
        if len(entity) == 1 and entity[0][0] == "user" and entity[0][1]:
            quotas[f"User:{entity[0][1]}"] = values
        else:
            subject = ", ".join(f"{kind} {name or 'default'}" for kind, name in entity)
            left_out.append(LeftOut("client quota", subject, "a KafkaUser has only its own: kafka-configs sets it"))
    for (user, number), _ in sorted(state.credentials.items()):
        if SCRAM_MECHANISMS.get(number) != "SCRAM-SHA-512":
            mechanism = SCRAM_MECHANISMS.get(number, str(number))
            left_out.append(LeftOut("SCRAM credential", f"{user} {mechanism}", "Strimzi has SCRAM-SHA-512 only"))
    scram = {f"User:{user}" for user, number in state.credentials if SCRAM_MECHANISMS.get(number) == "SCRAM-SHA-512"}
    taken: set[str] = set()
    for principal in sorted({*acls, *quotas, *scram}, key=lambda each: (each.startswith(f"User:{CERTIFICATE}"), each)):
        user = principal.removeprefix("User:")
        name = user.removeprefix(CERTIFICATE)
        if user == principal or not _NAME.fullmatch(name) or len(name) > USER_CHARACTERS_MAX or name in taken:
            reason = "no KafkaUser of its own can have this name: kafka-acls and kafka-configs set it"
            left_out.append(LeftOut("user", principal, reason))
            continue
        spec: dict[str, Any] = {}
        if principal in scram:
            secret = {"secretKeyRef": {"name": PASSWORD_SECRET, "key": name}}
            spec["authentication"] = {"type": "scram-sha-512", "password": {"valueFrom": secret}}
        elif user != name:
            spec["authentication"] = {"type": "tls-external"}
        rules = list(_rules(acls[principal], left_out))
        if rules:
            spec["authorization"] = {"type": "simple", "acls": rules}
        limits = dict(_limits(principal, quotas.get(principal, {}), left_out))
        if limits:
            spec["quotas"] = limits
        if spec:
            taken.add(name)
            yield _resource("KafkaUser", name, spec)


def _rules(acls: Sequence[Acl], left_out: list[LeftOut]) -> Iterator[Mapping[str, Any]]:
    """ACLs that differ in nothing but the operation share a rule."""
    operations: dict[tuple[int, str, int, str, int], list[str]] = defaultdict(list)
    for acl in acls:
        is_known = acl.resource_type in RESOURCE_NAMES and acl.permission_type in (ALLOW, DENY)
        is_pattern = acl.pattern_type == LITERAL or (acl.pattern_type == PREFIXED and acl.resource_type != ACL_CLUSTER)
        if not is_known or not is_pattern or acl.operation not in OPERATIONS:
            left_out.append(
                LeftOut("ACL", acl_text(acl), "a KafkaUser cannot say it; the User Operator would remove it")
            )
            continue
        key = (acl.resource_type, acl.resource_name, acl.pattern_type, acl.host, acl.permission_type)
        operations[key].append(ACL_OPERATIONS[acl.operation])
    for (kind, name, pattern, host, permission), names in operations.items():
        resource: dict[str, Any] = {"type": RESOURCE_NAMES[kind]}
        if kind != ACL_CLUSTER:
            resource |= {"name": name, "patternType": "prefix" if pattern == PREFIXED else "literal"}
        yield {
            "type": "allow" if permission == ALLOW else "deny",
            "resource": resource,
            "operations": names,
            "host": host,
        }


def _limits(principal: str, quotas: Mapping[str, float], left_out: list[LeftOut]) -> Iterator[tuple[str, int | float]]:
    for key, value in sorted(quotas.items()):
        is_whole = value.is_integer()
        if key not in QUOTAS or not (is_whole or key == "controller_mutation_rate"):
            left_out.append(LeftOut("client quota", f"{principal}: {key}={value}", "a KafkaUser has whole numbers"))
        else:
            yield QUOTAS[key], int(value) if is_whole else value


def strimzi_yaml(strimzi: StrimziResources, heading: Iterable[str]) -> Iterator[str]:
    """The lines of a file for kubectl apply; all that is not ASCII stands as an escape."""
    has_passwords = any("password" in each["spec"].get("authentication", {}) for each in strimzi.resources)
    lines = [*heading, f"Replace {CLUSTER_BLANK} by the name of the Kafka resource. The operator places the replicas."]
    if has_passwords:
        lines.append(
            f"Passwords are not in the log: put each into the Secret {PASSWORD_SECRET}, under the user's name."
        )
    if strimzi.left_out:
        lines += ["", "Not brought back by these resources:"]
        lines += [f"  {each.kind} {each.subject}: {each.reason}" for each in strimzi.left_out]
    yield from (f"# {neutral(line)}".rstrip() for line in lines)
    for resource in strimzi.resources:
        yield "---"
        yield yaml.safe_dump(resource, sort_keys=False, width=10_000).rstrip("\n")
