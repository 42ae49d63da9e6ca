"""Every form of ACL that the tools print is added and removed by Kafka's own tool, as bash passes the command on.

What `rescue` prints for a revoked ACL is `kafka-acls --remove`, and a restore kit prints `--add`: one function writes
both. Half of the ACLs are removed; that Kafka still holds the rest, each of which differs from a removed one in a
single part, shows that no command removes more than it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from kraft_audit.recovery.restore.restorable_state import Acl
from kraft_audit.recovery.restore.restore_commands import (
    ACL_CLUSTER,
    ACL_OPERATIONS,
    ACL_RESOURCE_OPTIONS,
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    SUPPORTED_OPERATIONS,
    Restored,
    acl_steps,
)
from tests.builders.printed_commands import EXECUTED_BY, kind_of
from tests.builders.printed_scripts import calls_of
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]

TYPES: Final = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
"""Kafka's names of what the tool calls --user-principal and so on (ResourceType, Kafka 4.3)."""
CLUSTER_NAME: Final = "kafka-cluster"
PRINCIPALS: Final = (
    *("User:alice", "User:*", "User:CN=alice,OU=a b,O=c", "User:it's", 'User:say "hi" to $HOME `id`', "Group:ops"),
    *("User:--help", "User:grüße-日本", "User:a=b;c|d&e", "ServiceAccount:team/app"),
)
HOSTS: Final = ("*", "10.0.0.7", "2001:db8::7", "broker-1.example")
NAMES: Final = {
    2: ("orders", "*", "a.b_c-d"),
    3: ("readers", "*", "it's [mine]", "$(id) {a,b}"),
    5: ("tx", "*", "--remove"),
    6: ("token", "*"),
    7: ("User:alice", "User:a b"),
}


def all_forms() -> Iterator[Acl]:
    """Resource kinds, patterns, permissions and operations in all combinations; in turn hosts, principals, names."""
    number = 0
    for kind in ACL_RESOURCE_OPTIONS:
        patterns = (LITERAL,) if kind == ACL_CLUSTER else (LITERAL, PREFIXED)
        for pattern, permission, operation in product(patterns, (ALLOW, DENY), sorted(SUPPORTED_OPERATIONS[kind])):
            names = (CLUSTER_NAME,) if kind == ACL_CLUSTER else NAMES[kind]
            name = names[number % len(names)]
            named = "w" if pattern == PREFIXED and name == "*" else name
            who, host = PRINCIPALS[number % len(PRINCIPALS)], HOSTS[number // 3 % len(HOSTS)]
            yield Acl(kind, named, pattern, who, host, permission, operation)
            number += 1
    # The parts that took turns, each in all its forms beside one that stays.
    for who, host in product(PRINCIPALS, HOSTS):
        yield Acl(2, "orders", LITERAL, who, host, ALLOW, 3)
    for kind, names in NAMES.items():
        yield from (Acl(kind, name, LITERAL, "User:names", "*", ALLOW, 8 if kind != 7 else 14) for name in names)


def test_every_form_of_acl_is_removed_as_printed(kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path) -> None:
    drill = Drill("removed-acls", "4.3.1", voters=1)
    release = kafka_releases(drill.release)
    cluster = RealCluster(drill, tmp_path, release.classpath, release.tools, release.archive)
    forms = sorted(set(all_forms()))
    # Every second one goes, and then the rest.
    first, second = forms[::2], forms[1::2]
    try:
        cluster.boot()
        run_printed(cluster, forms, "--add")
        wait_for("all ACLs", lambda: acls_of(cluster) == set(map(kafka_text, forms)), 30)
        run_printed(cluster, first, "--remove", "--force")
        wait_for("half of the ACLs", lambda: acls_of(cluster) == set(map(kafka_text, second)), 30)
        run_printed(cluster, second, "--remove", "--force")
        wait_for("no ACL", lambda: not acls_of(cluster), 30)
    finally:
        cluster.kill_all()


def run_printed(cluster: RealCluster, acls: list[Acl], *change: str) -> None:
    """The commands for these ACLs, read by bash; the steps cover every one of them."""
    steps = list(acl_steps(acls, ("--bootstrap-server", cluster.server), change))
    commands = [step.command.text for step in steps if isinstance(step, Restored)]
    assert len(commands) == len(steps), "none is left out"
    calls = calls_of("\n".join(commands), cluster.work / "bash")
    assert len(calls) == len(commands)
    assert sum(len(call.values("--operation")) for call in calls) == len(acls)
    for command, call in zip(commands, calls, strict=True):
        assert change[0] != "--remove" or kind_of(command) in EXECUTED_BY
        cluster.tools.must_run([call.tool, *call.arguments])


def acls_of(cluster: RealCluster) -> set[str]:
    """The ACLs that Kafka's Admin client names."""
    return {row[1] for row in cluster.tools.must_ask("state", cluster.server).rows if row[0] == "acl"}


def kafka_text(acl: Acl) -> str:
    """As Kafka writes an AclBinding (4.3)."""
    pattern = "LITERAL" if acl.pattern_type == LITERAL else "PREFIXED"
    name = ACL_OPERATIONS[acl.operation]
    operation = "".join(f"_{c}" if c.isupper() and n else c for n, c in enumerate(name)).upper()
    permission = "ALLOW" if acl.permission_type == ALLOW else "DENY"
    return (
        f"(pattern=ResourcePattern(resourceType={TYPES[acl.resource_type]}, name={acl.resource_name}, "
        f"patternType={pattern}), entry=(principal={acl.principal}, host={acl.host}, operation={operation}, "
        f"permissionType={permission}))"
    )
