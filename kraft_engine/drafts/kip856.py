"""KIP-856 as written: replicas are (id, uuid); voters are added and removed one record at a time.

controller.quorum.voters stays the list of ids; what changes is which uuid stands for an id, so a disk is replaced by
{1,2,3} -> {1,2,3,3'} -> {1,2,3'}. Where the text is silent, KIP-595 holds.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.leader import append
from kraft_engine.consensus.leader_state import LeaderState, PendingChange
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.messages import (
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
    VOTER_ALREADY_ADDED,
    VOTER_ALREADY_REMOVED,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    VoterChangeResponse,
)
from kraft_engine.consensus.raft import NEVER, RaftNode
from kraft_engine.consensus.serving import leader_only_error
from kraft_engine.consensus.voter_sets import ReplicaKey, Voter, VoterSet
from kraft_engine.world.world import MS

VOTER_CHANGE_RETRY_US = 50 * MS


class Kip856:
    """Section by section: Voter Changes, Bootstrapping, Leader Election, High Watermark, Handling of each request."""

    __slots__ = ()
    name = "kip856"
    wrong_voter_error = INVALID_REQUEST
    votes_with_directory = True
    refuses_epochs_as_observer = True
    end_epoch_names_voter = True

    def refuses_start(self, node: RaftNode) -> str:
        """Bootstrapping: "If the cluster metadata topic partition contains an AddVoterRecords for a replica id that is
        not enumerated in controller.quorum.voters then the replica will fail to start and shutdown."
        """
        added = {id for _, voters in node.history.entries() for id in voters.ids}  # noqa: A001
        strange = sorted(added.difference(configured(node)))
        return f"AddVoterRecords of {strange}, which controller.quorum.voters does not name" if strange else ""

    def stored_voters(self, node: RaftNode) -> tuple[tuple[int, ...], int]:
        """Quorum State: "Remove the CurrentVoters field from QuorumStateData"; version 1 leaves it out."""
        voters = node.voters
        return (voters.ids if voters is not None else ()), 0

    def apply(self, node: RaftNode, batch: Batch) -> None:
        """Voters count as soon as the record is read; the bootstrapping batch replaces the configured ids as one."""
        offset = batch.base_offset - 1
        voters: VoterSet | None = None
        for name, _, fields in batch.records:
            offset += 1
            if name not in ("ADD_VOTER", "REMOVE_VOTER"):
                continue
            if voters is None:
                latest = node.history.last
                voters = latest if node.history.last_offset is not None and latest is not None else VoterSet(())
            key = (fields["voterId"], fields["voterUuid"])
            voters = voters.adding(Voter(*key)) if name == "ADD_VOTER" else voters.removing(key)
        if voters is not None:
            node.adopt_voters(offset, voters)

    def start_of_epoch(self, node: RaftNode, leader: LeaderState) -> tuple[Record, ...]:
        """LeaderChangeMessage with VoterUuid, "nice to have for tracing and debugging"."""
        fields = {
            "version": 1,
            "leaderId": node.id,
            "voters": [{"voterId": key[0], "voterUuid": key[1]} for key in leader.voters.keys],
            "grantingVoters": [{"voterId": key[0], "voterUuid": key[1]} for key in leader.granted],
        }
        return (("LEADER_CHANGE", 1, fields),)

    def may_vote_for(self, node: RaftNode, candidate: ReplicaKey) -> bool:
        """Replicas grant their vote although the candidate, or they themselves, are not in the voter set."""
        return True

    def refused(self, node: RaftNode, candidate: ReplicaKey) -> None: ...

    def data_allowed(self, node: RaftNode, leader: LeaderState) -> bool:
        """No writes until every configured id has its AddVoterRecord, replicated to all of the voters."""
        if leader.bootstrapped:
            return leader.writable
        if not leader.writable or node.history.last_offset is None:
            return False
        log = node.log
        first = node.history.entries()[0][0]
        # Where the log has data already, an earlier leader saw the records on all voters.
        has_data = log.start_offset > 0 or any(not batch.is_control for batch in log.batches)
        on_all = all(leader.is_own(key) or state.end_offset > first for key, state in leader.replicas.items())
        leader.bootstrapped = leader.high_watermark > first and (has_data or on_all)
        return leader.bootstrapped

    def high_watermark_moved(self, node: RaftNode, leader: LeaderState) -> None:
        pending = leader.pending
        if pending is not None and 0 <= pending.offset < leader.high_watermark:
            leader.pending = None
            self._answer(node, pending, NONE)
            removed = not pending.is_add and not leader.voters.contains(node.key)
            if removed and node.switches.removed_leader_resigns_at_commit:
                node.witness.note(node, "is no longer a voter and resigns")
                node.resign()
                return
        self._proceed(node, leader)

    def poll_leader(self, node: RaftNode, leader: LeaderState, now_us: int) -> int:
        self._proceed(node, leader)
        if leader.pending is None and not leader.queued and node.history.last_offset is not None:
            return NEVER
        for change in [*leader.queued, leader.pending]:
            if change is not None and now_us >= change.deadline_us:
                self._forget(leader, change)
                self._answer(node, change, REQUEST_TIMED_OUT)
        return now_us + VOTER_CHANGE_RETRY_US

    def poll_follower(self, node: RaftNode, now_us: int) -> None:
        pass

    def handle(self, node: RaftNode, source: int, correlation: int, body: Any) -> bool:
        if isinstance(body, AddRaftVoterRequest):
            self._add(node, source, correlation, body)
        elif isinstance(body, RemoveRaftVoterRequest):
            self._remove(node, source, correlation, body)
        else:
            return False
        return True

    def _add(self, node: RaftNode, source: int, correlation: int, request: AddRaftVoterRequest) -> None:
        error = leader_only_error(node, request.cluster_id, node.epoch)
        leader = node.leader
        if not error and leader is not None:
            if request.voter.key in leader.voters.keys:
                error = VOTER_ALREADY_ADDED
            elif request.voter.key not in leader.observers or request.voter.id not in configured(node):
                error = INVALID_REQUEST
        self._queue(node, leader, error, PendingChange(
            True, request.voter, source, correlation, node.world.now_us + request.timeout_us, True
        ))  # fmt: skip

    def _remove(self, node: RaftNode, source: int, correlation: int, request: RemoveRaftVoterRequest) -> None:
        error = leader_only_error(node, request.cluster_id, node.epoch)
        leader = node.leader
        if not error and leader is not None:
            others = [key for key in leader.voters.keys if key[0] == request.voter[0] and key != request.voter]
            if request.voter not in leader.voters.keys:
                was_voter = any(request.voter in voters.keys for _, voters in node.history.entries())
                error = VOTER_ALREADY_REMOVED if was_voter else INVALID_REQUEST
            elif not others:
                # "it would not allow the RemoveVoter RPCs to completely remove replica IDs that are described"
                error = INVALID_REQUEST
        self._queue(node, leader, error, PendingChange(
            False, Voter(*request.voter), source, correlation, node.world.now_us + request.timeout_us, True
        ))  # fmt: skip

    def _queue(self, node: RaftNode, leader: LeaderState | None, error: str, change: PendingChange) -> None:
        if error or leader is None:
            self._answer(node, change, error)
            return
        leader.queued.append(change)
        self._proceed(node, leader)

    def _proceed(self, node: RaftNode, leader: LeaderState) -> None:
        """Bootstraps, or starts the next change, when what it waits for has come."""
        if leader.high_watermark < 0 and node.switches.change_waits_for_epoch_commit:
            return
        offset = node.history.last_offset
        if offset is None:
            self._bootstrap(node, leader)
            return
        waits = leader.pending is not None or offset >= node.high_watermark
        if waits and node.switches.change_waits_for_committed_predecessor:
            return
        for change in leader.queued:
            state = leader.observers.get(change.voter.key)
            if change.is_add and (state is None or state.end_offset < node.log.end_offset):
                continue
            if not self._still_valid(leader, change):
                leader.queued.remove(change)
                self._answer(node, change, VOTER_ALREADY_ADDED if change.is_add else VOTER_ALREADY_REMOVED)
                return
            leader.queued.remove(change)
            leader.pending = change
            change.offset = leader.next_offset
            name = "ADD_VOTER" if change.is_add else "REMOVE_VOTER"
            append(node, (voter_record(name, change.voter.key),), is_control=True)
            return

    @staticmethod
    def _still_valid(leader: LeaderState, change: PendingChange) -> bool:
        keys = leader.voters.keys
        if change.is_add:
            return change.voter.key not in keys
        same_id = [key for key in keys if key[0] == change.voter.id]
        return change.voter.key in keys and len(same_id) > 1

    def _bootstrap(self, node: RaftNode, leader: LeaderState) -> None:
        """One control batch with an AddVoterRecord for every configured voter, once all their uuids are known."""
        known = {id: voter.key for id, voter in leader.known_directories.items()}  # noqa: A001
        known[node.id] = node.key
        ids = configured(node)
        if all(id in known for id in ids):  # noqa: A001
            append(node, tuple(voter_record("ADD_VOTER", known[id]) for id in sorted(ids)), is_control=True)  # noqa: A001

    @staticmethod
    def _forget(leader: LeaderState, change: PendingChange) -> None:
        if leader.pending is change:
            leader.pending = None
            leader.forgot_removal = leader.forgot_removal or not change.is_add
        if change in leader.queued:
            leader.queued.remove(change)

    def _answer(self, node: RaftNode, change: PendingChange, error: str) -> None:
        node.reply(change.source, change.correlation, VoterChangeResponse(error, node.leader_id, node.epoch))


def configured(node: RaftNode) -> tuple[int, ...]:
    """The ids of controller.quorum.voters."""
    return node.static_voters.ids if node.static_voters is not None else ()


def voter_record(name: str, key: ReplicaKey) -> Record:
    return (name, 0, {"version": 0, "voterId": key[0], "voterUuid": key[1]})
