"""A quorum at rest, as data: what every node's disk holds, to go on from there under whatever rules the engine has.

A seed stops meaning what it meant when the engine draws differently; a situation does not. Logs are reduced to what
elections depend on: offsets, epochs and voter sets. Data records become NoOpRecords, snapshots are left out.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.membership import Kip853, kraft_version_record
from kraft_engine.consensus.raft_settings import CLUSTER_ID, Settings
from kraft_engine.consensus.replica_log import MetadataLog, Snapshot
from kraft_engine.consensus.voter_sets import ReplicaKey, Voter, VoterSet
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.world.disks import QuorumState
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import World

Situation = dict[str, Any]


def describe(cluster: Cluster, invariants: RaftInvariants, about: str) -> Situation:
    """The situation that `cluster` is in, with what is committed and who was elected."""
    committed, committed_end = invariants.ledger.batches, invariants.ledger.committed_offset
    logs = [_whole_log(process.disk.log, committed) for process in cluster.processes]
    holders: dict[int, tuple[int, ...]] = {}
    distinct: dict[int, Batch] = {}
    for number, log in enumerate(logs):
        for batch in log:
            distinct[id(batch)] = batch
            holders[id(batch)] = (*holders.get(id(batch), ()), number)
    rows: list[list[Any]] = []
    row_of: dict[int, int] = {}
    for log in logs:
        for before, batch in zip([None, *log], log, strict=False):
            if id(batch) in row_of:
                continue
            voters = _voters_of(batch)
            joins = before is not None and not voters and not _voters_of(before) and before.epoch == batch.epoch
            joins = joins and batch.base_offset != committed_end
            if joins and before is not None and holders[id(before)] == holders[id(batch)]:
                row_of[id(batch)] = row_of[id(before)]
                rows[row_of[id(batch)]][2] += len(batch.records)
                continue
            row_of[id(batch)] = len(rows)
            rows.append([batch.base_offset, batch.epoch, len(batch.records), voters])
    nodes = []
    for process, log in zip(cluster.processes, logs, strict=True):
        state = process.disk.visible_state
        bootstrap = process.disk.bootstrap
        nodes.append({
            "id": process.id,
            "directory": process.disk.directory.hex(),
            "can_become_voter": process.can_become_voter,
            "static_voters": list(process.static_voters.ids) if process.static_voters is not None else None,
            "bootstrap_voters": _keys(bootstrap.voters) if bootstrap is not None and bootstrap.voters else None,
            "quorum_state": None if state is None else {
                "epoch": state.epoch, "leader_id": state.leader_id, "version": state.version,
                "voted": None if state.voted is None else [state.voted[0], state.voted[1].hex()],
            },
            "log": list(dict.fromkeys(row_of[id(batch)] for batch in log)),
        })  # fmt: skip
    elections = [[epoch, key[0], key[1].hex()] for epoch, key in sorted(invariants.elections.items())]
    return {
        "about": about, "pre_vote": cluster.settings.pre_vote, "committed_end": committed_end, "elections": elections,
        "batches": rows, "nodes": nodes,
    }  # fmt: skip


def lay_out(situation: Situation, world: World, invariants: RaftInvariants) -> Cluster:
    """A cluster in which every node's disk is as the situation says. No node is started."""
    settings = Settings(CLUSTER_ID, pre_vote=situation["pre_vote"])
    cluster = invariants.cluster = Cluster(world, settings, Kip853(), invariants)
    for epoch, leader, directory in situation["elections"]:
        invariants.elections[epoch] = (leader, bytes.fromhex(directory))
    batches = _Batches(situation["batches"])
    for node in situation["nodes"]:
        process = cluster.add_process(node["id"], can_become_voter=node["can_become_voter"])
        disk = process.disk
        disk.directory = bytes.fromhex(node["directory"])
        if node["static_voters"] is not None:
            process.static_voters = VoterSet(
                Voter(voter, bytes(16), *cluster.endpoint_of(voter)) for voter in node["static_voters"]
            )
        if node["bootstrap_voters"] is not None:
            disk.bootstrap = Snapshot((0, 0), None, 1, _voter_set(node["bootstrap_voters"]), 0, 0)
        state = node["quorum_state"]
        if state is not None:
            voted = state["voted"]
            key: ReplicaKey | None = None if voted is None else (voted[0], bytes.fromhex(voted[1]))
            disk.quorum_state = QuorumState(state["epoch"], state["leader_id"], key, state["version"])
        for row in node["log"]:
            disk.log.append(batches.after(disk.log.last_batch, row))
            _commit(invariants, disk.log.last_batch, situation["committed_end"])
        disk.log.sync()
    return cluster


def _commit(invariants: RaftInvariants, batch: Batch | None, committed_end: int) -> None:
    ledger = invariants.ledger
    if batch is not None and ledger.committed_offset == batch.base_offset and batch.end_offset <= committed_end:
        ledger.batches.append(batch)
        ledger.by_base[batch.base_offset] = batch
        ledger.committed_offset, ledger.committed_epoch = batch.end_offset, batch.epoch


class _Batches:
    """Each row of a situation as a batch, made once: replicas share it."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self.rows = rows
        self.made: dict[int, Batch] = {}

    def after(self, previous: Batch | None, row: int) -> Batch:
        if row not in self.made:
            base_offset, epoch, count, voters = self.rows[row]
            records: tuple[Record, ...] = tuple(("NoOpRecord", 0, {}) for _ in range(count))
            if voters:
                voter_set = _voter_set(voters)
                head = [kraft_version_record(1)] if count > 1 else []
                records = (*head, ("KRAFT_VOTERS", 0, voter_set.fields()))
                padding = count - len(records)
                records = (*(("LEADER_CHANGE", 0, {}) for _ in range(padding)), *records)
            self.made[row] = Batch(base_offset, epoch, 0, bool(voters), records, previous)
        return self.made[row]


def _whole_log(log: MetadataLog, committed: list[Batch]) -> list[Batch]:
    first = log.batches[0].base_offset if log.batches else log.end_offset
    return [batch for batch in committed if batch.end_offset <= first] + log.batches


def _voters_of(batch: Batch) -> list[list[Any]]:
    for name, _, fields in reversed(batch.records):
        if name == "KRAFT_VOTERS":
            return [[voter["voterId"], voter["voterDirectoryId"].hex()] for voter in fields["voters"]]
    return []


def _keys(voters: VoterSet) -> list[list[Any]]:
    return [[key[0], key[1].hex()] for key in voters.keys]


def _voter_set(keys: list[list[Any]]) -> VoterSet:
    return VoterSet(Voter(voter, bytes.fromhex(directory), f"controller-{voter}") for voter, directory in keys)
