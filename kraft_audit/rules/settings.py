"""conf/rules.yaml: the thresholds of the rules. The file is generated from the registry and checked against it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_audit.rules.model import Threshold, Thresholds, Value
from kraft_audit.rules.registry import rules
from kraft_audit.yaml_text import YamlError, parse_yaml

THRESHOLD_MAX: Final = 10**15
"""More than any of them can mean, and far below what 64 bits hold of the smaller units that rules count in."""
HEAD: Final = """\
# Thresholds of the rules, with their defaults. What is left out keeps its default.
# `kraft-audit explain RULE` says what a rule does.
"""


class RuleSettingsError(Exception):
    """A value that cannot be used, exit code 2: one line with file, key, value and what was expected."""

    def __init__(self, source: str, key: str, value: object, expected: str) -> None:
        super().__init__(f"{source}: {key}: {value!r}: expected {expected}")
        self.source = source
        self.key = key
        self.value = value
        self.expected = expected


def settings_text() -> str:
    """The whole of conf/rules.yaml with the defaults."""
    parts = [HEAD]
    for rule in rules().values():
        if rule.thresholds:
            lines = [f"{rule.id}:  # {rule.name}"]
            lines += [f"  {t.name}: {_shown(t.default)}  # {t.comment}" for t in rule.thresholds]
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def load_rule_settings(path: Path) -> dict[str, Thresholds]:
    """Thresholds by rule id. Raises RuleSettingsError at the first key or value that cannot be used."""
    return parse_rule_settings(path.read_text(encoding="utf-8"), str(path))


def parse_rule_settings(text: str, source: str) -> dict[str, Thresholds]:
    """Thresholds by rule id from the text of a rules.yaml."""
    content = yaml_of(text, source)
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise RuleSettingsError(source, "(file)", content, "rule ids with their thresholds")
    return {rule_id: _of_rule(rule_id, given, source) for rule_id, given in content.items()}


def yaml_of(text: str, source: str) -> Any:
    """What a YAML text says, None where it is empty. Raises RuleSettingsError."""
    try:
        return parse_yaml(text)
    except YamlError as problem:
        raise RuleSettingsError(source, problem.where or "(file)", problem.what, "YAML") from None


def _of_rule(rule_id: Any, given: Any, source: str) -> Thresholds:
    known = {rule.id: rule for rule in rules().values() if rule.thresholds}
    if rule_id not in known:
        raise RuleSettingsError(source, str(rule_id), given, "a rule with thresholds" + _near(rule_id, known))
    if not isinstance(given, Mapping):
        raise RuleSettingsError(source, rule_id, given, "thresholds by name")
    thresholds = {threshold.name: threshold for threshold in known[rule_id].thresholds}
    values: dict[str, Value] = {}
    for name, value in given.items():
        key = f"{rule_id}.{name}"
        if name not in thresholds:
            expected = "one of " + ", ".join(sorted(thresholds)) + _near(name, thresholds)
            raise RuleSettingsError(source, key, value, expected)
        values[name] = _checked(source, key, value, thresholds[name])
    return values


def _checked(source: str, key: str, value: Any, threshold: Threshold) -> Value:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # YAML knows .inf and .nan, which no rule can count with: neither lies between the two.
    if not is_number or not 0 <= value <= THRESHOLD_MAX:
        unit = threshold.name.rsplit("_", 1)[-1]
        raise RuleSettingsError(source, key, value, f"a number of {unit}, 0 to {THRESHOLD_MAX}")
    checked: Value = value
    return checked


def _near(word: Any, words: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(word), list(words), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _shown(value: Value) -> str:
    return yaml.safe_dump(value).splitlines()[0]
