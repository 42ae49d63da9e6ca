"""The upper bound of what was committed when reading began, from what captured voters lack.

The rules of the project's design judge one set of captured disks (`_bound`). A bound that some of the disks prove holds
however many more were captured, so the least of what parts of them prove is taken: more disks never widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kraft_audit.replay.evidence import Branch, ClusterEvidence, Replica, majority
from kraft_audit.replay.voters import VoterSet, in_effect


@dataclass(frozen=True, slots=True)
class UpperBound:
    """Nothing from `offset` on was committed when reading began; None where nothing bounds it.

    `epoch` is that of the record below; `reasons` are why each record above cannot have been committed, or why there is
    no bound. `unbounded_by` are then the branches or voter sets without which there might be one.
    """

    offset: int | None
    epoch: int | None
    reasons: tuple[str, ...]
    unbounded_by: Branch | VoterSet | None = None


def upper_bound(evidence: ClusterEvidence, low_of: Callable[[ClusterEvidence], int]) -> UpperBound:
    """`high` of the committed interval; `low_of` tells the offset below which captures prove everything committed."""
    whole = least = _bound(evidence, low_of(evidence))
    for part in _parts(evidence):
        found = whole if part is evidence else _bound(part, low_of(part))
        while found.unbounded_by is not None:
            part = part.of_these(one for one in part.replicas if not _shows(one, found.unbounded_by))
            found = _bound(part, low_of(part))
        if found.offset is not None and (least.offset is None or found.offset < least.offset):
            nodes = ", ".join(str(replica.node_id) for replica in part.replicas)
            least = UpperBound(found.offset, found.epoch, (f"what nodes {nodes} alone prove", *found.reasons))
    return least


def _parts(evidence: ClusterEvidence) -> Iterator[ClusterEvidence]:
    """All replicas, then those that saw no more than some LeaderChange or voter set short of what others saw.

    Where no such mark lies between the ends of two replicas, the rules tell the records between by who lacks them, and
    leaving out the longer one can only widen.
    """
    marks = {(epoch, start.offset) for branch in evidence.branches for epoch, start in branch.leaders.items()}
    marks |= {(one.from_epoch, one.from_offset) for branch in evidence.branches for one in branch.voter_sets}
    ordered = sorted(evidence.replicas, key=lambda replica: _reach(replica), reverse=True)
    above: tuple[int, int] | None = None
    for number, replica in enumerate(ordered):
        reach = _reach(replica)
        if above is None:
            yield evidence
        elif any(reach <= mark < above for mark in marks):
            yield evidence.of_these(ordered[number:])
        above = reach


def _reach(replica: Replica) -> tuple[int, int]:
    """How far a replica's log or newest snapshot reaches: (last epoch, end offset)."""
    return max([replica.end, *((epoch, offset) for offset, epoch in replica.snapshots)])


def _shows(replica: Replica, what: Branch | VoterSet) -> bool:
    if replica.branch is None:
        return False
    if isinstance(what, VoterSet):
        return what in replica.branch.voter_sets
    return bool(replica.runs) and what.run_of_epoch.get(replica.runs[-1].epoch) is not None


def sets_from(branch: Branch, low: int) -> list[VoterSet]:
    """The sets of a branch from the one in effect at an offset on."""
    current = in_effect(branch.voter_sets, low - 1)
    later = [voter_set for voter_set in branch.voter_sets if voter_set.from_offset >= low]
    return later if current is None else [current, *later]


def _bound(evidence: ClusterEvidence, low: int) -> UpperBound:
    """What the rules of the design make of these disks."""
    # A record of an epoch tells of its LeaderChange too, which may lie below the log start.
    started = [branch for branch in evidence.branches if branch.runs]
    if not started:
        return UpperBound(None, None, ("no record was captured",))
    branch = max(started, key=lambda b: b.end)
    newest = max(((epoch, offset) for r in evidence.replicas for offset, epoch in r.snapshots), default=(-1, 0))
    if newest > branch.end:
        reason = f"no log was captured that reaches the snapshot at {newest[1]}, epoch {newest[0]}"
        return UpperBound(None, None, (reason,))
    if evidence.split_epochs:
        return UpperBound(None, None, (f"two histories claim epoch {max(evidence.split_epochs)}",))
    for seen in evidence.branches:
        if _contradicts(seen, branch, low):
            continue
        sets = sets_from(seen, low)
        if not sets:
            return UpperBound(None, None, ("no voter set is known",), seen)
        for voter_set in sets:
            count = len(_telling(evidence, voter_set))
            if not _blocks(voter_set, count):
                of = f"{count} of the {len(voter_set.voters)} voters of the set at {voter_set.from_offset}"
                return UpperBound(None, None, (f"only {of} were captured",), voter_set)
    reasons: list[str] = []
    for run in reversed(branch.runs):
        found = _highest_in_epoch(evidence, branch, run.epoch, reasons)
        if found is not None:
            return UpperBound(found + 1, branch.epoch_at(found), tuple(reasons))
    return UpperBound(branch.runs[0].from_offset, None, tuple(reasons))


def _contradicts(seen: Branch, newest: Branch, low: int) -> bool:
    """Whether a branch left the newest one below what is committed.

    Every later leader holds what is committed, so none was elected by the voters that such a branch knows.
    """
    last = min(seen.end[1], low) - 1
    own, committed = seen.epoch_at(last), newest.epoch_at(last)
    return own is not None and committed is not None and own != committed


def _highest_in_epoch(evidence: ClusterEvidence, branch: Branch, epoch: int, reasons: list[str]) -> int | None:
    """The last record of an epoch that is not excluded; None where the epoch is."""
    run = branch.run_of_epoch[epoch]
    start = branch.leaders.get(epoch)
    limit = run.to_offset
    marks = [] if start is None else [start.offset]
    if start is not None:
        elected_in = in_effect(branch.voter_sets, start.offset - 1) or in_effect(branch.voter_sets, start.offset)
        if elected_in is not None and _lacks_majority(evidence, branch, elected_in, start.offset):
            reasons.append(f"too few voters hold the LeaderChange of epoch {epoch} at {start.offset}")
            return None
    sets = branch.sets_in_epoch(epoch)
    for voter_set, _ in sets:
        if voter_set.from_epoch == epoch and run.from_offset <= voter_set.from_offset < limit:
            if _lacks_majority(evidence, branch, voter_set, voter_set.from_offset):
                reasons.append(f"too few voters hold the voter set at {voter_set.from_offset}")
                limit = voter_set.from_offset
                break
            marks.append(voter_set.from_offset)
    seen = [voter_set for voter_set, _ in sets if voter_set.from_offset < run.to_offset]
    for offset in _candidates(evidence, branch, run.from_offset, limit, seen):
        if offset in marks or not _is_excluded(evidence, branch, epoch, offset, seen):
            return offset
        reasons.append(f"too few voters hold the record of epoch {epoch} at {offset}")
    held = [mark for mark in marks if mark < limit]
    return max(held, default=None)


def _candidates(
    evidence: ClusterEvidence, branch: Branch, from_offset: int, limit: int, sets: list[VoterSet]
) -> list[int]:
    """Offsets that may be the last not excluded one, descending: what lacks a record changes only there."""
    ends = {limit, *(replica.holds_to(branch) for replica in evidence.replicas)}
    ends.update(voter_set.from_offset + more for voter_set in sets for more in (0, 1))
    return sorted((end - 1 for end in ends if from_offset < end <= limit), reverse=True)


def _is_excluded(evidence: ClusterEvidence, branch: Branch, epoch: int, offset: int, sets: list[VoterSet]) -> bool:
    """Whether an ordinary record cannot have been committed.

    Below a later set of its epoch that was seen: if it is blocked in each set that its leader had since. Else by a
    majority that lacks it, which blocks it also in a set one voter away that nobody saw.
    """
    current = in_effect(branch.voter_sets, offset)
    if current is None:
        return False
    later = [s for s in sets if s.from_epoch == epoch and s.from_offset > offset]
    if later or current.is_static:
        return all(_lacks_majority(evidence, branch, voter_set, offset) for voter_set in (current, *later))
    return _lacking(evidence, branch, current, offset) >= majority(len(current.voters))


def _lacking(evidence: ClusterEvidence, branch: Branch, voter_set: VoterSet, offset: int) -> int:
    """How many voters of a set were read and do not hold the record."""
    return sum(replica.holds_to(branch) <= offset for replica in _telling(evidence, voter_set))


def _telling(evidence: ClusterEvidence, voter_set: VoterSet) -> list[Replica]:
    """The captured voters of a set whose lack of a record tells that they never had it.

    An empty disk with a static voter's id is more likely a new one, in the place of one that had all of it.
    """
    captured = evidence.captured(voter_set)
    return [one for one in captured if one.runs or one.snapshots] if voter_set.is_static else captured


def _lacks_majority(evidence: ClusterEvidence, branch: Branch, voter_set: VoterSet, offset: int) -> bool:
    count = len(voter_set.voters)
    return count - _lacking(evidence, branch, voter_set, offset) < majority(count)


def _blocks(voter_set: VoterSet, captured_count: int) -> bool:
    """Whether the captured voters, if they all lacked a record, would exclude it."""
    count = len(voter_set.voters)
    if voter_set.is_static:
        return count - captured_count < majority(count)
    return captured_count >= majority(count)
