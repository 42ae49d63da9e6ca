"""Logs that hold what a restore kit brings back, with names that a shell, a terminal or a parser trips over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kraft_audit
from kraft_audit.recovery.restore.restorable_state import RestorableState, RestorableTopic, restorable_state
from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import Log, write_node

HOSTILE_NAMES = (
    "it's",
    'say "hi" to $HOME `id` $(id) \\ and \\n; rm -rf * & | < > # ! ~ {a,b} ?',
    "--help",
    "-x",
    "CN=alice,OU=a b,O=c",
    "grüße-日本-🙂",
    "[in brackets]",
    "a=b,c=[d]",
    "%s%n",
    "line\nbreak\tand\x1b[31m",
    "\u202eevil",
)
"""Names that Kafka takes for users, groups, client ids, principals and transactional ids."""
TYPES = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}


class RestorableLog(Log):
    """A log in the words of an administrator; ids count up."""

    def add(self, name: str, fields: dict[str, Any], version: int = 0) -> None:
        self.append(write_metadata_value(f"{name}Record", version, fields))

    def lead(self, leader_id: int, epoch: int) -> bytes:
        """An election among the voters 1, 2 and 3."""
        voters = [{"voterId": voter} for voter in (1, 2, 3)]
        fields = {"version": 0, "leaderId": leader_id, "voters": voters, "grantingVoters": voters[:2]}
        return self.control("LEADER_CHANGE", fields, epoch=epoch)

    def start(self, *brokers: int) -> RestorableLog:
        """A leader, feature levels of Kafka 4.3, and brokers."""
        self.lead(1, epoch=1)
        for name, level in (("metadata.version", 29), ("group.version", 1), ("share.version", 1)):
            self.add("FeatureLevel", {"name": name, "featureLevel": level})
        for broker in brokers:
            point = {"name": "PLAINTEXT", "host": "b", "port": 9092, "securityProtocol": 0}
            fields = {"brokerId": broker, "incarnationId": bytes([broker] * 16), "brokerEpoch": 5}
            self.add("RegisterBroker", {**fields, "endPoints": [point], "logDirs": [bytes([9] * 16)]}, 3)
            self.add("UnfenceBroker", {"id": broker, "epoch": 5})
        return self

    def create(self, name: str, *replicas: list[int], **configs: str) -> bytes:
        """A topic with a partition for each list of replicas; a config's name has _ for its dots. Its id."""
        topic_id = (self.next_offset + 1000).to_bytes(16, "big")
        self.add("Topic", {"name": name, "topicId": topic_id})
        for number, assigned in enumerate(replicas):
            self.assign(topic_id, number, assigned)
        for key, value in configs.items():
            self.config("TOPIC", name, key.replace("_", "."), value)
        return topic_id

    def assign(self, topic_id: bytes, number: int, replicas: list[int], **more: Any) -> None:
        fields = {"topicId": topic_id, "partitionId": number, "replicas": replicas, "isr": replicas}
        fields |= {"leader": replicas[0], "leaderEpoch": 0, "partitionEpoch": 0}
        self.add("Partition", {**fields, "directories": [bytes([9] * 16)] * len(replicas), **more}, 1)

    def config(self, kind: str, resource: str, name: str, value: str | None) -> None:
        self.add("Config", {"resourceType": TYPES[kind], "resourceName": resource, "name": name, "value": value})

    def quota(self, entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> None:
        parts = [{"entityType": kind, "entityName": name} for kind, name in entity.items()]
        self.add("ClientQuota", {"entity": parts, "key": key, "value": value, "remove": remove})

    def scram(self, user: str, mechanism: int, iterations: int, salt: bytes = b"salt-of-sixteen-b") -> None:
        fields = {"name": user, "mechanism": mechanism, "salt": salt, "iterations": iterations}
        self.add("UserScramCredential", {**fields, "storedKey": b"k" * 32, "serverKey": b"s" * 32})

    def acl(self, kind: int, name: str, principal: str, operation: int, **more: Any) -> bytes:
        """LITERAL, from every host, ALLOW, where `more` says nothing else. Its id."""
        acl_id = (self.next_offset + 5000).to_bytes(16, "big")
        fields = {"id": acl_id, "resourceType": kind, "resourceName": name, "patternType": 3, "host": "*"}
        fields |= {"principal": principal, "operation": operation, "permissionType": 3}
        self.add("AccessControlEntry", {**fields, **more})
        return acl_id

    def token(self, owner: str) -> None:
        fields = {"owner": owner, "requester": owner, "renewers": ["User:r"], "issueTimestamp": 1}
        self.add("DelegationToken", {**fields, "maxTimestamp": 9, "expirationTimestamp": 5, "tokenId": "t" * 22})


def hostile_log(count: int = 1, brokers: tuple[int, ...] = (1,)) -> RestorableLog:
    """Every kind of thing, each with each hostile name, and `count` ordinary ones of each kind more."""
    log = RestorableLog().start(*brokers)
    replicas = list(brokers)
    log.config("BROKER", "", "min.insync.replicas", "1")
    log.config("BROKER", "", "log.retention.ms", "86400001")
    log.config("BROKER", "1", "log.cleaner.io.max.bytes.per.second", "12345678.0")
    log.config("BROKER", "1", "listener.name.external.ssl.keystore.password", "a secret")
    for name in ("orders", "Upper_case.and-more", "-dash", "a" * 249):
        log.create(name, replicas, replicas, cleanup_policy="compact,delete")
    for number in range(count):
        log.create(
            f"topic-{number}", replicas, retention_ms=str(3_600_000 + number), segment_bytes=str(1048576 + number)
        )
    names = [*HOSTILE_NAMES, *(f"name-{number}" for number in range(count // 4))]
    for place, name in enumerate(names):
        log.config("GROUP", name, "consumer.session.timeout.ms", str(45_000 + place))
        log.config("GROUP", name, "consumer.heartbeat.interval.ms", str(5_001 + place))
        log.quota({"user": name}, "producer_byte_rate", 1024.0 + place)
        log.quota({"user": name}, "request_percentage", 12.5 + place)
        log.quota({"client-id": name}, "consumer_byte_rate", 2048.0)
        log.quota({"user": name, "client-id": names[-1 - place]}, "consumer_byte_rate", 4096.0)
        log.quota({"user": name, "client-id": None}, "controller_mutation_rate", 0.125)
        for operation in (3, 6, 8):
            log.acl(3, name, f"User:{name}", operation, patternType=3 + place % 2)
        for operation in (4, 8, 15):
            log.acl(5, name, f"User:{name}", operation, permissionType=2 + place % 2, host="10.0.0.1")
    for user in names[:6]:
        log.scram(user, 1, 4096)
        log.scram(user, 2, 8192)
    for operation in (2, 3, 4, 5, 6, 7, 8, 10, 11):
        log.acl(2, "*", "User:*", operation)
        log.acl(2, "orders", "Group:ops", operation, patternType=4, host="fe80::1")
    for operation in (2, 5, 7, 8, 9, 10, 11, 12):
        log.acl(4, "kafka-cluster", "User:admin", operation)
    log.acl(6, "token-id", "User:t", 8)
    log.acl(7, "User:bob", "User:t", 13)
    log.quota({"user": None}, "producer_byte_rate", 1.0)
    log.quota({"client-id": None}, "producer_byte_rate", 2.0)
    log.quota({"user": None, "client-id": None}, "producer_byte_rate", 3.0)
    log.quota({"ip": None}, "connection_creation_rate", 40.0)
    log.quota({"ip": "10.0.0.1"}, "connection_creation_rate", 7.0)
    log.config("CLIENT_METRICS", "sub 'one'", "interval.ms", "60000")
    log.config("CLIENT_METRICS", "sub 'one'", "metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.")
    log.config("CLIENT_METRICS", "sub 'one'", "match", "client_id=[a-z]+,client_software_version=1\\..*")
    return log


def written(log: Log, folder: Path, node_id: int = 1) -> Path:
    """The log as a node dir below a folder, which is returned."""
    write_node(folder, node_id, log.content)
    return folder


def replayed(log: RestorableLog, folder: Path) -> RestorableState:
    with kraft_audit.open(str(written(log, folder))) as clusters:
        (cluster,) = clusters
        return restorable_state(cluster.state())


def only(**parts: object) -> RestorableState:
    return RestorableState(**parts)  # type: ignore[arg-type]


def topic(name: str, *replicas: tuple[int, ...]) -> dict[str, RestorableTopic]:
    return {name: RestorableTopic(name, "id", dict(enumerate(replicas)))}
