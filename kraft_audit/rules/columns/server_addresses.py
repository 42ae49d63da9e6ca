"""Where Kafka's tools reach a cluster: the option with a controller's or broker's address, for commands to paste."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.voter_sets import current_set

UNKNOWN_ADDRESS: Final = "HOST:PORT"


def controller_server(history: ClusterHistory, asked: Iterable[int] | None = None) -> str:
    """The option that reaches the first of these controllers whose address is known, by the voter set or by its
    registration; of the voters where none are named. Else any broker, which asks the quorum, or a blank to fill in."""
    voters = _voters(history)
    nodes = sorted(voter["voter_id"] for voter in voters) if asked is None else asked
    rows = history.newest_rows("controller_changes", "controller_id")
    known = {node: _first(row["end_points"]) for node, row in rows.items() if row["exists"]}
    known |= {voter["voter_id"]: _first(voter["endpoints"]) for voter in voters if voter["endpoints"]}
    found = next((address for node in nodes if (address := known.get(node)) is not None), None)
    through_broker = broker_server(history)
    if found is None and UNKNOWN_ADDRESS not in through_broker:
        return through_broker
    return f"--bootstrap-controller {found or UNKNOWN_ADDRESS}"


def broker_server(history: ClusterHistory) -> str:
    """The option that reaches a broker, one that is up where there is one; a blank where none is registered."""
    brokers = sorted(broker_states(history), key=lambda broker: (not is_up(history, broker), broker))
    return f"--bootstrap-server {broker_address(history, brokers) or UNKNOWN_ADDRESS}"


def broker_address(history: ClusterHistory, asked: Iterable[int]) -> str | None:
    """host:port of the first of these brokers that is registered; None where none is."""
    states = broker_states(history)
    rows = (states[broker].newest for broker in asked if broker in states)
    return next((address for row in rows if row["exists"] and (address := _first(row["end_points"]))), None)


def _voters(history: ClusterHistory) -> list[TableRow]:
    voter_set = current_set(history)
    return [] if voter_set is None else list(voter_set["voters"])


def _first(points: list[TableRow]) -> str | None:
    return f"{points[0]['host']}:{points[0]['port']}" if points else None
