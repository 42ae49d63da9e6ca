"""All rules in one place: a rule is a function under `@rule` and a text of the same id in `texts/`.

Everything that people read about a rule (`rules`, `explain RULE`, its page, conf/rules.yaml) comes from here.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.tables import PARTITION_CHANGES, SILVER
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import (
    Finding,
    RowsThatMatter,
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
    undecided,
)
from kraft_audit.rules.partition_states import partition_states
from kraft_audit.rules.parts import SCHEMA
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
    "advisories",
)
NOTHING_READ: Final = "nothing of the metadata log was read"
NOTHING_REPLAYED: Final = "there is no canonical log: nothing was replayed"
REPLAYED: Final = frozenset({"contradictions", *(name for name in SILVER if name.endswith("_changes"))})
"""What a replay gives; without one it is empty, whatever happened."""
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
    across: RowsThatMatter | None = None,
    asked_by: str | None = None,
) -> Callable[[RuleFunction], RuleFunction]:
    """Registers a rule. Raises ValueError where the id is taken or has no text."""

    def register(function: RuleFunction) -> RuleFunction:
        if id in _RULES:
            raise ValueError(f"rule {id} is registered twice")
        if id not in texts():
            raise ValueError(f"rule {id} has no text")
        _RULES[id] = Rule(
            id, name, severity, scope, needs, texts()[id], function, thresholds, dialects, across, asked_by
        )
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
    chosen = [each for each in rules().values() if wanted is None or each.id in wanted]
    by_part = [] if history.parts is None else [each for each in chosen if PARTITION_CHANGES.name in each.needs]
    for each in chosen:
        if each not in by_part:
            yield from check_rule(each, history, (settings or {}).get(each.id, {}))
    yield from _check_by_part(by_part, history, settings or {})


def check_rule(each: Rule, history: ClusterHistory, thresholds: Thresholds) -> Iterator[Finding]:
    """What one rule says: its cases, or one finding that it is clear.

    Two cases of one subject with one beginning are told apart by their order, which is the same in every run.
    """
    if (refused := _refused(each, history)) is not None:
        yield refused
        return
    telling = _Telling(each, thresholds)
    if each.asked_by is not None and not telling.thresholds[each.asked_by]:
        yield from telling.end(history, f"not asked: {each.id}.{each.asked_by} in rules.yaml asks for it")
        return
    yield from telling.tell(history)
    yield from telling.end(history)


def _refused(each: Rule, history: ClusterHistory) -> Finding | None:
    """What a rule says that cannot be asked: it does not apply, or lacks what it needs."""
    if history.dialect not in each.dialects:
        if not history.is_read:
            return _undecided(each, history, NOTHING_READ)
        return clear_finding(each, history.cluster_id, f"does not apply to a log of dialect {history.dialect}")
    missing = [name for name in each.needs if not history.has(name)]
    if missing:
        return _undecided(each, history, f"not captured: {', '.join(missing)}")
    return None


def nothing_told(history: ClusterHistory) -> str | None:
    """Why the state of a cluster is empty, where that says nothing of the cluster; None where it was replayed."""
    if not history.is_read:
        return NOTHING_READ
    return None if history.is_replayed else NOTHING_REPLAYED


def _not_looked(each: Rule, history: ClusterHistory) -> str | None:
    """Why that a rule found nothing says nothing: there was nothing in which it could have found it."""
    is_asked = not history.is_read or REPLAYED.intersection(each.needs)
    return nothing_told(history) if is_asked else None


def _undecided(each: Rule, history: ClusterHistory, reason: str) -> Finding:
    return finding_of(each, history.cluster_id, undecided("", reason))


class _Telling:
    """One rule's findings, of one history or of its parts in turn."""

    def __init__(self, each: Rule, thresholds: Thresholds) -> None:
        self.rule = each
        self.thresholds = {**each.defaults, **thresholds}
        self._seen: dict[tuple[str, int | None], int] = {}

    def tell(self, history: ClusterHistory, *, is_later_part: bool = False) -> Iterator[Finding]:
        for case in self.rule.function(history, self.thresholds):
            began = case.from_offset if case.from_offset is not None else case.from_ms
            key = (case.subject, began)
            # What a rule says of the whole cluster it says of every part of it.
            if is_later_part and case.subject == Scope.CLUSTER and key in self._seen:
                continue
            count = self._seen[key] = self._seen.get(key, 0) + 1
            told = case if count == 1 else case._replace(subject=f"{case.subject} #{count}")
            yield finding_of(self.rule, history.cluster_id, told)

    def end(self, history: ClusterHistory, reason: str | None = None) -> Iterator[Finding]:
        """What is said where nothing was found, and why nothing could be."""
        if not self._seen:
            why = _not_looked(self.rule, history)
            yield (
                clear_finding(self.rule, history.cluster_id, reason)
                if why is None
                else _undecided(self.rule, history, why)
            )


def _check_by_part(
    some: Iterable[Rule], history: ClusterHistory, settings: Mapping[str, Thresholds]
) -> Iterator[Finding]:
    """What rules about partitions say of a history that is read back by parts, each part once."""
    tellings = []
    for each in some:
        if (refused := _refused(each, history)) is not None:
            yield refused
        else:
            tellings.append(_Telling(each, settings.get(each.id, {})))
    kept: dict[str, list[pa.Table]] = {telling.rule.id: [] for telling in tellings}
    for number, part in enumerate(history.histories_by_part()):
        for telling in tellings:
            if telling.rule.across is None:
                for finding in telling.tell(part, is_later_part=number > 0):
                    # Evidence that is put into words later would hold the part until then.
                    yield finding._replace(evidence=tuple(finding.evidence))
            else:
                mask = telling.rule.across(part)
                kept[telling.rule.id].append(partition_states(part).rows_where(mask))
    for telling in tellings:
        if telling.rule.across is not None:
            rows = pa.concat_tables([SCHEMA.empty_table(), *kept[telling.rule.id]])
            yield from telling.tell(history.with_partitions(rows))
        yield from telling.end(history)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then what still lasts, then by rule and offset."""
    groups: dict[tuple[bool, Severity, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.status is not Status.RAISED, finding.severity, finding.rule].append(finding)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -group[0][1].rank, group[0][2]))
    return [finding for _, group in ordered for finding in sorted(group, key=_age)]


def _age(finding: Finding) -> tuple[bool, int, str]:
    """What lasts comes first, then the oldest."""
    offset = finding.from_offset
    return finding.is_over, -1 if offset is None else offset, finding.subject
