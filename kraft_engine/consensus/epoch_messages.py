"""BeginQuorumEpoch and EndQuorumEpoch, and which nodes answer a request of an election (KIP-595, KIP-853)."""

from __future__ import annotations

from kraft_engine.consensus import raft
from kraft_engine.consensus.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INCONSISTENT_VOTER_SET,
    NONE,
    NOT_VOTER,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    KeyedEndQuorumEpochRequest,
)
from kraft_engine.consensus.raft import FOLLOWER, RESIGNED, RaftNode
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.consensus.serving import is_stranger
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey


def names_me(node: RaftNode, voter: ReplicaKey) -> bool:
    """Whether the request names this node as its voter; an unknown directory id matches on id alone."""
    return voter[0] == node.id and voter[1] in (NO_DIRECTORY, node.directory)


def outsider_error(node: RaftNode, sender_id: int) -> str:
    """Why this node answers no such request of that sender: up to 3.7, where either of them is no voter by its own set.

    The epoch of a request that is refused so is not adopted (KafkaRaftClient.validateVoterOnlyRequest, 3.3 to 3.7).
    """
    if not node.settings.elects_among_voters_only:
        return NONE
    voters = node.voters
    is_among_voters = voters is not None and node.is_voter and sender_id in voters.ids
    return NONE if is_among_voters else INCONSISTENT_VOTER_SET


def _learn_epoch(node: RaftNode, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> str:
    """Adopts the epoch and the leader that a request names. Returns why it does not, NONE where it does."""
    if is_stranger(node, request.cluster_id):
        return INCONSISTENT_CLUSTER_ID
    if request.leader_epoch < node.epoch:
        return FENCED_LEADER_EPOCH
    if error := outsider_error(node, request.leader_id):
        return error
    node.learn(request.leader_epoch, request.leader_id)
    return NONE


def handle_begin_epoch(node: RaftNode, source: int, correlation: int, request: BeginQuorumEpochRequest) -> None:
    error = _learn_epoch(node, request)
    if error == NONE:
        if not names_me(node, request.voter):
            error = node.membership.wrong_voter_error
        elif node.membership.refuses_epochs_as_observer and not node.is_voter:
            error = NOT_VOTER
    node.reply(source, correlation, BeginQuorumEpochResponse(error, node.leader_id, node.epoch))


def handle_begin_epoch_response(
    node: RaftNode, source: int, correlation: int, response: BeginQuorumEpochResponse
) -> None:
    node.learn(response.leader_epoch, response.leader_id)
    # NOT_VOTER is asked again when the next BeginQuorumEpoch is due.
    if node.leader is not None and response.error not in (NONE, NOT_VOTER):
        node.back_off(source)


def handle_end_epoch(node: RaftNode, source: int, correlation: int, request: EndQuorumEpochRequest) -> None:
    error = _learn_epoch(node, request)
    if error == NONE:
        if isinstance(request, KeyedEndQuorumEpochRequest) and not names_me(node, request.voter):
            # KIP-856, EndQuorumEpoch, Handling: "INVALID_REQUEST when the voter ID and UUID doesn't match."
            error = node.membership.wrong_voter_error
        elif node.role == FOLLOWER and node.leader_id == request.leader_id and node.is_voter:
            _prepare_election(node, request)
        elif node.membership.refuses_epochs_as_observer and not node.is_voter:
            error = NOT_VOTER
    node.reply(source, correlation, EndQuorumEpochResponse(error, node.leader_id, node.epoch))


def _prepare_election(node: RaftNode, request: EndQuorumEpochRequest) -> None:
    """The first preferred successor stands at once, the others after a back-off by their place."""
    node.fetched_once = False
    try:
        position = request.preferred_candidates.index(node.key)
    except ValueError:
        position = len(request.preferred_candidates)
    backoff_us = _successor_backoff_us(position, len(request.preferred_candidates), node.settings)
    node.deadline_us = min(node.deadline_us, node.world.now_us + backoff_us)


def _successor_backoff_us(position: int, count: int, settings: Settings) -> int:
    """None for the first, then doubling up to the limit (KafkaRaftClient.strictExponentialElectionBackoffMs)."""
    limit_us = settings.election_backoff_max_us
    if position == 0 and count:
        return 0
    if position >= count:
        return limit_us
    return min(limit_us, (limit_us >> (count - 1)) << (position - 1))


def handle_end_epoch_response(node: RaftNode, source: int, correlation: int, response: EndQuorumEpochResponse) -> None:
    is_answered = response.error in (NONE, NOT_VOTER) or _is_unreachable_voter(node, source, response.error)
    if not is_answered and response.leader_epoch <= node.epoch:
        node.back_off(source)
        return
    node.learn(response.leader_epoch, response.leader_id)
    if node.role == RESIGNED:
        node.in_flight[source] = (-1, raft.NEVER)


def _is_unreachable_voter(node: RaftNode, source: int, error: str) -> bool:
    """Whether the address belongs to another replica than the voter, and to no second voter: asking again is futile."""
    voters = node.voters
    if error != node.membership.wrong_voter_error or not node.membership.end_epoch_names_voter or voters is None:
        return False
    return sum(node.addresses.slot_of(id) == source for id in voters.ids) < 2  # noqa: A001


raft.HANDLERS.update(
    {
        BeginQuorumEpochRequest: handle_begin_epoch,
        BeginQuorumEpochResponse: handle_begin_epoch_response,
        EndQuorumEpochRequest: handle_end_epoch,
        KeyedEndQuorumEpochRequest: handle_end_epoch,
        EndQuorumEpochResponse: handle_end_epoch_response,
    }
)
