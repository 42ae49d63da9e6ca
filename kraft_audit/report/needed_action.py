"""What a cluster needs action for: the worst that is open, since when, and the command to begin with.

The pages order clusters by it, and a run ends with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.findings.answer import AnswerLine
from kraft_audit.findings.finding_formats import state_of
from kraft_audit.incidents.incident import EFFECTS, IncidentKind
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.columns.captures import audit_command
from kraft_audit.rules.rule_model import LOSS, Scope, Severity
from kraft_audit.text.readable import plural

URGENT: Final = frozenset({Severity.CRITICAL.value, Severity.HIGH.value})
NEEDS: Final = (
    (("KQ002", "KQ020", "KQ022", "KV001", "KV002", "KQ016"), "may have lost committed records"),
    ((LOSS,), "may have lost acknowledged records"),
    (("KQ025",), "{has} lost the majority of its voters"),
    (("KQ023",), "{has} no leader"),
    (("KQ024",), "cannot commit"),
    (("KP002",), "{has} partitions without a leader"),
    (("KP001",), "{has} partitions that one more loss destroys"),
    (("KP005",), "{has} partitions that refuse acks=all writes"),
)
"""What a cluster needs action for, the worst first: open findings of critical or high severity of these rules."""
OTHER_NEEDS: Final = "{has} other critical or high findings"
EFFECT_OF_RULE: Final = {rule: text for rule, text, _ in EFFECTS}
BEFORE_COMMAND: Final = "   "
"""What stands before a command in a line of the answer."""


@dataclass(frozen=True, slots=True)
class NeededAction:
    """`place` is that of the worst need in NEEDS, past its end for any other; `what` is wrong, in one clause.

    `since_ms` is when the oldest open finding of that need began, None where no time is known. `command` can be pasted.
    `partitions` is how many partitions have open findings of that need; `advice` is what its worst finding says to do.
    """

    place: int
    what: str
    since_ms: int | None
    command: str
    partitions: int
    advice: str


@dataclass(frozen=True, slots=True)
class Weakness:
    """The worst that weakens a cluster which needs no action: in one clause, since when, and what to do about it."""

    what: str
    since_ms: int | None
    advice: str


def needed_action(given: ClusterInput) -> NeededAction | None:
    """What the cluster needs action for now; None where no finding of critical or high severity is open."""
    urgent = [row for row in given.findings if row["severity"] in URGENT and _is_open(row)]
    if not urgent:
        return None
    raised = {row["rule"] for row in urgent}
    place = next((place for place, (named, _) in enumerate(NEEDS) if not raised.isdisjoint(named)), len(NEEDS))
    rules = raised.intersection(NEEDS[place][0]) if place < len(NEEDS) else raised
    worst = min((row for row in urgent if row["rule"] in rules), key=_worst_first)
    same = [row for row in urgent if row["rule"] in (rules if place < len(NEEDS) else {worst["rule"]})]
    return NeededAction(
        place,
        _quorum_sentence(given.answer) or _what(given, worst, [row for row in same if row["rule"] == worst["rule"]]),
        _oldest(same),
        _command(given.answer) or audit_command(given.history, "check"),
        len({row["subject"] for row in same if row["scope"] == Scope.PARTITION}),
        worst["what_to_do"],
    )


def weakness(given: ClusterInput, acknowledged: Sequence[TableRow]) -> Weakness | None:
    """A loss that was acknowledged, else the most frequent open finding of severity medium; None without either."""
    medium = [row for row in given.findings if row["severity"] == Severity.MEDIUM and _is_open(row)]
    rows = acknowledged or medium
    if not rows:
        return None
    counts = Counter(row["rule"] for row in rows)
    worst = min(rows, key=lambda row: (-counts[row["rule"]], *_worst_first(row)))
    same = [row for row in rows if row["rule"] == worst["rule"]]
    what = _what(given, worst, same)
    if acknowledged:
        return Weakness(f"{what}; {worst['waiver']['who']} acknowledged it", _oldest(same), "")
    return Weakness(what, _oldest(same), worst["what_to_do"])


def _oldest(rows: Sequence[TableRow]) -> int | None:
    return min((row["from_ms"] for row in rows if row["from_ms"] is not None), default=None)


def _is_open(row: TableRow) -> bool:
    return row["status"] == "raised" and state_of(row) == "open"


def _worst_first(row: TableRow) -> tuple[int, int, str, str]:
    """The most severe finding first, of equals the oldest."""
    return (-Severity(row["severity"]).rank, row["from_ms"] or 0, row["rule"], row["subject"])


def _quorum_sentence(answer: Sequence[AnswerLine]) -> str:
    """The first sentence of what the answer says of a quorum that does not work; empty where it works."""
    line = next((line for line in answer if line.word == "QUORUM" and line.severity is Severity.CRITICAL), None)
    return "" if line is None else line.text.partition(". ")[0].removesuffix(".")


def _what(given: ClusterInput, worst: TableRow, same: Sequence[TableRow]) -> str:
    """How many partitions are affected and by which open incident; of any other rule what its worst finding says."""
    subjects = {row["subject"] for row in same}
    if worst["rule"] not in EFFECT_OF_RULE:
        is_named = worst["subject"] and worst["scope"] in (Scope.PARTITION, Scope.BROKER)
        about = f"{worst['subject']}: {worst['summary']}" if is_named else str(worst["summary"])
        return f"{about} (and {len(subjects) - 1} more)" if len(subjects) > 1 else about
    effect = f"{plural(len(subjects), 'partition')} {EFFECT_OF_RULE[worst['rule']]}"
    ids = {row["finding_id"] for row in same}
    causes = (
        row["headline"]
        for row in given.incidents
        if row["is_open"] and row["kind"] != IncidentKind.CLUSTER_STOP and ids.intersection(row["finding_ids"])
    )
    cause = next(causes, None)
    return effect if cause is None else f"{effect}: {cause[:1].lower()}{cause[1:]}"


def said_and_command(text: str) -> tuple[str, str]:
    """What a line of the answer says, and the command that it ends with; empty where it has none."""
    said, _, command = text.partition(BEFORE_COMMAND)
    return said, command.strip()


def _command(answer: Sequence[AnswerLine]) -> str:
    """The first command among the next steps of an answer; empty where there is none."""
    return next((command for line in answer if (command := said_and_command(line.text)[1])), "")
