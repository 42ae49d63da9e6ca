"""`rules`: every rule that check applies."""

from __future__ import annotations

from typing import Final

from kraft_audit.commands.arguments import OutputFormat
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, Output, table_columns

COLUMNS: Final = table_columns("rule name severity raised_when", {"raised_when": "raised when"}, wide="raised_when")


@prints_tables
def rules(output: OutputFormat = Format.TABLE) -> None:
    """List every rule that `check` applies.

    \b
    Examples:
      kraft-audit rules
      kraft-audit rules --output json
    """
    from kraft_audit.findings.rule_pages import rule_rows

    rows = rule_rows()
    Output(output).rows(rows, COLUMNS, rows[0])
