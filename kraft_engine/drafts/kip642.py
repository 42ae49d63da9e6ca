"""KIP-642 as written: arbitrary reassignments of the quorum as chains of single-member steps.

A VoterAssignmentMessage holds the current voters and the target; the leader moves one by one towards it. The text says
nothing of the bug of single-server changes (an assignment appended before the leader's own epoch is committed):
`change_waits_for_epoch_commit` is the fix, and with it off the bug is found.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.leader import append, leader_change
from kraft_engine.consensus.leader_state import LeaderState
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.messages import INVALID_VOTER_KEY, NONE, REQUEST_TIMED_OUT, Response
from kraft_engine.consensus.raft import CANDIDATE, LEADER, NEVER, RaftNode
from kraft_engine.consensus.serving import leader_only_error
from kraft_engine.consensus.voter_sets import ReplicaKey, Voter, VoterSet
from kraft_engine.world.encoding import assignment_fields
from kraft_engine.world.world import MS

REASSIGNMENT_RETRY_US = 100 * MS


class ReassignRequest:
    """AlterPartitionReassignments for the metadata partition; None cancels."""

    __slots__ = ("cluster_id", "target")

    def __init__(self, cluster_id: str, target: frozenset[int] | None) -> None:
        self.cluster_id = cluster_id
        self.target = target


class ReassignResponse(Response):
    __slots__ = ()


class Kip642:
    """Section by section: AlterPartitionReassignments, Reassignment Algorithm, Observer Promotion, Bootstrapping."""

    __slots__ = ()
    name = "kip642"
    wrong_voter_error = INVALID_VOTER_KEY
    votes_with_directory = False
    refuses_epochs_as_observer = False
    end_epoch_names_voter = False

    def refuses_start(self, node: RaftNode) -> str:
        return ""

    def stored_voters(self, node: RaftNode) -> tuple[tuple[int, ...], int]:
        """Reassignment Algorithm: "voters will only persist quorum state changes in `quorum-state` after they have been
        committed. Upon initialization, any uncommitted state changes will be found by scanning forward".

        The scan begins at AppliedOffset, below which the replica knows all to be committed. A replica that does not
        know how far that is yet keeps what it has stored.
        """
        stored = node.disk.visible_state
        applied_offset = stored.applied_offset if stored is not None else 0
        if node.high_watermark > applied_offset:
            voters = node.history.at(node.high_watermark - 1)
            return (voters.ids if voters is not None else ()), node.high_watermark
        if stored is not None:
            return stored.voter_ids, applied_offset
        return (node.static_voters.ids if node.static_voters is not None else ()), 0

    @staticmethod
    def _persist_committed(node: RaftNode) -> None:
        """Writes quorum-state where an assignment has been committed since it was last written."""
        stored = node.disk.visible_state
        applied_offset = stored.applied_offset if stored is not None else 0
        newest = node.history.last_offset
        if newest is None or newest < applied_offset or node.high_watermark <= applied_offset:
            return
        if any(applied_offset <= offset < node.high_watermark for offset, _ in node.history.entries()):
            node.persist()

    def apply(self, node: RaftNode, batch: Batch) -> None:
        """Followers act with the new voters as soon as the entry has been appended."""
        for index, (name, _, fields) in enumerate(batch.records):
            if name != "VOTER_ASSIGNMENT":
                continue
            target = fields["targetVoters"]
            voters = VoterSet(
                (Voter(entry["voterId"]) for entry in fields["currentVoters"]),
                None if target is None else frozenset(entry["voterId"] for entry in target),
            )
            offset = batch.base_offset + index
            node.adopt_voters(offset, voters)
            if node.id not in voters.ids:
                node.downgraded_epoch = -1

    def start_of_epoch(self, node: RaftNode, leader: LeaderState) -> tuple[Record, ...]:
        """The first leader of an empty log writes quorum.voters as the initial assignment."""
        change = leader_change(node, leader)
        if node.log.end_offset == 0:
            return (self._assignment(node, leader.voters.ids, None), change)
        return (change,)

    def may_vote_for(self, node: RaftNode, candidate: ReplicaKey) -> bool:
        """A vote request from a non-voter is rejected."""
        voters = node.voters
        return voters is None or candidate[0] in voters.ids

    def refused(self, node: RaftNode, candidate: ReplicaKey) -> None:
        """The receiver of a non-voter's vote request becomes a candidate itself."""
        if node.is_voter and node.role not in (LEADER, CANDIDATE):
            node.become_candidate()

    def data_allowed(self, node: RaftNode, leader: LeaderState) -> bool:
        return leader.writable

    def high_watermark_moved(self, node: RaftNode, leader: LeaderState) -> None:
        self._persist_committed(node)
        self._mark_removed(node, leader)
        if leader.unanswered:
            self._answer(node, leader)
        self._step(node, leader)

    def poll_leader(self, node: RaftNode, leader: LeaderState, now_us: int) -> int:
        self._step(node, leader)
        return now_us + REASSIGNMENT_RETRY_US if leader.voters.target is not None else NEVER

    def poll_follower(self, node: RaftNode, now_us: int) -> None:
        self._persist_committed(node)

    def handle(self, node: RaftNode, source: int, correlation: int, body: Any) -> bool:
        if not isinstance(body, ReassignRequest):
            return False
        error = leader_only_error(node, body.cluster_id, node.epoch)
        leader = node.leader
        if not error and leader is not None and leader.high_watermark < 0:
            waits = node.switches.change_waits_for_epoch_commit
            error = REQUEST_TIMED_OUT if waits else NONE
        if error or leader is None:
            node.reply(source, correlation, ReassignResponse(error, node.leader_id, node.epoch))
            return True
        if leader.voters.target != body.target:
            # Always possible, while another is under way too: who votes does not change by it.
            append(node, (self._assignment(node, leader.voters.ids, body.target),), is_control=True)
        if node.leader is leader:
            offset = node.history.last_offset
            leader.unanswered.append((-1 if offset is None else offset, source, correlation))
            self._answer(node, leader)
        return True

    @staticmethod
    def _answer(node: RaftNode, leader: LeaderState) -> None:
        """Answers with success once the wanted target is committed."""
        committed = max(leader.high_watermark, node.high_watermark)
        waiting, leader.unanswered = leader.unanswered, []
        for offset, source, correlation in waiting:
            if offset < committed:
                node.reply(source, correlation, ReassignResponse(NONE, node.leader_id, node.epoch))
            else:
                leader.unanswered.append((offset, source, correlation))

    def _may_append(self, node: RaftNode, leader: LeaderState) -> bool:
        if leader.high_watermark < 0 and node.switches.change_waits_for_epoch_commit:
            return False
        offset = node.history.last_offset
        committed = offset is None or offset < node.high_watermark
        return committed or not node.switches.change_waits_for_committed_predecessor

    def _step(self, node: RaftNode, leader: LeaderState) -> None:
        """The next single-member step, once the last one is committed."""
        voters = leader.voters
        target = voters.target
        if target is None or not self._may_append(node, leader):
            return
        current = set(voters.ids)
        new, removing = sorted(target - current), sorted(current - target)
        if not new and not removing:
            append(node, (self._assignment(node, voters.ids, None),), is_control=True)
        elif len(new) >= len(removing):
            self._add_one(node, leader, new)
        elif removing == [node.id]:
            node.witness.note(node, "is the last to be removed and resigns")
            node.resign()
        else:
            leaving = next(id for id in removing if id != node.id)  # noqa: A001
            ids = tuple(sorted(current - {leaving}))
            append(node, (self._assignment(node, ids, target),), is_control=True)

    @staticmethod
    def _mark_removed(node: RaftNode, leader: LeaderState) -> None:
        """Reassignment Algorithm, 5: "we piggy-back on the 'Fetch' to inform the voter to downgrade immediately after
        the new membership gets committed. See the error code `NOT_FOLLOWER`."

        An assignment of an earlier leader that this one commits counts too.
        """
        newest = node.history.last_offset
        if newest is not None and newest >= leader.removals_scanned_to:
            before = node.history.static
            for offset, voters in node.history.entries():
                if before is not None and leader.removals_scanned_to <= offset < leader.high_watermark:
                    leader.no_followers.update(set(before.ids).difference(voters.ids))
                before = voters
            leader.no_followers.difference_update(leader.voters.ids)
        leader.removals_scanned_to = leader.high_watermark

    def _add_one(self, node: RaftNode, leader: LeaderState, new: list[int]) -> None:
        """An observer is promoted when its replication round is shorter than the election timeout."""
        now_us = node.world.now_us
        for key, state in sorted(leader.observers.items()):
            recent = now_us - state.last_caught_up_us < node.settings.election_timeout_us
            if key[0] in new and state.last_caught_up_us >= 0 and recent:
                ids = tuple(sorted({*leader.voters.ids, key[0]}))
                target = leader.voters.target
                append(node, (self._assignment(node, ids, target),), is_control=True)
                return

    @staticmethod
    def _assignment(node: RaftNode, ids: tuple[int, ...], target: frozenset[int] | None) -> Record:
        return ("VOTER_ASSIGNMENT", 0, assignment_fields(node.settings.cluster_id, ids, target))
