"""Whether any leader is possible, by brute force over what the disks of a quorum hold.

The engine's own answer (`could_elect`) asks the running nodes what they have in memory. This one reads each disk's
snapshot and log for the voters that its node counts by, and tries every set of living nodes as a majority.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from kraft_engine.runs.healing import ELECTION_TIMEOUTS, Healing
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.disks import Disk
from kraft_engine.world.processes import Cluster, Process

ANY_DISK = bytes(16)
Key = tuple[int, bytes]


def heal_or_prove_leaderless(run: RandomRun | KafkaRun) -> bool:
    """Ends a run's faults: whether it has a leader within the promised time, which `heal` demands.

    Where it has none, asserts that none was possible, and that the time that was promised brings none.
    """
    healing = Healing(run.cluster, run.invariants, run.faults, run.machine if isinstance(run, KafkaRun) else None)
    healing.end_faults()
    is_led = run.cluster.leader() is not None
    winner = next(winning_sets(run.cluster), None)
    has_healed = healing.run()
    about = f"{type(run).__name__} seed {run.world.seed}"
    if has_healed:
        assert is_led or winner is not None, f"{about}: elects a leader that the disks do not allow"
        return True
    assert run.cluster.leader() is None, f"{about}: has a leader, and is said to have none"
    assert winner is None, f"{about}: {winner} could elect, and is said not to"
    limit_us = ELECTION_TIMEOUTS * run.cluster.settings.election_timeout_us
    assert not run.world.run_until(lambda: run.cluster.ready_leader() is not None, limit_us=limit_us), about
    assert next(winning_sets(run.cluster), None) is None, about
    return False


def winning_sets(cluster: Cluster) -> Iterator[tuple[Key, tuple[Key, ...]]]:
    """Every candidate with every set of living voters that could make it the leader.

    A candidate is in the newest voter set of its own log. The set that elects it is a majority of that voter set, and
    no member's log ends after the candidate's. Whom a node has voted for does not matter: a later epoch is free.
    """
    living = [process for process in cluster.processes if process.node is not None and process.can_become_voter]
    sets = {key_of(process): voters_on(process) for process in living}
    is_kip642 = cluster.membership.name == "kip642"
    for candidate in living:
        voters = sets[key_of(candidate)]
        if not any(_is(key, candidate) for key in voters):
            continue
        members = [process for process in living if any(_is(key, process) for key in voters)]
        for size in range(len(voters) // 2 + 1, len(members) + 1):
            for chosen in combinations(members, size):
                agree = all(_log_end(voter.disk) <= _log_end(candidate.disk) for voter in chosen)
                if is_kip642:
                    # "If the vote request comes from a non-voter, it is rejected": by the receiver's own voters.
                    agree = agree and all(
                        not sets[key_of(voter)] or any(_is(key, candidate) for key in sets[key_of(voter)])
                        for voter in chosen
                    )
                if agree and candidate in chosen:
                    yield key_of(candidate), tuple(key_of(voter) for voter in chosen)


def key_of(process: Process) -> Key:
    return process.id, process.disk.directory


def voters_on(process: Process) -> frozenset[Key]:
    """The newest voter set that a disk names: in its log, else its snapshot, else its node's configuration."""
    disk = process.disk
    configured = {(voter.id, ANY_DISK) for voter in process.static_voters or ()}
    base, voters, is_recorded = 0, configured, False
    snapshot = disk.log.snapshots[-1] if disk.log.snapshots else disk.bootstrap
    if snapshot is not None:
        base = snapshot.id[0]
        if snapshot.voters is not None:
            voters, is_recorded = {(voter.id, voter.directory) for voter in snapshot.voters}, True
    for batch in disk.log.batches:
        if batch.base_offset < base:
            continue
        for name, _, fields in batch.records:
            if name == "KRAFT_VOTERS":
                voters = {(voter["voterId"], voter["voterDirectoryId"]) for voter in fields["voters"]}
            elif name == "VOTER_ASSIGNMENT":
                voters = {(voter["voterId"], ANY_DISK) for voter in fields["currentVoters"]}
            elif name in ("ADD_VOTER", "REMOVE_VOTER"):
                # KIP-856: the first records replace the configured ids, which have no directory id.
                key = (fields["voterId"], fields["voterUuid"])
                voters = voters if is_recorded else set()
                voters, is_recorded = (voters | {key} if name == "ADD_VOTER" else voters - {key}), True
    return frozenset(voters)


def _is(key: Key, process: Process) -> bool:
    return key[0] == process.id and key[1] in (ANY_DISK, process.disk.directory)


def _log_end(disk: Disk) -> tuple[int, int]:
    """(last epoch, end offset), counted from the last batch or the snapshot that the log begins with."""
    if disk.log.batches:
        last = disk.log.batches[-1]
        return last.epoch, last.base_offset + len(last.records)
    if disk.log.snapshots:
        end_offset, epoch = disk.log.snapshots[-1].id
        return epoch, end_offset
    return 0, 0
