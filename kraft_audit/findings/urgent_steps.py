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

COMMAND: Final = "   "
"""Stands before a command in a step."""


def contradiction_steps(standing: QuorumStanding, folded: FoldedFindings, quoted: str) -> Iterator[str]:
    """Of a quorum that seems to work, while records that were proven committed are not in its log."""
    if standing.standing not in (Standing.HEALTHY, Standing.AT_REST):
        return
    for finding in [each for each in folded.open if each.rule == "KQ002"][:1]:
        yield finding.what_to_do
        yield f"Then see which copies are left, and what each would lose:{COMMAND}kraft-audit rescue --plan {quoted}"


def worst_step(standing: QuorumStanding, folded: FoldedFindings, quoted: str) -> Iterator[str]:
    """What the most severe open finding says, where it is critical or high."""
    if standing.standing is Standing.NO_LOG:
        return  # what a copy without its log shows may be long past
    urgent = [each for each in folded.open if each.severity in (Severity.CRITICAL, Severity.HIGH)]
    if not urgent:
        return
    worst = min(urgent, key=_order)
    ask = "" if COMMAND in worst.what_to_do else f"{COMMAND}kraft-audit check {quoted} --rule {worst.rule}"
    yield f"{capitalized(worst.what_to_do)}{ask}"


def _order(finding: Finding) -> tuple[int, int, str, str]:
    return -finding.severity.rank, finding.from_ms or 0, finding.rule, finding.subject
