"""What `check` warns of that no *yes* about a controller may pass over: disks that must not serve as they are, by the
files in the newest copy of each node; records that only some voters hold; a committed log in two versions.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.captures import newest_captures
from kraft_audit.rules.columns.unheld_records import unheld_records
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.rules.families.log_files import HOLDS_OTHER_BYTES
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, FindingState, Severity
from kraft_audit.text.readable import capitalized
from kraft_codec.file_names import printable

AGAINST_A_START: Final = ("KQ004", "KQ007", "KQ008", "KQ012", "KQ022")
"""Rules by which a log is not what a node may go on with: epochs that fall, gaps, damage, states that never were."""
COMMITTED_TWICE: Final = "KQ002"


@once_per_history
def unfit_disks(history: ClusterHistory) -> Mapping[int, Finding]:
    """By node what is open and critical about its newest copy. A disk that was replaced since has no part in it, nor
    has a batch that Kafka reads and this tool cannot."""
    newest = {(row["node_id"], printable(row["path"] or row["root"])) for row in newest_captures(history)}
    found: dict[int, Finding] = {}
    for finding in check(history, only=AGAINST_A_START):
        is_open = finding.state in (FindingState.OPEN, FindingState.UNDECIDED)
        if not is_open or finding.severity is not Severity.CRITICAL:
            continue
        for node_id in {fact.node_id for fact in finding.evidence if (fact.node_id, fact.path) in newest}:
            if node_id is not None and f"{finding.subject} ".startswith(f"node {node_id} "):
                found.setdefault(node_id, finding)
    return found


def _is_decided(finding: Finding) -> bool:
    """Whether the disk is known to be the wrong one: of two versions that no majority holds, either may be."""
    is_open_version = finding.rule == "KQ022" and not finding.summary.startswith(HOLDS_OTHER_BYTES)
    return finding.state is not FindingState.UNDECIDED and not is_open_version


def unfit_text(node_id: int, finding: Finding) -> str:
    """What is wrong with a node's disk, as a sentence."""
    return f"The log on the disk of node {node_id} is not fit to go on with: {finding.summary} ({finding.rule})."


@once_per_history
def _contradiction(history: ClusterHistory) -> Finding | None:
    """What was proven committed, and is not what the log says now: any disk may be the last one that holds it."""
    found = (finding for finding in check(history, only=(COMMITTED_TWICE,)) if finding.state is FindingState.OPEN)
    return next(found, None)


def of_unfit_disks(question: Question, history: ClusterHistory, answer: Permission) -> Permission:
    """The answer, but no *yes* to a node that would go on with such a disk, or be away while another one is needed.

    Nor to anything about a controller while what was committed stands on disks in two versions, nor to more than a
    start of one that holds what waits for a majority.
    """
    if answer.verdict is not Verdict.YES:
        return answer
    if (finding := _contradiction(history)) is not None:
        reason = f"What was committed contradicts itself: {finding.summary} ({finding.rule})."
        return replace(answer, verdict=Verdict.NO, reason=reason, next_steps=(finding.what_to_do,))
    waiting = unheld_records(history)
    if waiting is not None and question.node_id in waiting.holders and question.action is not Action.START:
        step = f"What tells which it is: kraft-audit check {shlex.quote(question.path)}"
        return replace(answer, verdict=Verdict.UNDECIDED, reason=f"{capitalized(waiting.reason)}.", next_steps=(step,))
    if question.action not in (Action.START, Action.RESTART):
        return answer
    unfit = unfit_disks(history)
    asked = [question.node_id]
    if question.action is Action.RESTART:
        asked += sorted(unfit.keys() & voter_ids(current_set(history)) - question.gone - question.stopped)
    for node_id in asked:
        if (finding := unfit.get(node_id)) is not None:
            verdict = Verdict.NO if _is_decided(finding) else Verdict.UNDECIDED
            return replace(
                answer, verdict=verdict, reason=unfit_text(node_id, finding), next_steps=(finding.what_to_do,)
            )
    return answer
