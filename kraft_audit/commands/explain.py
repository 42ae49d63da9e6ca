"""`explain`: what a rule finds, and what it means."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft_audit.commands.arguments import rule_id
from kraft_audit.text.output import Output


def explain(
    rule: Annotated[str, typer.Argument(metavar="RULE", show_default=False, help="Id or name of the rule.")],
) -> None:
    """Explain one rule: when it is raised, why it matters, what to do, what input it needs, and its sources.

    \b
    Examples:
      kraft-audit explain KP001
      kraft-audit explain last-replica-standing
    """
    from kraft_audit.findings import rule_pages
    from kraft_audit.rules import registry

    registered_rule = registry.rules()[rule_id(rule)]
    out = Output()
    for line in rule_pages.explanation(registered_rule, width=min(rule_pages.WIDTH, out.room or rule_pages.WIDTH)):
        out.text(line)
