"""`rules`: the rules that `check` applies, or what one of them finds and means."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraft_audit.commands.arguments import OutputFormat, rule_id
from kraft_audit.commands.completion import rule_ids
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, Output, table_columns

COLUMNS: Final = table_columns("rule name severity raised_when", {"raised_when": "raised when"}, wide="raised_when")


@prints_tables
def rules(
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="[RULE]", show_default=False, help="Id or name of the rule to explain.", autocompletion=rule_ids
        ),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """List every rule that `check` applies, or explain one rule.

    With RULE, say when it is raised, why it matters, what to do, and which sources it rests on.

    \b
    Examples:
      kraft-audit rules
      kraft-audit rules KP001
      kraft-audit rules last-replica-standing
      kraft-audit rules --output json
    """
    from kraft_audit.findings import rule_pages
    from kraft_audit.rules import registry

    out = Output(output)
    if rule is None:
        rows = rule_pages.rule_rows()
        out.rows(rows, COLUMNS, rows[0])
        return
    if output is not Format.TABLE:
        raise UsageError("--output: a rule is explained as text: leave out --output, or RULE")
    registered_rule = registry.rules()[rule_id(rule)]
    for line in rule_pages.explanation(registered_rule, width=min(rule_pages.WIDTH, out.room or rule_pages.WIDTH)):
        out.text(line)
