"""What people read about rules: the list, one explanation, and a documentation page, all from the registry."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Rule
from kraft_audit.text.wrapping import wrapped

WIDTH: Final = 110
"""Longer lines are hard to read, however wide the terminal."""
_ID: Final = re.compile(r"([A-Z]{2})0*([1-9][0-9]{0,2})")


def rule_rows() -> list[dict[str, Any]]:
    """All rules as rows, for `rules` in any output format."""
    return [
        {
            "rule": rule.id,
            "name": rule.name,
            "severity": rule.severity.value,
            "scope": rule.scope.value,
            "raised_when": rule.text.raised_when,
            "needs": list(rule.needs),
            "thresholds": dict(rule.defaults),
            "why": rule.text.why,
            "what_to_do": rule.text.what_to_do,
            "sources": list(rule.text.sources),
            "since": rule.text.since,
            "status": rule.text.status.value,
            "control": rule.control,
            "releases": list(rule.text.releases),
            "false_positives": list(rule.text.false_positives),
            "references": list(rule.text.references),
        }
        for rule in rules().values()
    ]


def explanation(rule: Rule, width: int = WIDTH) -> list[str]:
    """A rule in a few lines of at most so many characters, with the defaults of its thresholds."""
    part = functools.partial(_paragraph, width=width)
    lines = [f"{rule.id} {rule.name}   {rule.severity.value}", ""]
    lines += part("when", rule.text.raised_when)
    lines += part("why", rule.text.why)
    lines += part("do", rule.text.what_to_do)
    for threshold in rule.thresholds:
        lines += part("set", f"{threshold.name} = {threshold.default} (conf/rules.yaml): {threshold.comment}")
    for text in rule.text.false_positives:
        lines += part("but", text)
    lines += part("needs", ", ".join(rule.needs))
    lines += part("see", "; ".join((*rule.text.sources, *rule.text.references)))
    lines += part("rule", f"{_provenance(rule)}.")
    return lines


def _provenance(rule: Rule) -> str:
    return f"{rule.text.status}, since {rule.text.since}; Kafka {rule.text.affected}; control {rule.control}"


def _paragraph(head: str, text: str, width: int) -> list[str]:
    """A paragraph with its head at the left."""
    return wrapped(f"  {head:<6}{text}", width, hanging=8)


def page(rule: Rule) -> str:
    """The documentation page of a rule, as Markdown."""
    parts = [
        f"# {rule.id} {rule.name}",
        f"Severity: **{rule.severity.value}**. About: {rule.scope.value}. {_provenance(rule).capitalize()}.",
        f"## Raised when\n{rule.text.raised_when}",
        f"## Why it matters\n{rule.text.why}",
        f"## What to do\n{rule.text.what_to_do}",
    ]
    if rule.thresholds:
        rows = [f"| `{t.name}` | {t.default} | {t.comment} |" for t in rule.thresholds]
        table = "\n".join(["| name | default | meaning |", "| --- | --- | --- |", *rows])
        parts.append(f"## Thresholds\nIn `conf/rules.yaml` under `{rule.id}`.\n\n{table}")
    if rule.text.false_positives:
        parts.append("## Known false positives\n" + "\n".join(f"* {text}" for text in rule.text.false_positives))
    needs = ", ".join(f"`{name}`" for name in rule.needs)
    parts.append(f"## Needs\n{needs}. Without them it says undecided, and why.")
    references = (*rule.text.sources, *(f"<{address}>" for address in rule.text.references))
    parts.append("## Sources\n" + "\n".join(f"* {reference}" for reference in references))
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The page that lists all rules, as Markdown."""
    rows = [
        f"| [{rule.id}]({rule.id}.md) | {rule.name} | {rule.severity.value} | {rule.text.raised_when} |"
        for rule in rules().values()
    ]
    return "\n".join(
        ["# The findings", "", "| id | name | severity | raised when |", "| --- | --- | --- | --- |", *rows, ""]
    )


def pages() -> Mapping[str, str]:
    """File name → Markdown of every page."""
    return {"index.md": index(), **{f"{rule.id}.md": page(rule) for rule in rules().values()}}


def near(text: str) -> str | None:
    """The id of the rule that was most likely meant: of an id the one of that number, if there is one."""
    if (id_match := _ID.fullmatch(text.strip().upper())) and (id_ := f"{id_match[1]}{int(id_match[2]):03d}") in rules():
        return id_
    names = {name: rule.id for rule in rules().values() for name in (rule.id, rule.name)}
    matches = difflib.get_close_matches(text.strip(), names, 1) or difflib.get_close_matches(
        text.strip().upper(), names, 1
    )
    return names[matches[0]] if matches else None
