"""What `check` says of a folder of log dirs, short enough for a line of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kraft_audit
from kraft_audit.commands.check import _exit_code
from kraft_audit.findings.answer import answer_lines
from kraft_audit.incidents.folding import open_findings
from kraft_audit.rules.rule_model import Severity


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of each history's quorum and the word that its answer opens with, the newest history first; the exit
    code; the rules with an open finding of high or critical severity."""

    states: tuple[str, ...]
    words: tuple[str, ...]
    exit_code: int
    open_rules: tuple[str, ...]


@cache
def verdict_of(path: Path) -> Verdict:
    """Judged once in a process."""
    states, words, codes = [], [], []
    open_rules: set[str] = set()
    with kraft_audit.open(str(path)) as clusters:
        for cluster in clusters:
            folded = cluster.incidents(cluster.check())
            alarms = open_findings(folded)
            lines = answer_lines(cluster.history, folded, str(path))
            states.append(cluster.standing().standing.value)
            words.append(next(line.word for line in lines if not line.is_header and line.word != "HISTORIES"))
            codes.append(_exit_code(cluster, alarms, "high"))
            open_rules |= {finding.rule for finding in alarms if finding.severity.rank >= Severity.HIGH.rank}
    code = max(codes, key=(0, 3, 1).index)
    return Verdict(tuple(states), tuple(words), code, tuple(sorted(open_rules)))
