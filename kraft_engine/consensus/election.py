"""Elections: pre-votes, votes, resignation (KIP-595, KIP-996)."""

from __future__ import annotations

from kraft_engine.consensus import raft
from kraft_engine.consensus.epoch_messages import names_me, outsider_error
from kraft_engine.consensus.follower import fetch_from_someone
from kraft_engine.consensus.leader import become_leader
from kraft_engine.consensus.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    EndQuorumEpochRequest,
    KeyedEndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from kraft_engine.consensus.raft import CANDIDATE, FOLLOWER, LEADER, PROSPECTIVE, RESIGNED, UNATTACHED, RaftNode
from kraft_engine.consensus.serving import is_stranger
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, VoterSet


def log_is_up_to_date(node: RaftNode, last_epoch: int, last_offset: int) -> bool:
    """Whether the candidate's log is at least as long as this node's, by (epoch, end offset)."""
    if not node.switches.voter_log_must_be_up_to_date:
        return True
    return (last_epoch, last_offset) >= (node.log.last_epoch, node.log.end_offset)


def handle_vote(node: RaftNode, source: int, correlation: int, request: VoteRequest) -> None:
    switches = node.switches
    error = _vote_request_error(node, request)
    granted = False
    if request.replica_epoch > node.epoch and not error:
        node.witness.saw_epoch(node, request.replica_epoch)
    if not error:
        if request.replica_epoch > node.epoch and not _ignores_epoch(node):
            node.become_unattached(request.replica_epoch)
        if not names_me(node, request.voter) and switches.votes_name_their_voter:
            error = node.membership.wrong_voter_error
        elif node.membership.may_vote_for(node, request.replica):
            granted = _grants(node, request)
            if granted and not request.pre_vote:
                _persist_vote(node, request)
        else:
            node.membership.refused(node, request.replica)
    voter = node.key if switches.votes_name_their_voter else request.voter
    hides_epoch = granted and not switches.voter_fences_old_epochs
    epoch = request.replica_epoch if hides_epoch else node.epoch
    response = VoteResponse(error, node.leader_id, epoch, granted, request.pre_vote, request.replica_epoch, voter)
    node.reply(source, correlation, response)


def _ignores_epoch(node: RaftNode) -> bool:
    switches = node.switches
    return not (switches.step_down_at_higher_epoch or node.role != LEADER) or not switches.voter_adopts_higher_epoch


def _vote_request_error(node: RaftNode, request: VoteRequest) -> str:
    if is_stranger(node, request.cluster_id):
        return INCONSISTENT_CLUSTER_ID
    newest_legal_epoch = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
    strict = node.switches.epoch_grows_with_each_candidacy
    if request.last_offset < 0 or request.last_epoch < 0 or (strict and request.last_epoch > newest_legal_epoch):
        return INVALID_REQUEST
    if request.replica_epoch < node.epoch and node.switches.voter_fences_old_epochs:
        return FENCED_LEADER_EPOCH
    if request.pre_vote and not node.settings.pre_vote:
        return UNSUPPORTED_VERSION
    return outsider_error(node, request.replica[0])


def _grants(node: RaftNode, request: VoteRequest) -> bool:
    """By the receiver's state, for pre-votes and votes (KafkaRaftClient.handleVoteRequest, KIP-996)."""
    up_to_date = log_is_up_to_date(node, request.last_epoch, request.last_offset)
    role = node.role
    switches = node.switches
    if role == LEADER:
        return not (request.pre_vote or switches.leader_grants_no_vote)
    if request.pre_vote:
        return up_to_date and not (role == FOLLOWER and node.fetched_once)
    if role == FOLLOWER and not switches.follower_grants_no_vote:
        return up_to_date
    if role in (UNATTACHED, PROSPECTIVE):
        voted = node.voted
        if voted is not None and switches.one_vote_per_epoch:
            same = voted[1] in (NO_DIRECTORY, request.replica[1]) or not switches.vote_is_for_one_directory
            return voted[0] == request.replica[0] and same
        return (node.leader_id < 0 or not switches.vote_needs_no_known_leader) and up_to_date
    if role == RESIGNED:
        return not switches.resigned_grants_no_vote
    return up_to_date and not (switches.one_vote_per_epoch and switches.candidate_grants_no_vote)


def _persist_vote(node: RaftNode, request: VoteRequest) -> None:
    """The vote is on disk before the answer leaves."""
    if node.voted == request.replica:
        return
    node.voted = request.replica
    node.persist(voted=True)
    if node.role not in (UNATTACHED, PROSPECTIVE):
        node.enter(UNATTACHED, node.random_election_timeout_us())
    else:
        node.deadline_us = node.world.now_us + node.random_election_timeout_us()


def handle_vote_response(node: RaftNode, source: int, correlation: int, response: VoteResponse) -> None:
    if response.error == UNSUPPORTED_VERSION and node.role == PROSPECTIVE:
        node.become_candidate()
        return
    if response.leader_epoch > node.epoch or (response.leader_id >= 0 and response.leader_epoch == node.epoch):
        before = (node.role, node.epoch)
        if not (node.role == PROSPECTIVE and response.leader_epoch == node.epoch and node.leader_id >= 0):
            node.learn(response.leader_epoch, response.leader_id)
        if (node.role, node.epoch) != before:
            return
    if response.error:
        node.back_off(source)
        return
    expected = PROSPECTIVE if response.pre_vote else CANDIDATE
    voters = node.voters
    is_late = response.replica_epoch != node.epoch and node.switches.votes_answer_this_epoch
    if node.role != expected or is_late or voters is None:
        return
    key = _voter_key(node, response.voter)
    if key is None:
        return
    (node.granted if response.granted else node.rejected)[key] = True
    _count(node)


def _voter_key(node: RaftNode, voter: ReplicaKey) -> ReplicaKey | None:
    """The key under which a vote counts: that of the candidate's voter set; None for one outside it."""
    voters = node.voters
    if voters is None:
        return None
    if voter in voters.keys or not node.switches.only_voters_are_counted:
        return voter
    entry = voters.voter(voter[0])
    if entry is None:
        return None
    return entry.key if entry.directory == NO_DIRECTORY else None


def _count(node: RaftNode) -> None:
    voters = node.voters
    if voters is None:
        return
    own = node.key
    granted = sum(1 for key in voters.keys if key in node.granted or (key[0] == own[0] and key[1] == NO_DIRECTORY))
    if not node.switches.only_voters_are_counted:
        granted = len(node.granted)
    rejected = sum(1 for key in voters.keys if key in node.rejected)
    if granted >= voters.majority:
        if node.role == PROSPECTIVE:
            node.become_candidate()
        else:
            become_leader(node)
    elif rejected >= voters.majority:
        if node.role == PROSPECTIVE:
            lose_pre_vote(node)
        elif not node.settings.pre_vote:
            back_off_candidacy(node)


def back_off_candidacy(node: RaftNode) -> None:
    """Before pre-vote, a candidate that lost or waited in vain stands again after a random while, longer each time.

    (KafkaRaftClient.binaryExponentialElectionBackoffMs, 3.9.) From 4.0 on it waits until its election timer ends.
    """
    if node.backing_off_until_us != raft.NEVER:
        return
    slots = 2 << min(node.candidacies - 1, 20)
    backoff_us = min(100_000 * node.world.chance.below(slots), node.settings.election_backoff_max_us)
    node.backing_off_until_us = node.world.now_us + backoff_us


def lose_pre_vote(node: RaftNode) -> None:
    """Back to the leader that it knew, else unattached; the epoch stays."""
    if node.had_leader_id >= 0:
        node.become_follower(node.epoch, node.had_leader_id)
    else:
        node.become_unattached(node.epoch)


# Polls


def poll_unattached(node: RaftNode, now_us: int) -> int:
    if node.is_voter or (node.can_become_voter and not node.switches.only_voters_stand):
        if now_us >= node.deadline_us:
            node.become_prospective()
            return raft.POLLS[node.role](node, now_us) if node.role != UNATTACHED else now_us + 1_000_000
        return min(node.deadline_us, fetch_from_someone(node, now_us))
    return fetch_from_someone(node, now_us)


def poll_prospective(node: RaftNode, now_us: int) -> int:
    if now_us >= node.deadline_us or not (node.is_voter or not node.switches.only_voters_stand):
        lose_pre_vote(node)
        return min(node.deadline_us, now_us + node.settings.retry_backoff_us)
    return min(node.deadline_us, _send_votes(node, now_us, pre_vote=True))


def poll_candidate(node: RaftNode, now_us: int) -> int:
    voters = node.voters
    if voters is not None and (len(voters) == 1 or not node.switches.votes_from_a_majority):
        become_leader(node)
        return raft.POLLS[node.role](node, now_us)
    if not node.settings.pre_vote and node.is_voter:
        return _poll_candidate_without_pre_vote(node, now_us)
    if now_us >= node.deadline_us and node.switches.candidate_gives_up:
        if not node.is_voter:
            node.become_unattached(node.epoch)
            return now_us + node.settings.retry_backoff_us
        node.become_prospective()
        return raft.POLLS[node.role](node, now_us)
    return min(_later(node.deadline_us, now_us), _send_votes(node, now_us, pre_vote=False))


def _later(deadline_us: int, now_us: int) -> int:
    return deadline_us if deadline_us > now_us else raft.NEVER


def _poll_candidate_without_pre_vote(node: RaftNode, now_us: int) -> int:
    expired = now_us >= node.deadline_us and node.switches.candidate_gives_up
    if node.backing_off_until_us == raft.NEVER and expired:
        back_off_candidacy(node)
    if now_us >= node.backing_off_until_us:
        node.become_candidate()
        return raft.POLLS[node.role](node, now_us)
    if node.backing_off_until_us != raft.NEVER:
        return node.backing_off_until_us
    return min(_later(node.deadline_us, now_us), _send_votes(node, now_us, pre_vote=False))


def _send_votes(node: RaftNode, now_us: int, *, pre_vote: bool) -> int:
    voters = node.voters
    if voters is None:
        return now_us + 1_000_000
    next_us = raft.NEVER
    log = node.log
    keys = _in_turn(node, voters)
    if not node.switches.only_voters_are_counted:
        keys += tuple((id, NO_DIRECTORY) for id in node.addresses.bootstrap_ids() if id not in voters.ids)  # noqa: A001
    for key in keys:
        if key == node.key or (key[0] == node.id and key[1] == NO_DIRECTORY):
            continue
        if key in node.granted or key in node.rejected:
            continue
        slot = node.addresses.slot_of(key[0])
        if slot < 0 or slot == node.slot:
            continue
        if node.ready(slot, now_us):
            node.request(
                slot,
                VoteRequest(
                    node.settings.cluster_id, key, node.key, node.epoch, log.last_epoch, log.end_offset, pre_vote
                ),
            )
        next_us = min(next_us, node.in_flight[slot][1])
    return next_us


def _in_turn(node: RaftNode, voters: VoterSet) -> tuple[ReplicaKey, ...]:
    """KIP-856: two voters may share an id, and so an address; they take turns."""
    keys = voters.keys
    turn = node.correlation % len(keys) if len(set(voters.ids)) < len(keys) else 0
    return keys[turn:] + keys[:turn]


def poll_resigned(node: RaftNode, now_us: int) -> int:
    """Sends EndQuorumEpoch to the voters; on timeout moves to the next epoch, unattached."""
    if not node.switches.restarted_leader_resigns:
        become_leader(node)
        return raft.POLLS[node.role](node, now_us)
    if now_us >= node.deadline_us:
        node.become_unattached(node.epoch + 1)
        return raft.POLLS[node.role](node, now_us)
    next_us = node.deadline_us
    voters = node.voters
    if voters is None:
        return next_us
    named = node.membership.end_epoch_names_voter
    for key in _in_turn(node, voters) if named else voters.keys:
        slot = node.addresses.slot_of(key[0])
        if slot < 0 or slot == node.slot:
            continue
        if node.ready(slot, now_us):
            end_of_epoch = (node.settings.cluster_id, node.id, node.epoch, node.successors, node.endpoint)
            node.request(
                slot, KeyedEndQuorumEpochRequest(*end_of_epoch, key) if named else EndQuorumEpochRequest(*end_of_epoch)
            )
        next_us = min(next_us, node.in_flight[slot][1])
    return next_us


raft.HANDLERS.update(
    {
        VoteRequest: handle_vote,
        VoteResponse: handle_vote_response,
    }
)
raft.POLLS[UNATTACHED] = poll_unattached
raft.POLLS[PROSPECTIVE] = poll_prospective
raft.POLLS[CANDIDATE] = poll_candidate
raft.POLLS[RESIGNED] = poll_resigned
