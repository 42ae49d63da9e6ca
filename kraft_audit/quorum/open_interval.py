"""Why the bounds of a committed interval differ, or contradict each other, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_audit.quorum.quorum_evidence import LogChain, QuorumEvidence
from kraft_audit.quorum.voter_history import VoterSet
from kraft_audit.text.readable import nouns, offset_span

if TYPE_CHECKING:
    from kraft_audit.quorum.committed_interval import Proof, UpperBound

CONTRADICTION: Final = "CONTRADICTION: "
DIFFERENT_MOMENTS: Final = "the copies are of different moments"


def why_undecided(
    evidence: QuorumEvidence, best: Proof, bound: UpperBound, canonical: LogChain | None, voters: VoterSet | None
) -> str | None:
    """Why low and high differ, in one line; None where they are equal."""
    low, captured = best.offset, [] if voters is None else evidence.captured(voters)
    if bound.offset == low:
        return None
    if bound.offset is None:
        return f"no upper bound: {bound.reasons[-1] if bound.reasons else 'nothing was captured'}"
    if low > bound.offset:
        return _contradiction(evidence, best, bound.offset, canonical, voters)
    missing = [] if voters is None else sorted(voters.ids - {replica.node_id for replica in captured})
    if missing:
        return f"voters not captured: {', '.join(map(str, missing))}"
    silent = [replica.name for replica in evidence.replicas if replica.persisted is None]
    if silent:
        return f"no quorum-state of {', '.join(silent)}"
    return "too few voters acknowledged the records between; a voter set that no capture shows may have committed them"


def _contradiction(
    evidence: QuorumEvidence, best: Proof, high: int, canonical: LogChain | None, voters: VoterSet | None
) -> str:
    """What it means that `low` lies above `high`.

    The copies of one round may be of different moments. It is a contradiction where an earlier round proved `low`: then
    each disk that lacks the record was read after the proof.
    """
    captured = [] if voters is None or canonical is None else evidence.captured(voters)
    lacking = [replica for replica in captured if canonical is not None and replica.holds_to(canonical) < best.offset]
    span = offset_span(high, best.offset)
    if evidence.earlier_low is not None and evidence.earlier_low[0] == best.offset and voters is not None:
        holders = len(captured) - len(lacking)
        held = f"only {holders} of {len(voters.voters)} voters still hold{'s' * (holders == 1)} {span}"
        return f"{CONTRADICTION}offset {best.offset - 1} was committed, but {held}"
    if not lacking:
        return DIFFERENT_MOMENTS
    nodes = nouns("node", sorted(replica.node_id for replica in lacking))
    return f"{DIFFERENT_MOMENTS}: copy {nodes} again, which did not have {span} when copied"
