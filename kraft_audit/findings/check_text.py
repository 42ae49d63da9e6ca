"""What `check` prints: the worst first, grouped by rule, so that a reader knows within a minute what is at risk.

Damage that no finding cites (refused, doubled, not read) is named all the same, and so is what a part of the log did:
the topics, partitions, brokers, configs and voters that its records change.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow.compute as pc

from kraft_audit.findings.finding_formats import distinct_advice
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.judging import by_severity
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Evidence, Finding, Severity, Status
from kraft_audit.rules.rule_settings import WaiverCount
from kraft_audit.tables.contract import Table
from kraft_audit.tables.silver import CONFIG_CHANGES, PARTITION_CHANGES, SILVER, TOPIC_CHANGES
from kraft_audit.text.readable import committed_text, duration, nouns, plural, when
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE, METADATA_VERSIONS

DETAIL_INDENT: Final = " " * 10
RULES_ON_A_LINE: Final = 10
NAMES_SHOWN: Final = 8
NAMES_MAX: Final = 12
"""How many of a rule's unlisted subjects one line names; where there are no more than NAMES_MAX, all of them."""
ADVICE_SHOWN: Final = 4
"""How many different advices are shown of one rule, unless everything is asked for."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output; `severity` is set where it is a heading that may be coloured."""

    text: str
    severity: Severity | None = None


def check_lines(
    history: ClusterHistory,
    findings: Iterable[Finding],
    *,
    path: str,
    show_all: bool = False,
    in_full: bool = False,
    is_whole: bool = False,
    waivers: WaiverCount | None = None,
) -> Iterator[Line]:
    """The whole output for one cluster. `in_full` lists every subject, else the first of each rule; `is_whole` says
    that the findings are those of all rules."""
    ordered = by_severity(findings)
    yield Line(headline(history))
    if is_whole and (damage := uncited_text(history, ordered)) is not None:
        yield Line(damage)
    yield Line("")
    shown = [f for f in ordered if f.status is Status.RAISED and f.waiver is None]
    for _, group in groupby(shown, key=lambda finding: (finding.severity, finding.rule)):
        for alike in _by_why(group):
            yield from _group_lines(alike, history, in_full)
    undecided = [f for f in ordered if f.status is Status.UNDECIDED]
    yield from _undecided_lines(undecided, in_full, is_first=not shown)
    yield from _declared_lines([f for f in ordered if f.is_declared])
    if show_all:
        for finding in ordered:
            if finding.status is Status.CLEAR:
                yield Line(f"CLEAR     {finding.rule} {finding.name}   {finding.summary}")
    yield Line(summary_line(ordered, path, waivers))


def headline(history: ClusterHistory) -> str:
    """Cluster, metadata.version, how much was captured, how far it is proven, and the span of the log's times."""
    parts = [history.title]
    level = feature_level(history, METADATA_VERSION_FEATURE)
    if level is not None:
        parts.append(f"metadata.version {METADATA_VERSIONS.get(level, level)}")
    newest = newest_watermark(history)
    if newest is not None:
        captured, voters = len(newest["captured_voters"]), len(newest["voters"])
        low, end = newest["low"], newest["canonical_end_offset"]
        parts.append(f"{captured} of {voters} voters captured")
        parts.append(committed_text(low, low))
        parts.append("no canonical log" if end is None else f"log end offset {end}")
    if history.states_from > 0:
        parts.append(f"states from offset {history.states_from} on")
    span = time_span(history)
    if span:
        parts.append(span)
    return "   ".join(parts)


def time_span(history: ClusterHistory) -> str:
    """From when to when the log covers, in words; empty where no time is known."""
    begin_ms, end_ms = history.begin_ms, history.end_ms
    if begin_ms is None or end_ms is None:
        return ""
    begin_ms = min(begin_ms, end_ms)
    return f"{when(begin_ms)} to {when(end_ms, begin_ms)} UTC"


def _by_why(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """The findings of one rule in groups, each with its own reason why they matter."""
    by_why: dict[str, list[Finding]] = {}
    for finding in findings:
        by_why.setdefault(finding.why, []).append(finding)
    return by_why.values()


def _group_lines(group: Sequence[Finding], history: ClusterHistory, in_full: bool) -> Iterator[Line]:
    first = group[0]
    now = [finding for finding in group if not finding.is_over]
    yield Line(_group_head(group, now, history), first.severity)
    listed = group if in_full else (now or group)[:1]
    for finding in listed:
        yield Line(f"{DETAIL_INDENT}{_subject_line(finding)}")
        if in_full:
            for fact in finding.evidence:
                yield Line(f"{DETAIL_INDENT}  {_evidence_line(fact)}")
    if len(listed) < len(group):
        yield Line(f"{DETAIL_INDENT}{_others(group, listed)}   --rule {first.rule}")
    yield Line(f"    why   {_first_sentence(first.why)}")
    yield from _advice_lines(now or group, in_full)
    yield Line("")


def _advice_lines(findings: Sequence[Finding], in_full: bool) -> Iterator[Line]:
    """What to do, a line each: partitions of one rule may need different brokers back."""
    distinct = distinct_advice((finding.subject, finding.what_to_do) for finding in findings)
    if len(distinct) == 1:
        yield Line(f"    do    {distinct[0].text}")
        return
    shown = distinct if in_full else distinct[:ADVICE_SHOWN]
    for advice in shown:
        count = len(advice.subjects)
        yield Line(f"    do    {count} {_noun(findings[0], count)} ({advice.names}): {advice.text}")
    rest = distinct[len(shown) :]
    if rest:
        count = sum(len(advice.subjects) for advice in rest)
        noun = _noun(findings[0], count)
        yield Line(f"    do    {count} more {noun} need{'s' * (count == 1)} something else: --rule {findings[0].rule}")


def _others(group: Sequence[Finding], listed: Sequence[Finding]) -> str:
    """The subjects that are not listed: those that last by name, as far as a line has room."""
    shown = {id(finding) for finding in listed}
    others = [finding for finding in group if id(finding) not in shown]
    names = list(dict.fromkeys(finding.subject for finding in others if not finding.is_over))
    past = sum(finding.is_over for finding in others)
    ended = f"{past} more resolved"
    if not names:
        return ended
    mark = ", " if any(" " in name for name in names) else " "
    named = mark.join(names if len(names) <= NAMES_MAX else [*names[:NAMES_SHOWN], "…"])
    return f"{len(others) - past} more: {named}" + (f"; {ended}" if past else "")


def _group_head(group: Sequence[Finding], now: Sequence[Finding], history: ClusterHistory) -> str:
    first = group[0]
    head = f"{first.severity.value.upper():<9} {first.rule} {first.name}"
    subjects = {finding.subject.split(" #")[0] for finding in now or group}
    counted = f"{len(subjects)} {_noun(first, len(subjects))}"
    if len(subjects) < len(now or group):
        counted += f", {len(now or group)} times"
    if not now:
        ends = [finding.to_ms for finding in group if finding.to_ms]
        return f"{head}   {counted}, resolved{f' by {when(max(ends))}' if ends else ''}"
    began = [finding.from_ms for finding in now if finding.from_ms]
    if not began:
        return f"{head}   {counted}"
    lasted = "" if history.end_ms is None else f" ({duration(history.end_ms - min(began))})"
    return f"{head}   {counted}, since {when(min(began))}{lasted}"


def _noun(finding: Finding, count: int) -> str:
    noun = {"partition": "partition", "broker": "node"}.get(finding.scope.value, "finding")
    if finding.scope.value == "partition" and finding.subject.startswith("topic "):
        noun = "topic"
    return noun if count == 1 else f"{noun}s"


def _subject_line(finding: Finding) -> str:
    where = []
    if finding.from_offset is not None and finding.from_offset >= 0:
        where.append(f"offset {finding.from_offset}")
    if finding.epoch is not None:
        where.append(f"leader epoch {finding.epoch}")
    if finding.is_over and finding.to_ms is not None and finding.from_ms is not None:
        where.append(f"resolved after {duration(finding.to_ms - finding.from_ms)}")
    elif finding.is_over:
        where.append("resolved")
    if finding.expired_waiver is not None:
        where.append(f"waiver of {finding.expired_waiver.who} expired {finding.expired_waiver.until}")
    return f"{finding.subject}    {finding.summary}   {', '.join(where)}".rstrip()


def _evidence_line(fact: Evidence) -> str:
    parts = [] if fact.after is not None and fact.after.startswith(fact.text) else [fact.text]
    if fact.before is not None or fact.after is not None:
        parts.append(f"{fact.before or '(nothing)'} → {fact.after or '(nothing)'}")
    if fact.offset is not None:
        parts.append(f"offset {fact.offset}")
    if fact.timestamp_ms:
        parts.append(when(fact.timestamp_ms))
    place = "/".join(part for part in (fact.path, fact.file_name) if part)
    if place:
        parts.append(place if fact.position is None else f"{place} at byte {fact.position}")
    return "   ".join(parts)


def _undecided_lines(findings: Sequence[Finding], in_full: bool, is_first: bool) -> Iterator[Line]:
    """A line for each rule; where many rules are undecided for one reason, one line for all of them.

    The number of such rules does not count those that are listed by name.
    """
    counts = Counter(finding.reason for finding in findings if not finding.subject)
    together = {} if in_full else {reason: count for reason, count in counts.items() if count >= RULES_ON_A_LINE}
    named = [finding for finding in findings if finding.subject or finding.reason not in together]
    yield from _undecided_rules(named, in_full)
    for reason, count in together.items():
        yield Line(f"UNDECIDED {count} {'' if is_first and not named else 'other '}rules   {reason}")
    if findings:
        yield Line("")


def _declared_lines(findings: Sequence[Finding]) -> Iterator[Line]:
    """A line for each rule whose findings a declared rescue explains."""
    for rule, group in groupby(sorted(findings, key=lambda f: f.rule), key=lambda f: f.rule):
        known = list(group)
        why = "" if known[0].waiver is None else known[0].waiver.why
        count = f" ({len(known)})" if len(known) > 1 else ""
        yield Line(f"DECLARED  {rule} {known[0].name}{count}   {known[0].subject}: {known[0].summary}; {why}")
    if findings:
        yield Line("")


def _undecided_rules(findings: Sequence[Finding], in_full: bool) -> Iterator[Line]:
    for rule, group in groupby(sorted(findings, key=lambda f: f.rule), key=lambda f: f.rule):
        known = list(group)
        subjects = ", ".join(dict.fromkeys(f.subject for f in known if f.subject)) if in_full or len(known) < 4 else ""
        count = f" ({len(known)})" if len(known) > 1 else ""
        yield Line(f"UNDECIDED {rule} {known[0].name}{count}   {subjects}{': ' if subjects else ''}{known[0].reason}")


def last_holder(finding: Finding) -> str:
    """The broker that a finding of KP001 names first in its summary."""
    return finding.summary.split(" ", 2)[1]


def summary_line(findings: Sequence[Finding], path: str, waivers: WaiverCount | None = None) -> str:
    """How many of each severity, how many undecided, and what to run next."""
    raised = [f for f in findings if f.status is Status.RAISED and f.waiver is None]
    of_each = Counter((finding.severity, finding.is_over) for finding in raised)
    counts = []
    for severity in sorted(Severity, key=lambda s: -s.rank):
        past = of_each[severity, True]
        if count := of_each[severity, False] + past:
            counts.append(f"{count} {severity.value}" + (f" ({past} resolved)" if past else ""))
    counts.append(f"{sum(f.status is Status.UNDECIDED for f in findings)} undecided")
    if declared := sum(f.is_declared for f in findings):
        counts.append(f"{declared} declared")
    if waivers is not None and (waivers.waived or waivers.expired):
        counts.append(f"{waivers.waived} waived, {waivers.expired} waivers expired")
    quoted = shlex.quote(path)
    next_steps = [f"rules {raised[0].rule}", f"timeline {quoted}"] if raised else []
    holders = [f for f in raised if f.rule == "KP001" and not f.is_over]
    if holders:
        last = last_holder(holders[0])
        next_steps.append(f"whatif {quoted} --lose {last}")
    tail = f"   {' · '.join(next_steps)}" if next_steps else ""
    return f"{', '.join(counts) if raised else 'nothing raised, ' + ', '.join(counts)}.{tail}"


def _first_sentence(text: str) -> str:
    return text.split(". ", 1)[0].rstrip(".")


PLACES_NAMED: Final = 3


def uncited_text(history: ClusterHistory, findings: Iterable[Finding]) -> str | None:
    """One line about the rows of `decode_errors` that no finding has as evidence; None where each is cited."""
    rows = history.rows("decode_errors")
    if not rows:
        return None
    of_damage = {rule.id for rule in rules().values() if "decode_errors" in rule.needs}
    cited = {
        (fact.path, fact.file_name, fact.position)
        for finding in findings
        if finding.rule in of_damage
        for fact in finding.evidence
    }
    by_reason: dict[str, list[TableRow]] = {}
    for row in rows:
        if (row["path"] or row["root"], row["file_name"], row["position"]) not in cited:
            by_reason.setdefault(row["reason"], []).append(row)
    if not by_reason:
        return None
    count = sum(map(len, by_reason.values()))
    parts = []
    for reason, uncited in by_reason.items():
        named = "; ".join(f"{_place(row)}: {row['detail']}" for row in uncited[:PLACES_NAMED])
        more = f"; {len(uncited) - PLACES_NAMED} more" if len(uncited) > PLACES_NAMED else ""
        parts.append(f"{len(uncited)} {reason} ({named}{more})")
    return f"{plural(count, 'place')} not read or not trusted, besides the findings: {', '.join(parts)}."


def _place(row: TableRow) -> str:
    place = "/".join(part for part in (row["path"] or row["root"], row["file_name"]) if part)
    return place if row["node_id"] is None else f"node {row['node_id']}, {place}"


TOPICS_NAMED: Final = 3
COUNTED: Final = sorted(
    (table for table in SILVER.values() if table.change and table not in (PARTITION_CHANGES, TOPIC_CHANGES)),
    key=lambda table: table is not CONFIG_CHANGES,
)
"""The tables of which rows are counted, what people write first; topics and partitions are named instead."""


def operations_from(history: ClusterHistory, from_offset: int) -> list[str]:
    """What the records from `from_offset` on do, topics first; empty where they only keep the log going."""
    partitions = _rows_from(history, PARTITION_CHANGES, from_offset)
    by_topic = Counter(topic for topic, _ in {(row["topic"], row["partition"]) for row in partitions if row["exists"]})
    texts = []
    created = {row["topic"]: row["exists"] for row in _rows_from(history, TOPIC_CHANGES, from_offset)}
    for exists, verb in ((True, "created"), (False, "removed")):
        names = [name for name, is_there in created.items() if is_there is exists]
        shown = [f'"{name}"' + (f" with {plural(by_topic[name], 'partition')}" if exists else "") for name in names]
        if len(names) > TOPICS_NAMED:
            shown = [*shown[:TOPICS_NAMED], f"{len(names) - TOPICS_NAMED} more"]
        if names:
            texts.append(f"{nouns('topic', shown)} {verb}")
    changed = sum(1 for row in partitions if row["topic"] not in created)
    texts += [plural(changed, PARTITION_CHANGES.change)] if changed else []
    for table in COUNTED:
        count = len(_rows_from(history, table, from_offset))
        texts += [plural(count, table.change)] if count else []
    return texts


def _rows_from(history: ClusterHistory, table: Table, from_offset: int) -> list[TableRow]:
    known = history.chunked_table(table.name)
    rows: list[TableRow] = known.filter(pc.greater_equal(known["from_offset"], from_offset)).to_pylist()
    return rows
