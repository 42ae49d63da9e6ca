"""Rights that a newer state took away and an older one, which goes on, has again; and the commands that take them back.

ConfigCommand and AclCommand of Kafka 4.3.1. What was only changed since is set anew by the restore kit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from kraft_audit.recovery.restore.restorable_state import SCRAM_MECHANISMS, Acl, Entity, RestorableState
from kraft_audit.recovery.restore.restore_commands import (
    QUOTA_ENTITIES,
    LeftOut,
    Restored,
    RestoreSteps,
    acl_steps,
    command_texts,
    entity_options,
)
from kraft_audit.text.shell_commands import Argument, Blank, shell_command


@dataclass(frozen=True, slots=True)
class RevokedRights:
    """ACLs, credentials as (user, mechanism), and the keys of quotas by entity."""

    acls: tuple[Acl, ...] = ()
    credentials: tuple[tuple[str, int], ...] = ()
    quotas: tuple[tuple[Entity, tuple[str, ...]], ...] = ()

    def in_state(self, present: RestorableState) -> Self:
        """Those that a state has."""
        quotas = ((entity, present.quotas.get(entity, {}), keys) for entity, keys in self.quotas)
        there = [(entity, tuple(key for key in keys if key in values)) for entity, values, keys in quotas]
        return type(self)(
            tuple(acl for acl in self.acls if acl in present.acls),
            tuple(each for each in self.credentials if each in present.credentials),
            tuple((entity, keys) for entity, keys in there if keys),
        )

    def removal_steps(self, server: Sequence[str | Blank | Argument]) -> RestoreSteps:
        """What takes each of them away. `server` are the options that say where Kafka is."""
        yield from acl_steps(self.acls, server, ("--remove", "--force"))
        for user, number in self.credentials:
            mechanism = SCRAM_MECHANISMS.get(number)
            if mechanism is None or user == "":
                yield LeftOut("SCRAM credential", f"{user} {mechanism or number}", "kafka-configs cannot name it")
                continue
            options = (*entity_options("users", user), "--delete-config", mechanism)
            command = shell_command("kafka-configs", *server, "--alter", *options)
            yield Restored("SCRAM credential", f"{user} {mechanism}", command)
        for entity, keys in self.quotas:
            subject = ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in entity)
            if any(kind not in QUOTA_ENTITIES or name == "" for kind, name in entity):
                yield LeftOut("client quota", subject, "kafka-configs cannot name it")
                continue
            named = [option for kind, name in entity for option in entity_options(QUOTA_ENTITIES[kind], name)]
            command = shell_command("kafka-configs", *server, "--alter", *named, "--delete-config", ",".join(keys))
            yield Restored("client quota", subject, command)


def removal_lines(revoked: RevokedRights, server: Sequence[str | Blank | Argument]) -> Iterator[str]:
    """What a restore script says of them at its end: it takes nothing away by itself."""
    commands = list(command_texts(revoked.removal_steps(server)))
    if commands:
        yield "These rights were taken away in the lost log, and are there again. Take them away once more:"
        yield from (f"  {command}" for command in commands)


def revoked_rights(older: RestorableState, newer: RestorableState) -> RevokedRights:
    """What the older state has and the newer one has not."""
    return RevokedRights(
        tuple(sorted(older.acls - newer.acls)),
        tuple(sorted(older.credentials.keys() - newer.credentials.keys())),
        tuple(_missing_quotas(older, newer)),
    )


def _missing_quotas(older: RestorableState, newer: RestorableState) -> Iterator[tuple[Entity, tuple[str, ...]]]:
    for entity, quotas in older.quotas.items():
        keys = tuple(sorted(quotas.keys() - newer.quotas.get(entity, {}).keys()))
        if keys:
            yield entity, keys
