"""KIP-853 as shipped: voter records, Add/Remove/UpdateRaftVoter, the kraft.version upgrade, auto join (AddVoterHandler,
RemoveVoterHandler, UpdateVoterHandler, KRaftVersionUpgrade).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_engine.consensus.leader import append, leader_change
from kraft_engine.consensus.leader_state import LeaderState, PendingChange
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.messages import (
    DUPLICATE_VOTER,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    INVALID_VOTER_KEY,
    NONE,
    REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddRaftVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterChangeResponse,
)
from kraft_engine.consensus.raft import NEVER, RaftNode
from kraft_engine.consensus.serving import leader_only_error
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from kraft_engine.world.world import HOUR_US


class Kip853:
    """The membership rules that Kafka 3.9 to 4.4 ship."""

    __slots__ = ()
    name = "kip853"
    wrong_voter_error = INVALID_VOTER_KEY
    votes_with_directory = False
    refuses_epochs_as_observer = False
    end_epoch_names_voter = False

    def refuses_start(self, node: RaftNode) -> str:
        return ""

    def stored_voters(self, node: RaftNode) -> tuple[tuple[int, ...], int]:
        """Version 0 holds the ids of the set in effect; AppliedOffset is 0 as shipped (QuorumStateData)."""
        voters = node.voters
        return (voters.ids if voters is not None else ()), 0

    def apply(self, node: RaftNode, batch: Batch) -> None:
        """Voter sets and kraft.version count as soon as they are appended, uncommitted included."""
        offset = batch.base_offset
        for name, _, fields in batch.records:
            if name == "KRAFT_VERSION":
                node.history.add_version(offset, fields["kRaftVersion"])
            elif name == "KRAFT_VOTERS":
                voters = VoterSet(Voter.from_fields(entry) for entry in fields["voters"])
                node.adopt_voters(offset, voters)
            offset += 1

    def start_of_epoch(self, node: RaftNode, leader: LeaderState) -> tuple[Record, ...]:
        """LeaderChange; with it KRaftVersion and Voters where the set came from the 0-0 snapshot or my entry
        changed.
        """
        records = [leader_change(node, leader)]
        version = node.history.version
        if version >= 1:
            voters = leader.voters
            mine = voters.voter(node.id)
            updated = voters
            if mine is not None and mine.key == node.key and mine.endpoints != _as_voter(node).endpoints:
                updated = voters.replacing(_with_endpoints_of(mine, node))
            if node.history.last_offset == -1 or updated is not voters:
                records.append(kraft_version_record(version))
                records.append(("KRAFT_VOTERS", 0, updated.fields()))
        return tuple(records)

    def may_vote_for(self, node: RaftNode, candidate: ReplicaKey) -> bool:
        """No membership test: candidates and granters may be outside the receiver's set (handleVoteRequest)."""
        return True

    def refused(self, node: RaftNode, candidate: ReplicaKey) -> None: ...

    def data_allowed(self, node: RaftNode, leader: LeaderState) -> bool:
        return leader.writable

    def high_watermark_moved(self, node: RaftNode, leader: LeaderState) -> None:
        pending = leader.pending
        if pending is None or pending.offset < 0 or leader.high_watermark <= pending.offset:
            return
        leader.pending = None
        if pending.ack_when_committed:
            self._answer(node, pending, NONE)
        resigns = node.switches.removed_leader_resigns_at_commit
        if not pending.is_add and resigns and not leader.voters.contains(node.key):
            node.witness.note(node, "is no longer a voter and resigns")
            node.resign()

    def poll_leader(self, node: RaftNode, leader: LeaderState, now_us: int) -> int:
        pending = leader.pending
        if pending is None:
            return NEVER
        if now_us >= pending.deadline_us:
            # The record stays where it was appended, and may commit later (KIP-853).
            leader.pending = None
            leader.forgot_removal = not pending.is_add
            self._answer(node, pending, REQUEST_TIMED_OUT)
            return NEVER
        return pending.deadline_us

    def poll_follower(self, node: RaftNode, now_us: int) -> None:
        """Sends what keeps the membership current.

        A voter sends its endpoints and version range once an epoch, and again where it was refused. An observer with
        auto join asks until it is a voter.
        """
        if not node.can_become_voter or (node.update_sent_epoch == node.epoch and now_us < node.join_at_us):
            return
        slot = node.addresses.slot_of(node.leader_id)
        if slot < 0 or not node.ready(slot, now_us) or node.snapshot_fetch is not None or not node.fetched_once:
            return
        voters = node.voters
        if node.is_voter and voters is not None:
            if node.update_sent_epoch == node.epoch and now_us < node.update_again_at_us:
                return
            node.update_sent_epoch, node.update_again_at_us = node.epoch, NEVER
            entry = voters.voter(node.id)
            if node.history.version == 0 or (entry is not None and entry.endpoints != _as_voter(node).endpoints):
                voter = _as_voter(node)
                node.request(slot, UpdateRaftVoterRequest(node.settings.cluster_id, node.epoch, voter))
        elif node.settings.auto_join and node.history.version >= 1 and voters is not None:
            node.update_sent_epoch = node.epoch
            node.join_at_us = now_us + node.settings.fetch_timeout_us
            old = voters.voter(node.id)
            cluster_id = node.settings.cluster_id
            if old is not None:
                node.request(slot, RemoveRaftVoterRequest(cluster_id, old.key))
            else:
                voter = _as_voter(node)
                node.request(slot, AddRaftVoterRequest(cluster_id, voter, ack_when_committed=False))

    # Requests

    def handle(self, node: RaftNode, source: int, correlation: int, body: Any) -> bool:
        handler = _HANDLERS.get(type(body))
        if handler is None:
            return False
        handler(self, node, source, correlation, body)
        return True

    def handle_add(self, node: RaftNode, source: int, correlation: int, request: AddRaftVoterRequest) -> None:
        error = leader_only_error(node, request.cluster_id, node.epoch) or self._change_error(node)
        leader = node.leader
        if not error and leader is not None:
            voter = request.voter
            duplicate = leader.voters.voter(voter.id) is not None
            anonymous = voter.directory == NO_DIRECTORY and node.switches.new_voter_has_a_directory
            if anonymous or not voter.host:
                error = INVALID_REQUEST
            elif duplicate and node.switches.duplicate_voter_is_refused:
                error = DUPLICATE_VOTER
        if error or leader is None:
            node.reply(source, correlation, VoterChangeResponse(error, node.leader_id, node.epoch))
            return
        deadline_us = node.world.now_us + request.timeout_us
        pending = PendingChange(True, voter, source, correlation, deadline_us, request.ack_when_committed)
        if node.switches.change_waits_for_committed_predecessor:
            leader.pending = pending
        slot = node.addresses.slot_of(voter.id)
        if slot < 0 or not node.ready(slot, node.world.now_us):
            self._finish(node, leader, pending, REQUEST_TIMED_OUT)
            return
        if leader.pending is None:
            leader.pending = pending
        node.request(slot, ApiVersionsRequest())

    def handle_api_versions(self, node: RaftNode, source: int, correlation: int, response: ApiVersionsResponse) -> None:
        leader = node.leader
        if leader is None or leader.pending is None:
            return
        pending = leader.pending
        if not pending.is_add or pending.offset >= 0 or response.replica[0] != pending.voter.id:
            return
        finalized = node.history.version
        is_able = response.min_kraft_version <= finalized <= response.max_kraft_version
        if not is_able and node.switches.new_voter_supports_kraft_version:
            self._finish(node, leader, pending, INVALID_REQUEST)
            return
        state = leader.observers.get(pending.voter.key)
        if pending.voter.directory == NO_DIRECTORY:
            state = next((state for key, state in leader.observers.items() if key[0] == pending.voter.id), None)
        now_us = node.world.now_us
        caught_up = state is not None and state.last_caught_up_us >= 0 and now_us - state.last_fetch_us <= HOUR_US
        if not caught_up and node.switches.new_voter_has_caught_up:
            self._finish(node, leader, pending, REQUEST_TIMED_OUT)
            return
        voters = leader.voters.adding(pending.voter)
        if not node.switches.one_voter_per_change and len(leader.observers) > 1:
            others = [key for key in sorted(leader.observers) if key != pending.voter.key]
            voters = voters.adding(Voter(*others[0]))
        self._append_voters(node, leader, pending, voters)
        if not pending.ack_when_committed:
            self._answer(node, pending, NONE)

    def handle_remove(self, node: RaftNode, source: int, correlation: int, request: RemoveRaftVoterRequest) -> None:
        error = leader_only_error(node, request.cluster_id, node.epoch) or self._change_error(node)
        leader = node.leader
        key = request.voter
        if not error and leader is not None:
            if not node.switches.removal_names_a_directory:
                key = next((voter_key for voter_key in leader.voters.keys if voter_key[0] == key[0]), key)
            is_last = len(leader.voters) == 1 and node.switches.last_voter_stays
            if key not in leader.voters.keys or is_last:
                error = VOTER_NOT_FOUND
        if error or leader is None:
            node.reply(source, correlation, VoterChangeResponse(error, node.leader_id, node.epoch))
            return
        deadline_us = node.world.now_us + request.timeout_us
        pending = PendingChange(False, Voter(*request.voter), source, correlation, deadline_us, True)
        self._append_voters(node, leader, pending, leader.voters.removing(key))

    def handle_update(self, node: RaftNode, source: int, correlation: int, request: UpdateRaftVoterRequest) -> None:
        error = leader_only_error(node, request.cluster_id, request.current_leader_epoch)
        leader = node.leader
        if not error and leader is not None:
            error = self._update(node, leader, request.voter)
        node.reply(source, correlation, VoterChangeResponse(error, node.leader_id, node.epoch))

    def _update(self, node: RaftNode, leader: LeaderState, voter: Voter) -> str:
        if node.history.version == 0:
            if voter.id not in leader.voters.ids:
                return VOTER_NOT_FOUND
            leader.known_directories[voter.id] = leader.updated_voters[voter.id] = voter
            return NONE
        error = self._change_error(node)
        if error:
            return error
        if voter.key not in leader.voters.keys:
            return VOTER_NOT_FOUND
        if not voter.min_version <= node.history.version <= voter.max_version:
            return INVALID_REQUEST
        append(node, (("KRAFT_VOTERS", 0, leader.voters.replacing(voter).fields()),), is_control=True)
        return NONE

    def _change_error(self, node: RaftNode) -> str:
        """What AddVoterHandler and RemoveVoterHandler check first, in their order."""
        leader = node.leader
        if leader is None:
            return NONE
        switches = node.switches
        if leader.pending is not None and switches.change_waits_for_committed_predecessor:
            return REQUEST_TIMED_OUT
        if leader.high_watermark < 0 and switches.change_waits_for_epoch_commit:
            return REQUEST_TIMED_OUT
        if node.history.version == 0 and switches.changes_need_kraft_version:
            return UNSUPPORTED_VERSION
        offset = node.history.last_offset
        mark = max(leader.high_watermark, node.high_watermark)
        if offset is None:
            return REQUEST_TIMED_OUT if switches.changes_need_kraft_version else NONE
        uncommitted = offset >= (leader.high_watermark if switches.change_waits_for_epoch_commit else mark)
        if uncommitted and switches.change_waits_for_committed_predecessor:
            return REQUEST_TIMED_OUT
        return NONE

    def _append_voters(self, node: RaftNode, leader: LeaderState, pending: PendingChange, voters: VoterSet) -> None:
        pending.offset = leader.next_offset
        leader.pending = pending
        append(node, (("KRAFT_VOTERS", 0, voters.fields()),), is_control=True)

    def _finish(self, node: RaftNode, leader: LeaderState, pending: PendingChange, error: str) -> None:
        if leader.pending is pending:
            leader.pending = None
        self._answer(node, pending, error)

    def _answer(self, node: RaftNode, pending: PendingChange, error: str) -> None:
        node.reply(pending.source, pending.correlation, VoterChangeResponse(error, node.leader_id, node.epoch))

    def upgrade_kraft_version(self, node: RaftNode) -> str:
        """UpdateFeatures(kraft.version=1) on the leader of a static quorum (4.1 and later)."""
        leader = node.leader
        switches = node.switches
        if leader is None or not (leader.writable or not switches.upgrade_waits_for_epoch_commit):
            return REQUEST_TIMED_OUT
        if node.history.version >= 1:
            return NONE
        known = dict(leader.updated_voters)
        known[node.id] = _as_voter(node)
        able = all(voter.min_version <= 1 <= voter.max_version for voter in known.values())
        if (tuple(sorted(known)) != leader.voters.ids or not able) and switches.upgrade_needs_every_voter:
            return INVALID_UPDATE_VERSION
        voters = VoterSet(known[id] for id in sorted(known))  # noqa: A001
        records = (kraft_version_record(1), ("KRAFT_VOTERS", 0, voters.fields()))
        if switches.upgrade_is_one_batch:
            append(node, records, is_control=True)
        else:
            for record in records:
                append(node, (record,), is_control=True)
        return NONE


def _as_voter(node: RaftNode) -> Voter:
    """This node's voter entry, as AddRaftVoter and UpdateRaftVoter send it."""
    newest, further = node.addresses.max_kraft_version(node.id), node.addresses.further_endpoints_of(node.id)
    return Voter(node.id, node.directory, *node.endpoint, max_version=newest, further=further)


def kraft_version_record(version: int) -> Record:
    return ("KRAFT_VERSION", 0, {"version": 0, "kRaftVersion": version})


def _with_endpoints_of(voter: Voter, node: RaftNode) -> Voter:
    further = node.addresses.further_endpoints_of(node.id)
    return Voter(
        voter.id, voter.directory, *node.endpoint, voter.listener, voter.min_version, voter.max_version, further
    )


def _answer_api_versions(
    membership: Kip853, node: RaftNode, source: int, correlation: int, request: ApiVersionsRequest
) -> None:
    node.reply(source, correlation, ApiVersionsResponse(node.key, 0, node.addresses.max_kraft_version(node.id)))


def _answered(membership: Kip853, node: RaftNode, source: int, correlation: int, response: VoterChangeResponse) -> None:
    """A voter whose update was refused sends it again after a while (FollowerState.updateVoterSetPeriodTimer)."""
    if response.error and node.is_voter and node.history.version:
        node.update_again_at_us = node.world.now_us + node.settings.fetch_timeout_us


_HANDLERS: dict[type, Callable[[Kip853, RaftNode, int, int, Any], None]] = {
    AddRaftVoterRequest: Kip853.handle_add,
    RemoveRaftVoterRequest: Kip853.handle_remove,
    UpdateRaftVoterRequest: Kip853.handle_update,
    ApiVersionsRequest: _answer_api_versions,
    ApiVersionsResponse: Kip853.handle_api_versions,
    VoterChangeResponse: _answered,
}
