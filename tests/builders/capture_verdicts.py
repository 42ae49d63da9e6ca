"""What `check` says of a folder of log dirs, short enough for a line of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.commands.check import EXITS_IN_ORDER
from kraft_audit.findings.answer import answer_lines
from kraft_audit.rules.rule_model import Finding, Severity, Status
from tests.builders.contradictions import contradictions


class FindingFact(NamedTuple):
    """What a finding says in values; `folder` is a node dir of its history, as a path below what was checked."""

    folder: str
    rule: str
    status: Status
    severity: Severity
    subject: str
    from_offset: int | None
    to_offset: int | None
    epoch: int | None
    is_over: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of each history's quorum and the word that its answer opens with, the newest history first; the exit
    code; the rules with an open finding of high or critical severity; all findings but those of rules that are
    clear."""

    states: tuple[str, ...]
    words: tuple[str, ...]
    exit_code: int
    open_rules: tuple[str, ...]
    findings: tuple[FindingFact, ...]
    contradictions: tuple[str, ...]


@cache
def verdict_of(path: Path) -> Verdict:
    """Judged once in a process."""
    states, words, codes = [], [], []
    open_rules: set[str] = set()
    facts: list[FindingFact] = []
    wrong: list[str] = []
    with kraft_audit.open(str(path)) as clusters:
        for cluster in clusters:
            findings = cluster.check()
            folded = cluster.incidents(findings)
            alarms = folded.open
            lines = list(answer_lines(cluster.history, folded, str(path)))
            situation = cluster.situation(folded)
            states.append(cluster.standing().standing.value)
            words.append(next(line.word for line in lines if not line.is_header and line.word != "HISTORIES"))
            codes.append(situation.exit_code)
            wrong += contradictions(situation, folded, lines)
            facts += _facts_of(cluster, findings)
            open_rules |= {finding.rule for finding in alarms if finding.severity.rank >= Severity.HIGH.rank}
    code = max(codes, key=EXITS_IN_ORDER.index)
    return Verdict(tuple(states), tuple(words), code, tuple(sorted(open_rules)), tuple(facts), tuple(wrong))


def _facts_of(cluster: Cluster, findings: Sequence[Finding]) -> list[FindingFact]:
    folder = min(replica.path for replica in cluster.plan.replicas)
    return [
        FindingFact(
            folder,
            finding.rule,
            finding.status,
            finding.severity,
            finding.subject,
            finding.from_offset,
            finding.to_offset,
            finding.epoch,
            finding.is_over,
        )
        for finding in findings
        if finding.status is not Status.CLEAR
    ]
