"""The disks of a quorum's newest captures as elections see them, for `start_safety`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.quorum_evidence import CapturedReplica, LeaderStart, LogChain, QuorumEvidence
from kraft_audit.quorum.rounds import ProvenRound, captured_replicas, proven_rounds
from kraft_audit.quorum.static_voters import QUORUM_VOTERS, static_voters
from kraft_audit.quorum.voter_history import VoterSet, checkpoint_voters, static_set
from kraft_audit.recovery.may_i.compared_captures import disks_gone_back, rival_capture
from kraft_audit.recovery.may_i.electorate import EMPTY_END, DiskDoubt
from kraft_audit.recovery.may_i.start_safety import StartSafety, start_safety
from kraft_codec.files.state_files import EpochEntry


class DynamicQuorumError(Exception):
    """The voters of a quorum above kraft.version 0 are those of its records, whatever configurations say."""

    def __init__(self, kraft_version: int) -> None:
        super().__init__(f"records name the voters at kraft.version {kraft_version}: leave --voters out")


def quorum_disks(
    survey: Survey, plan: ClusterPlan, configured: Collection[int] = ()
) -> tuple[StartSafety | None, str | None]:
    """What the disks of the newest round can do to each other; or None, and why that is not known.

    `configured`: the voters of controller.quorum.voters on every node, by the user's word; empty where nobody says it.
    Raises DynamicQuorumError where records name the voters.
    """
    rounds = proven_rounds(survey, plan)
    if not rounds:
        return None, "no replica of this cluster was read"
    newest = rounds[-1]
    epochs: dict[VoterKey, int] = {}
    ends: dict[VoterKey, tuple[int, int]] = {}
    is_lake = _is_archived(survey, newest)
    of_lake = [each for each in rounds[:-1] if not is_lake and _is_archived(survey, each)]
    others = rounds[len(of_lake) : -1]
    earlier = [each for each in others if each.number in newest.follows]
    for replica in (replica for captured in (*of_lake, *earlier) for replica in captured.evidence.replicas):
        ends[replica.key] = max(ends.get(replica.key, EMPTY_END), replica.end)
        if replica.persisted is not None:
            epochs[replica.key] = max(epochs.get(replica.key, -1), replica.persisted.epoch)
    numbers: dict[VoterKey, list[tuple[int, CapturedReplica]]] = defaultdict(list)
    evidence = [number for number in newest.replicas if survey.replicas[number].is_evidence]
    for number, own in zip(evidence, captured_replicas(survey, plan, evidence), strict=True):
        numbers[own.key].append((number, own))
    sets, shortened = {}, set()
    said = static_set(configured)
    for place, replica in enumerate(newest.evidence.replicas):
        number = next(number for number, own in numbers[replica.key] if own == replica)
        own_set = _own_voters(survey, plan, number, replica)
        if configured and own_set is not None and own_set.kraft_version > 0:
            raise DynamicQuorumError(own_set.kraft_version)
        sets[place] = said if configured else own_set
        held = ends.get(replica.key, EMPTY_END)
        if replica.end < held or held_more(replica, survey.replicas[number].leader_epochs or (), newest.evidence):
            shortened.add(place)
    safety = start_safety(
        newest.evidence,
        newest.interval,
        sets,
        earlier_epochs=epochs,
        shortened=shortened,
        doubts=doubted_disks(survey, newest),
    )
    went_back = disks_gone_back(survey, earlier, newest)
    if safety is None:
        undecided = newest.interval.undecided or "its logs contradict each other"
        return None, ". ".join([undecided, *(disk.fact for disk in went_back)])
    safety = replace(safety, rival=rival_capture(survey, others, newest), went_back=went_back)
    now = said if configured else _named_alike(newest, sets)
    if now is not None:
        safety = _in_effect(safety, now)
    return with_voters(safety, said) if configured else safety, newest.interval.undecided


def with_voters(safety: StartSafety, said: VoterSet) -> StartSafety:
    """The same once every node goes by this configured set."""
    disks = [disk for disk in safety.disks if disk.is_captured or disk.node_id in said.ids]
    configured = (replace(disk, voter_sets=(said,), is_configured=True) for disk in disks)
    return replace(safety, disks=tuple(configured))


def _named_alike(newest: ProvenRound, sets: Mapping[int, VoterSet | None]) -> VoterSet | None:
    """The configured set that all disks of the newest round name, where they name one."""
    named = {
        voter_set.ids: voter_set
        for place, replica in enumerate(newest.evidence.replicas)
        if replica.persisted is not None
        and replica.persisted.current_voters is not None
        and (voter_set := sets[place]) is not None
        and voter_set.is_static
    }
    return next(iter(named.values())) if len(named) == 1 else None


def _in_effect(safety: StartSafety, voter_set: VoterSet) -> StartSafety:
    """The same with this set in effect from the end of the log on."""
    now = replace(voter_set, from_offset=safety.chain.end[1])
    return replace(safety, chain=replace(safety.chain, voter_sets=(*safety.chain.voter_sets, now)))


def doubted_disks(survey: Survey, newest: ProvenRound) -> dict[int, DiskDoubt]:
    """By node, why its disk is no evidence in the newest round.

    A log that is read and empty stands for election as an empty one, whatever the disk held once.
    """
    doubts = _refused(survey, newest)
    for number in newest.replicas:
        replica = survey.replicas[number]
        if replica.log is not None and replica.log.torn is None and replica.log.end_offset == 0:
            continue
        if not replica.trust.counts and replica.plan.node_id is not None:
            reason = replica.doubt or "its log could not be read"
            doubts[replica.plan.node_id] = DiskDoubt(reason, replica.claimed_end or EMPTY_END)
    return doubts


def _refused(survey: Survey, newest: ProvenRound) -> dict[int, DiskDoubt]:
    """The disks in this round whose files name another cluster, where the node has no other disk."""
    number = survey.replicas[newest.replicas[0]].plan.capture_number
    known = {survey.replicas[each].plan.node_id for each in newest.replicas}
    refused = (
        replica.plan.node_id
        for replica in survey.replicas
        if not replica.is_accepted and replica.plan.capture_number == number
    )
    reason = "its files name another cluster"
    return {node_id: DiskDoubt(reason) for node_id in refused if node_id is not None and node_id not in known}


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

    A node without any goes by its configuration, of which quorum-state repeats what was read at the last start; one
    formatted with --no-initial-controllers has none.
    """
    of_log = None if replica.chain is None else replica.chain.voters_at_end
    if of_log is not None and of_log.kraft_version > 0:
        return of_log
    declared = dict(plan.defaults).get(QUORUM_VOTERS)
    if replica.persisted is not None and replica.persisted.current_voters is not None and not declared:
        last_read = replica.persisted.current_voters
        return static_set(last_read) if last_read else None
    if replica.chain is not None:
        return of_log
    own = [snapshot for snapshot in survey.snapshots if number in snapshot.replicas]
    for snapshot in sorted(own, key=lambda snapshot: snapshot.end_offset, reverse=True):
        voters = checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=plan.read_as)
        if voters is not None:
            return voters
    is_dynamic = any(record.name == "KRAFT_VOTERS" for _, record in survey.controls) or any(
        checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch) for snapshot in survey.snapshots
    )
    ids = static_voters(survey, plan).first_of(None, ())
    return None if is_dynamic or not ids else static_set(ids)
