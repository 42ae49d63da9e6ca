"""Batches of which disks hold several versions: whether a majority of the voters says which one is the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.voter_sets import keys_of, set_at
from kraft_audit.text.readable import listed
from kraft_codec.file_names import printable


def is_held_by_majority(held: Sequence[ReplicaPlan], voters: TableRow) -> bool:
    """Whether a majority of all voters holds a version."""
    disks = {(replica.node_id, replica.directory_id) for replica in held}
    ids = {node_id for node_id, _ in disks}
    keys = keys_of(voters["voters"])
    holding = [key for key in keys if (key in disks if key[1] is not None else key[0] in ids)]
    return len(holding) >= majority(len(keys))


def open_runs(history: ClusterHistory) -> Iterator[AlteredBatches]:
    """The altered runs of which no majority of the voters in effect holds any version."""
    for run in history.altered or ():
        voters = set_at(history, run.from_offset)
        if voters is None or not any(is_held_by_majority(held, voters) for held in run.versions):
            yield run


def open_version(history: ClusterHistory) -> str | None:
    """Why no log is canonical where disks hold two versions of its newest batches (KQ022), with what would decide it.

    None where a majority decides, or nothing was altered.
    """
    run = next((run for run in open_runs(history) if run.is_tied and not run.rejoins), None)
    if run is None:
        return None
    sides = " and ".join(map(named_replicas, run.versions))
    text = f"{sides} hold different bytes at {offsets_of(run)} (KQ022), and no majority of the voters holds either"
    voters = set_at(history, run.from_offset)
    known = {replica.node_id for held in run.versions for replica in held}
    missing = sorted({voter["voter_id"] for voter in voters["voters"]} - known) if voters is not None else []
    if missing:
        return f"{text}; copy voter{'s' * (len(missing) > 1)} {listed(missing)} too, which may hold one of them"
    return f"{text}; an earlier copy of one of them would show which was changed"


def offsets_of(run: AlteredBatches) -> str:
    """The offsets of a run, as text."""
    last = run.to_offset - 1
    return f"offset {last}" if run.from_offset == last else f"offsets {run.from_offset} to {last}"


def named_replica(replica: ReplicaPlan) -> str:
    return f"node {replica.node_id}" if replica.node_id is not None else f"replica at {printable(replica.path)}"


def named_replicas(replicas: Sequence[ReplicaPlan]) -> str:
    ids = sorted({replica.node_id for replica in replicas if replica.node_id is not None})
    return f"node{'s' * (len(ids) > 1)} {listed(ids)}" if ids else ", ".join(printable(each.path) for each in replicas)
