"""Kafka's own commands that create topics, configs, quotas, credentials and ACLs again, as its tools parse them.

TopicCommand, ConfigCommand, AclCommand and ReassignPartitionsCommand of Kafka 4.3.1. What a tool refuses, or would read
as something else, is said to be left out instead of being printed.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.recovery.restore.restorable_state import (
    SCRAM_MECHANISMS,
    Acl,
    Entity,
    Resource,
    RestorableState,
    RestorableTopic,
)
from kraft_audit.text.shell_commands import (
    Argument,
    Blank,
    ShellCommand,
    UnwritableError,
    json_parts,
    properties_text,
    shell_command,
    variable_name,
)
from kraft_codec.records.redaction import is_public_config

RESOURCE_NUMBERS: Final = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}
ENTITY_OF: Final = {"TOPIC": "topics", "BROKER": "brokers", "CLIENT_METRICS": "client-metrics", "GROUP": "groups"}
"""What kafka-configs calls each type of resource (ConfigType)."""
QUOTA_ENTITIES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTA_KEY: Final = "connection_creation_rate"
REMOVED_CONFIGS: Final = frozenset(
    {"message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable"}
)
"""Topic configs that Kafka 4.0 removed: a log that began before still holds them, and its tools refuse them."""
ACL_RESOURCE_OPTIONS: Final = {
    2: "--topic",
    3: "--group",
    4: "--cluster",
    5: "--transactional-id",
    6: "--delegation-token",
    7: "--user-principal",
}
ACL_CLUSTER, TRANSACTIONAL_ID, LITERAL, PREFIXED, ALLOW, DENY = 4, 5, 3, 4, 3, 2
ALL: Final = 2
ACL_OPERATIONS: Final = {
    ALL: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
    15: "TwoPhaseCommit",
}
SUPPORTED_OPERATIONS: Final[Mapping[int, frozenset[int]]] = {
    2: frozenset({ALL, 3, 4, 5, 6, 7, 8, 10, 11}),
    3: frozenset({ALL, 3, 6, 8, 10, 11}),
    4: frozenset({ALL, 5, 7, 8, 9, 10, 11, 12}),
    5: frozenset({ALL, 4, 8, 15}),
    6: frozenset({ALL, 8}),
    7: frozenset({ALL, 13, 14}),
}
"""AclEntry.supportedOperations: kafka-acls refuses all others, which Kafka's Admin client can set."""
_BRACKETS: Final = re.compile(r"[\[\]]")
_KEY: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Restored:
    """A command and what it brings back."""

    kind: str
    subject: str
    command: ShellCommand


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What no command here brings back, and why."""

    kind: str
    subject: str
    reason: str


RestoreSteps = Iterator[Restored | LeftOut]


class RestoreCommands:
    """The commands for a state. `server` are the options that say where Kafka is.

    `any_brokers`: the other cluster's brokers have other ids, so Kafka places the replicas, and what is set for a
    broker by its id is left out.
    """

    def __init__(self, state: RestorableState, server: Sequence[str | Blank | Argument], *, any_brokers: bool) -> None:
        self._state = state
        self._server = tuple(server)
        self._any_brokers = any_brokers
        self._blanks: dict[tuple[str, ...], Blank] = {}

    def steps(self, known: Mapping[str, RestorableTopic]) -> RestoreSteps:
        """Everything in the order in which it has to be there. `known`: the topics that the cluster has already."""
        for resource, values in self._state.configs.items():
            if resource[0] != "TOPIC":
                yield from self._resource(resource, values)
        for name, topic in self._state.topics.items():
            yield from self._topic(topic, known.get(name))
        for (kind, name), values in self._state.configs.items():
            if kind == "TOPIC" and (name not in self._state.topics or name in known):
                yield from self._configs_of_topic(name, values, is_there=name in known)
        for entity, quotas in self._state.quotas.items():
            yield from self._quota(entity, quotas)
        yield from self._credentials()
        yield from acl_steps(self._state.acls, self._server)

    # Configs

    def _resource(self, resource: Resource, values: Mapping[str, str]) -> RestoreSteps:
        kind, name = resource
        subject = name or "all brokers"
        if kind not in ENTITY_OF:
            yield LeftOut("config", f"{kind} {name}", "kafka-configs does not set configs of this type")
        elif kind == "BROKER" and name and self._any_brokers:
            yield LeftOut("broker config", f"broker {name}: {', '.join(values)}", "the other cluster has other brokers")
        else:
            label = {"BROKER": "broker config", "GROUP": "group config"}.get(kind, "client metrics config")
            yield from self._configured(label, subject, resource, values)

    def _configured(self, label: str, subject: str, resource: Resource, values: Mapping[str, str]) -> RestoreSteps:
        """The configs of one resource, in one command, and one more for values that --add-config cannot say."""
        for key in values:
            if not _KEY.fullmatch(key):
                yield LeftOut(label, f"{subject}: {key}", "kafka-configs refuses the characters of its name")
        valid = {key: value for key, value in values.items() if _KEY.fullmatch(key)}
        entity = entity_options(ENTITY_OF[resource[0]], resource[1])
        in_file = {key: value for key, value in valid.items() if self._needs_file(resource[0], key, value)}
        if in_file:
            text = properties_text(in_file)
            yield self._altered(label, subject, entity, "--add-config-file", "/dev/stdin", stdin=text)
        rest = {key: value for key, value in valid.items() if key not in in_file}
        if rest:
            settings = _joined([self._setting(resource, key, value) for key, value in rest.items()])
            yield self._altered(label, subject, entity, "--add-config", settings)

    def _altered(
        self, label: str, subject: str, entity: Sequence[str], *change: str | Argument, stdin: str | None = None
    ) -> Restored:
        return Restored(
            label,
            subject,
            shell_command("kafka-configs", *self._server, "--alter", *entity, *change, stdin=stdin),
        )

    def _needs_file(self, kind: str, key: str, value: str) -> bool:
        """--add-config drops brackets and white space around a value."""
        return _is_known(kind, key, value) and (_BRACKETS.search(value) is not None or java_trim(value) != value)

    def _setting(self, resource: Resource, key: str, value: str) -> Argument:
        if not _is_known(resource[0], key, value):
            owner = f"{resource[0].lower()} {resource[1]}".strip()
            return (f"{key}=[", self._blank("VALUE", f"{key}_OF_{owner}", f"{key} of {owner or 'all brokers'}"), "]")
        return (f"{key}=[{value}]" if "," in value or "=" in value else f"{key}={value}",)

    def _blank(self, prefix: str, name: str, meaning: str) -> Blank:
        key = (prefix, name)
        if key not in self._blanks:
            taken = {blank.name for blank in self._blanks.values()}
            self._blanks[key] = Blank(variable_name(prefix, name, taken), meaning)
        return self._blanks[key]

    # Topics

    def _topic(self, topic: RestorableTopic, known: RestorableTopic | None) -> RestoreSteps:
        numbers = list(topic.replicas)
        if not numbers or numbers != list(range(len(numbers))):
            yield LeftOut("topic", topic.name, f"its partitions are {numbers}: Kafka creates them from 0 without a gap")
            return
        if known is not None:
            yield from self._changed_topic(topic, known)
            return
        values = self._state.configs.get(("TOPIC", topic.name), {})
        direct = {key: value for key, value in values.items() if _is_plain_topic_config(key, value)}
        placed = self._placement(topic, len(numbers))
        options = [option for key, value in direct.items() for option in ("--config", f"{key}={value}")]
        create = ("--create", "--if-not-exists", "--topic", topic.name)
        yield Restored("topic", topic.name, shell_command("kafka-topics", *self._server, *create, *placed, *options))
        yield from self._reassigned(topic, _even(topic))
        rest = {key: value for key, value in values.items() if key not in direct}
        if rest:
            yield from self._configs_of_topic(topic.name, rest, is_there=True)

    def _placement(self, topic: RestorableTopic, count: int) -> tuple[str, ...]:
        if self._any_brokers:
            factor = str(len(topic.replicas[0]))
            return ("--partitions", str(count), "--replication-factor", factor)
        return ("--replica-assignment", _assignment(_even(topic)))

    def _changed_topic(self, topic: RestorableTopic, known: RestorableTopic) -> RestoreSteps:
        """Partitions that a topic had more, and replicas that were elsewhere."""
        added = {number: replicas for number, replicas in topic.replicas.items() if number not in known.replicas}
        there = {number: known.replicas.get(number, replicas) for number, replicas in topic.replicas.items()}
        if added:
            placed = () if self._any_brokers else ("--replica-assignment", _assignment(topic.replicas))
            options = ("--alter", "--topic", topic.name, "--partitions", str(len(topic.replicas)), *placed)
            yield Restored("partitions", topic.name, shell_command("kafka-topics", *self._server, *options))
        yield from self._reassigned(topic, there)

    def _reassigned(self, topic: RestorableTopic, placed: Mapping[int, tuple[int, ...]]) -> RestoreSteps:
        """Partitions whose replicas no kafka-topics --create can give: it wants as many of each partition."""
        moved = {number: replicas for number, replicas in topic.replicas.items() if placed[number] != replicas}
        if not moved:
            return
        if self._any_brokers:
            yield LeftOut("assignment", topic.name, "the other cluster has other brokers: Kafka places the replicas")
            return
        partitions = (
            {"topic": topic.name, "partition": number, "replicas": list(replicas)} for number, replicas in moved.items()
        )
        plan = "".join(f"{line}\n" for line in json_parts('{"version": 1, "partitions": ', partitions))
        options = ("--execute", "--reassignment-json-file", "/dev/stdin")
        yield Restored(
            "assignment", topic.name, shell_command("kafka-reassign-partitions", *self._server, *options, stdin=plan)
        )

    def _configs_of_topic(self, name: str, values: Mapping[str, str], *, is_there: bool) -> RestoreSteps:
        if not is_there:
            yield LeftOut("topic config", f"{name}: {', '.join(values)}", "there is no topic of this name")
            return
        for key in values:
            if key in REMOVED_CONFIGS:
                yield LeftOut("topic config", f"{name}: {key}", "Kafka 4.0 removed it, and its tools refuse it")
        rest = {key: value for key, value in values.items() if key not in REMOVED_CONFIGS}
        if rest:
            yield from self._configured("topic config", name, ("TOPIC", name), rest)

    # Rights

    def _quota(self, entity: Entity, quotas: Mapping[str, float]) -> RestoreSteps:
        subject = ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in entity)
        kinds = [kind for kind, _ in entity]
        keys = (IP_QUOTA_KEY,) if kinds == ["ip"] else QUOTA_KEYS
        if kinds not in (["user"], ["client-id"], ["user", "client-id"], ["ip"]):
            yield LeftOut("client quota", subject, "kafka-configs knows no such entity")
            return
        for key in quotas:
            if key not in keys:
                yield LeftOut("client quota", f"{subject}: {key}", "kafka-configs knows no such quota")
        known = [(f"{key}={number_text(value)}",) for key, value in sorted(quotas.items()) if key in keys]
        if any(name == "" for _, name in entity):
            yield LeftOut("client quota", subject, "kafka-configs reads an empty name as the default")
        elif known:
            entities = [option for kind, name in entity for option in entity_options(QUOTA_ENTITIES[kind], name)]
            yield self._altered("client quota", subject, entities, "--add-config", _joined(known))

    def _credentials(self) -> RestoreSteps:
        """A command for each mechanism: the controller refuses two of a user in a request (ScramControlManager)."""
        for (user, number), credential in sorted(self._state.credentials.items()):
            mechanism = SCRAM_MECHANISMS.get(number)
            if mechanism is None or user == "":
                yield LeftOut("SCRAM credential", f"{user} {mechanism or number}", "kafka-configs cannot name it")
                continue
            password = self._blank("PASSWORD_OF", user, f"password of user {user}")
            setting = (f"{mechanism}=[iterations={credential.iterations},password=", password, "]")
            subject = f"{user} {mechanism}"
            yield self._altered("SCRAM credential", subject, entity_options("users", user), "--add-config", setting)


def entity_options(kind: str, name: str | None) -> tuple[str, ...]:
    """The options of kafka-configs that name an entity, or the default of its type."""
    return ("--entity-type", kind, *(("--entity-name", name) if name else ("--entity-default",)))


def acl_steps(
    acls: Iterable[Acl], server: Sequence[str | Blank | Argument], change: Sequence[str] = ("--add",)
) -> RestoreSteps:
    """Commands for ACLs; those that differ in nothing but the operation share one. `change`: --add, or --remove."""
    operations: dict[tuple[int, str, int, str, str, int], list[int]] = defaultdict(list)
    for acl in sorted(acls):
        reason = _why_no_acl(acl)
        if reason is not None:
            yield LeftOut("ACL", acl_text(acl), reason)
            continue
        shared = (acl.resource_type, acl.resource_name, acl.pattern_type)
        operations[(*shared, acl.principal, acl.host, acl.permission_type)].append(acl.operation)
    for (kind, name, pattern, principal, host, permission), numbers in operations.items():
        word = "allow" if permission == ALLOW else "deny"
        resource = (ACL_RESOURCE_OPTIONS[kind],) if kind == ACL_CLUSTER else (ACL_RESOURCE_OPTIONS[kind], name)
        pattern_type = ("--resource-pattern-type", "prefixed" if pattern == PREFIXED else "literal")
        who = (f"--{word}-principal", principal, f"--{word}-host", host)
        options = [option for number in numbers for option in ("--operation", ACL_OPERATIONS[number])]
        command = shell_command("kafka-acls", *server, *change, *who, *options, *resource, *pattern_type)
        yield Restored("ACL", f"{principal} on {ACL_RESOURCE_OPTIONS[kind][2:]} {name}", command)


def command_texts(steps: RestoreSteps) -> Iterator[str]:
    """The commands that a shell can pass on."""
    for step in steps:
        with contextlib.suppress(UnwritableError):
            if isinstance(step, Restored):
                yield step.command.text


def java_trim(text: str) -> str:
    """As String.trim: without characters up to the space at either end."""
    return text.strip("".join(map(chr, range(0x21))))


def number_text(value: float) -> str:
    """A quota as ConfigCommand reads it: a whole number without a fraction."""
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


def acl_text(acl: Acl) -> str:
    """An ACL in words."""
    word = {ALLOW: "may", DENY: "may not"}.get(acl.permission_type, f"permission {acl.permission_type}")
    kind = ACL_RESOURCE_OPTIONS.get(acl.resource_type, f"--resource type {acl.resource_type}")[2:]
    operation = ACL_OPERATIONS.get(acl.operation, f"operation {acl.operation}")
    return f"{acl.principal} {word} {operation} {kind} {acl.resource_name} from {acl.host}"


def _why_no_acl(acl: Acl) -> str | None:
    if acl.resource_type not in ACL_RESOURCE_OPTIONS or acl.permission_type not in (ALLOW, DENY):
        return "kafka-acls knows no such type of resource or permission"
    if acl.pattern_type not in (LITERAL, PREFIXED) or (
        acl.resource_type == ACL_CLUSTER and acl.pattern_type != LITERAL
    ):
        return "kafka-acls knows no such pattern for this resource"
    if acl.operation not in SUPPORTED_OPERATIONS[acl.resource_type]:
        return "kafka-acls refuses this operation on this type of resource; Kafka's Admin client sets it"
    if ":" not in acl.principal:
        return "kafka-acls expects a principal as TYPE:NAME"
    texts = [acl.principal, acl.host, *([] if acl.resource_type == TRANSACTIONAL_ID else [acl.resource_name])]
    if any(java_trim(text) != text for text in texts):
        return "kafka-acls drops the white space around a name"
    return None


def _is_known(kind: str, key: str, value: str) -> bool:
    """Whether the value stands in the state as it is, not as a fingerprint; nothing stays of an empty one to hide."""
    return value == "" or is_public_config(RESOURCE_NUMBERS[kind], key)


def _is_plain_topic_config(key: str, value: str) -> bool:
    """What kafka-topics --config takes as it is."""
    is_text = value != "" and "=" not in value and java_trim(value) == value
    return is_text and key not in REMOVED_CONFIGS and _KEY.fullmatch(key) is not None and _is_known("TOPIC", key, value)


def _even(topic: RestorableTopic) -> dict[int, tuple[int, ...]]:
    """As many replicas of each partition as the one with the fewest has."""
    count = min(map(len, topic.replicas.values()))
    return {number: replicas[:count] for number, replicas in topic.replicas.items()}


def _assignment(replicas: Mapping[int, tuple[int, ...]]) -> str:
    return ",".join(":".join(map(str, each)) for each in replicas.values())


def _joined(settings: Sequence[Argument]) -> Argument:
    """Settings with commas between them, as one argument."""
    parts: list[str | Blank] = []
    for setting in settings:
        for part in (*((",",) if parts else ()), *setting):
            if parts and isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return tuple(parts)
