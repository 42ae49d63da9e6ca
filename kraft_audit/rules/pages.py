"""What people read about rules: the list, one explanation, and a documentation page, all from the registry."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kraft_audit.rules.model import Rule, Thresholds
from kraft_audit.rules.registry import rules


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
        }
        for rule in rules().values()
    ]


def explain(rule: Rule, thresholds: Thresholds | None = None) -> list[str]:
    """A rule in a few lines; thresholds as set, defaults where not."""
    lines = [f"{rule.id} {rule.name}   {rule.severity.value}", ""]
    lines += _part("when", rule.text.raised_when)
    lines += _part("why", rule.text.why)
    lines += _part("do", rule.text.what_to_do)
    for threshold in rule.thresholds:
        value = (thresholds or {}).get(threshold.name, threshold.default)
        lines += _part("set", f"{threshold.name} = {value} (conf/rules.yaml): {threshold.comment}")
    lines += _part("needs", ", ".join(rule.needs))
    lines += _part("see", "; ".join(rule.text.sources))
    return lines


def _part(head: str, text: str, width: int = 110) -> list[str]:
    """A paragraph with its head at the left."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width - 8:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    lines.append(line)
    return [f"  {head if number == 0 else '':<6}{each}" for number, each in enumerate(lines)]


def page(rule: Rule) -> str:
    """The documentation page of a rule, as Markdown."""
    parts = [
        f"# {rule.id} {rule.name}",
        f"Severity: **{rule.severity.value}**. About: {rule.scope.value}.",
        f"## Raised when\n{rule.text.raised_when}",
        f"## Why it matters\n{rule.text.why}",
        f"## What to do\n{rule.text.what_to_do}",
    ]
    if rule.thresholds:
        rows = [f"| `{t.name}` | {t.default} | {t.comment} |" for t in rule.thresholds]
        table = "\n".join(["| name | default | meaning |", "| --- | --- | --- |", *rows])
        parts.append(f"## Thresholds\nIn `conf/rules.yaml` under `{rule.id}`.\n\n{table}")
    needs = ", ".join(f"`{name}`" for name in rule.needs)
    parts.append(f"## Needs\n{needs}. Without them it says undecided, and why.")
    parts.append("## Sources\n" + "\n".join(f"* {source}" for source in rule.text.sources))
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
    """The id of the rule that was most likely meant."""
    names = {name: rule.id for rule in rules().values() for name in (rule.id, rule.name)}
    found = difflib.get_close_matches(text.strip(), names, 1) or difflib.get_close_matches(
        text.strip().upper(), names, 1
    )
    return names[found[0]] if found else None
