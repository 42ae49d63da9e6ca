"""How a command ends: the error of wrong arguments, and lines on stderr."""

from __future__ import annotations

import sys

from kraft_audit.text.output import Output


class UsageError(Exception):
    """Arguments that cannot be: one line, exit code 2."""


def complain(text: str) -> None:
    """One line on stderr, harmless whatever it quotes."""
    Output(stream=sys.stderr).text(f"kraft-audit: {text}", hanging=2)
    sys.stderr.flush()


def remark(text: str) -> None:
    """A line for people beside the results: on stderr, so that results stay what they are."""
    Output(stream=sys.stderr).text(text, hanging=2)
