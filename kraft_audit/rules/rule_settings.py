"""What people decide about rules: thresholds, and waivers of single findings.

A test compares conf/rules.yaml with the registry. A waiver accepts a finding until a day; it says who and why. An
expired waiver is a finding again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kraft_audit.rules.registry import find_rule, rules
from kraft_audit.rules.rule_model import FOR_EVER, LOSS, Finding, RuleSettings, Status, Threshold, Waiver
from kraft_audit.text.readable import time_ms_of
from kraft_audit.text.text_files import YamlError, parse_yaml

THRESHOLD_MAX: Final = 10**15
"""More than any of them can mean, and far below what 64 bits hold of the smaller units that rules count in."""
WAIVER_KEYS: Final = ("rule", "cluster", "subject", "who", "why", "until", "before")


class RuleSettingsError(Exception):
    """A value that cannot be used, exit code 2: one line with file, key, value and what was expected."""

    def __init__(self, source: str, key: str, value: object, expected: str) -> None:
        super().__init__(f"{source}: {key}: {value!r}: expected {expected}")
        self.source = source
        self.key = key
        self.value = value
        self.expected = expected


def load_rule_settings(path: Path) -> dict[str, RuleSettings]:
    """Thresholds by rule id. Raises RuleSettingsError at the first key or value that cannot be used."""
    return parse_rule_settings(path.read_text(encoding="utf-8"), str(path))


def parse_rule_settings(text: str, source: str) -> dict[str, RuleSettings]:
    """Thresholds by rule id from the text of a rules.yaml."""
    content = yaml_of(text, source)
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise RuleSettingsError(source, "(file)", content, "rule ids with their thresholds")
    return {rule_id: _of_rule(rule_id, given, source) for rule_id, given in content.items()}


def yaml_of(text: str, source: str) -> Any:
    """The content of a YAML text, None where it is empty. Raises RuleSettingsError."""
    try:
        return parse_yaml(text)
    except YamlError as problem:
        raise RuleSettingsError(source, problem.where or "(file)", problem.what, "YAML") from None


def _of_rule(rule_id: Any, given: Any, source: str) -> RuleSettings:
    known = {rule.id: rule for rule in rules().values() if rule.thresholds}
    if rule_id not in known:
        raise RuleSettingsError(source, str(rule_id), given, "a rule with thresholds" + _near(rule_id, known))
    if not isinstance(given, Mapping):
        raise RuleSettingsError(source, rule_id, given, "thresholds by name")
    thresholds = {threshold.name: threshold for threshold in known[rule_id].thresholds}
    values: dict[str, float] = {}
    for name, value in given.items():
        key = f"{rule_id}.{name}"
        if name not in thresholds:
            expected = "one of " + ", ".join(sorted(thresholds)) + _near(name, thresholds)
            raise RuleSettingsError(source, key, value, expected)
        values[name] = _threshold_value(source, key, value, thresholds[name])
    return values


def _threshold_value(source: str, key: str, value: Any, threshold: Threshold) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # YAML knows .inf and .nan, which no rule can count with: neither lies between the two.
    if not is_number or not 0 <= value <= THRESHOLD_MAX:
        unit = threshold.name.rsplit("_", 1)[-1]
        raise RuleSettingsError(source, key, value, f"a number of {unit}, 0 to {THRESHOLD_MAX}")
    checked: float = value
    return checked


def _near(word: Any, words: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(word), list(words), 1)
    return f" (did you mean {close[0]}?)" if close else ""


@dataclass(frozen=True, slots=True)
class WaiverCount:
    """What waivers did: findings waived, and findings whose waiver expired."""

    waived: int
    expired: int


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """The waivers of a waivers.yaml. Raises RuleSettingsError at the first entry that cannot be used."""
    return parse_waivers(path.read_text(encoding="utf-8"), str(path))


def parse_waivers(text: str, source: str) -> tuple[Waiver, ...]:
    """The waivers of a text: a key `waivers` with a list of entries."""
    content = yaml_of(text, source)
    if content is None:
        return ()
    entries = content.get("waivers") if isinstance(content, Mapping) and content.keys() == {"waivers"} else None
    if not isinstance(entries, list):
        raise RuleSettingsError(source, "waivers", content, "a list of waivers under the key waivers")
    return tuple(_waiver(entry, f"waivers[{number}]", source) for number, entry in enumerate(entries))


def _waiver(entry: Any, key: str, source: str) -> Waiver:
    if not isinstance(entry, Mapping):
        raise RuleSettingsError(source, key, entry, ", ".join(WAIVER_KEYS))
    for name in entry:
        if name not in WAIVER_KEYS:
            raise RuleSettingsError(source, f"{key}.{name}", entry[name], "one of " + ", ".join(WAIVER_KEYS))
    before_ms = _before_ms(entry.get("before"), f"{key}.before", source)
    rule = find_rule(str(entry.get("rule", "")))
    ends_never = rule is not None and rule.id == LOSS and before_ms is not None
    defaults = {"cluster": "*", "subject": "*", **({"until": FOR_EVER} if ends_never else {})}
    values: dict[str, str] = {}
    for name in WAIVER_KEYS[:-1]:
        value = entry.get(name, defaults.get(name))
        if name == "until" and isinstance(value, date):
            value = value.isoformat()
        if not isinstance(value, str) or not value.strip():
            raise RuleSettingsError(source, f"{key}.{name}", value, _expected(name))
        values[name] = value
    if rule is None:
        raise RuleSettingsError(source, f"{key}.rule", values["rule"], "the id or name of a rule")
    try:
        # Python reads other forms of ISO 8601 too; the tables hold the one that SQL reads.
        values["until"] = date.fromisoformat(values["until"]).isoformat()
    except ValueError:
        raise RuleSettingsError(source, f"{key}.until", values["until"], _expected("until")) from None
    return Waiver(**{**values, "rule": rule.id}, before_ms=before_ms)


def _before_ms(value: Any, key: str, source: str) -> int | None:
    """The time before which a waived finding began, in milliseconds; UTC where it names no zone."""
    if value is None:
        return None
    try:
        return time_ms_of(str(value))
    except ValueError:
        raise RuleSettingsError(source, key, value, "a time such as 2027-01-31T12:00:00Z") from None


def _expected(name: str) -> str:
    return {"until": "a day such as 2027-01-31", "who": "a name", "why": "a reason"}.get(name, "text")


def apply_waivers(
    findings: Sequence[Finding], waivers: Iterable[Waiver], now_ms: int
) -> tuple[list[Finding], WaiverCount]:
    """Marks findings that are waived, or whose waiver expired. A waiver holds to the end of its day, UTC."""
    known = tuple(waivers)
    marked = []
    for finding in findings:
        mine = [waiver for waiver in known if finding.status is Status.RAISED and _waives(waiver, finding)]
        valid = [waiver for waiver in mine if not is_expired(waiver, now_ms)]
        if valid:
            finding = finding._replace(waiver=valid[0])
        elif mine:
            finding = finding._replace(expired_waiver=mine[0])
        marked.append(finding)
    waived = sum(finding.waiver is not None and not finding.is_declared for finding in marked)
    expired = sum(finding.expired_waiver is not None for finding in marked)
    return marked, WaiverCount(waived, expired)


def _waives(waiver: Waiver, finding: Finding) -> bool:
    return matches(
        waiver, rule=finding.rule, cluster_id=finding.cluster_id, subject=finding.subject, from_ms=finding.from_ms
    )


def matches(waiver: Waiver, *, rule: str, cluster_id: str, subject: str, from_ms: int | None) -> bool:
    """Whether a waiver is about a finding; cluster and subject are exact, or shell patterns. Case matters."""
    if waiver.before_ms is not None and (from_ms is None or from_ms >= waiver.before_ms):
        return False
    return waiver.rule == rule and _fits(cluster_id, waiver.cluster) and _fits(subject, waiver.subject)


def _fits(text: str, wanted: str) -> bool:
    """A subject may hold `[3]` itself, which as a pattern stands for 3."""
    return text == wanted or fnmatchcase(text, wanted)


def is_expired(waiver: Waiver, now_ms: int) -> bool:
    return datetime.fromtimestamp(now_ms / 1000, UTC).date() > date.fromisoformat(waiver.until)
