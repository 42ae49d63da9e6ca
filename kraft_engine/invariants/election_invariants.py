"""Invariants of votes, epochs and roles."""

from __future__ import annotations

from kraft_engine.consensus.raft import CANDIDATE, LEADER, ROLE_NAMES, RaftNode
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, VoterSet
from kraft_engine.invariants.commit_ledger import CommitLedger
from kraft_engine.runs.chronicle import Chronicle
from kraft_engine.world.world import World


class ElectionInvariants(Chronicle):
    """Sees every role, every persisted state, every election."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ledger = CommitLedger()
        self.leaders: dict[int, int] = {}
        self.elections: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.votes_by_id: dict[tuple[int, int], set[int]] = {}
        self.persisted_epochs: dict[ReplicaKey, int] = {}
        # By slot: the offsets of the voter records in its log.
        self.voter_records: dict[int, list[int]] = {}

    def role_changed(self, node: RaftNode) -> None:
        """T StatesMatchRoles, M MonotonicEpoch: the disk holds what a role claims; the voter set is the log's."""
        self.check_count += 1
        self.seen[ROLE_NAMES[node.role]] += 1
        state = node.disk.visible_state
        if (state.epoch if state is not None else 0) != node.epoch:
            self.fail("EpochIsPersisted", f"node {node.id} is in epoch {node.epoch}, its disk in another")
        if node.role == LEADER and (state is None or state.leader_id != node.id):
            self.fail("StatesMatchRoles", f"node {node.id} leads epoch {node.epoch} without having it persisted")
        if node.role == CANDIDATE:
            if state is None or state.voted is None or state.voted[0] != node.id:
                self.fail("StatesMatchRoles", f"node {node.id} stands in epoch {node.epoch} without a persisted vote")
            if not node.is_voter:
                self.fail("OnlyVotersStand", f"node {node.id} stands in epoch {node.epoch} as an observer")
        self._check_history(node)
        self.say(node.slot, f"node {node.id} {ROLE_NAMES[node.role]} epoch {node.epoch} end {node.log.end_offset}")

    def _check_history(self, node: RaftNode) -> None:
        """The latest voter set is that of the newest voter record in the log, committed or not, or the snapshot's.

        A replica of a release up to 4.3 may have passed over some since it cut its log.
        """
        if node.controls_read_to:
            return
        records = self.voter_records.get(node.slot)
        newest = records[-1] if records else None
        last = node.history.last_offset
        from_snapshot = last is not None and self._in_snapshot(node, last) and (newest is None or newest <= last)
        if newest is not None and newest >= node.log.start_offset and last != newest and not from_snapshot:
            self.fail(
                "VoterSetFollowsLog", f"node {node.id} uses the set of offset {last}, its log has one at {newest}"
            )
        if last is not None and last >= node.log.end_offset and last >= 0 and not self._in_snapshot(node, last):
            self.fail("VoterSetFollowsLog", f"node {node.id} uses the set of offset {last}, above its log end")
        snapshot = node.log.latest_snapshot
        if snapshot is not None and snapshot.voters is not None:
            known = node.history.at(snapshot.id[0] - 1)
            if known is None or known.keys != snapshot.voters.keys:
                self.fail("VoterSetFollowsSnapshot", f"node {node.id} uses {known!r} where {snapshot.id} has another")

    @staticmethod
    def _in_snapshot(node: RaftNode, offset: int) -> bool:
        return any(snapshot.id[0] - 1 == offset for snapshot in node.log.snapshots)

    def persisted(self, node: RaftNode) -> None:
        """M MonotonicEpoch; M SingleLeader (T NeverTwoLeadersInSameEpoch); one vote in an epoch."""
        self.check_count += 1
        key = node.key
        epoch = node.epoch
        if epoch < self.persisted_epochs.get(key, 0):
            self.fail("MonotonicEpoch", f"node {node.id} persists epoch {epoch} after {self.persisted_epochs[key]}")
        self.persisted_epochs[key] = epoch
        if node.leader_id >= 0:
            known = self.leaders.setdefault(epoch, node.leader_id)
            if known != node.leader_id:
                self.fail("SingleLeader", f"epoch {epoch} has leaders {known} and {node.leader_id}")
            elected = self.elections.get(epoch)
            if node.leader_id != node.id and (elected is None or elected[0] != node.leader_id):
                self.fail("LeaderWasElected", f"node {node.id} follows {node.leader_id} in epoch {epoch}: {elected}")
        if node.voted is not None:
            self._check_vote(node, node.voted)

    def _check_vote(self, node: RaftNode, voted: ReplicaKey) -> None:
        """One vote an epoch, for one replica; version 0 of quorum-state has no room for the directory."""
        state = node.disk.visible_state
        if state is None or state.version == 0:
            voted = (voted[0], NO_DIRECTORY)
        place = (node.key, node.epoch)
        if place not in self.votes and node.leader_id not in (-1, voted[0]):
            self.fail(
                "NoVoteUnderALeader", f"node {node.id} votes for {voted[0]} in epoch {node.epoch}, which has a leader"
            )
        vote = self.votes.setdefault(place, voted)
        same_directory = NO_DIRECTORY in (vote[1], voted[1]) or vote[1] == voted[1]
        if vote[0] != voted[0] or not same_directory:
            self.fail("OneVotePerEpoch", f"node {node.id} votes for {vote} and {voted} in epoch {node.epoch}")
        if vote[1] == NO_DIRECTORY:
            self.votes[place] = voted
        self.votes_by_id.setdefault((node.id, node.epoch), set()).add(voted[0])

    def elected(self, node: RaftNode, voters: VoterSet, grants: tuple[ReplicaKey, ...]) -> None:
        """Election safety, leader completeness, T ValidVotesRecv."""
        epoch = node.epoch
        earlier = self.elections.get(epoch)
        if earlier is not None:
            self.fail("ElectionSafety", f"epoch {epoch} elects {earlier[0]} and {node.id}")
        self.elections[epoch] = node.key
        self._check_grants(node, voters, grants)
        ledger = self.ledger
        count = ledger.committed_before(epoch)
        if count:
            last = ledger.batches[count - 1]
            mine = node.log.batch_at(last.base_offset)
            if node.log.end_offset < last.end_offset:
                detail = f"leader {node.id} of epoch {epoch} ends at {node.log.end_offset}, committed is {last!r}"
                self.fail("LeaderCompleteness", detail)
            elif mine is not None and mine is not last and last.base_offset >= node.log.start_offset:
                self.fail("LeaderCompleteness", f"leader {node.id} has {mine!r} where {last!r} is committed")
        self._check_history(node)
        ledger.elected(epoch, node.key, node.log.end_offset, voters)
        self.record("elected", epoch=epoch, leader=node.id, start_offset=node.log.end_offset,
                    voters=[list(key) for key in voters.keys])  # fmt: skip

    def _check_grants(self, node: RaftNode, voters: VoterSet, grants: tuple[ReplicaKey, ...]) -> None:
        counted = 0
        for key in voters.keys:
            by_id = key[1] == NO_DIRECTORY
            if key not in grants and not (by_id and any(grant[0] == key[0] for grant in grants)):
                continue
            counted += 1
            if key[0] == node.id:
                continue
            if by_id:
                voted = node.id in self.votes_by_id.get((key[0], node.epoch), ())
            else:
                voted = self.votes.get((key, node.epoch), (-1, NO_DIRECTORY))[0] == node.id
            if not voted:
                self.fail("ValidVotes", f"voter {key[0]} did not vote for {node.id} in epoch {node.epoch}")
        if counted < voters.majority:
            self.fail("MajorityElects", f"{node.id} leads epoch {node.epoch} with {counted} of {len(voters)} votes")
