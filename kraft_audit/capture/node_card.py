"""The card of a node: what all captured files of its node dir say of it, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.files.configuration import NodeConfiguration

CONFIGURATION_FIELDS: Final = (
    *("configuration", "configured_node_id", "roles", "configured_voters", "bootstrap_servers", "log_dirs"),
    *("security_protocols", "sasl_mechanisms", "authorizer", "timeouts"),
)


@dataclass(frozen=True, slots=True)
class NodeCard:
    """What one captured node dir says of its node. Offsets are exclusive ends, unless `reached_offset` says it.

    `cluster_id`, `node_id` and `directory_id` are those of meta.properties. `leader_epoch`, `leader_id` and `voted_id`
    are those of quorum-state (-1: none), `current_voters` the configured voters of kraft.version 0 as of the node's
    last start. `reached_epoch` began at `reached_offset`, by leader-epoch-checkpoint: the log went at least so far.
    `log` is `read`, `shorter` (it ends before `reached_offset`), `missing`, `empty`, `unstarted` or `foreign`.

    From `configuration` on: what the captured server.properties at that path says, None where none was captured.
    `configured_voters` are the ids in controller.quorum.voters, none where it names bootstrap servers alone; of
    `security_protocols` each is `LISTENER:PROTOCOL`, of `timeouts` `KEY=MILLISECONDS`.
    """

    capture: str
    path: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    log: str
    leader_epoch: int | None
    leader_id: int | None
    voted_id: int | None
    current_voters: tuple[int, ...] | None
    log_start_offset: int | None
    log_end_offset: int | None
    last_epoch: int | None
    snapshot_end_offset: int | None
    reached_epoch: int | None
    reached_offset: int | None
    configuration: str | None
    configured_node_id: int | None
    roles: tuple[str, ...] | None
    configured_voters: tuple[int, ...] | None
    bootstrap_servers: tuple[str, ...] | None
    log_dirs: tuple[str, ...] | None
    security_protocols: tuple[str, ...] | None
    sasl_mechanisms: tuple[str, ...] | None
    authorizer: str | None
    timeouts: tuple[str, ...] | None


def node_card(row: Mapping[str, Any]) -> NodeCard:
    """The card of a row of `captures`."""
    entries = [(entry["start_offset"], entry["epoch"]) for entry in row["leader_epoch_checkpoint"] or ()]
    reached_offset, reached_epoch = max(entries, default=(None, None))
    voters = row["current_voters"]
    return NodeCard(
        capture=row["capture"],
        path=row["path"],
        cluster_id=row["meta_cluster_id"],
        node_id=row["node_id"],
        directory_id=row["directory_id"],
        log=_log_state(row, reached_offset),
        leader_epoch=row["leader_epoch"],
        leader_id=row["leader_id"],
        voted_id=row["voted_id"],
        current_voters=None if voters is None else tuple(sorted(voters)),
        log_start_offset=row["log_start_offset"],
        log_end_offset=row["log_end_offset"],
        last_epoch=row["last_epoch"],
        snapshot_end_offset=row["snapshot_end_offset"],
        reached_epoch=reached_epoch,
        reached_offset=reached_offset,
        **_configuration_fields(configuration_of(row)),
    )


def configuration_of(row: Mapping[str, Any]) -> NodeConfiguration | None:
    """The configuration of a row of `captures`; None where none was captured."""
    text = row.get("configuration")
    return None if text is None else NodeConfiguration.from_json(text)


def _configuration_fields(configuration: NodeConfiguration | None) -> dict[str, Any]:
    if configuration is None or configuration.problem is not None:
        absent = dict.fromkeys(CONFIGURATION_FIELDS)
        return absent if configuration is None else {**absent, "configuration": configuration.file}
    return {
        "configuration": configuration.file,
        "configured_node_id": configuration.node_id,
        "roles": configuration.roles,
        "configured_voters": configuration.voters,
        "bootstrap_servers": configuration.bootstrap_servers,
        "log_dirs": configuration.log_dirs,
        "security_protocols": configuration.security_protocols,
        "sasl_mechanisms": configuration.sasl_mechanisms,
        "authorizer": configuration.setting("authorizer.class.name") or None,
        "timeouts": configuration.timeouts,
    }


def _log_state(row: Mapping[str, Any], reached_offset: int | None) -> str:
    end = row["log_end_offset"]
    if not row["accepted"]:
        return "foreign"
    if end is None:
        was_there = reached_offset is not None or row["snapshot_end_offset"] or row["leader_epoch"] is not None
        return "missing" if was_there else "unstarted"
    if reached_offset is not None and reached_offset > end:
        return "shorter"
    return "read" if row["batch_count"] else "empty"
