"""What `check` opens with: does the quorum work, what is lost or at risk now, what to do next; then incidents.

The same sentences stand on pages, in notifications and in notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraft_audit.findings.at_rest import at_rest_sentence
from kraft_audit.findings.check_text import last_holder, operations_from, time_span, uncited_text
from kraft_audit.findings.membership import membership_sentence
from kraft_audit.findings.what_next import (
    SUBJECTS_NAMED,
    altered_disks,
    disks_lost,
    last_replicas,
    loss_sentence,
    open_losses,
    what_next,
)
from kraft_audit.incidents.folding import FoldedFindings
from kraft_audit.incidents.incident import Incident, IncidentKind, IncidentState
from kraft_audit.rules.cluster_history import ClusterHistory, elr_level, feature_level
from kraft_audit.rules.columns.captures import copies_in_doubt, newest_round
from kraft_audit.rules.columns.loss_holders import Grade, losses
from kraft_audit.rules.columns.loss_texts import loss_cause, unflushed_text
from kraft_audit.rules.columns.needed_software import has_older_software, software_needed
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import partition_counts
from kraft_audit.rules.columns.quorum_standing import (
    BROKEN,
    QuorumStanding,
    Standing,
    distrust_text,
    quorum_standing,
)
from kraft_audit.rules.families.partitions_at_risk import WITH_EVERYTHING
from kraft_audit.rules.rule_model import LOSS, Finding, Severity
from kraft_audit.text.readable import and_more, capitalized, listed, nouns, plural, when
from kraft_codec.schemas.releases import METADATA_VERSIONS

SHOW_FINDINGS: Final = ": --findings"
"""What a line ends with that `check` lists on request; a page, which has them below, leaves it out."""
EVENTS_SHOWN: Final = 8
RESOLVED_SHOWN: Final = 2
SINGLE_NODE_RULES: Final = frozenset({"KV007", "KV011", "KP010"})


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One line: a word in capitals that may be coloured by `severity`, and the sentence after it."""

    word: str
    text: str
    severity: Severity | None = None
    is_header: bool = False


def answer_lines(
    history: ClusterHistory, folded: FoldedFindings, path: str, *, all_resolved: bool = False
) -> Iterator[AnswerLine]:
    """The opening block (header, state, what the copies leave open, next steps), then incidents, open ones first, then
    findings that no incident explains."""
    standing = quorum_standing(history)
    is_single = _is_single_node(history, standing)
    lasting, shown, hidden_count = _incidents_shown(folded, is_single=is_single, all_resolved=all_resolved)
    if standing.standing is Standing.NO_LOG:
        lasting = []  # an older copy's log ends with them: they may be long over
    rest = f"{hidden_count} {'more ' * bool(shown)}incident{'s' * (hidden_count != 1)} resolved: --include-resolved"
    state = list(_state_lines(history, standing, folded))
    if hidden_count and not lasting and not shown and state[0].word == "OK":
        state[0] = replace(state[0], text=f"{state[0].text}   {rest}")
        hidden_count = 0
    yield AnswerLine("", header(history, standing), is_header=True)
    yield from _history_lines(folded)
    yield from state
    yield from _rescue_lines(folded)
    yield from _altered_lines(folded)
    yield from _copy_lines(history, folded)
    if (damage := uncited_text(history, _every_finding(folded))) is not None:
        yield AnswerLine("FILES", damage)
    if (members := membership_sentence(history, standing)) is not None:
        yield AnswerLine("MEMBERS", members)
    yield from _next_lines(history, standing, folded, path)
    if (unflushed := unflushed_text([loss for loss in losses(history) if loss.grade is Grade.UNFLUSHED])) is not None:
        yield AnswerLine("NOTE", unflushed)
    if is_single:
        yield AnswerLine("SINGLE NODE", _single_node(history, folded))
    for incident in (*lasting, *shown):
        yield AnswerLine("", "")
        yield from _incident_lines(incident)
    of_disks = [] if standing.standing in BROKEN else disks_lost(history, folded)
    yield from _unexplained_lines([finding for finding in folded.unexplained if finding not in of_disks])
    if hidden_count:
        yield AnswerLine("", rest)


def _every_finding(folded: FoldedFindings) -> Iterator[Finding]:
    for incident in folded.incidents:
        yield from incident.findings
    yield from (*folded.unexplained, *folded.undecided, *folded.waived)


def _incidents_shown(
    folded: FoldedFindings, *, is_single: bool, all_resolved: bool
) -> tuple[list[Incident], list[Incident], int]:
    """Open incidents, resolved ones worth a line, and how many others are resolved.

    Of a single node the line of its state says that it stopped, and each stop of its only broker stopped everything.
    """
    others = [incident for incident in folded.incidents if incident.kind is not IncidentKind.DECLARED_RESCUE]
    resolved = [incident for incident in others if not incident.is_open]
    lasting = [incident for incident in others if incident.is_open]
    shown = [incident for incident in resolved if incident.severity.rank >= Severity.HIGH.rank][:RESOLVED_SHOWN]
    if is_single:
        lasting, shown = [incident for incident in lasting if incident.kind is not IncidentKind.CLUSTER_STOP], []
    if all_resolved:
        shown = resolved
    return lasting, shown, len(resolved) - len(shown)


def _is_single_node(history: ClusterHistory, standing: QuorumStanding) -> bool:
    """Whether there is one voter and at most one broker, as on a development machine."""
    registered = [states for states in broker_states(history).values() if states.newest["exists"]]
    controllers = history.newest_rows("controller_changes", "controller_id").values()
    others = {row["controller_id"] for row in controllers if row["exists"]} - set(standing.voters)
    return len(standing.voters) == 1 and len(registered) <= 1 and not others


def _single_node(history: ClusterHistory, folded: FoldedFindings) -> str:
    """What such a cluster is, with the rules that say so."""
    rules = sorted({finding.rule for finding in folded.unexplained if not finding.is_over} & SINGLE_NODE_RULES)
    nodes = "One voter and one broker" if broker_states(history) else "One voter"
    named = f" ({', '.join(rules)})" if rules else ""
    return f"{nodes}: any disk loss is data loss{named}."


def opening_lines(
    history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str
) -> tuple[AnswerLine, ...]:
    """The lines that say whether the quorum works, what is lost or at risk now and what to do next, as in `check`."""
    return (
        *_state_lines(history, standing, folded),
        *_rescue_lines(folded),
        *_altered_lines(folded),
        *_next_lines(history, standing, folded, path),
    )


def _next_lines(
    history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str
) -> Iterator[AnswerLine]:
    for number, step in enumerate(what_next(history, standing, folded, path)):
        yield AnswerLine("NEXT" if number == 0 else "", step)


def _history_lines(folded: FoldedFindings) -> Iterator[AnswerLine]:
    """What the other logs of the same cluster id are, where there are any."""
    for finding in folded.unexplained:
        if finding.rule == "KB009":
            yield AnswerLine("HISTORIES", _sentence(finding.summary))


def header(history: ClusterHistory, standing: QuorumStanding) -> str:
    """Cluster, metadata.version, how many voters were captured, and the time that the log covers."""
    parts = [history.title]
    level = feature_level(history, "metadata.version")
    if level is not None:
        elr = ", ELR on" if elr_level(history) else ""
        parts.append(f"metadata.version {METADATA_VERSIONS.get(level, level)}{elr}")
    elif history.is_complete and broker_states(history):
        parts.append("no metadata.version recorded")
    # A controller dies at the first record that its software does not know, before it registers: where nobody leads,
    # older software may be why, and it must not be started.
    is_asked = standing.standing is Standing.NO_LEADER or has_older_software(history)
    if is_asked and (needed := software_needed(history)) is not None:
        parts.append(f"needs Kafka {needed} or later")
    if standing.voters:
        parts.append(_voters_read(standing))
    if span := time_span(history):
        parts.append(span)
    if history.states_from and history.has("partition_changes"):
        parts.append(f"losses before offset {history.states_from} are not in this copy")
    rows = history.rows("captures")
    if rows and standing.voters and not any(row["directory_id"] for row in rows):
        # Before 3.7 meta.properties had no directory.id.
        parts.append("no directory ids: a replaced disk looks like the old one")
    return "   ".join(parts)


def _voters_read(standing: QuorumStanding) -> str:
    """How many voters' disks are evidence, and which were read and are none."""
    count = f"{len(standing.captured)} of {len(standing.voters)} voters"
    if not standing.distrusted:
        return f"{count} captured"
    return f"{count} readable, {distrust_text(standing.distrusted, with_reasons=False)}"


def _state_lines(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings) -> Iterator[AnswerLine]:
    alarms = [finding for finding in folded.open if finding.severity.rank >= Severity.HIGH.rank]
    committed, lost = _committed(standing), disks_lost(history, folded)
    if lost and standing.standing not in BROKEN:
        yield AnswerLine("QUORUM", loss_sentence(lost), Severity.CRITICAL)
    elif standing.standing is Standing.HEALTHY and not alarms:
        hidden = SINGLE_NODE_RULES if _is_single_node(history, standing) else frozenset()
        notes = [finding for finding in folded.unexplained if not finding.is_over and finding.rule not in hidden]
        counted = f" {_notes(notes)}" if notes else ""
        yield AnswerLine(
            "OK",
            f"Node {standing.leader_id} leads epoch {standing.epoch}{committed}.{_partitions_now(history)}{counted}",
        )
        return
    elif standing.standing is Standing.HEALTHY:
        yield AnswerLine("QUORUM", f"Works: node {standing.leader_id} leads epoch {standing.epoch}{committed}.")
    elif standing.standing is Standing.AT_REST:
        yield AnswerLine(
            "AT REST", at_rest_sentence(history, standing, folded, lost=bool(open_losses(history, folded)))
        )
    elif standing.standing is Standing.NO_LEADER:
        yield AnswerLine("QUORUM", _no_leader(standing), Severity.CRITICAL)
        yield AnswerLine("", _committed_sentence(history, standing))
    elif standing.standing in (Standing.STALLED, Standing.MAJORITY_LOST):
        yield AnswerLine("QUORUM", _sentence(standing.reason), Severity.CRITICAL)
        yield AnswerLine("", _committed_sentence(history, standing))
    else:
        is_empty = standing.standing is Standing.EMPTY
        is_unreadable = not (history.is_read or is_empty) or standing.standing is Standing.NO_LOG
        word = "UNREADABLE" if is_unreadable else standing.standing.value.upper()
        yield AnswerLine(word, _sentence(standing.reason))
    yield from lost_lines(history, folded)
    partitions = _partitions_at_risk(history, folded)
    if partitions and standing.standing not in (Standing.AT_REST, Standing.NO_LOG):
        yield AnswerLine("PARTITIONS", partitions, Severity.CRITICAL)


def lost_lines(history: ClusterHistory, folded: FoldedFindings) -> Iterator[AnswerLine]:
    """How many partitions may have lost acknowledged records, the worst by name; nothing once all are acknowledged."""
    known = open_losses(history, folded)
    if not known:
        return
    worst = max(known, key=lambda loss: (loss.severity_now.rank, -loss.event.offset))
    names = {loss.event.name for loss in known}
    count = f"{len(names)} partitions" if len(names) > 1 else worst.event.name
    is_proven = worst.grade is Grade.PROVEN
    lost = "are lost" if is_proven and len(names) == 1 else "are or may be lost" if is_proven else "may be lost"
    text = f"Acknowledged or readable records of {count} {lost}."
    cause = f"{worst.event.name}: {loss_cause(worst)}" if len(names) > 1 else capitalized(loss_cause(worst))
    yield AnswerLine("LOST", f"{text} {cause}.", worst.severity_now)


def _sentence(reason: str) -> str:
    return f"{capitalized(reason)}."


def _committed(standing: QuorumStanding) -> str:
    return f", {standing.committed_text}" if standing.committed_text else ""


def _committed_sentence(history: ClusterHistory, standing: QuorumStanding) -> str:
    if not standing.committed_to:
        return "Nothing is proven committed."
    text = f"{capitalized(standing.committed_text)}."
    if standing.end_offset is None or standing.end_offset <= standing.committed_to:
        return text
    holders = sum(
        1
        for row in newest_round(history)
        if row["node_id"] in standing.voters and (row["log_end_offset"] or 0) > standing.committed_to
    )
    span = f"Offsets {standing.committed_to}–{standing.end_offset - 1}"
    text = f"{text} {span} are on {holders} of {len(standing.voters)} voters, not proven committed"
    done = operations_from(history, standing.committed_to) if history.has("topic_changes") else []
    return f"{text}: {', '.join(done)}." if done else f"{text}."


def _notes(notes: Sequence[Finding]) -> str:
    rules = len({finding.rule for finding in notes})
    return f"{plural(rules, 'note')} ({plural(len(notes), 'finding')}){SHOW_FINDINGS}"


def _partitions_now(history: ClusterHistory) -> str:
    """What the partitions are at the end of the log, whatever was waived or is below an alarm."""
    counts = partition_counts(history)
    if not counts.partitions:
        return ""
    parts = [
        f"{count} of {counts.partitions} {words}"
        for count, words in ((counts.leaderless, "have no leader"), (counts.blocked, "are below min ISR"))
        if count
    ]
    return f" Partitions: {', '.join(parts)}." if parts else " All partitions have a leader and min ISR."


def _no_leader(standing: QuorumStanding) -> str:
    if standing.leader_id is not None:
        return f"No leader although the nodes run: {standing.reason}. If PATH holds copies, leave out --running."
    epochs = dict(standing.epochs)
    newest = [voter for voter, epoch in epochs.items() if epoch == standing.epoch]
    older = [voter for voter in epochs if voter not in newest]
    text = f"No leader in epoch {standing.epoch}. {standing.majority} of {len(standing.voters)} voters are needed"
    if newest:
        text += f"; {listed(newest)} {'is' if len(newest) == 1 else 'are'} in epoch {standing.epoch}"
    if older:
        named = nouns("voter", older)
        text += f", {named} last took part in {nouns('epoch', [epochs[voter] for voter in older])}"
    return text + "."


def _partitions_at_risk(history: ClusterHistory, folded: FoldedFindings) -> str:
    findings = folded.open
    offline = [finding for finding in findings if finding.rule == "KP002"]
    alone = last_replicas(folded)
    sentences = []
    if offline:
        since = min((finding.from_ms for finding in offline if finding.from_ms), default=None)
        at = f" since {when(since, history.end_ms)}" if since else ""
        sentences.append(f"{len(offline)} of {partition_counts(history).partitions} have no leader{at}.")
    if alone:
        names = listed([finding.subject for finding in alone[:SUBJECTS_NAMED]])
        more = and_more(len(alone) - SUBJECTS_NAMED)
        brokers = {last_holder(finding) for finding in alone}
        holder = f"broker {brokers.pop()} is" if len(brokers) == 1 else "one broker each is"
        holds_all = all(WITH_EVERYTHING in finding.summary for finding in alone)
        what = WITH_EVERYTHING if holds_all else "that can lead"
        sentences.append(f"For {names}{more} {holder} the only replica left {what}.")
    return " ".join(sentences)


def _rescue_lines(folded: FoldedFindings) -> Iterator[AnswerLine]:
    """Each declared rescue, with the rules whose findings it explains."""
    for incident in folded.incidents:
        if incident.kind is IncidentKind.DECLARED_RESCUE:
            rules = sorted({finding.rule for finding in incident.findings})
            replaced = f" In place of {listed(rules)}{SHOW_FINDINGS}." if rules else ""
            yield AnswerLine("RESCUE", f"{incident.headline}.{replaced}", Severity.MEDIUM if incident.is_open else None)


def _altered_lines(folded: FoldedFindings) -> Iterator[AnswerLine]:
    for finding in altered_disks(folded):
        text = f"{capitalized(finding.subject)} {finding.summary}. The canonical log is theirs."
        yield AnswerLine("DISKS", text, finding.severity)


def _copy_lines(history: ClusterHistory, folded: FoldedFindings) -> Iterator[AnswerLine]:
    """Where the copy itself leaves open whether committed records are missing."""
    if disks_lost(history, folded):
        return  # the disks are known to lack them
    if (doubt := copies_in_doubt(history)) is not None:
        yield AnswerLine("COPY", _sentence(doubt))
    for finding in folded.undecided:
        if finding.rule == "KQ002" and finding.reason:
            yield AnswerLine("COPY", _sentence(finding.reason))


def _incident_lines(incident: Incident) -> Iterator[AnswerLine]:
    at = when(incident.from_ms, None) if incident.from_ms is not None else "time unknown"
    if incident.kind is IncidentKind.CLUSTER_STOP:
        state = f"{at}, clean"
    elif incident.is_open:
        state = f"since {at}, open"
    else:
        end = f" to {when(incident.to_ms, incident.from_ms)}" if incident.to_ms is not None else ""
        state = f"{at}{end}, resolved"
    effects = f"   {'; '.join(incident.effects)}" if incident.effects else ""
    severity = incident.severity if incident.state is IncidentState.OPEN else None
    yield AnswerLine("INCIDENT", f"{incident.headline}   {state}{effects}", severity)
    if incident.state is IncidentState.OPEN:
        for event in incident.events[-EVENTS_SHOWN:]:
            clock = when(event.timestamp_ms, incident.from_ms) if event.timestamp_ms is not None else "now"
            yield AnswerLine("", f"{clock}  {event.text}")
        if incident.rivals:
            yield AnswerLine("", incident.rivals)
        if incident.advice:
            yield AnswerLine("", f"do: {incident.advice}")
        yield from _rule_counts(incident.findings)


def _open_by_rule(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """The open findings of each rule, the most severe rule first."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        if not finding.is_over and finding.waiver is None:
            by_rule.setdefault(finding.rule, []).append(finding)
    return sorted(by_rule.items(), key=lambda item: (-item[1][0].severity.rank, item[0]))


def _rule_counts(findings: Sequence[Finding]) -> Iterator[AnswerLine]:
    """The incident's open findings in one line: severity, rule and subject, or how many subjects."""
    parts = []
    for rule, group in _open_by_rule(findings):
        subjects = {finding.subject for finding in group}
        what = next(iter(subjects)) if len(subjects) == 1 else f"{len(subjects)} {group[0].scope.value}s"
        parts.append(f"{group[0].severity.value.upper()}  {rule} {what}")
    if parts:
        yield AnswerLine("", f"{'    '.join(parts)}    --findings")


def _unexplained_lines(findings: Sequence[Finding]) -> Iterator[AnswerLine]:
    """Open findings of high and critical severity that no incident explains: a line a rule."""
    alarming = [finding for finding in findings if finding.severity.rank >= Severity.HIGH.rank and finding.rule != LOSS]
    for rule, group in _open_by_rule(alarming):
        first = group[0]
        subjects = {finding.subject for finding in group}
        more = f"   ({len(subjects) - 1} more: --rule {rule})" if len(subjects) > 1 else ""
        yield AnswerLine("", "")
        yield AnswerLine(
            first.severity.value.upper(),
            f"{rule} {first.name}   {first.subject}: {first.summary}{more}",
            first.severity,
        )
        yield AnswerLine("", f"do: {first.what_to_do}")
