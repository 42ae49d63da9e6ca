"""Kafka's own commands as advice prints them, ready to be pasted, and the steps that replace voters' disks by them.

`server` is the option that says where to ask, such as `--bootstrap-controller HOST:PORT`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import audit_command, newest_captures, replica_end
from kraft_audit.rules.columns.lost_records import LostVoters, start_is_safe
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.voter_sets import current_set
from kraft_audit.text.readable import any_of, listed

CONFIG: Final = "controller.properties"
"""Stands for the path of the controller's properties."""
BROKER_CONFIG: Final = "broker.properties"
"""Stands for the path of the properties of a node that is a broker alone."""
UNKNOWN_ID: Final = "CLUSTER_ID"
"""Stands for the id where no meta.properties was read."""


def remove_controller(server: str, node_id: int, directory_id: str | None) -> str:
    """KIP-853: needs kraft.version 1, where every voter has a directory id, and a leader."""
    return (
        f"kafka-metadata-quorum {server} remove-controller --controller-id {node_id} "
        f"--controller-directory-id {directory_id}"
    )


def add_controller(server: str, config: str = CONFIG) -> str:
    """KIP-853: run on the controller that comes back, once it has fetched the log."""
    return f"kafka-metadata-quorum {server} --command-config {config} add-controller"


def format_disk(cluster_id: str, *, joins: bool, beside_data: bool = False, config: str = CONFIG) -> str:
    """`cluster_id` may be the id of one of its histories. `joins`: a dynamic quorum is there to be joined.

    `beside_data`: the node is a broker too, and has data dirs that stay as they are.
    """
    choice = " --no-initial-controllers" if joins else ""
    ignored = " --ignore-formatted" if beside_data else ""
    return f"{_format(cluster_id)}{choice}{ignored} --config {config}"


def format_standalone(cluster_id: str) -> str:
    """KIP-853: the node becomes the only voter of a quorum that begins."""
    return f"{_format(cluster_id)} --standalone --config {CONFIG}"


def _format(cluster_id: str) -> str:
    return f"kafka-storage format --cluster-id {shlex.quote(cluster_id_of(cluster_id) or UNKNOWN_ID)}"


def start_node(config: str = CONFIG) -> str:
    """Starts the node whose properties these are."""
    return f"kafka-server-start -daemon {config}"


def unregister_broker(server: str, node_id: int) -> str:
    """Removes the registration of a broker that is gone; the broker must be stopped."""
    return f"kafka-cluster unregister {server} --id {node_id}"


def unregister_controller(server: str, node_id: int) -> str:
    """KIP-1312: needs metadata.version 33. It must never name a voter (KAFKA-20865)."""
    return f"kafka-cluster unregister-controller {server} --id {node_id}"


def no_unclean_election(server: str, topic: str) -> str:
    """Turns unclean election off for a topic."""
    return (
        f"kafka-configs {server} --alter --entity-type topics --entity-name {shlex.quote(topic)} "
        "--add-config unclean.leader.election.enable=false"
    )


UNKNOWN_ADDRESS: Final = "HOST:PORT"


def controller_server(history: ClusterHistory, asked: Iterable[int] | None = None) -> str:
    """The option that reaches the first of these controllers whose address is known, by the voter set or by its
    registration; of the voters where none are named. Else any broker, which asks the quorum, or a blank to fill in."""
    voters = _voters(history)
    nodes = sorted(voter["voter_id"] for voter in voters) if asked is None else asked
    rows = history.newest_rows("controller_changes", "controller_id")
    known = {node: _first(row["end_points"]) for node, row in rows.items() if row["exists"]}
    known |= {voter["voter_id"]: _first(voter["endpoints"]) for voter in voters if voter["endpoints"]}
    controller_address = next((address for node in nodes if (address := known.get(node)) is not None), None)
    through_broker = broker_server(history)
    if controller_address is None and UNKNOWN_ADDRESS not in through_broker:
        return through_broker
    return f"--bootstrap-controller {controller_address or UNKNOWN_ADDRESS}"


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


def what_to_do(history: ClusterHistory, losses: LostVoters, went_back: Collection[int] = ()) -> str:
    """All steps as one text, and the command that says what a start of the node would do."""
    node_id = min(
        [each.node_id for each in losses.proven] or [*went_back] or [row["node_id"] for row in losses.lacking]
    )
    ask = f"What starting it would do:   {audit_command(history, 'may-i', 'start', node_id)}"
    return " ".join([*steps(history, losses, went_back), ask])


def steps(history: ClusterHistory, losses: LostVoters, went_back: Collection[int] = ()) -> Iterator[str]:
    """The steps in their order, commands where this kraft.version has them.

    A voter whose disk lost records may come back once a majority of the others runs and holds everything: then it
    cannot elect a leader without it. At kraft.version 1 it comes back as a new voter, which cannot have voted before.
    Where a majority holds everything already it just starts, as `may-i` says too.
    `went_back` are nodes that lost records, as earlier captures show.
    """
    lacking = {int(row["node_id"]) for row in losses.lacking}
    if start_is_safe(history, losses):
        yield from _start_again(history, losses, lacking)
        return
    lost = sorted({each.node_id for each in losses.proven}.union(went_back) or lacking)
    if len(lacking.difference(lost)) >= majority(len(losses.voters)):
        lost = sorted(lacking)  # those that are only behind could elect a leader without the records, too
    nodes = f"node{'s' * (len(lost) > 1)} {any_of(lost)}"
    others = sorted(voter["voter_id"] for voter in losses.voters if voter["voter_id"] not in lost)
    holders = [voter for voter in losses.voters if voter["voter_id"] not in lacking]
    if len(others) < majority(len(losses.voters)) or not holders:
        empty = {row["node_id"] for row in losses.lacking if not replica_end(row)}
        may_hold = [voter_id for voter_id in others if voter_id not in empty]
        held = f": {listed(may_hold)} may be all that holds the log" if may_hold else ""
        yield f"Do not start {nodes}: the others are no majority. Copy every disk before anything else{held}."
        return
    best = _best(history, holders)
    server = controller_server(history, [best["voter_id"]])
    run = f"Run controllers {listed(others)}: {best['voter_id']} holds everything, and the others fetch it"
    voter_set = current_set(history)
    if voter_set is None or voter_set["kraft_version"] == 0:
        ready = f"Start it once they show one LogEndOffset:   kafka-metadata-quorum {server} describe --replication"
        yield f"Do not start {nodes} yet. {run}. {ready}"
        return
    yield f"Do not start {nodes}. {run}. Then:"
    for voter in (voter for voter in losses.voters if voter["voter_id"] in lost):
        yield remove_controller(server, voter["voter_id"], voter["directory_id"])
        yield (
            f"On node {voter['voter_id']}, its disk emptied: {format_disk(history.cluster_id, joins=True)}; "
            f"start it; once it has fetched the log: {add_controller(server)}"
        )


def _start_again(history: ClusterHistory, losses: LostVoters, lacking: Collection[int]) -> Iterator[str]:
    """Where a majority holds everything: Kafka cuts what is left of the log, and the node fetches it again."""
    holders = [voter for voter in losses.voters if voter["voter_id"] not in lacking]
    whole = listed(sorted(voter["voter_id"] for voter in holders))
    server = controller_server(history, [_best(history, holders)["voter_id"]])
    nodes, it = f"node{'s' * (len(lacking) > 1)} {listed(sorted(lacking))}", "it" if len(lacking) == 1 else "them"
    yield (
        f"Copy the disk of {nodes}, then start {it}: voters {whole} hold the whole log and are a majority, so no "
        f"election can lose it, and the log is fetched again. Leave every other disk alone until one LogEndOffset is "
        f"shown:   kafka-metadata-quorum {server} describe --replication"
    )


def _best(history: ClusterHistory, holders: Sequence[TableRow]) -> TableRow:
    return max(holders, key=lambda voter: _end(history, voter))


def _end(history: ClusterHistory, voter: TableRow) -> int:
    return max(
        (replica_end(row) for row in newest_captures(history) if row["node_id"] == voter["voter_id"]), default=-1
    )
