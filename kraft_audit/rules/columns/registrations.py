"""Registrations of brokers and controllers as rules ask about them: who is registered, and what its software supports.

A registration says up to which metadata.version the node's software goes. That is the release line (3.9), not the
release (3.9.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.voter_sets import current_set, ids_of, keys_of
from kraft_codec.schemas.releases import LINE_OF_LEVEL, METADATA_VERSION_FEATURE, Release


class RegisteredNode(NamedTuple):
    """A registered node with the metadata.version levels that its software supports.

    `row` is the first registration that shows them. A ghost is registered and no longer part of the cluster: a
    controller that is no voter and was not captured, or a broker that is fenced. `line` is None where no production
    release known here supports that level.
    """

    kind: str
    node_id: int
    lowest_level: int
    level: int
    row: TableRow
    is_ghost: bool

    @property
    def name(self) -> str:
        return f"{self.kind} {self.node_id}"

    @property
    def line(self) -> Release | None:
        return LINE_OF_LEVEL.get(self.level)


def registered_nodes(history: ClusterHistory) -> list[RegisteredNode]:
    """Every node that is registered at the end of the log and says which metadata.version it supports."""
    return history.known("registered nodes", lambda: list(_registered_nodes(history)))


def _registered_nodes(history: ClusterHistory) -> Iterator[RegisteredNode]:
    for (kind, node_id), rows in registrations(history).items():
        levels = _supported_levels(rows[-1])
        if levels is not None:
            # A restart registers again: what is supported is so since the first registration in a row that says it.
            _, same = next(groupby(reversed(rows), key=_supported_levels))
            is_ghost = rows[-1]["fenced"] if kind == "broker" else is_ghost_controller(history, node_id)
            yield RegisteredNode(kind, node_id, *levels, list(same)[-1], is_ghost)


def is_ghost_controller(history: ClusterHistory, controller_id: int) -> bool:
    """Whether a registered controller is no voter, and none of the captured nodes."""
    voter_set = current_set(history)
    voters = ids_of(keys_of(voter_set["voters"])) if voter_set else frozenset()
    return controller_id not in voters and all(row["node_id"] != controller_id for row in history.rows("captures"))


def registrations(history: ClusterHistory) -> dict[tuple[str, int], Sequence[TableRow]]:
    """The states of every broker and controller that is registered at the end of the log, oldest first."""
    return history.known("registrations", lambda: _registrations(history))


def _registrations(history: ClusterHistory) -> dict[tuple[str, int], Sequence[TableRow]]:
    states: dict[tuple[str, int], list[TableRow]] = defaultdict(list)
    for kind in ("broker", "controller"):
        for row in history.rows_by_offset(f"{kind}_changes"):
            states[kind, row[f"{kind}_id"]].append(row)
    return {node: rows for node, rows in states.items() if rows[-1]["exists"]}


def _supported_levels(row: Mapping[str, Any]) -> tuple[int, int] | None:
    for feature in row["features"] if row["exists"] else ():
        if feature["name"] == METADATA_VERSION_FEATURE:
            return int(feature["min_supported_version"]), int(feature["max_supported_version"])
    return None
