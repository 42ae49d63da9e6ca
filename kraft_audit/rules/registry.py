"""All rules: a rule is a function under `@rule` in `families/`, and a text of the same id in `texts/`.

Everything that people read about a rule (`rules`, `rules RULE`, its page, conf/rules.yaml) comes from here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any, Final, TypeVar

from kraft_audit.rules import families
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.rule_model import (
    Case,
    ControlName,
    Rule,
    RuleStatus,
    RuleText,
    Scope,
    Severity,
    Thresholds,
)
from kraft_codec.schemas import Dialect

ENTRY_KEYS: Final = {
    *("name", "severity", "scope", "since", "status", "raised_when", "why", "what_to_do", "sources"),
}
OPTIONAL_KEYS: Final = {"cases", "releases", "false_positives"}
RENAMED: Final = {
    "KV016": "KB008",
    "ghost-controller": "KB008",
    "KP003": "KP020",
    "unclean-election": "KP020",
    "KP004": "KP020",
    "last-known-leader-elected": "KP020",
}
"""Rules that another one took in: their ids are not used again, and waivers and `rules RULE` still find them."""
_RULES: dict[str, Rule] = {}
_Limits = TypeVar("_Limits", bound=Thresholds)
_Function = Callable[[ClusterHistory, _Limits], Iterable[Case]]


def rule(
    id: str,  # noqa: A002  # the word that rules.yaml, the tables and the pages use
    *,
    control: ControlName,
    needs: tuple[str, ...],
    thresholds: type[_Limits] = Thresholds,  # type: ignore[assignment]  # of a rule without any
    dialects: tuple[Dialect, ...] = tuple(Dialect),
    asked_by: str | None = None,
) -> Callable[[_Function[_Limits]], _Function[_Limits]]:
    """Registers a rule, whose name, severity and scope stand with its text. Raises ValueError where the id is taken or
    has no text.
    """

    def register(function: _Function[_Limits]) -> _Function[_Limits]:
        if id in _RULES:
            raise ValueError(f"rule {id} is registered twice")
        if id not in texts():
            raise ValueError(f"rule {id} has no text")
        entry = dict(texts()[id])
        name, severity, scope = entry.pop("name"), Severity(entry.pop("severity")), Scope(entry.pop("scope"))
        _RULES[id] = Rule(
            id=id,
            name=name,
            severity=severity,
            scope=scope,
            control=control,
            needs=needs,
            text=RuleText(**{**entry, "status": RuleStatus(entry["status"])}),
            function=function,
            limits=thresholds,
            dialects=dialects,
            asked_by=asked_by,
        )
        return function

    return register


@cache
def texts() -> Mapping[str, Mapping[str, Any]]:
    """The entries of all files in `texts/` by rule id."""
    entries: dict[str, Mapping[str, Any]] = {}
    for file in files("kraft_audit.rules").joinpath("texts").iterdir():
        for rule_id, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
            entries[rule_id] = _with_all_keys(rule_id, entry)
    return entries


def _with_all_keys(rule_id: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    if entry.keys() - OPTIONAL_KEYS != ENTRY_KEYS:
        raise ValueError(f"text of rule {rule_id} has keys {sorted(entry)}")
    return entry


def words_for(rule_id: str, case: str) -> dict[str, Any]:
    """The words, and the severity where it differs, of a case that the rule's own words do not fit."""
    words = dict(texts()[rule_id]["cases"][case])
    return {**words, "severity": Severity(words["severity"])} if "severity" in words else words


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, in the order of their ids."""
    for family in iter_modules(families.__path__, f"{families.__name__}."):
        import_module(family.name)
    return dict(sorted(_RULES.items()))


def find_rule(id_or_name: str) -> Rule | None:
    """A rule by its id (any case) or its name."""
    wanted = RENAMED.get(id_or_name.strip(), id_or_name.strip())
    return next((r for r in rules().values() if wanted.upper() == r.id or wanted.lower() == r.name), None)


def control_of(rule_id: str) -> ControlName | None:
    """The control that a rule is evidence for; None for a rule of another version."""
    rule_of_id = rules().get(rule_id)
    return None if rule_of_id is None else rule_of_id.control
