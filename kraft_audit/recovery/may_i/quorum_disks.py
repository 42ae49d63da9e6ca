"""The disks of a quorum's newest captures as elections see them, for `start_safety`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kraft_audit.capture.histories import VoterKey
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.quorum_evidence import CapturedReplica, LeaderStart, LogChain, QuorumEvidence
from kraft_audit.quorum.rounds import ProvenRound, captured_replicas, proven_rounds, static_voters
from kraft_audit.quorum.voter_history import BOOTSTRAP_OFFSET, Voter, VoterSet, checkpoint_voters
from kraft_audit.recovery.may_i.electorate import EMPTY_END
from kraft_audit.recovery.may_i.start_safety import StartSafety, start_safety
from kraft_codec.files.state_files import EpochEntry
from kraft_codec.schemas import Dialect


def quorum_disks(survey: Survey, plan: ClusterPlan) -> tuple[StartSafety | None, str | None]:
    """What the disks of the newest round can do to each other; or None, and why that is not known."""
    rounds = proven_rounds(survey, plan)
    if not rounds:
        return None, "no replica of this cluster was read"
    newest = rounds[-1]
    epochs: dict[VoterKey, int] = {}
    ends: dict[VoterKey, tuple[int, int]] = {}
    is_lake = _is_archived(survey, newest)
    for captured in rounds[:-1]:
        if captured.number in newest.follows or (_is_archived(survey, captured) and not is_lake):
            for replica in captured.evidence.replicas:
                ends[replica.key] = max(ends.get(replica.key, EMPTY_END), replica.end)
                if replica.persisted is not None:
                    epochs[replica.key] = max(epochs.get(replica.key, -1), replica.persisted.epoch)
    numbers: dict[VoterKey, list[tuple[int, CapturedReplica]]] = defaultdict(list)
    for number, own in zip(newest.replicas, captured_replicas(survey, plan, newest.replicas), strict=True):
        numbers[own.key].append((number, own))
    sets, shortened = {}, set()
    for place, replica in enumerate(newest.evidence.replicas):
        number = next(number for number, own in numbers[replica.key] if own == replica)
        sets[place] = _own_voters(survey, plan, number, replica)
        held = ends.get(replica.key, EMPTY_END)
        if replica.end < held or held_more(replica, survey.replicas[number].leader_epochs or (), newest.evidence):
            shortened.add(place)
    safety = start_safety(newest.evidence, newest.interval, sets, earlier_epochs=epochs, shortened=shortened)
    if safety is None:
        return None, newest.interval.undecided or "its logs contradict each other"
    return safety, newest.interval.undecided


def _is_archived(survey: Survey, captured: ProvenRound) -> bool:
    """Whether a round is of a lake: what is read beside it is later."""
    return survey.replicas[captured.replicas[0]].plan.is_archived


def held_more(replica: CapturedReplica, listed: Sequence[EpochEntry], evidence: QuorumEvidence) -> bool:
    """Whether a disk's own files, or a LeaderChange that it wrote, show that its log once went on.

    leader-epoch-checkpoint gets an epoch with its first record; only who leads it may list it before that
    (KafkaRaftClient.onBecomeLeader, Kafka 4.3.0). `listed` are the file's entries.
    """
    end, state = replica.end[1], replica.persisted
    began = None if state is None or replica.node_id not in (state.leader_id, state.voted_id) else (state.epoch, end)
    # A log that is empty after its snapshot may list the epoch that goes on there.
    first = end if replica.runs or end == 0 else end + 1
    if any(entry.start_offset >= first and (entry.epoch, entry.start_offset) != began for entry in listed):
        return True
    return any(
        start.offset >= end and _is_leader(chain, start, replica)
        for chain in evidence.chains
        for start in chain.leaders.values()
    )


def _is_leader(chain: LogChain, start: LeaderStart, replica: CapturedReplica) -> bool:
    elected_in = chain.electing_set(start)
    is_disk = elected_in is None or elected_in.holds(*replica.key)
    return start.leader_id == replica.node_id and is_disk


def _own_voters(survey: Survey, plan: ClusterPlan, number: int, replica: CapturedReplica) -> VoterSet | None:
    """The set by which a node goes (KRaftControlRecordStateMachine, Kafka 4.3): its own log's or snapshot's newest one.

    A node without any goes by its configuration; one formatted with --no-initial-controllers has none.
    """
    if replica.chain is not None:
        return replica.chain.voters_at_end
    own = [snapshot for snapshot in survey.snapshots if number in snapshot.replicas]
    for snapshot in sorted(own, key=lambda snapshot: snapshot.end_offset, reverse=True):
        voters = checkpoint_voters(
            snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=Dialect(plan.dialect)
        )
        if voters is not None:
            return voters
    is_dynamic = any(record.name == "KRAFT_VOTERS" for _, record in survey.controls) or any(
        checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch) for snapshot in survey.snapshots
    )
    ids = static_voters(survey, plan)
    if is_dynamic or not ids:
        return None
    return VoterSet(BOOTSTRAP_OFFSET, 0, None, "static", 0, tuple(Voter(voter_id) for voter_id in ids))
