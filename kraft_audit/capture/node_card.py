"""The card of a node: what all captured files of its node dir say of it, in one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.reached_end import ReachedEnd, row_reached, shorter_than_it_was
from kraft_audit.tables.bronze import NODE_CARDS
from kraft_audit.tables.contract import build_rows
from kraft_codec.files.configuration import NodeConfiguration

CONFIGURATION_FIELDS: Final = (
    *("configuration", "configured_node_id", "roles", "configured_voters", "bootstrap_servers", "log_dirs"),
    *("security_protocols", "sasl_mechanisms", "authorizer", "timeouts"),
)


@dataclass(frozen=True, slots=True)
class Registration:
    """How the log registers a node in a role, at its end.

    `role` is `broker` or `controller`. `directory_ids` are a broker's online log dirs. A broker is fenced since
    `fenced_since_ms`, milliseconds since 1970 (None: it is not). `levels` are the metadata.version levels that its
    software supports, lowest and highest; None where it does not say.
    """

    role: str
    incarnation_id: str
    directory_ids: tuple[str, ...]
    end_points: tuple[str, ...]
    fenced_since_ms: int | None
    in_controlled_shutdown: bool
    levels: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class NodeInLog:
    """What the log of its cluster says of a node's id, at the end of the log.

    `voter` where it votes; `voter_directory_id` is the directory id of its voter key, None at kraft.version 0.
    `bootstrap_voters` are the voters in its bootstrap checkpoint (0-0), None where the node dir has none.
    `metadata_version` and `kraft_version` are the highest levels that its own log and snapshots reach, and
    `needs_release` is the first Kafka release that reads them (`4.0`); None where no level is known.
    """

    registrations: tuple[Registration, ...]
    voter: bool
    voter_directory_id: str | None
    bootstrap_voters: tuple[int, ...] | None
    metadata_version: int | None
    kraft_version: int | None
    needs_release: str | None


@dataclass(frozen=True, slots=True)
class NodeCard:
    """What one captured node dir says of its node. Offsets are exclusive ends, unless `reached_offset` says it.

    `cluster_id`, `node_id`, `directory_id` and `meta_version` are those of meta.properties, `further_directory_ids`
    those of the node's other log dirs that lie beside it. `leader_epoch`, `leader_id` and `voted_id` are those of
    quorum-state (-1: none), `current_voters` the configured voters of kraft.version 0 as of the node's last start.
    The log had reached `reached_offset` by the file `reached_by`; `reached_epoch` began there, where leader-epoch-
    checkpoint says it. `log` is `read`, `shorter` (it ends before `reached_offset`), `missing`, `empty`, `unstarted` or
    `foreign`. `closed` is `in order` where the log was closed, `open` where the node ran or was killed, None where
    neither shows.

    From `configuration` on: what the captured server.properties at that path says, None where none was captured.
    `configured_voters` are the ids in controller.quorum.voters, none where it names bootstrap servers alone; of
    `security_protocols` each is `LISTENER:PROTOCOL`, of `timeouts` `KEY=MILLISECONDS`. `in_log` is what the log says
    of the node's id; None where only its files were asked.
    """

    capture: str
    path: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    meta_version: int | None
    further_directory_ids: tuple[str, ...]
    log: str
    leader_epoch: int | None
    leader_id: int | None
    voted_id: int | None
    current_voters: tuple[int, ...] | None
    log_start_offset: int | None
    log_end_offset: int | None
    last_epoch: int | None
    snapshot_end_offset: int | None
    deleted_snapshot_end_offset: int | None
    reached_epoch: int | None
    reached_offset: int | None
    reached_by: str | None
    closed: str | None
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
    in_log: NodeInLog | None = None


def node_card(row: Mapping[str, Any]) -> NodeCard:
    """The card of a row of `captures`, without what the log says of the node."""
    reached = row_reached(row)
    voters = row["current_voters"]
    return NodeCard(
        capture=row["capture"],
        path=row["path"],
        cluster_id=row["meta_cluster_id"],
        node_id=row["node_id"],
        directory_id=row["directory_id"],
        meta_version=row["meta_version"],
        further_directory_ids=tuple(row.get("further_directory_ids") or ()),
        log=_log_state(row, reached),
        leader_epoch=row["leader_epoch"],
        leader_id=row["leader_id"],
        voted_id=row["voted_id"],
        current_voters=None if voters is None else tuple(sorted(voters)),
        log_start_offset=row["log_start_offset"],
        log_end_offset=row["log_end_offset"],
        last_epoch=row["last_epoch"],
        snapshot_end_offset=row["snapshot_end_offset"],
        deleted_snapshot_end_offset=row.get("deleted_snapshot_end_offset"),
        reached_epoch=None if reached is None else reached.epoch,
        reached_offset=None if reached is None else reached.offset,
        reached_by=None if reached is None else reached.file,
        closed=_closed(row),
        **_configuration_fields(configuration_of(row)),
    )


def node_cards_batch(captures: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """One row of `node_cards` for each row of `captures`."""
    rows = []
    for row in captures:
        card = asdict(node_card(row))
        rows.append({**row, **card, "cluster_id": row["cluster_id"], "own_cluster_id": card["cluster_id"]})
    return build_rows(NODE_CARDS, rows)


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


def _log_state(row: Mapping[str, Any], reached: ReachedEnd | None) -> str:
    if not row["accepted"]:
        return "foreign"
    if row["log_end_offset"] is None:
        was_there = reached is not None or row["snapshot_end_offset"] or row["leader_epoch"] is not None
        return "missing" if was_there else "unstarted"
    if shorter_than_it_was(row) is not None:
        return "shorter"
    return "read" if row["batch_count"] else "empty"


def _closed(row: Mapping[str, Any]) -> str | None:
    """Closing a log names a `.snapshot` after its end and cuts its index to size; so does `.kafka_cleanshutdown` tell.

    A start names one too, once the log is recovered, and Kafka 4.4 leaves the index as it is: neither is a proof alone.
    """
    named, end = row.get("producer_state_offset"), row["log_end_offset"]
    if end is None or not row["accepted"]:
        return None
    if named == end:
        return "in order" if row.get("index_trimmed") or row.get("clean_shutdown") else None
    return "open" if row.get("index_trimmed") is False else None
