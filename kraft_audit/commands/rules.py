"""`rules` and `explain`: what can be found, and what it means."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraft_audit.commands.arguments import OutputFormat
from kraft_audit.commands.ending import UsageError
from kraft_audit.output import Column, Format, Output

COLUMNS: Final = (
    Column("rule", "rule"),
    Column("name", "name"),
    Column("severity", "severity"),
    Column("raised_when", "raised when", is_wide=True),
)


def rules(output: OutputFormat = Format.TABLE) -> None:
    """List every rule that check applies.

    \b
    Examples:
      kraft-audit rules
      kraft-audit rules --output json
    """
    from kraft_audit.rules.pages import rule_rows

    rows = rule_rows()
    Output(output).rows(rows, COLUMNS, rows[0])


def explain(
    rule: Annotated[str, typer.Argument(metavar="RULE", show_default=False, help="Id or name of a rule.")],
) -> None:
    """Explain a rule: when it is raised, why it matters, what to do, what it needs, where that is written.

    \b
    Examples:
      kraft-audit explain KP001
      kraft-audit explain last-replica-standing
    """
    from kraft_audit.rules import pages, registry

    found = registry.find_rule(rule)
    if found is None:
        near = pages.near(rule)
        raise UsageError(f"no rule {rule!r}{f', perhaps {near}' if near else ''}: `kraft-audit rules` lists them")
    out = Output()
    for line in pages.explain(found, width=min(pages.WIDTH, out.room or pages.WIDTH)):
        out.text(line)
