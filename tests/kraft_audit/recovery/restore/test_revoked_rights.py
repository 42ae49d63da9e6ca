"""What a rescued state has again of rights that were taken away after it, and the commands that take them back."""

from __future__ import annotations

from kraft_audit.recovery.restore.restorable_state import Acl, RestorableState, ScramCredential
from kraft_audit.recovery.restore.restore_commands import LeftOut, Restored
from kraft_audit.recovery.restore.revoked_rights import revoked_rights

CREDENTIAL = ScramCredential(4096, "a")
SERVER = ("--bootstrap-server", "broker:9092")


def test_each_right_that_was_taken_away_has_a_command() -> None:
    acl = Acl(2, "orders", 3, "User:mallory", "*", 3, 4)
    older = RestorableState(
        quotas={
            (("user", "dave"), ("client-id", None)): {"producer_byte_rate": 1.0, "consumer_byte_rate": 1.0},
            (("user", "alice"),): {"producer_byte_rate": 9.0},
            (("tenant", "a"),): {"producer_byte_rate": 9.0},
        },
        credentials={("alice", 1): CREDENTIAL, ("it's", 2): CREDENTIAL},
        acls=frozenset({acl}),
    )
    newer = RestorableState(
        quotas={(("user", "alice"),): {"producer_byte_rate": 8.0}},
        credentials={("alice", 1): ScramCredential(8192, "b")},
    )
    steps = list(revoked_rights(older, newer).removal_steps(SERVER))
    assert [step.command.text for step in steps if isinstance(step, Restored)] == [
        "kafka-acls --bootstrap-server broker:9092 --remove --force --allow-principal User:mallory --allow-host '*' "
        "--operation Write --topic orders --resource-pattern-type literal",
        "kafka-configs --bootstrap-server broker:9092 --alter --entity-type users --entity-name 'it'\"'\"'s' "
        "--delete-config SCRAM-SHA-512",
        "kafka-configs --bootstrap-server broker:9092 --alter --entity-type users --entity-name dave "
        "--entity-type clients --entity-default --delete-config consumer_byte_rate,producer_byte_rate",
    ]
    assert [step.subject for step in steps if isinstance(step, LeftOut)] == ["tenant a"]
