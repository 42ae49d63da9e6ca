"""All rules in one place: a rule is a function under `@rule` and a text of the same id in `texts/`.

Everything that people read about a rule (`rules`, `explain RULE`, its page, conf/rules.yaml) comes from here.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import (
    Case,
    Finding,
    Rule,
    RuleFunction,
    RuleText,
    Scope,
    Severity,
    Status,
    Threshold,
    Thresholds,
    clear_finding,
    finding_of,
)
from kraft_codec.schemas import Dialect

FAMILIES: Final = (
    "voters",
    "voter_changes",
    "draft_voters",
    "quorum",
    "elections",
    "log_damage",
    "snapshots",
    "partitions",
    "partition_elections",
    "partition_settings",
    "brokers",
)
_RULES: dict[str, Rule] = {}


def rule(
    id: str,  # noqa: A002  # the word that rules.yaml, the tables and the pages use
    name: str,
    severity: Severity,
    scope: Scope,
    *,
    needs: tuple[str, ...],
    thresholds: tuple[Threshold, ...] = (),
    dialects: tuple[Dialect, ...] = tuple(Dialect),
) -> Callable[[RuleFunction], RuleFunction]:
    """Registers a rule. Raises ValueError where the id is taken or has no text."""

    def register(function: RuleFunction) -> RuleFunction:
        if id in _RULES:
            raise ValueError(f"rule {id} is registered twice")
        if id not in texts():
            raise ValueError(f"rule {id} has no text")
        _RULES[id] = Rule(id, name, severity, scope, needs, texts()[id], function, thresholds, dialects)
        return function

    return register


@cache
def texts() -> Mapping[str, RuleText]:
    """The texts of all rules by id."""
    found: dict[str, RuleText] = {}
    for file in sorted(files("kraft_audit.rules").joinpath("texts").iterdir(), key=lambda file: file.name):
        for id_, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
            found[id_] = _text(id_, entry)
    return found


def _text(id_: str, entry: Mapping[str, Any]) -> RuleText:
    if entry.keys() != {"raised_when", "why", "what_to_do", "sources"}:
        raise ValueError(f"text of rule {id_} has keys {sorted(entry)}")
    return RuleText(entry["raised_when"], entry["why"], entry["what_to_do"], tuple(entry["sources"]))


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, in the order of their ids."""
    for family in FAMILIES:
        import_module(f"kraft_audit.rules.{family}")
    return dict(sorted(_RULES.items()))


def find_rule(id_or_name: str) -> Rule | None:
    """A rule by its id (any case) or its name."""
    wanted = id_or_name.strip()
    return next((r for r in rules().values() if wanted.upper() == r.id or wanted.lower() == r.name), None)


def check(
    history: ClusterHistory,
    settings: Mapping[str, Thresholds] | None = None,
    *,
    only: Iterable[str] | None = None,
) -> Iterator[Finding]:
    """What the rules say of one cluster: raised, undecided and clear, rule by rule.

    `settings`: thresholds by rule id (`settings.load_rule_settings`), defaults where absent. `only`: ids to run.
    """
    wanted = None if only is None else set(only)
    for each in rules().values():
        if wanted is None or each.id in wanted:
            yield from check_rule(each, history, (settings or {}).get(each.id, {}))


def check_rule(each: Rule, history: ClusterHistory, thresholds: Thresholds) -> Iterator[Finding]:
    """What one rule says: its cases, or one finding that it is clear.

    Two cases of one subject with one beginning are told apart by their order, which is the same in every run.
    """
    if history.dialect not in each.dialects:
        yield clear_finding(each, history.cluster_id, f"does not apply to a log of dialect {history.dialect}")
        return
    missing = [name for name in each.needs if not history.has(name)]
    if missing:
        reason = f"not captured: {', '.join(missing)}"
        yield finding_of(each, history.cluster_id, Case("", reason, undecided=reason))
        return
    seen: Counter[tuple[str, int | None]] = Counter()
    for case in each.function(history, {**each.defaults, **thresholds}):
        began = case.from_offset if case.from_offset is not None else case.from_ms
        seen[case.subject, began] += 1
        count = seen[case.subject, began]
        told = case if count == 1 else replace(case, subject=f"{case.subject} #{count}")
        yield finding_of(each, history.cluster_id, told)
    if not seen:
        yield clear_finding(each, history.cluster_id)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then what still lasts, then by rule and offset."""
    return sorted(
        findings,
        key=lambda f: (
            f.status is not Status.RAISED,
            -f.severity.rank,
            f.rule,
            f.is_over,
            -1 if f.from_offset is None else f.from_offset,
            f.subject,
        ),
    )
