"""The help of a command, in lines of the terminal's width."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand

from kraft_audit.text.wrapping import ends_with_command, wrapped

UNBROKEN_HYPHEN: Final = "\u2011"
"""Stands for a hyphen while Typer breaks lines: it would break `kafka-dump-log` there."""


class CommandWithHelp(TyperCommand):
    """A command whose help cuts no word, and breaks an example so that a shell still takes it."""

    def get_help(self, ctx: Any) -> str:
        """The help as Typer lays it out: it leaves examples as long as they are."""
        formatter = ctx.make_formatter()
        write_text, write_rows = formatter.write_text, formatter.write_dl
        formatter.write_text = lambda text: write_text(text.replace("-", UNBROKEN_HYPHEN))
        formatter.write_dl = lambda rows, *rest, **named: write_rows(
            [(name, text.replace("-", UNBROKEN_HYPHEN)) for name, text in rows], *rest, **named
        )
        self.format_help(ctx, formatter)
        lines = formatter.getvalue().rstrip("\n").replace(UNBROKEN_HYPHEN, "-").split("\n")
        return "\n".join(part for line in lines for part in wrapped(line, formatter.width, _example_indent(line)))


def _example_indent(line: str) -> int | None:
    """Where an example that is broken begins: below the others. None for any other line."""
    return len(line) - len(line.lstrip()) if ends_with_command(line) else None
