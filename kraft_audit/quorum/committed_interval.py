"""The committed interval [low, high] of a metadata log, proven by captured disks alone, each bound with its evidence.

low ≤ committed at the end of reading; committed at the start of reading ≤ high. The rules were checked on random
histories of 3 to 5 voters with membership changes. `quorum_evidence` has the rules of acknowledgement.

`high` comes from the records that captured voters lack. A bound that a part of the disks proves holds however many more
were captured, so the least bound of all parts is taken: capturing more disks never widens the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kraft_audit.quorum.open_interval import why_undecided
from kraft_audit.quorum.quorum_evidence import (
    CapturedReplica,
    LogChain,
    QuorumEvidence,
    acknowledgements,
    majority,
)
from kraft_audit.quorum.voter_history import VoterSet, in_effect


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything below `offset` is committed, on the chain whose record at `offset` - 1 is of `epoch`."""

    offset: int
    epoch: int
    text: str


@dataclass(frozen=True, slots=True)
class CommittedInterval:
    """What captures prove. `high` is None without an upper bound, `canonical` None without a canonical log.

    `low_epoch` and `high_epoch` are those of the records before these offsets. `held_low` is `low` without bytes that
    may have been in a page cache alone. The evidence is a sentence for each proof of `low`, and for each record or
    voter set that `high` excludes. `voters` is the set in effect at the canonical log's end, `captured_voters` the ids
    of those whose disk was read. Times are in milliseconds.
    """

    low: int
    low_epoch: int
    held_low: int
    held_low_epoch: int
    high: int | None
    high_epoch: int | None
    canonical: LogChain | None
    low_evidence: tuple[str, ...]
    high_evidence: tuple[str, ...]
    undecided: str | None
    voters: VoterSet | None
    captured_voters: tuple[int, ...]
    read_from_ms: int
    read_to_ms: int


def committed_interval(evidence: QuorumEvidence) -> CommittedInterval:
    """The interval that one round of captures proves, together with an earlier low."""
    proofs = list(proofs_of_commitment(evidence))
    best = _best(proofs)
    low_evidence = tuple(dict.fromkeys(proof.text for proof in proofs if proof.offset == best.offset)) or (best.text,)
    held = best
    if any(replica.is_partly_held for replica in evidence.replicas):
        held = _best(proofs_of_commitment(replace(evidence, counts_unsynced=False)))
    canonical = canonical_chain(evidence, best)
    bound = upper_bound(evidence, lambda part: (best if part is evidence else _best(proofs_of_commitment(part))).offset)
    voters = None if canonical is None else canonical.voters_at_end
    captured = [] if voters is None else [replica.node_id for replica in evidence.captured(voters)]
    return CommittedInterval(
        low=best.offset,
        low_epoch=best.epoch,
        held_low=held.offset,
        held_low_epoch=held.epoch,
        high=bound.offset,
        high_epoch=bound.epoch,
        canonical=canonical,
        low_evidence=low_evidence,
        high_evidence=bound.reasons,
        undecided=why_undecided(evidence, best, bound, canonical, voters),
        voters=voters,
        captured_voters=tuple(sorted(set(captured))),
        read_from_ms=min((r.read_from_ms for r in evidence.replicas), default=0),
        read_to_ms=max((r.read_to_ms for r in evidence.replicas), default=0),
    )


def _best(proofs: Iterable[Proof]) -> Proof:
    """The proof that reaches furthest: `low`."""
    return max(proofs, key=lambda proof: proof.offset, default=Proof(0, -1, "no record is proven committed"))


def proofs_of_commitment(evidence: QuorumEvidence) -> Iterator[Proof]:
    """Every proof that a prefix of the log is committed: snapshots, acknowledgements, an earlier low.

    A metadata record after an epoch's first batch is a proof too: the controller writes none before that batch is
    committed.
    """
    for known, which in ((evidence.earlier_low, "an earlier"), (evidence.known_low, "another")):
        if known is not None:
            offset, epoch = known
            yield Proof(offset, epoch, f"{which} capture proved {offset}")
    for replica in evidence.replicas:
        for offset, epoch in replica.snapshots:
            yield Proof(offset, epoch, f"{replica.name} has a snapshot that ends at {offset}")
    for chain in evidence.chains:
        if chain.first_batch_ends:
            end, epoch = max((end, epoch) for epoch, end in chain.first_batch_ends.items())
            yield Proof(end, epoch, f"metadata was written in epoch {epoch} after its first batch, which ends at {end}")
        # A later epoch proves more than an earlier one. Stop at the first proof: logs of 10,000 epochs exist.
        starts = {epoch: start.offset for epoch, start in chain.leaders.items()} | _begun_below(evidence, chain)
        epochs = starts.keys() & chain.run_of_epoch.keys() - evidence.split_epochs
        for epoch in sorted(epochs, reverse=True):
            proofs = list(_acknowledged_proofs(evidence, chain, epoch, starts[epoch]))
            yield from proofs
            if proofs:
                break


def _begun_below(evidence: QuorumEvidence, chain: LogChain) -> dict[int, int]:
    """The epoch in which a cleaned log begins, and whose LeaderChange was deleted because a snapshot covers it.

    A LeaderChange is its epoch's first record, so it lies below the end of a snapshot whose last record is of that
    epoch: the offset of that last record is returned.
    """
    if not chain.runs or chain.runs[0].epoch in chain.leaders:
        return {}
    first = chain.runs[0]
    ends = [
        offset
        for replica in evidence.replicas
        for offset, epoch in replica.snapshots
        if epoch == first.epoch and first.from_offset <= offset <= first.to_offset
    ]
    return {first.epoch: min(ends) - 1} if ends else {}


def _acknowledged_proofs(evidence: QuorumEvidence, chain: LogChain, epoch: int, above: int) -> Iterator[Proof]:
    """What a majority acknowledged in an epoch, for each set that its leader had in effect.

    `above`: the offset of its LeaderChange, or of a record of the epoch that a snapshot proves committed.
    """
    for voter_set, superseded_at in chain.sets_in_epoch(epoch):
        acks = sorted(acknowledgements(evidence, chain, voter_set, epoch), key=lambda ack: -ack.end_offset)
        needed = majority(len(voter_set.voters))
        if len(acks) < needed:
            continue
        # This set counts only for records before the next one: it was in effect when they were written, or later.
        end = min(acks[needed - 1].end_offset, chain.run_of_epoch[epoch].to_offset)
        if superseded_at is not None:
            end = min(end, superseded_at)
        if end > above:
            reasons = "; ".join(ack.reason for ack in acks[:needed])
            yield Proof(end, epoch, f"{needed} of {len(voter_set.voters)} voters: {reasons}")


def canonical_chain(evidence: QuorumEvidence, low: Proof) -> LogChain | None:
    """The chain with the highest (last epoch, end offset) among captured voters; None where two chains claim it.

    Voters are those of any set from `low` on, and a removed leader that still leads. Observers count where no voter was
    captured, or where every captured voter ends before `low`. None, too, where two leaders wrote the last epoch, where
    no such log reaches `low`, or where the log has another epoch before it.
    """
    voters = [replica for replica in evidence.replicas if _votes(evidence, replica, low.offset)]
    candidates = voters or list(evidence.replicas)
    if not candidates:
        return None
    last_epoch, end_offset = max(replica.end for replica in candidates)
    is_short = (last_epoch, end_offset) < (low.epoch, low.offset) or end_offset < low.offset
    if is_short and (evidence.earlier_low is None or end_offset >= evidence.earlier_low[0]):
        # The proof of low was read later than the voters. Replicas that hold it show the log that it belongs to.
        last_epoch, end_offset = max(replica.end for replica in evidence.replicas)
    if last_epoch in evidence.split_epochs or end_offset < low.offset:
        return None
    for chain in evidence.chains:
        run = chain.run_of_epoch.get(last_epoch)
        if run is not None and run.to_offset >= end_offset:
            held = chain.epoch_at(low.offset - 1)
            return chain if held is None or held == low.epoch else None
    return None


def _votes(evidence: QuorumEvidence, replica: CapturedReplica, low: int) -> bool:
    for chain in evidence.chains:
        for voter_set in sets_from(chain, low):
            if voter_set.holds(*replica.key):
                return True
    start = evidence.leaders.get(replica.end[0])
    return start is not None and start.leader_id == replica.node_id


@dataclass(frozen=True, slots=True)
class UpperBound:
    """Nothing at `offset` or after was committed when reading began; None where there is no bound.

    `epoch` is that of the record before `offset`. `reasons` say why each later record cannot have been committed, or
    why there is no bound. `unbounded_by` is then the chain or voter set without which there might be one.
    """

    offset: int | None
    epoch: int | None
    reasons: tuple[str, ...]
    unbounded_by: LogChain | VoterSet | None = None


def upper_bound(evidence: QuorumEvidence, low_of: Callable[[QuorumEvidence], int]) -> UpperBound:
    """`high` of the committed interval.

    `low_of` gives the offset below which some evidence proves everything committed.
    """
    whole = least = _bound(evidence, low_of(evidence))
    for part in _parts(evidence):
        bound = whole if part is evidence else _bound(part, low_of(part))
        bounded, bound = _bounded(part, bound, low_of)
        if bound.offset is not None and (least.offset is None or bound.offset < least.offset):
            nodes = ", ".join(str(replica.node_id) for replica in bounded.replicas)
            least = UpperBound(bound.offset, bound.epoch, (f"what nodes {nodes} alone prove", *bound.reasons))
    return least


def _bounded(
    part: QuorumEvidence, bound: UpperBound, low_of: Callable[[QuorumEvidence], int]
) -> tuple[QuorumEvidence, UpperBound]:
    """A part without the replicas that leave it unbounded, and its bound."""
    while bound.unbounded_by is not None:
        part = part.of_these(replica for replica in part.replicas if not _shows(replica, bound.unbounded_by))
        bound = _bound(part, low_of(part))
    return part, bound


def _parts(evidence: QuorumEvidence) -> Iterator[QuorumEvidence]:
    """All replicas, then ever fewer: without those whose log reaches past a LeaderChange or voter set.

    Where no such record lies between the ends of two replicas, leaving out the longer one can only widen the bound.
    """
    marks = {(epoch, start.offset) for chain in evidence.chains for epoch, start in chain.leaders.items()}
    marks |= {(known.from_epoch, known.from_offset) for chain in evidence.chains for known in chain.voter_sets}
    ordered = sorted(evidence.replicas, key=lambda replica: _reach(replica), reverse=True)
    above: tuple[int, int] | None = None
    for number, replica in enumerate(ordered):
        reach = _reach(replica)
        if above is None:
            yield evidence
        elif any(reach <= mark < above for mark in marks):
            yield evidence.of_these(ordered[number:])
        above = reach


def _reach(replica: CapturedReplica) -> tuple[int, int]:
    """(last epoch, end offset) of a replica's log or of its newest snapshot, whichever is greater."""
    return max([replica.end, *((epoch, offset) for offset, epoch in replica.snapshots)])


def _shows(replica: CapturedReplica, unbounded_by: LogChain | VoterSet) -> bool:
    if replica.chain is None:
        return False
    if isinstance(unbounded_by, VoterSet):
        return unbounded_by in replica.chain.voter_sets
    return bool(replica.runs) and unbounded_by.run_of_epoch.get(replica.runs[-1].epoch) is not None


def sets_from(chain: LogChain, low: int) -> list[VoterSet]:
    """The sets of a chain from the one in effect at offset `low` - 1 on."""
    current = in_effect(chain.voter_sets, low - 1)
    later = [voter_set for voter_set in chain.voter_sets if voter_set.from_offset >= low]
    return later if current is None else [current, *later]


def _bound(evidence: QuorumEvidence, low: int) -> UpperBound:
    """The upper bound that these disks prove together."""
    # A record of an epoch implies its LeaderChange, which may lie below the log start.
    started = [chain for chain in evidence.chains if chain.runs]
    if not started:
        return UpperBound(None, None, ("no record was captured",))
    chain = max(started, key=lambda candidate: candidate.end)
    newest = max(((epoch, offset) for r in evidence.replicas for offset, epoch in r.snapshots), default=(-1, 0))
    if newest > chain.end:
        reason = f"no log was captured that reaches the snapshot at {newest[1]}, epoch {newest[0]}"
        return UpperBound(None, None, (reason,))
    if evidence.split_epochs:
        return UpperBound(None, None, (f"two histories claim epoch {max(evidence.split_epochs)}",))
    for seen in evidence.chains:
        if _contradicts(seen, chain, low):
            continue
        sets = sets_from(seen, low)
        if not sets:
            return UpperBound(None, None, ("no voter set is known",), seen)
        for voter_set in sets:
            count = len(_voters_that_count(evidence, voter_set))
            if not _blocks(voter_set, count):
                of = f"{count} of the {len(voter_set.voters)} voters of the set at {voter_set.from_offset}"
                return UpperBound(None, None, (f"only {of} were captured",), voter_set)
    reasons: list[str] = []
    for run in reversed(chain.runs):
        highest_offset = _highest_in_epoch(evidence, chain, run.epoch, reasons)
        if highest_offset is not None:
            return UpperBound(highest_offset + 1, chain.epoch_at(highest_offset), tuple(reasons))
    return UpperBound(chain.runs[0].from_offset, None, tuple(reasons))


def _contradicts(seen: LogChain, newest: LogChain, low: int) -> bool:
    """Whether a chain left the newest one below what is committed.

    Every later leader holds what is committed, so the voter sets of such a chain elected none of them.
    """
    last = min(seen.end[1], low) - 1
    own, committed = seen.epoch_at(last), newest.epoch_at(last)
    return own is not None and committed is not None and own != committed


def _highest_in_epoch(evidence: QuorumEvidence, chain: LogChain, epoch: int, reasons: list[str]) -> int | None:
    """The last record of an epoch that may have been committed; None where the whole epoch is excluded."""
    run = chain.run_of_epoch[epoch]
    start = chain.leaders.get(epoch)
    limit = run.to_offset
    marks = [] if start is None else [start.offset]
    if start is not None:
        elected_in = chain.electing_set(start)
        if elected_in is not None and _lacks_majority(evidence, chain, elected_in, start.offset):
            reasons.append(f"too few voters hold the LeaderChange of epoch {epoch} at {start.offset}")
            return None
    sets = chain.sets_in_epoch(epoch)
    for voter_set, _ in sets:
        if voter_set.from_epoch == epoch and run.from_offset <= voter_set.from_offset < limit:
            if _lacks_majority(evidence, chain, voter_set, voter_set.from_offset):
                reasons.append(f"too few voters hold the voter set at {voter_set.from_offset}")
                limit = voter_set.from_offset
                break
            marks.append(voter_set.from_offset)
    seen = [voter_set for voter_set, _ in sets if voter_set.from_offset < run.to_offset]
    for offset in _offsets_to_examine(evidence, chain, run.from_offset, limit, seen):
        if offset in marks or not _is_excluded(evidence, chain, epoch, offset, seen):
            return offset
        reasons.append(f"too few voters hold the record of epoch {epoch} at {offset}")
    held = [mark for mark in marks if mark < limit]
    return max(held, default=None)


def _offsets_to_examine(
    evidence: QuorumEvidence, chain: LogChain, from_offset: int, limit: int, sets: list[VoterSet]
) -> list[int]:
    """The offsets to examine, descending: which replicas lack a record changes only at these."""
    ends = {limit, *(replica.holds_to(chain) for replica in evidence.replicas)}
    ends.update(voter_set.from_offset + step for voter_set in sets for step in (0, 1))
    return sorted((end - 1 for end in ends if from_offset < end <= limit), reverse=True)


def _is_excluded(evidence: QuorumEvidence, chain: LogChain, epoch: int, offset: int, sets: list[VoterSet]) -> bool:
    """Whether an ordinary record cannot have been committed.

    Before a later voter set of its epoch: when it is blocked in each set that its leader had since. Else when a
    majority lacks it, which also blocks it in an unseen set that differs by one voter.
    """
    current = in_effect(chain.voter_sets, offset)
    if current is None:
        return False
    later = [s for s in sets if s.from_epoch == epoch and s.from_offset > offset]
    if later or current.is_static:
        return all(_lacks_majority(evidence, chain, voter_set, offset) for voter_set in (current, *later))
    return _lacking(evidence, chain, current, offset) >= majority(len(current.voters))


def _lacking(evidence: QuorumEvidence, chain: LogChain, voter_set: VoterSet, offset: int) -> int:
    """How many captured voters of a set do not hold the record."""
    return sum(replica.holds_to(chain) <= offset for replica in _voters_that_count(evidence, voter_set))


def _voters_that_count(evidence: QuorumEvidence, voter_set: VoterSet) -> list[CapturedReplica]:
    """The captured voters of a set whose lack of a record proves that they never held it.

    An empty disk with the id of a static voter is not one: it may have replaced a disk that held the record.
    """
    captured = evidence.captured(voter_set)
    return [replica for replica in captured if replica.runs or replica.snapshots] if voter_set.is_static else captured


def _lacks_majority(evidence: QuorumEvidence, chain: LogChain, voter_set: VoterSet, offset: int) -> bool:
    count = len(voter_set.voters)
    return count - _lacking(evidence, chain, voter_set, offset) < majority(count)


def _blocks(voter_set: VoterSet, captured_count: int) -> bool:
    """Whether the captured voters of a set could exclude a record: if all of them lacked it."""
    count = len(voter_set.voters)
    if voter_set.is_static:
        return count - captured_count < majority(count)
    return captured_count >= majority(count)
