"""The committed interval [low, high] of a metadata log, from captured disks alone, each bound with its evidence.

low ≤ what is committed at the end of reading; what was committed at the start of reading ≤ high. The rules are those of
the project's design, which were checked on random histories; the acknowledgement rules stand in `evidence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kraft_audit.replay.evidence import (
    Branch,
    ClusterEvidence,
    Replica,
    acknowledgements,
    majority,
)
from kraft_audit.replay.upper_bound import sets_from, upper_bound
from kraft_audit.replay.voters import VoterSet, in_effect


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything below `offset` on the branch that holds `epoch` at `offset` - 1 is committed."""

    offset: int
    epoch: int
    text: str


@dataclass(frozen=True, slots=True)
class CommittedInterval:
    """What captures prove; `high` is None where they bound nothing, `canonical` where there is no canonical log."""

    low: int
    low_epoch: int
    high: int | None
    high_epoch: int | None
    canonical: Branch | None
    low_evidence: tuple[str, ...]
    high_evidence: tuple[str, ...]
    undecided: str | None
    voters: VoterSet | None
    captured_voters: tuple[int, ...]
    read_from_ms: int
    read_to_ms: int


def committed_interval(evidence: ClusterEvidence) -> CommittedInterval:
    """The interval that one round of captures (and an earlier low) shows."""
    proofs = list(proofs_of_commitment(evidence))
    best = _best(proofs)
    low_evidence = tuple(dict.fromkeys(proof.text for proof in proofs if proof.offset == best.offset)) or (best.text,)
    canonical = canonical_branch(evidence, best)
    bound = upper_bound(evidence, lambda part: (best if part is evidence else _best(proofs_of_commitment(part))).offset)
    high, high_epoch, high_evidence = bound.offset, bound.epoch, list(bound.reasons)
    voters = None if canonical is None else in_effect(canonical.voter_sets, canonical.end[1])
    captured = [] if voters is None else [replica.node_id for replica in evidence.captured(voters)]
    return CommittedInterval(
        low=best.offset,
        low_epoch=best.epoch,
        high=high,
        high_epoch=high_epoch,
        canonical=canonical,
        low_evidence=low_evidence,
        high_evidence=tuple(high_evidence),
        undecided=_undecided(evidence, best.offset, high, voters, captured, high_evidence),
        voters=voters,
        captured_voters=tuple(sorted(set(captured))),
        read_from_ms=min((r.read_from_ms for r in evidence.replicas), default=0),
        read_to_ms=max((r.read_to_ms for r in evidence.replicas), default=0),
    )


def _best(proofs: Iterable[Proof]) -> Proof:
    """`low`: the proof that reaches furthest."""
    return max(proofs, key=lambda proof: proof.offset, default=Proof(0, -1, "no record is proven committed"))


def proofs_of_commitment(evidence: ClusterEvidence) -> Iterator[Proof]:
    """Everything that proves a prefix committed; the largest is `low`."""
    if evidence.earlier_low is not None:
        offset, epoch = evidence.earlier_low
        yield Proof(offset, epoch, f"an earlier capture proved {offset}")
    for replica in evidence.replicas:
        for offset, epoch in replica.snapshots:
            yield Proof(offset, epoch, f"{replica.name} has a snapshot that ends at {offset}")
    for branch in evidence.branches:
        if branch.first_batch_ends:
            end, epoch = max((end, epoch) for epoch, end in branch.first_batch_ends.items())
            yield Proof(
                end, epoch, f"metadata was written in epoch {epoch} behind its first batch, which ends at {end}"
            )
        # What an earlier epoch proves lies below what a later one does: logs of 10,000 epochs exist.
        starts = {epoch: start.offset for epoch, start in branch.leaders.items()} | _begun_below(evidence, branch)
        epochs = starts.keys() & branch.run_of_epoch.keys() - evidence.split_epochs
        for epoch in sorted(epochs, reverse=True):
            proofs = list(_acknowledged_proofs(evidence, branch, epoch, starts[epoch]))
            yield from proofs
            if proofs:
                break


def _begun_below(evidence: ClusterEvidence, branch: Branch) -> dict[int, int]:
    """The epoch that a cleaned-up log begins in, whose LeaderChange is gone with what a snapshot holds.

    A LeaderChange is its epoch's first record, so it lies below the end of a snapshot whose last record is of that
    epoch: the offset told is that of this last record.
    """
    if not branch.runs or branch.runs[0].epoch in branch.leaders:
        return {}
    first = branch.runs[0]
    ends = [
        offset
        for replica in evidence.replicas
        for offset, epoch in replica.snapshots
        if epoch == first.epoch and first.from_offset <= offset <= first.to_offset
    ]
    return {first.epoch: min(ends) - 1} if ends else {}


def _acknowledged_proofs(evidence: ClusterEvidence, branch: Branch, epoch: int, above: int) -> Iterator[Proof]:
    """What majorities of the sets that an epoch's leader had in effect acknowledged in that epoch.

    `above`: the offset of its LeaderChange, or of a record of the epoch that a snapshot proves committed.
    """
    for voter_set, superseded_at in branch.sets_in_epoch(epoch):
        acks = sorted(acknowledgements(evidence, branch, voter_set, epoch), key=lambda ack: -ack.end_offset)
        needed = majority(len(voter_set.voters))
        if len(acks) < needed:
            continue
        # Of a record that a later set's record follows, this set was in effect when it was written or since.
        end = min(acks[needed - 1].end_offset, branch.run_of_epoch[epoch].to_offset)
        if superseded_at is not None:
            end = min(end, superseded_at)
        if end > above:
            reasons = "; ".join(ack.reason for ack in acks[:needed])
            yield Proof(end, epoch, f"{needed} of {len(voter_set.voters)} voters: {reasons}")


def canonical_branch(evidence: ClusterEvidence, low: Proof) -> Branch | None:
    """The branch with the highest (last epoch, end offset) among captured voters; None where two claim it.

    Voters are those of any set seen from `low` on, and a removed leader that still leads; observers count only where no
    voter was captured.
    """
    voters = [replica for replica in evidence.replicas if _votes(evidence, replica, low.offset)]
    candidates = voters or list(evidence.replicas)
    if not candidates:
        return None
    last_epoch, end_offset = max(replica.end for replica in candidates)
    is_short = (last_epoch, end_offset) < (low.epoch, low.offset) or end_offset < low.offset
    if is_short and (evidence.earlier_low is None or end_offset >= evidence.earlier_low[0]):
        # What proves low was read later than the voters: those who hold it show the log that it stands on.
        last_epoch, end_offset = max(replica.end for replica in evidence.replicas)
    if last_epoch in evidence.split_epochs or end_offset < low.offset:
        return None
    for branch in evidence.branches:
        run = branch.run_of_epoch.get(last_epoch)
        if run is not None and run.to_offset >= end_offset:
            held = branch.epoch_at(low.offset - 1)
            return branch if held is None or held == low.epoch else None
    return None


def _votes(evidence: ClusterEvidence, replica: Replica, low: int) -> bool:
    for branch in evidence.branches:
        for voter_set in sets_from(branch, low):
            if voter_set.holds(replica.node_id, replica.directory_id):
                return True
    start = evidence.leaders.get(replica.end[0])
    return start is not None and start.leader_id == replica.node_id


def _undecided(
    evidence: ClusterEvidence,
    low: int,
    high: int | None,
    voters: VoterSet | None,
    captured: list[int],
    high_evidence: list[str],
) -> str | None:
    """Why the bounds do not meet, in one line."""
    if high == low:
        return None
    if high is None:
        return f"no upper bound: {high_evidence[-1] if high_evidence else 'nothing was captured'}"
    if low > high:
        return "the captures are of different moments"
    missing = [] if voters is None else sorted(voters.ids - set(captured))
    if missing:
        return f"voters not captured: {', '.join(map(str, missing))}"
    silent = [replica.name for replica in evidence.replicas if replica.persisted is None]
    if silent:
        return f"no quorum-state of {', '.join(silent)}"
    return "the records between are acknowledged by too few to be proven; a voter set that nobody saw may have done it"


def watermark_row(interval: CommittedInterval, *, capture_number: int = 0, capture: str = "") -> dict[str, Any]:
    """A row of `watermarks`."""
    end = None if interval.canonical is None else interval.canonical.end
    voters = () if interval.voters is None else interval.voters.voters
    return {
        "capture_number": capture_number,
        "capture": capture,
        "read_from_ms": interval.read_from_ms,
        "read_to_ms": interval.read_to_ms,
        "low": interval.low,
        "low_epoch": interval.low_epoch,
        "high": interval.high,
        "high_epoch": interval.high_epoch,
        "canonical_epoch": None if end is None else end[0],
        "canonical_end_offset": None if end is None else end[1],
        "voters": [{"voter_id": voter.voter_id, "directory_id": voter.directory_id} for voter in voters],
        "captured_voters": list(interval.captured_voters),
        "low_evidence": list(interval.low_evidence),
        "high_evidence": list(interval.high_evidence),
        "undecided": interval.undecided,
    }
