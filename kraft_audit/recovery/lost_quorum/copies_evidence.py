"""What the copies of a log prove together where a controller quorum is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from kraft_audit.capture.plan import ClusterPlan, Identity
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.committed_interval import Proof, proofs_of_commitment
from kraft_audit.quorum.quorum_evidence import EpochRun, LogChain, QuorumEvidence
from kraft_audit.quorum.rounds import ProvenRound, newest_voters, round_evidence


def is_last_round(survey: Survey, rounds: Sequence[ProvenRound]) -> bool:
    """Whether no more was written after the newest round, as far as captures show it.

    A lake's copies say nothing of that, nor does a round that nothing proves to be later than another one.
    """
    *earlier, newest = rounds
    if survey.replicas[newest.replicas[0]].plan.is_archived:
        return False
    on_disks = {each.number for each in earlier if not survey.replicas[each.replicas[0]].plan.is_archived}
    return on_disks <= newest.follows


def all_evidence(survey: Survey, plan: ClusterPlan, rounds: Sequence[ProvenRound]) -> QuorumEvidence:
    """What the disks of the newest round say, and each earlier capture that reaches further than its disk does now.

    Whatever was committed stays so, so the earlier rounds' bounds count too.
    """
    newest = rounds[-1]
    furthest: dict[Identity, tuple[tuple[int, int], int]] = {}
    for captured in rounds:
        for number in captured.replicas:
            end = survey.ends[number]
            reach = (end.last_epoch, end.end_offset), number
            identity = survey.replicas[number].plan.identity
            if identity not in furthest or reach[0] >= furthest[identity][0]:
                furthest[identity] = reach
    numbers = {*newest.replicas, *(number for _, number in furthest.values())}
    lows = [(each.interval.low, each.interval.low_epoch) for each in rounds if each.interval.low > 0]
    return round_evidence(survey, plan, sorted(numbers), earlier_low=max(lows, default=None))


def chain_of_snapshot(survey: Survey, plan: ClusterPlan, newest: ProvenRound) -> LogChain | None:
    """Where no log is left, what the newest snapshot says: a checkpoint holds committed records alone."""
    held = [each for each in survey.complete_snapshots if set(each.replicas) & set(newest.replicas)]
    snapshot = max(held, key=lambda each: (each.epoch, each.end_offset), default=None)
    voters = newest_voters(survey, plan, newest)
    if snapshot is None or voters is None:
        return None
    last = EpochRun(snapshot.epoch, snapshot.end_offset - 1, snapshot.end_offset, snapshot.timestamp_ms or 0)
    return LogChain((last,), voter_sets=(voters,))


def committed_on_two_branches(evidence: QuorumEvidence) -> tuple[Proof, Proof] | None:
    """Two proofs of commitment that no one log can satisfy; None where one log satisfies all."""
    proofs = {(proof.offset, proof.epoch): proof for proof in proofs_of_commitment(evidence) if proof.offset > 0}
    for first, second in combinations(sorted(proofs), 2):
        chains = evidence.chains
        if chains and not any(_may_hold(chain, *first) and _may_hold(chain, *second) for chain in chains):
            return proofs[first], proofs[second]
    return None


def _may_hold(chain: LogChain, offset: int, epoch: int) -> bool:
    """Whether a log that begins with this chain may have a record of this epoch before this offset."""
    if offset > chain.end[1]:
        return epoch >= chain.end[0]
    known = chain.epoch_at(offset - 1)
    return known is None or known == epoch
