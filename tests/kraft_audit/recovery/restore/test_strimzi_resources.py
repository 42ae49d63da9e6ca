"""Strimzi resources: valid names, and what each would create is what the state has, or it is said to be left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.recovery.restore.restorable_state import Acl, RestorableState, RestorableTopic, ScramCredential
from kraft_audit.recovery.restore.restore_commands import acl_text
from kraft_audit.recovery.restore.strimzi_resources import resource_name, strimzi_resources, strimzi_yaml
from tests.builders.restorable_logs import hostile_log, only, replayed, topic

OPERATIONS = {"All": 2, "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8}
OPERATIONS |= {"ClusterAction": 9, "DescribeConfigs": 10, "AlterConfigs": 11, "IdempotentWrite": 12}
TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactionalId": 5}
KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def resources(state: RestorableState) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The resources as a YAML parser reads the printed file, and what is left out."""
    found = strimzi_resources(state)
    text = "\n".join(strimzi_yaml(found, ["of a test"])) + "\n"
    assert text.replace("\n", "").isprintable()
    left = {f"{each.kind} {each.subject}": each.reason for each in found.left_out}
    return [each for each in yaml.safe_load_all(text) if each is not None], left


def acls_of(resource: dict[str, Any]) -> list[Acl]:
    """What Strimzi's User Operator would set for a user."""
    spec = resource["spec"]
    is_certificate = spec.get("authentication", {}).get("type", "").startswith("tls")
    principal = f"User:{'CN=' if is_certificate else ''}{resource['metadata']['name']}"
    return [
        Acl(
            TYPES[rule["resource"]["type"]],
            rule["resource"].get("name", "kafka-cluster"),
            {"literal": 3, "prefix": 4}[rule["resource"].get("patternType", "literal")],
            principal,
            rule["host"],
            {"deny": 2, "allow": 3}[rule["type"]],
            OPERATIONS[operation],
        )
        for rule in spec.get("authorization", {"acls": []})["acls"]
        for operation in rule["operations"]
    ]


def test_topics_and_users_are_what_the_state_has_or_named(tmp_path: Path) -> None:
    state = replayed(hostile_log(8, (1, 2, 3)), tmp_path)
    found, left = resources(state)
    topics = [each for each in found if each["kind"] == "KafkaTopic"]
    assert {each["spec"].get("topicName", each["metadata"]["name"]) for each in topics} == set(state.topics)
    for each in topics:
        name = each["spec"].get("topicName", each["metadata"]["name"])
        assert each["spec"]["partitions"] == len(state.topics[name].replicas)
        assert each["spec"]["replicas"] == 3
        assert each["spec"].get("config", {}) == state.configs.get(("TOPIC", name), {})
    set_acls = [acl for each in found if each["kind"] == "KafkaUser" for acl in acls_of(each)]
    assert len(set(set_acls)) == len(set_acls)
    for acl in state.acls:
        named = f"ACL {acl_text(acl)}" in left or f"user {acl.principal}" in left
        assert (acl in set_acls) != named, acl
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    assert all(KUBERNETES_NAME.fullmatch(name) and len(name) <= 253 for _, name in names)
    assert {each["metadata"]["labels"]["strimzi.io/cluster"] for each in found} == {"CLUSTER-NAME"}


def test_passwords_are_references_to_a_secret() -> None:
    users = {("alice", 2): ScramCredential(4096, ""), ("bob", 1): ScramCredential(4096, "")}
    quotas = {(("user", "alice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
    (alice,), left = resources(only(credentials=users, quotas=quotas))
    secret = {"secretKeyRef": {"name": "restored-passwords", "key": "alice"}}
    assert alice["spec"] == {
        "authentication": {"type": "scram-sha-512", "password": {"valueFrom": secret}},
        "quotas": {"producerByteRate": 1024},
    }
    assert list(left) == ["SCRAM credential bob SCRAM-SHA-256", "client quota User:alice: request_percentage=12.5"]


def test_a_user_and_a_certificate_of_one_name_do_not_become_one_resource() -> None:
    acls = {Acl(2, "t", 3, principal, "*", 3, 3) for principal in ("User:alice", "User:CN=alice", "User:CN=eve")}
    found, left = resources(only(acls=frozenset(acls)))
    assert [(each["metadata"]["name"], "authentication" in each["spec"]) for each in found] == [
        ("alice", False),
        ("eve", True),
    ]
    assert list(left) == ["user User:CN=alice"]


def test_what_no_topic_resource_can_say_is_named() -> None:
    topics = topic("uneven", (1,), (1, 2)) | {"gap": RestorableTopic("gap", "id", {1: (1,)})}
    configs = {("TOPIC", "uneven"): {"message.format.version": "3.0"}, ("BROKER", ""): {"num.io.threads": "1"}}
    (found,), left = resources(only(topics=topics, configs=configs))
    assert found["spec"] == {"partitions": 2, "replicas": 1}
    assert {text.split(" ")[0] for text in left} == {"assignment", "topic", "config"}
    assert len(left) == 4


@given(st.lists(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), unique=True, max_size=8))
def test_topic_names_become_names_of_resources_one_to_one(topics: list[str]) -> None:
    names = [resource_name(each) for each in topics]
    assert len(set(names)) == len(topics)
    assert all(KUBERNETES_NAME.fullmatch(name) and len(name) <= 253 and ".." not in name for name in names)
    assert all(name == each for name, each in zip(names, topics, strict=True) if name in topics)
