"""Waivers: findings that somebody accepts, who and why, until a day. An expired waiver is a finding again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kraft_audit.rules.model import Finding, Status, Waiver
from kraft_audit.rules.registry import find_rule
from kraft_audit.rules.settings import RuleSettingsError, yaml_of

KEYS: Final = tuple(field.name for field in fields(Waiver))


@dataclass(frozen=True, slots=True)
class WaiverCount:
    """What waivers did: findings waived, findings whose waiver expired, waivers that match nothing."""

    waived: int
    expired: int
    unused: tuple[Waiver, ...]


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
        raise RuleSettingsError(source, key, entry, ", ".join(KEYS))
    for name in entry:
        if name not in KEYS:
            raise RuleSettingsError(source, f"{key}.{name}", entry[name], "one of " + ", ".join(KEYS))
    values: dict[str, str] = {}
    for name in KEYS:
        value = entry.get(name, "*" if name in ("cluster", "subject") else None)
        if name == "until" and isinstance(value, date):
            value = value.isoformat()
        if not isinstance(value, str) or not value.strip():
            raise RuleSettingsError(source, f"{key}.{name}", value, _expected(name))
        values[name] = value
    rule = find_rule(values["rule"])
    if rule is None:
        raise RuleSettingsError(source, f"{key}.rule", values["rule"], "the id or name of a rule")
    try:
        # Other forms of ISO 8601 are days to Python alone: in the tables stands the one that SQL reads too.
        values["until"] = date.fromisoformat(values["until"]).isoformat()
    except ValueError:
        raise RuleSettingsError(source, f"{key}.until", values["until"], _expected("until")) from None
    return Waiver(**{**values, "rule": rule.id})


def _expected(name: str) -> str:
    return {"until": "a day such as 2027-01-31", "who": "a name", "why": "a reason"}.get(name, "text")


def apply_waivers(
    findings: Sequence[Finding], waivers: Iterable[Waiver], now_ms: int
) -> tuple[list[Finding], WaiverCount]:
    """Marks findings that are waived, or whose waiver expired. A waiver holds to the end of its day, UTC."""
    known = tuple(waivers)
    used: set[Waiver] = set()
    marked = []
    for finding in findings:
        mine = [waiver for waiver in known if finding.status is Status.RAISED and _is_about(waiver, finding)]
        used.update(mine)
        valid = [waiver for waiver in mine if not is_expired(waiver, now_ms)]
        if valid:
            finding = finding._replace(waiver=valid[0])
        elif mine:
            finding = finding._replace(expired_waiver=mine[0])
        marked.append(finding)
    waived = sum(finding.waiver is not None for finding in marked)
    expired = sum(finding.expired_waiver is not None for finding in marked)
    return marked, WaiverCount(waived, expired, tuple(waiver for waiver in known if waiver not in used))


def _is_about(waiver: Waiver, finding: Finding) -> bool:
    return matches(waiver, rule=finding.rule, cluster_id=finding.cluster_id, subject=finding.subject)


def matches(waiver: Waiver, *, rule: str, cluster_id: str, subject: str) -> bool:
    """Whether a waiver is about a finding; cluster and subject are as told, or shell patterns. Case matters."""
    return waiver.rule == rule and _fits(cluster_id, waiver.cluster) and _fits(subject, waiver.subject)


def _fits(text: str, wanted: str) -> bool:
    """A subject may hold `[3]` itself, which as a pattern stands for 3."""
    return text == wanted or fnmatchcase(text, wanted)


def is_expired(waiver: Waiver, now_ms: int) -> bool:
    return datetime.fromtimestamp(now_ms / 1000, UTC).date() > date.fromisoformat(waiver.until)
