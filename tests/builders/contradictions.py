"""What must not stand together in one answer, as a property of a situation and of the lines that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft_audit.findings.answer import AnswerLine
from kraft_audit.findings.situation import Situation
from kraft_audit.incidents.folding import FoldedFindings
from kraft_audit.incidents.incident import IncidentState
from kraft_audit.rules.rule_model import Severity
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE

NOTHING_LOST = "Nothing is lost"


def contradictions(situation: Situation, folded: FoldedFindings, lines: Sequence[AnswerLine]) -> Iterator[str]:
    """Each pair of claims of which one must be wrong."""
    words = {line.word for line in lines}
    text = " ".join(line.text for line in lines)
    urgent = [finding for finding in folded.open if finding.severity.rank >= Severity.HIGH.rank]
    hurting = [each for each in folded.incidents if each.state is IncidentState.OPEN and each.effects]
    yield from _if("OK" in words, situation.exit_code != EXIT_FINE, "OK, and the exit code is not 0")
    yield from _if(
        "OK" in words, bool(urgent or situation.lost or "LOST" in words), "OK, and something is open or lost"
    )
    yield from _if("OK" in words, bool(hurting), "OK, and an open incident has effects")
    yield from _if(NOTHING_LOST in text, bool(situation.lost), "nothing is lost, and something is")
    yield from _if(
        NOTHING_LOST in text, any(each.rule == "KP002" for each in folded.open), "nothing is lost, and no leader"
    )
    yield from _if(situation.exit_code == EXIT_FINE, bool(urgent), "exit code 0, and something urgent is open")
    needs = situation.needs_action
    yield from _if(needs != (situation.exit_code == EXIT_FINDINGS), True, "who needs action, and who fails, differ")
    yield from _if(needs, not (situation.what and situation.command), "action is needed, and nobody says which")
    yield from _if(not needs, bool(situation.what), "no action is needed, and something is wrong")
    yield from _if(
        situation.severity_now is None, bool(folded.open) and situation.exit_code < 2, "open, and not severe"
    )
    yield from _if(situation.lost_for_sure > situation.lost, True, "more is proven lost than may be")
    yield from _if(situation.leaderless > situation.partitions, True, "more partitions are without a leader than exist")


def _if(one: bool, other: bool, text: str) -> Iterator[str]:
    if one and other:
        yield text
