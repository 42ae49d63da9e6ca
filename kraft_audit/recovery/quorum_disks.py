"""The disks of a quorum's newest captures as elections see them, for `start_safety`."""

from __future__ import annotations

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.quorum_evidence import QuorumEvidence
from kraft_audit.quorum.rounds import committed_intervals, round_evidence, static_voters
from kraft_audit.quorum.voter_history import BOOTSTRAP_OFFSET, Voter, VoterSet, checkpoint_voters, in_effect
from kraft_audit.recovery.start_safety import StartSafety, start_safety
from kraft_codec.schemas import Dialect


def quorum_disks(survey: Survey, plan: ClusterPlan) -> tuple[StartSafety | None, str | None]:
    """What the disks of the newest round can do to each other; or None, and why that is not known."""
    rounds = committed_intervals(survey, plan)
    if not rounds:
        return None, "no replica of this cluster was read"
    newest = rounds[-1]
    epochs: dict[tuple[int, str | None], int] = {}
    for captured in rounds[:-1]:
        if captured.number in newest.follows:
            for replica in captured.evidence.replicas:
                if replica.persisted is not None:
                    key = (replica.node_id, replica.directory_id)
                    epochs[key] = max(epochs.get(key, -1), replica.persisted.epoch)
    alone = {number: round_evidence(survey, plan, [number]) for number in newest.replicas}
    sets = {}
    for place, replica in enumerate(newest.evidence.replicas):
        number = next(number for number, own in alone.items() if own.replicas[0] == replica)
        sets[place] = _own_voters(survey, plan, number, alone[number])
    safety = start_safety(newest.evidence, newest.interval, sets, earlier_epochs=epochs)
    if safety is None:
        return None, newest.interval.undecided or "its logs contradict each other"
    return safety, newest.interval.undecided


def _own_voters(survey: Survey, plan: ClusterPlan, number: int, evidence: QuorumEvidence) -> VoterSet | None:
    """The set by which a node goes (KRaftControlRecordStateMachine, Kafka 4.3): its own log's or snapshot's newest one.

    A node without any goes by its configuration; one formatted with --no-initial-controllers has none.
    """
    replica = evidence.replicas[0]
    if replica.chain is not None:
        return in_effect(replica.chain.voter_sets, replica.chain.end[1])
    own = [snapshot for snapshot in survey.snapshots if number in snapshot.replicas]
    for snapshot in sorted(own, key=lambda snapshot: snapshot.end_offset, reverse=True):
        found = checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=Dialect(plan.dialect))
        if found is not None:
            return found
    is_dynamic = any(record.name == "KRAFT_VOTERS" for _, record in survey.controls) or any(
        checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch) for snapshot in survey.snapshots
    )
    ids = static_voters(survey, plan)
    if is_dynamic or not ids:
        return None
    return VoterSet(BOOTSTRAP_OFFSET, 0, None, "static", 0, tuple(Voter(voter_id) for voter_id in ids))
