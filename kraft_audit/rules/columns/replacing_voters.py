"""What to do about voters whose disk lost committed records: the steps, with this cluster's ids and endpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kraft_audit.quorum.controller_commands import add_controller, format_disk, remove_controller
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import audit_command, newest_captures, replica_end
from kraft_audit.rules.columns.lost_records import LostVoters, start_is_safe
from kraft_audit.rules.columns.server_addresses import controller_server
from kraft_audit.rules.columns.voter_sets import current_set
from kraft_audit.text.readable import any_of, listed


def what_to_do(history: ClusterHistory, found: LostVoters, went_back: Collection[int] = ()) -> str:
    """All steps as one text, and the command that says what a start of the node would do."""
    node_id = min([each.node_id for each in found.proven] or [*went_back] or [row["node_id"] for row in found.lacking])
    ask = f"What starting it would do:   {audit_command(history, 'may-i', 'start', node_id)}"
    return " ".join([*steps(history, found, went_back), ask])


def steps(history: ClusterHistory, found: LostVoters, went_back: Collection[int] = ()) -> Iterator[str]:
    """The steps in their order, commands where this kraft.version has them.

    A voter whose disk lost records may come back once a majority of the others runs and holds everything: then it
    cannot elect a leader without it. At kraft.version 1 it comes back as a new voter, which cannot have voted before.
    Where a majority holds everything already it just starts, as `may-i` says too.
    `went_back` are nodes of which earlier captures show that they lost records.
    """
    lacking = {int(row["node_id"]) for row in found.lacking}
    if start_is_safe(history, found):
        yield from _start_again(history, found, lacking)
        return
    lost = sorted({each.node_id for each in found.proven}.union(went_back) or lacking)
    if len(lacking.difference(lost)) >= majority(len(found.voters)):
        lost = sorted(lacking)  # those that are only behind could elect a leader without the records, too
    nodes = f"node{'s' * (len(lost) > 1)} {any_of(lost)}"
    others = sorted(voter["voter_id"] for voter in found.voters if voter["voter_id"] not in lost)
    holders = [voter for voter in found.voters if voter["voter_id"] not in lacking]
    if len(others) < majority(len(found.voters)) or not holders:
        held = f": {listed(others)} may be all that holds the log" if others else ""
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
    for voter in (voter for voter in found.voters if voter["voter_id"] in lost):
        yield remove_controller(server, voter["voter_id"], voter["directory_id"])
        yield (
            f"On node {voter['voter_id']}, its disk emptied: {format_disk(history.cluster_id, joins=True)}; "
            f"start it; once it has fetched the log: {add_controller(server)}"
        )


def _start_again(history: ClusterHistory, found: LostVoters, lacking: Collection[int]) -> Iterator[str]:
    """Where a majority holds everything: Kafka cuts what is left of the log, and the node fetches it again."""
    holders = [voter for voter in found.voters if voter["voter_id"] not in lacking]
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
