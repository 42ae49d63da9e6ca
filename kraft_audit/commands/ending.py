"""How a command ends: the error of wrong arguments, and lines on stderr."""

from __future__ import annotations

import sys

from kraft_audit.text.output import neutral


class UsageError(Exception):
    """Arguments that cannot be: one line, exit code 2."""


def complain(text: str) -> None:
    """One line on stderr, harmless whatever it quotes."""
    sys.stderr.write(f"kraft-audit: {neutral(text)}\n")
    sys.stderr.flush()


def remark(text: str) -> None:
    """A line for people beside the results: on stderr, so that results stay what they are."""
    sys.stderr.write(f"{neutral(text)}\n")
