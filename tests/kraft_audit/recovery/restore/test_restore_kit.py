"""The printed script, run by bash and parsed by Kafka's rules, names what is in the state: no more and no less."""

from __future__ import annotations

import json
import os
import re
import subprocess
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kraft_audit.recovery.restore.restorable_state import (
    Acl,
    RestorableState,
    RestorableTopic,
    ScramCredential,
)
from kraft_audit.recovery.restore.restore_commands import java_trim
from kraft_audit.recovery.restore.restore_kit import KitRequest, RestoreKit, restore_kit, script
from tests.builders.printed_scripts import Call, calls_of
from tests.builders.restorable_logs import HOSTILE_NAMES, RestorableLog, hostile_log, only, replayed, topic

ENTITIES = {"users": "user", "clients": "client-id", "ips": "ip"}
RESOURCES = {"topics": "TOPIC", "brokers": "BROKER", "groups": "GROUP", "client-metrics": "CLIENT_METRICS"}
KEYSTORE = "listener.name.external.ssl.keystore.password"
OPERATIONS = [
    *("All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs"),
    *("AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit"),
]
"""As AclOperation numbers them, from 2 on."""
ACL_RESOURCES = ["topic", "group", "cluster", "transactional-id", "delegation-token", "user-principal"]
"""As ResourceType numbers them, from 2 on."""


@dataclass
class Rebuilt:
    """What the calls would create, by Kafka's rules for the arguments of its tools."""

    topics: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    configs: dict[tuple[str, str, str], str] = field(default_factory=dict)
    quotas: dict[tuple[tuple[tuple[str, str | None], ...], str], float] = field(default_factory=dict)
    credentials: dict[tuple[str, str], int] = field(default_factory=dict)
    acls: list[Acl] = field(default_factory=list)

    def apply(self, call: Call) -> None:
        assert call.value("--bootstrap-server") == "broker:9092"
        {"kafka-topics": self._topic, "kafka-configs": self._config, "kafka-acls": self._acl}.get(
            call.tool, self._reassign
        )(call)

    def _topic(self, call: Call) -> None:
        name = call.value("--topic")
        assigned = call.value("--replica-assignment").split(",")
        self.topics[name] = [tuple(map(int, each.split(":"))) for each in assigned]
        assert len({len(each) for each in self.topics[name]}) == 1, "TopicCommand wants one replication factor"
        for setting in call.values("--config"):
            key, value = setting.split("=")
            self.configs["TOPIC", name, key] = value

    def _reassign(self, call: Call) -> None:
        for moved in json.loads(Path(call.value("--reassignment-json-file")).read_text())["partitions"]:
            self.topics[moved["topic"]][moved["partition"]] = tuple(moved["replicas"])

    def _config(self, call: Call) -> None:
        names = [value for option, value in call.pairs if option in ("--entity-name", "--entity-default")]
        entity = list(zip(call.values("--entity-type"), names, strict=True))
        for key, value in _settings(call).items():
            kind, name = entity[0]
            if kind in RESOURCES:
                self.configs[RESOURCES[kind], name, key] = value
            elif key.startswith("SCRAM"):
                iterations, _, _ = value.partition(",")
                assert (name, key) not in self.credentials
                self.credentials[name, key] = int(iterations.removeprefix("iterations="))
            else:
                self.quotas[tuple((ENTITIES[each], name or None) for each, name in entity), key] = float(value)

    def _acl(self, call: Call) -> None:
        (option,) = [name for name, _ in call.pairs if name[2:] in ACL_RESOURCES]
        word = "allow" if call.values("--allow-principal") else "deny"
        for operation in call.values("--operation"):
            acl = Acl(
                ACL_RESOURCES.index(option[2:]) + 2,
                "kafka-cluster" if option == "--cluster" else call.value(option),
                {"literal": 3, "prefixed": 4}[call.value("--resource-pattern-type")],
                call.value(f"--{word}-principal"),
                call.value(f"--{word}-host"),
                {"deny": 2, "allow": 3}[word],
                OPERATIONS.index(operation) + 2,
            )
            assert acl not in self.acls
            self.acls.append(acl)


def _settings(call: Call) -> dict[str, str]:
    """As ConfigCommand.parseConfigsToBeAdded: commas and equals signs in brackets part nothing, brackets go."""
    if call.values("--add-config-file"):
        return _properties(Path(call.value("--add-config-file")).read_bytes().decode("latin-1"))
    outside = r"(?=[^\]]*(?:\[|$))"
    settings = re.split(f",{outside}", call.value("--add-config"))
    pairs = [re.split(rf"\s*=\s*{outside}", each, flags=re.ASCII) for each in settings]
    return {java_trim(key): java_trim(re.sub(r"\[?\]?", "", value)) for key, value in pairs}


def _properties(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        key, value = re.split(r"(?<!\\)=", line, maxsplit=1)
        found[_unescaped(key)] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    units = re.sub(
        r"\\(u[0-9a-f]{4}|.)", lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else found[1], text
    )
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def rebuilt(kit: RestoreKit, folder: Path) -> Rebuilt:
    found = Rebuilt()
    text = "\n".join(script(kit, ["of a test"])) + "\n"
    assert all(character == "\n" or unicodedata.category(character)[0] != "C" for character in text)
    for call in calls_of(text, folder, **{blank.name: "filled, in=" for blank in kit.blanks}):
        found.apply(call)
    return found


def assert_same(found: Rebuilt, state: RestorableState, *, secret: Iterable[str] = ()) -> None:
    assert found.topics == {name: list(topic.replicas.values()) for name, topic in state.topics.items()}
    expected = {(*resource, key): value for resource, each in state.configs.items() for key, value in each.items()}
    assert found.configs == {place: "filled, in=" if place[2] in secret else value for place, value in expected.items()}
    assert found.quotas == {
        (entity, key): value for entity, each in state.quotas.items() for key, value in each.items()
    }
    mechanisms = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
    credentials = {(user, mechanisms[number]): each.iterations for (user, number), each in state.credentials.items()}
    assert found.credentials == credentials
    assert sorted(found.acls) == sorted(state.acls)


REQUEST = KitRequest(bootstrap_server="broker:9092")


def test_the_script_names_everything_whatever_it_is_called(tmp_path: Path) -> None:
    state = replayed(hostile_log(8, (1, 2, 3)), tmp_path / "source")
    kit = restore_kit(state, REQUEST)
    text = "\n".join(script(kit, []))
    assert "a secret" not in text
    assert state.configs["BROKER", "1"][KEYSTORE] not in text, "not even its fingerprint"
    assert_same(rebuilt(kit, tmp_path / "bash"), state, secret=[KEYSTORE])
    assert {each.kind for each in kit.left_out} == {"feature"}


NAMES = st.one_of(
    st.sampled_from(HOSTILE_NAMES),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
).filter(lambda text: java_trim(text) == text and text != "")
TOPIC_NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,12}", fullmatch=True).filter(lambda name: name not in (".", ".."))
REPLICAS = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
QUOTAS = st.floats(1e-3, 1e18)


@st.composite
def states(draw: st.DrawFn) -> RestorableState:
    topics = draw(st.dictionaries(TOPIC_NAMES, st.lists(REPLICAS, min_size=1, max_size=4), max_size=4))
    resources = st.one_of(
        st.tuples(st.just("GROUP"), NAMES),
        st.tuples(st.just("CLIENT_METRICS"), NAMES),
        st.tuples(st.just("BROKER"), st.sampled_from(["", "1", "22"])),
    )
    keys = {"GROUP": "share.auto.offset.reset", "CLIENT_METRICS": "match", "BROKER": "log.cleanup.policy"}
    configs = {
        resource: {keys[resource[0]]: draw(VALUES)} for resource in draw(st.lists(resources, max_size=6, unique=True))
    }
    configs |= {("TOPIC", name): {"cleanup.policy": draw(VALUES)} for name in topics}
    name = st.one_of(st.none(), NAMES)
    entities = st.one_of(
        st.tuples(st.tuples(st.just("user"), name)),
        st.tuples(st.tuples(st.just("user"), name), st.tuples(st.just("client-id"), name)),
    )
    acls = st.builds(
        Acl,
        st.just(3),
        NAMES,
        st.sampled_from([3, 4]),
        NAMES.map(lambda text: f"User:{text}"),
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from([2, 3]),
        st.sampled_from([2, 3, 6, 8]),
    )
    users = st.dictionaries(
        st.tuples(NAMES, st.sampled_from([1, 2])), st.builds(ScramCredential, st.just(4096), st.just("")), max_size=4
    )
    return RestorableState(
        {each: RestorableTopic(each, "id", dict(enumerate(replicas))) for each, replicas in topics.items()},
        configs,
        draw(st.dictionaries(entities, st.dictionaries(st.just("producer_byte_rate"), QUOTAS, min_size=1), max_size=4)),
        draw(users),
        frozenset(draw(st.lists(acls, max_size=6))),
    )


@examples(max_examples=25)
@given(state=states())
def test_what_bash_and_kafka_read_is_the_state(
    state: RestorableState, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kit = restore_kit(state, REQUEST)
    assert kit.left_out == ()
    assert_same(rebuilt(kit, tmp_path_factory.mktemp("bash")), state)


def reasons(state: RestorableState, request: KitRequest = REQUEST) -> Mapping[str, str]:
    return {each.subject: each.reason for each in restore_kit(state, request).left_out}


def test_partitions_with_different_replica_counts_are_reassigned_after_their_creation(tmp_path: Path) -> None:
    state = only(topics=topic("uneven", (1, 2, 3), (2, 3), (3,)))
    kit = restore_kit(state, REQUEST)
    assert [step.command.program for step in kit.restored] == ["kafka-topics", "kafka-reassign-partitions"]
    assert_same(rebuilt(kit, tmp_path), state)


def test_a_running_reassignment_is_restored_as_done(tmp_path: Path) -> None:
    log = RestorableLog().start(1, 2, 3)
    topic_id = log.create("moving", [1, 2])
    log.assign(topic_id, 0, [3, 1, 2], addingReplicas=[3], removingReplicas=[1])
    state = replayed(log, tmp_path)
    assert state.topics["moving"].replicas == {0: (3, 2)}
    assert state.topics["moving"].is_reassigned


def test_kafka_places_the_replicas_where_the_brokers_are_others() -> None:
    state = only(topics=topic("orders", (1, 2, 3), (2, 3, 1)), configs={("BROKER", "1"): {"num.io.threads": "2"}})
    request = KitRequest(any_brokers=True, bootstrap_server="broker:9092", command_config="a b")
    kit = restore_kit(state, request)
    assert [step.command.text for step in kit.restored] == [
        "kafka-topics --bootstrap-server broker:9092 --command-config 'a b' --create --if-not-exists --topic orders "
        "--partitions 2 --replication-factor 3"
    ]
    assert list(reasons(state, request)) == ["broker 1: num.io.threads"]


def test_internal_topics_are_named_and_left_out_unless_asked_for() -> None:
    state = only(topics=topic("__consumer_offsets", (1,)) | topic("orders", (1,)))
    assert list(reasons(state)) == ["__consumer_offsets"]
    assert reasons(state, KitRequest(internal_topics=True)) == {}


def test_what_kafka_s_tools_refuse_is_named_with_the_reason() -> None:
    acl = Acl(3, "g", 3, "User:a", "*", 3, 3)
    named = reasons(
        only(
            topics={"gap": RestorableTopic("gap", "id", {0: (1,), 2: (1,)})},
            configs={("TOPIC", "no-such"): {"retention.ms": "1"}, ("BROKER_LOGGER", "1"): {"kafka": "INFO"}},
            quotas={(("user", ""),): {"producer_byte_rate": 1.0}, (("user", "a"),): {"unknown": 1.0}},
            acls=frozenset({acl, Acl(3, "g", 3, "User:a", "*", 3, 4), Acl(3, " g", 3, "User:a", "*", 3, 3)}),
            tokens={"x": {"owner": "User:o", "renewers": [], "max_timestamp": 9}},
            features={"metadata.version": 29},
            next_producer_id=7_000,
        )
    )
    for word in (
        "gap",
        "no-such",
        "BROKER_LOGGER",
        "user a: unknown",
        "may Write group g",
        "group  g",
        "User:o",
        "7000",
    ):
        assert [subject for subject in named if word in subject], word
    assert len(named) == 10


def test_a_script_ends_before_its_first_command_while_a_blank_is_empty(tmp_path: Path) -> None:
    kit = restore_kit(only(credentials={(name, 1): ScramCredential(4096, "") for name in ("alice", "bob")}), REQUEST)
    with pytest.raises(subprocess.CalledProcessError) as ended:
        calls_of("\n".join(script(kit, [])), tmp_path)
    assert b"PASSWORD_OF_alice is not set: password of user alice" in ended.value.stderr
    assert b"PASSWORD_OF_bob is not set" in ended.value.stderr, "all of them at once"
    assert (tmp_path / "calls").read_bytes() == b""


def test_a_script_that_fails_shows_the_line_and_no_secret(tmp_path: Path) -> None:
    """Kafka's scripts are called kafka-….sh here, and one of them fails."""
    users = {(name, 1): ScramCredential(4096, "") for name in ("alice", "bob")}
    kit = restore_kit(only(credentials=users), KitRequest())
    path, tool = tmp_path / "restore.sh", tmp_path / "kafka-configs.sh"
    path.write_text("\n".join(script(kit, ["of a test"])))
    tool.write_text('#!/bin/bash\necho "$@" >> "$0.calls"\n[[ "$*" != *bob* ]]\n')
    tool.chmod(0o755)
    environment = {"BOOTSTRAP_SERVER": "b:1", "PASSWORD_OF_alice": "secret", "PASSWORD_OF_bob": "secret"}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    ended = subprocess.run(["bash", path], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(Path(f"{tool}.calls").read_text().splitlines()) == 2
    (failed,) = [line for line in ended.stderr.splitlines() if "failed: kafka-configs" in line]
    number = int(failed.partition(": line ")[2].split()[0])
    assert path.read_text().splitlines()[number - 1] == failed.partition(" failed: ")[2]
    assert "bob" in failed
    assert "secret" not in ended.stderr


def test_two_users_have_two_blanks_though_their_names_differ_in_signs_only() -> None:
    users = {(name, 1): ScramCredential(4096, "") for name in ("a.b", "a-b")}
    assert [blank.name for blank in restore_kit(only(credentials=users), REQUEST).blanks] == [
        "PASSWORD_OF_a_b",
        "PASSWORD_OF_a_b_2",
    ]
