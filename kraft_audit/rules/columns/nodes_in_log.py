"""What the log says of a captured node's id: its registrations, its voter key, and which software its own log needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from kraft_audit.capture.node_card import NodeInLog, Registration
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import replica_end
from kraft_audit.rules.columns.needed_software import highest_level, software_needed
from kraft_audit.rules.columns.nodes import registrations, supported_levels
from kraft_audit.rules.columns.voter_sets import current_set
from kraft_codec.file_names import snapshot_name
from kraft_codec.schemas.releases import KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE

_BOOTSTRAP = snapshot_name(0, 0).removesuffix(".checkpoint")


def node_in_log(history: ClusterHistory, row: TableRow) -> NodeInLog:
    """What the log says of the node of a row of `captures`, at the end of the log."""
    node_id, end = row["node_id"], replica_end(row)
    voter_set = current_set(history)
    keys = {voter["voter_id"]: voter["directory_id"] for voter in (voter_set["voters"] if voter_set else ())}
    return NodeInLog(
        registrations=tuple(_registrations(history, node_id)),
        voter=node_id in keys,
        voter_directory_id=keys.get(node_id),
        bootstrap_voters=_bootstrap_voters(history, row),
        metadata_version=highest_level(history, METADATA_VERSION_FEATURE, end),
        kraft_version=highest_level(history, KRAFT_VERSION_FEATURE, end),
        needs_release=software_needed(history, end),
    )


def _registrations(history: ClusterHistory, node_id: int | None) -> Iterator[Registration]:
    for (role, registered_id), rows in registrations(history).items():
        if registered_id == node_id:
            newest = rows[-1]
            yield Registration(
                role=role,
                incarnation_id=newest["incarnation_id"],
                directory_ids=tuple(newest.get("log_dirs") or ()),
                end_points=tuple(f"{each['name']}://{each['host']}:{each['port']}" for each in newest["end_points"]),
                fenced_since_ms=_fenced_since_ms(rows),
                in_controlled_shutdown=bool(newest.get("in_controlled_shutdown")),
                levels=supported_levels(newest, METADATA_VERSION_FEATURE),
            )


def _fenced_since_ms(rows: Sequence[TableRow]) -> int | None:
    """When the first of the last registrations in a row was fenced; None where the newest one is not."""
    since_ms: int | None = None
    for row in reversed(rows):
        if not row.get("fenced"):
            break
        since_ms = row["timestamp_ms"]
    return since_ms


def _bootstrap_voters(history: ClusterHistory, row: TableRow) -> tuple[int, ...] | None:
    """The voters in the bootstrap checkpoint of a node dir; None where it has none, or disks hold different ones."""
    sets = [each for each in history.rows("voter_sets") if each["source"] == "bootstrap"]
    if len(sets) != 1 or not history.has("batches"):
        return None
    batches = history.chunked_table("batches").select(["source", "root", "path"])
    copies = batches.filter(pc.starts_with(batches["source"].cast("string"), _BOOTSTRAP))
    own = (each["source"] for each in copies.to_pylist() if (each["root"], each["path"]) == (row["root"], row["path"]))
    held = {*own}
    if not held or len({*copies["source"].to_pylist()}) != 1:
        return None
    return tuple(sorted(voter["voter_id"] for voter in sets[0]["voters"]))
