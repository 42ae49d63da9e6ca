"""Judges a history by the rules: cases become findings with keys, counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import declared_waiver, fitting_recoveries
from kraft_audit.rules.finding_keys import key_of
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import (
    Finding,
    Rule,
    RuleSettings,
    Status,
    clear_finding,
    finding_of,
    undecided,
)
from kraft_audit.tables.silver import SILVER
from kraft_audit.text.watched_work import doing
from kraft_codec.schemas import Dialect

CHECKING: Final = "checking rule"
NOTHING_READ: Final = "nothing of the metadata log was read"
SEVERAL_DIALECTS: Final = (
    "control records of several dialects: `dialect` of the cluster in fleet.yaml says which one wrote the log"
)
CONTROL_TABLES: Final = frozenset({"voter_sets", "leader_epochs", "watermarks"})
"""The inputs that follow from control records, which dialects read differently."""
NOTHING_REPLAYED: Final = "there is no canonical log: nothing was replayed"
REPLAYED_INPUTS: Final = frozenset({"contradictions", *(name for name in SILVER if name.endswith("_changes"))})
"""The inputs that a replay makes; without a replay they are empty, whatever happened."""


def check(
    history: ClusterHistory,
    settings: Mapping[str, RuleSettings] | None = None,
    *,
    only: Iterable[str] | None = None,
) -> Iterator[Finding]:
    """The findings of one cluster, rule by rule: raised, undecided and clear; waived what a declared rescue explains.

    `settings`: thresholds by rule id (`load_rule_settings`), defaults where absent. `only`: ids to run.
    """
    wanted = None if only is None else set(only)
    chosen = [each for each in rules().values() if wanted is None or each.id in wanted]
    findings = _check(chosen, history, settings or {})
    if not fitting_recoveries(history):
        yield from findings
        return
    for finding in findings:
        waiver = declared_waiver(history, finding)
        yield finding if waiver is None else finding._replace(waiver=waiver)


def _check(chosen: Iterable[Rule], history: ClusterHistory, settings: Mapping[str, RuleSettings]) -> Iterator[Finding]:
    for each in chosen:
        doing(f"{CHECKING} {each.id} {each.name}")
        yield from check_rule(each, history, settings.get(each.id, {}))


def check_rule(each: Rule, history: ClusterHistory, settings: RuleSettings) -> Iterator[Finding]:
    """The findings of one rule: its cases, or one finding that it is clear or undecided.

    A finding has as many cases as it has episodes.
    """
    if (finding := _not_applicable(each, history)) is not None:
        yield finding
        return
    run = _RuleRun(each, settings)
    if each.asked_by is not None and not {**each.defaults, **settings}[each.asked_by]:
        yield from run.end(history, f"not asked: {each.id}.{each.asked_by} in rules.yaml asks for it")
        return
    yield from run.findings(history)
    yield from run.end(history)


def _not_applicable(each: Rule, history: ClusterHistory) -> Finding | None:
    """The one finding of a rule that does not apply, or lacks a table that it needs; None where it can run."""
    if history.dialect is None:
        if len(each.dialects) < len(Dialect) or CONTROL_TABLES.intersection(each.needs):
            return _undecided_rule(each, history, SEVERAL_DIALECTS)
    elif history.dialect not in each.dialects:
        if not history.is_read:
            return _undecided_rule(each, history, NOTHING_READ)
        reason = f"does not apply to a log of dialect {history.dialect}"
        return clear_finding(each, history.cluster_id, reason, history.history_id)
    missing = history.lacking(each.needs)
    return _undecided_rule(each, history, f"not captured: {', '.join(missing)}") if missing else None


def _undecided_rule(each: Rule, history: ClusterHistory, reason: str) -> Finding:
    return finding_of(each, history.cluster_id, undecided("", reason), history.history_id)


def unreplayed_reason(history: ClusterHistory) -> str | None:
    """Why a cluster has no replayed state, so that an empty one proves nothing; None where it was replayed."""
    if not history.is_read:
        return NOTHING_READ
    return None if history.is_replayed else NOTHING_REPLAYED


EpisodeKey = tuple[str, int | None]
"""What a finding is known by, and the offset or the time where the episode began."""


class _RuleRun:
    """One rule's findings of one history."""

    def __init__(self, each: Rule, settings: RuleSettings) -> None:
        self.rule = each
        self._limits = each.limits_of(settings)
        self._counts: dict[EpisodeKey, int] = {}

    def findings(self, history: ClusterHistory) -> Iterator[Finding]:
        for case in self.rule.function(history, self._limits):
            key = key_of(self.rule.id, self.rule.scope, history, case)
            episode = (key, case.from_ms if case.from_offset is None else case.from_offset)
            count = self._counts[episode] = self._counts.get(episode, 0) + 1
            if count > 1:
                # Two cases with one key are a fault of the key, which tests find; neither case may be lost for it.
                key = f"{key} #{count}"
            yield finding_of(self.rule, history.cluster_id, case, history.history_id, key)

    def end(self, history: ClusterHistory, reason: str | None = None) -> Iterator[Finding]:
        """The finding of a rule without a case: clear, or undecided where it could not have found one."""
        if self._counts:
            return
        is_blind = not history.is_read or REPLAYED_INPUTS.intersection(self.rule.needs)
        if is_blind and (unseen := unreplayed_reason(history)) is not None:
            yield _undecided_rule(self.rule, history, unseen)
        else:
            yield clear_finding(self.rule, history.cluster_id, reason, history.history_id)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Raised ones first, the worst of them first, then by rule; within a rule those that last, the oldest first."""

    def order(finding: Finding) -> tuple[Any, ...]:
        began = -1 if finding.from_offset is None else finding.from_offset
        kind = (finding.status is not Status.RAISED, -finding.severity.rank, finding.rule)
        return *kind, finding.is_over, began, finding.subject

    return sorted(findings, key=order)
