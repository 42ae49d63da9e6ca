"""What urgent findings say to do: before all else where what was committed contradicts itself, else where nothing more
particular is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft_audit.incidents.folding import FoldedFindings
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing
from kraft_audit.rules.rule_model import Finding, Severity
from kraft_audit.text.readable import capitalized

URGENT: Final = frozenset({Severity.CRITICAL, Severity.HIGH})
BEFORE_COMMAND: Final = "   "
"""What stands before a command in a line of the answer."""


def contradiction_steps(standing: QuorumStanding, folded: FoldedFindings, quoted: str) -> Iterator[str]:
    """Of a quorum that seems to work, while records that were proven committed are not in its log."""
    if standing.standing not in (Standing.HEALTHY, Standing.AT_REST):
        return
    for finding in [each for each in folded.open if each.rule == "KQ002"][:1]:
        yield finding.what_to_do
        see = "Then see which copies are left, and what each would lose:"
        yield f"{see}{BEFORE_COMMAND}kraft-audit rescue --plan {quoted}"


def worst_step(standing: QuorumStanding, folded: FoldedFindings, quoted: str) -> Iterator[str]:
    """What the most severe open finding says, where it is critical or high."""
    if standing.standing is Standing.NO_LOG:
        return  # what a copy without its log shows may be long past
    urgent = [each for each in folded.open if each.severity in URGENT]
    if not urgent:
        return
    worst = min(urgent, key=worst_first)
    step = capitalized(worst.what_to_do)
    has_command = BEFORE_COMMAND in step
    yield step if has_command else f"{step}{BEFORE_COMMAND}kraft-audit check {quoted} --rule {worst.rule}"


def worst_first(finding: Finding) -> tuple[int, int, str, str]:
    """The most severe finding first, of equals the oldest."""
    return -finding.severity.rank, finding.from_ms or 0, finding.rule, finding.subject
