"""Where a cluster stands at one moment, as one value: what `check`, pages, tables, metrics and messages are made of.

It is made once of a history and its folded findings; in a lake each history has one, in the table `situations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import dropwhile
from typing import Any, Final, NamedTuple

from kraft_audit.findings.answer import AnswerLine, opening_lines
from kraft_audit.findings.finding_formats import worst
from kraft_audit.findings.urgent_steps import BEFORE_COMMAND, URGENT, worst_first
from kraft_audit.findings.what_next import open_losses
from kraft_audit.incidents.folding import FoldedFindings
from kraft_audit.incidents.incident import EFFECTS, IncidentState
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import audit_command
from kraft_audit.rules.columns.loss_holders import Grade
from kraft_audit.rules.columns.partition_states import partition_counts
from kraft_audit.rules.columns.quorum_standing import BROKEN, QuorumStanding, Standing
from kraft_audit.rules.rule_model import ACCEPTED, LOSS, Finding, FindingState, Scope, Severity
from kraft_audit.tables.gold import SEVERITIES, SITUATIONS
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE, EXIT_UNDECIDED, EXIT_UNREADABLE
from kraft_audit.text.readable import plural

NEEDS: Final = (
    (("KQ002", "KQ020", "KQ022", "KV001", "KV002", "KQ016"), "may have lost committed records"),
    ((LOSS,), "may have lost acknowledged records"),
    (("KQ025",), "{has} lost the majority of its voters"),
    (("KQ023",), "{has} no leader"),
    (("KQ024",), "cannot commit"),
    (("KP002",), "{has} partitions without a leader"),
    (("KP001",), "{has} partitions that one more loss destroys"),
    (("KP005",), "{has} partitions that refuse acks=all writes"),
    ((), "{has} other critical or high findings"),
    ((), "cannot be judged: disks are missing, or contradict each other"),
)
"""What a cluster needs action for, the worst first: open findings of critical or high severity of these rules."""
OTHER_FINDINGS: Final = len(NEEDS) - 2
UNDECIDED_QUORUM: Final = len(NEEDS) - 1
EFFECT_OF_RULE: Final = {rule: text for rule, text, _ in EFFECTS}


@dataclass(frozen=True, slots=True)
class Situation:
    """Where one history of a cluster stands. Offsets are exclusive ends, times in milliseconds since 1970.

    `exit_code` is that of `check` by default, `lines` what it opens with. `need` is the place in NEEDS of the worst
    that needs action, None where nothing does; `what` is wrong then, in one clause, `since_ms` when that began, `hit`
    how many partitions it is about, `advice` what to do, and `command` the first one to paste. Counts of partitions are
    those at the end of the log; those of findings are `open_findings` by severity, and the others by state.
    """

    standing: str
    exit_code: int
    severity_now: str | None
    need: int | None
    what: str
    since_ms: int | None
    hit: int
    advice: str
    command: str
    lines: tuple[AnswerLine, ...]
    leader_id: int | None
    leader_epoch: int
    committed_to: int | None
    log_end_offset: int | None
    log_end_ms: int | None
    partitions: int
    leaderless: int
    at_one_replica: int
    blocked: int
    lost: int
    lost_for_sure: int
    open_incidents: int
    open_findings: Mapping[str, int]
    folded: int
    accepted: int
    undecided: int

    @property
    def needs_action(self) -> bool:
        return self.need is not None

    @property
    def urgency(self) -> tuple[int, int]:
        """Clusters in the order of this are the most urgent first: by the worst need, then by how many it hits."""
        return len(NEEDS) if self.need is None else self.need, -self.hit

    def row(self, cluster_id: str, plan: int, as_of_ms: int) -> TableRow:
        """A row of the table `situations`."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name in SITUATIONS.column_names}
        counts = {f"open_{severity}": self.open_findings[severity] for severity in SEVERITIES}
        lines = [asdict(line) for line in self.lines]
        return {**values, **counts, "lines": lines, "cluster_id": cluster_id, "plan": plan, "as_of_ms": as_of_ms}

    @classmethod
    def of_row(cls, row: TableRow) -> Situation:
        """The value that `row` was made of."""
        values: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        values["open_findings"] = {severity: row[f"open_{severity}"] for severity in SEVERITIES}
        values["lines"] = tuple(
            AnswerLine(line["word"], line["text"], line["severity"] and Severity(line["severity"]), line["is_header"])
            for line in row["lines"]
        )
        return cls(**values)


NOT_ASKED: Final = Situation(
    *(Standing.NOT_JUDGED.value, EXIT_UNDECIDED, None, None, "", None, 0, "", "", (), None, -1, None, None, None),
    *(0, 0, 0, 0, 0, 0, 0, dict.fromkeys(SEVERITIES, 0), 0, 0, 0),
)
"""Of a cluster of which nothing is known."""


def situation_of(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str) -> Situation:
    """The situation of a history; `path` is what was read, for commands."""
    alarms = alarming(standing, folded.open)
    code = exit_code(history, standing, alarms, Severity.HIGH)
    lines = opening_lines(history, standing, folded, path)
    need = _need(standing, alarms, folded, lines, code)
    command = _command(lines) or (audit_command(history, "check") if need.place is not None else "")
    by_state = Counter(finding.state for finding in folded.findings)
    by_severity = Counter(finding.severity for finding in alarms)
    lost = open_losses(history, folded)
    names = {loss.event.name for loss in lost}
    sure = {loss.event.name for loss in lost if loss.grade is Grade.PROVEN}
    return Situation(
        standing=standing.standing.value,
        exit_code=code,
        severity_now=worst(alarms),
        need=need.place,
        what=need.what,
        since_ms=need.since_ms,
        hit=need.hit,
        advice=need.advice,
        command=command,
        lines=lines,
        leader_id=standing.leader_id,
        leader_epoch=standing.epoch,
        committed_to=standing.committed_to,
        log_end_offset=standing.end_offset,
        log_end_ms=history.end_ms,
        **partition_counts(history)._asdict(),
        lost=len(names),
        lost_for_sure=len(sure),
        open_incidents=sum(incident.state is IncidentState.OPEN for incident in folded.incidents),
        open_findings={severity: by_severity[Severity(severity)] for severity in SEVERITIES},
        folded=by_state[FindingState.FOLDED],
        accepted=sum(by_state[state] for state in ACCEPTED),
        undecided=by_state[FindingState.UNDECIDED],
    )


def alarming(standing: QuorumStanding, findings: Sequence[Finding]) -> Sequence[Finding]:
    """The findings that count now: what an older copy's log says of brokers and partitions may be long past."""
    if standing.standing is not Standing.NO_LOG:
        return findings
    return [finding for finding in findings if finding.scope not in (Scope.BROKER, Scope.PARTITION)]


def exit_code(history: ClusterHistory, standing: QuorumStanding, alarms: Sequence[Finding], fail_on: Severity) -> int:
    """The exit code of `check`. 0 claims that all is well: an undecided quorum is not."""
    severity = worst(alarms)
    if severity is not None and severity.rank >= fail_on.rank:
        return EXIT_FINDINGS
    if standing.standing in (*BROKEN, Standing.UNDECIDED):
        return EXIT_FINDINGS
    is_empty = standing.standing is Standing.EMPTY
    if not (history.is_read or is_empty) or standing.standing is Standing.NO_LOG:
        return EXIT_UNREADABLE
    return EXIT_UNDECIDED if standing.lacks_majority else EXIT_FINE


class _Need(NamedTuple):
    place: int | None = None
    what: str = ""
    since_ms: int | None = None
    hit: int = 0
    advice: str = ""


def _need(
    standing: QuorumStanding,
    alarms: Sequence[Finding],
    folded: FoldedFindings,
    lines: Sequence[AnswerLine],
    code: int,
) -> _Need:
    """The worst need: its place, what is wrong, and since when."""
    urgent = [finding for finding in alarms if finding.severity in URGENT]
    if not urgent:
        is_undecided = code == EXIT_FINDINGS
        return _Need(UNDECIDED_QUORUM, _first_sentence(lines), standing.since_ms) if is_undecided else _Need()
    raised = {finding.rule for finding in urgent}
    place = next((place for place, (named, _) in enumerate(NEEDS) if not raised.isdisjoint(named)), OTHER_FINDINGS)
    rules = raised.intersection(NEEDS[place][0]) or raised
    first = min((finding for finding in urgent if finding.rule in rules), key=worst_first)
    rules = rules if NEEDS[place][0] else {first.rule}
    same = [finding for finding in urgent if finding.rule in rules]
    began = [finding.from_ms for finding in same if finding.from_ms is not None]
    quorum = next((line for line in lines if line.word == "QUORUM" and line.severity is Severity.CRITICAL), None)
    what = _first_sentence([quorum]) if quorum is not None else _what(folded, first, same)
    hit = len({finding.subject for finding in same if finding.scope is Scope.PARTITION})
    return _Need(place, what, min(began, default=None), hit, first.what_to_do)


def _first_sentence(lines: Sequence[AnswerLine]) -> str:
    return lines[0].text.partition(". ")[0].removesuffix(".") if lines else ""


def _what(folded: FoldedFindings, first: Finding, same: Sequence[Finding]) -> str:
    of_rule = [finding for finding in same if finding.rule == first.rule]
    ids = {finding.incident_id for finding in of_rule}
    lasting = (each for each in folded.incidents if each.state is IncidentState.OPEN)
    cause = next((each.headline for each in lasting if each.incident_id in ids), "")
    count = len({finding.subject for finding in of_rule})
    return what_of(first.rule, first.scope, first.subject, first.summary, count, cause)


def what_of(rule: str, scope: Scope, subject: str, summary: str, count: int, cause: str) -> str:
    """What findings of one rule mean, in one clause: how many partitions are affected, and by which open incident.

    Of any other rule it is what the worst finding says. `count` is how many subjects they are about, `cause` the
    headline of the incident; empty without one.
    """
    if rule not in EFFECT_OF_RULE:
        about = f"{subject}: {summary}" if subject and scope in (Scope.PARTITION, Scope.BROKER) else summary
        return f"{about} (and {count - 1} more)" if count > 1 else about
    effect = f"{plural(count, 'partition')} {EFFECT_OF_RULE[rule]}"
    return f"{effect}: {cause[:1].lower()}{cause[1:]}" if cause else effect


def cluster_row(title: str, situation: Situation) -> dict[str, Any]:
    """One of many clusters: its state in a sentence, and the worst that is open; `rank` orders by urgency."""
    state = [line for line in situation.lines if line.word not in ("NEXT", "")]
    severity = situation.severity_now
    rank = -1 if severity is None else Severity(severity).rank
    return {
        "cluster_id": title,
        "state": state[0].word.lower(),
        "open": "" if severity is None else f"{situation.open_findings[severity]} {severity}",
        "answer": " ".join(line.text for line in state),
        "rank": (*(-part for part in situation.urgency), situation.exit_code, rank),
    }


def needs_in_words(places: Sequence[int | None]) -> tuple[str, str]:
    """How many of several clusters need action, and for what: each counts once, for its worst need. Empty for none."""
    urgent = Counter(place for place in places if place is not None)
    if not urgent:
        return "", ""
    parts = [
        f"{urgent[place]} {NEEDS[place][1].format(has='has' if urgent[place] == 1 else 'have')}"
        for place in sorted(urgent)
    ]
    verb = "needs" if urgent.total() == 1 else "need"
    return f"{urgent.total()} of {plural(len(places), 'cluster')} {verb} action:", f"{', '.join(parts)}."


def said_and_command(text: str) -> tuple[str, str]:
    """What a line of the answer says, and the command that it ends with; empty where it has none."""
    said, _, command = text.partition(BEFORE_COMMAND)
    return said, command.strip()


def _command(lines: Sequence[AnswerLine]) -> str:
    """The first command among the next steps of an answer; empty where there is none."""
    steps = dropwhile(lambda line: line.word != "NEXT", lines)
    return next((command for line in steps if (command := said_and_command(line.text)[1])), "")
